#!/bin/sh
# Rewrites the golden plans from the current sources. A changed plan is a changed behaviour, so the
# script wants the reason, for the commit message: tests/golden/update.sh "arena: better fit".
set -eu
if [ $# -ne 1 ] || [ -z "$1" ]; then
  echo "usage: tests/golden/update.sh REASON" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${WEFT_BUILD_DIR:-$root/build}
cmake --build "$build" --target weft_plan_golden_test
program=$(find "$build" -name weft_plan_golden_test -type f | head -n 1)
WEFT_UPDATE_GOLDEN=1 "$program" --gtest_filter='GoldenPlans.*'
git -C "$root" --no-pager diff --stat -- tests/golden/plans
echo "commit with: Golden plans: $1"
