#!/usr/bin/env python3
"""Line coverage per folder of weft/ after the tests ran in a build with WEFT_COVERAGE."""

import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-coverage").resolve()
    notes = sorted(str(path) for path in build.rglob("*.gcda"))
    if not notes:
        sys.exit(f"coverage: no .gcda files in {build}; try make coverage")
    lines = collections.defaultdict(dict)  # file -> line -> hits
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["gcov", "--json-format", "--preserve-paths", *notes], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for report in pathlib.Path(folder).glob("*.gcov.json.gz"):
            for entry in json.loads(gzip.decompress(report.read_bytes()))["files"]:
                path = pathlib.Path(entry["file"])
                if not path.is_relative_to(ROOT / "weft") or path.name.endswith("_test.cpp"):
                    continue
                hits = lines[path.relative_to(ROOT / "weft").as_posix()]
                for line in entry["lines"]:
                    number = line["line_number"]
                    hits[number] = hits.get(number, 0) + line["count"]
    folders = collections.defaultdict(lambda: [0, 0])
    for name, hits in lines.items():
        for key in (name.split("/")[0], "all"):
            folders[key][0] += sum(count > 0 for count in hits.values())
            folders[key][1] += len(hits)
    for name, (covered, total) in sorted(folders.items(), key=lambda item: (item[0] == "all", item[0])):
        print(f"{name:<12} {covered:>6} of {total:>6} lines  {100 * covered / max(total, 1):5.1f} %")


if __name__ == "__main__":
    main()
