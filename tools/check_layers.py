#!/usr/bin/env python3
"""Checks who includes whom under weft/.

The folders form layers in the order data passes through them. The compile half turns a
configuration into a Plan, the run half runs it; weft/plan/plan.h is the only bridge. Anything the
table below does not allow fails. Tests (*_test.cpp, tests/, bench/) may include everything.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

COMPILE = {
    "config": {"base"},
    "ir": {"base"},
    "ops": {"base", "ir"},
    "model": {"base", "config", "ir", "ops"},
    "autodiff": {"base", "ir", "ops"},
    "optim": {"base", "config", "ir", "ops"},
    "shard": {"base", "config", "ir", "ops"},
    "plan": {"base", "config", "ir", "ops", "shard"},
    "compile": {"base", "config", "ir", "ops", "model", "autodiff", "optim", "shard", "plan"},
}
RUN = {
    "backend": {"base", "ir", "ops"},
    "comm": {"base", "ir", "ops"},
    "io": {"base"},
    "runtime": {"base", "ir", "plan", "backend", "comm", "io"},
    "sim": {"base", "ir", "plan"},
    "data": {"base", "config", "io"},
    "checkpoint": {"base", "config", "ir", "io", "plan", "runtime", "comm"},
}
# The trainer joins the halves; the command line sees everything.
TOP = {
    "train": set(COMPILE) | set(RUN) | {"base"},
    "cli": set(COMPILE) | set(RUN) | {"base", "train"},
}
ALLOWED = {"base": set(), **COMPILE, **RUN, **TOP}

# Folders seen only through a few headers.
ONLY_HEADERS = {
    ("backend", "ops"): {"weft/ops/attrs.h", "weft/ops/op_kind.h", "weft/ops/op_list.def"},
    ("comm", "ops"): {"weft/ops/collective.h", "weft/ops/op_kind.h"},
    ("checkpoint", "plan"): {"weft/plan/plan.h"},
    ("runtime", "plan"): {"weft/plan/plan.h", "weft/plan/kernel_key.h"},
    ("sim", "plan"): {"weft/plan/plan.h", "weft/plan/kernel_key.h"},
}
# Folders whose subfolders are leaves: nobody outside a leaf includes its headers.
LEAF_PARENTS = {"backend", "comm"}

TEST_FILE = re.compile(r"_test\.cpp$|_test_util\.h$|^test_")
INCLUDE = re.compile(r'^\s*#\s*include\s+"(weft/[^"]+)"', re.MULTILINE)


def check_file(path, problems):
    relative = path.relative_to(ROOT).as_posix()
    parts = relative.split("/")
    folder = parts[1]
    is_test = TEST_FILE.search(path.name) is not None
    if folder not in ALLOWED:
        problems.append(f"{relative}: folder {folder} is not in the table of layers")
        return
    text = path.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        header = match.group(1)
        line = text.count("\n", 0, match.start(1)) + 1
        place = f"{relative}:{line}"
        target = header.split("/")
        if not (ROOT / header).is_file():
            problems.append(f"{place}: {header} does not exist")
            continue
        if is_test:
            continue
        other = target[1]
        if other != folder:
            if other not in ALLOWED[folder]:
                allowed = ", ".join(sorted(ALLOWED[folder])) or "nothing"
                problems.append(f"{place}: {folder} includes {header}, allowed are {allowed}")
                continue
            headers = ONLY_HEADERS.get((folder, other))
            if headers is not None and header not in headers:
                problems.append(
                    f"{place}: {folder} includes {header}, allowed are {', '.join(sorted(headers))}")
        if other in LEAF_PARENTS and len(target) > 3:
            inside = folder == other and len(parts) > 3 and parts[2] == target[2]
            if not inside:
                problems.append(f"{place}: {header} belongs to the leaf weft/{other}/{target[2]}")


def main():
    problems = []
    run_half = set(RUN) | set(TOP)
    for folder, allowed in COMPILE.items():
        for other in sorted(allowed & run_half):
            problems.append(f"table: {folder} is of the compile half and may not see {other}")
    count = 0
    for path in sorted((ROOT / "weft").rglob("*")):
        if path.suffix in {".h", ".cpp", ".def", ".cu"}:
            check_file(path, problems)
            count += 1
    for problem in problems:
        print(f"check_layers: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"check_layers: {count} files keep their layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
