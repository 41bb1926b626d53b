#!/usr/bin/env python3
"""Unpacks the six novels of Jane Austen from Debian's r-cran-janeaustenr into plain text.

    apt-get download r-cran-janeaustenr
    python3 tools/extract_corpus.py r-cran-janeaustenr_*.deb --out corpus

Writes corpus/train/TITLE.txt and corpus/valid/TITLE.txt: the last chapter of each novel is held out.
Needs the standard library and dpkg-deb only; fetches nothing; no R. The argument may also be a folder
into which the package was unpacked (dpkg -x).

The texts are stored as a "lazy-load" data base of R: Rdata.rdx is a gzipped serialisation of
{variables: {name: (offset, length)}}, Rdata.rdb holds the objects at these offsets, each a big-endian
u32 (size when unpacked) and a zlib stream with the serialisation of one character vector, one string
per line of the book.
"""

import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

DATA = "usr/lib/R/site-library/janeaustenr/data"
TITLES = {
    "emma": "emma",
    "mansfieldpark": "mansfield-park",
    "northangerabbey": "northanger-abbey",
    "persuasion": "persuasion",
    "prideprejudice": "pride-and-prejudice",
    "sensesensibility": "sense-and-sensibility",
}
CHAPTER = re.compile(r"^\s*chapter\s+([0-9]+|[ivxlc]+)\b", re.IGNORECASE)


class RReader:
    """The few types of R's XDR serialisation that the package uses."""

    def __init__(self, data):
        if data[:2] != b"X\n":
            raise ValueError("not an XDR serialisation of R")
        self.data, self.at, self.symbols = data, 2, []
        version = self.int()
        self.at += 8  # versions of the writer and of the oldest reader
        if version == 3:
            self.bytes(self.int())  # native encoding
        elif version != 2:
            raise ValueError(f"serialisation version {version}, expected 2 or 3")

    def bytes(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise ValueError("the serialisation ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def int(self):
        return struct.unpack(">i", self.bytes(4))[0]

    def item(self):
        flags = self.int()
        kind, has_attributes, has_tag = flags & 0xFF, flags & 0x200, flags & 0x400
        if kind in (0xFE, 0xF2, 0xFB):  # NULL, empty environment, missing argument
            return None
        if kind == 0xFF:  # a symbol seen before
            return self.symbols[(flags >> 8) - 1 if flags >> 8 else self.int() - 1]
        if kind == 1:  # symbol
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == 2:  # pair list
            pairs = {}
            while kind == 2:
                if has_attributes:
                    self.item()
                tag = self.item() if has_tag else str(len(pairs))
                pairs[tag] = self.item()
                flags = self.int()
                kind, has_attributes, has_tag = flags & 0xFF, flags & 0x200, flags & 0x400
            return pairs
        if kind == 9:  # one string
            length = self.int()
            return None if length == -1 else self.bytes(length).decode("utf-8")
        if kind in (10, 13):  # logical, integer
            count = self.int()
            value = list(struct.unpack(f">{count}i", self.bytes(4 * count)))
        elif kind == 14:  # double
            count = self.int()
            value = list(struct.unpack(f">{count}d", self.bytes(8 * count)))
        elif kind in (16, 19):  # strings, list
            value = [self.item() for _ in range(self.int())]
        else:
            raise ValueError(f"R type {kind} is not expected in this package")
        attributes = self.item() if has_attributes else {}
        return dict(zip(attributes["names"], value)) if "names" in attributes else value


def read_novels(folder):
    """{variable: [line, ...]} of the unpacked package."""
    index = RReader(zlib.decompress((folder / "Rdata.rdx").read_bytes(), 15 + 32)).item()
    blobs = (folder / "Rdata.rdb").read_bytes()
    novels = {}
    for name, (offset, length) in index["variables"].items():
        size = struct.unpack(">I", blobs[offset : offset + 4])[0]
        data = zlib.decompress(blobs[offset + 4 : offset + length])
        if len(data) != size:
            raise ValueError(f"{name}: {len(data)} bytes unpacked, expected {size}")
        novels[name] = RReader(data).item()
    return novels


def split_chapters(lines):
    """(everything before the last chapter, the last chapter)."""
    starts = [i for i, line in enumerate(lines) if CHAPTER.match(line)]
    if len(starts) < 2:
        raise ValueError("no chapter headings found")
    return lines[: starts[-1]], lines[starts[-1] :]


def write_text(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(line.rstrip() for line in lines).strip() + "\n"
    path.write_text(text, encoding="utf-8")
    return len(text.encode("utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=pathlib.Path, help=".deb file or unpacked folder")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        root = args.package
        if root.is_file():
            root = pathlib.Path(temp)
            subprocess.run(["dpkg-deb", "-x", str(args.package), temp], check=True)
        novels = read_novels(root / DATA)
    total = [0, 0]
    for variable, title in TITLES.items():
        for part, (kind, lines) in enumerate(
            zip(("train", "valid"), split_chapters(novels[variable]))
        ):
            total[part] += write_text(args.out / kind / f"{title}.txt", lines)
    print(f"{len(TITLES)} novels in {args.out}: {total[0]} bytes to train, {total[1]} held out")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        sys.exit(f"extract_corpus: {error}")
