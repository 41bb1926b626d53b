#!/usr/bin/env bash
# Formats all C++ sources; with --check only reports what is not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
find weft tests bench -name '*.h' -o -name '*.cpp' | sort |
  xargs clang-format "${mode[@]}" --style=file
