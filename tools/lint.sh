#!/usr/bin/env bash
# Rules that neither the compiler nor clang-format knows, then cppcheck. --quick skips cppcheck.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
# refuse RULE LINES: prints what breaks a rule.
refuse() {
  [ -z "$2" ] && return
  echo "lint: $1" >&2
  sed 's/^/  /' <<<"$2" >&2
  bad=1
}
# search PATTERN GREP_ARGS...: matching lines, none is no error.
search() { grep -rnE "$@" || true; }

sources=(--include=*.h --include=*.cpp --include=*.def)
tests='(_test\.cpp|_test_util\.h|/test_[a-z_]*\.h):'

refuse "which operator a node is may be asked only in ops, model, autodiff, optim, backend, fuse_*.cpp and tests" \
  "$(search 'OpKind::' "${sources[@]}" weft |
    grep -vE '^weft/(ops|model|autodiff|optim|backend)/|/fuse_[a-z_]*\.cpp:|add(_node)?\(OpKind::' | grep -vE "$tests" || true)"
# A communicator's abort() ends the run of the other ranks, by errors.
refuse "library code throws, it never ends the process (a second signal may)" \
  "$(search '\b(abort|exit|_exit|_Exit|quick_exit|terminate)\(' "${sources[@]}" weft |
    grep -vE '^weft/train/signals\.cpp:|^weft/comm/.*\babort\(|(\.|->)abort\(|:[0-9]+: *//' |
    grep -vE "$tests" || true)"
refuse "unfinished work belongs into the issue list" \
  "$(search '\b(TODO|FIXME|XXX)\b' "${sources[@]}" --include=*.md --include=CMakeLists.txt weft tests docs cmake)"
refuse "paths of one machine" \
  "$(search '(^|[^a-zA-Z0-9_.])/(home|work|root)/' "${sources[@]}" --include=*.md --include=*.toml \
    weft tests docs configs bench cmake)"
refuse "heavy headers stay in their one source" \
  "$(search '#include <(nlohmann|toml\+\+|CLI|spdlog)/' "${sources[@]}" weft tests |
    grep -vE '^weft/(base/json|base/log|config/parse|cli/cli_parse)\.cpp:' || true)"
refuse "headers begin with #pragma once (hwy targets include some twice)" \
  "$(grep -rLE '^#pragma once|^// clang-format off|HWY_TARGET_TOGGLE|HWY_' --include=*.h weft tests || true)"
refuse "no using namespace in headers" "$(search '^\s*using namespace' --include=*.h weft)"
refuse "tests never sleep" \
  "$(search '\b(sleep_for|sleep_until|usleep|nanosleep)\(' --include=*_test.cpp weft tests)"
refuse "white space at the end of a line" \
  "$(search '[[:blank:]]+$' "${sources[@]}" --include=*.py --include=*.sh --include=*.txt \
    --include=*.cmake weft cmake tools scripts docs | grep -v '/golden/' || true)"
refuse "files above 900 lines are split" \
  "$(find weft tests bench tools \( -name '*.h' -o -name '*.cpp' -o -name '*.py' \) -exec wc -l {} + |
    awk '$2 != "total" && $1 > 900')"
for script in $(git ls-files -co --exclude-standard '*.sh' .ci/run); do
  bash -n "$script" || bad=1
done
python3 tools/check_layers.py || bad=1

if [ "${1:-}" != --quick ]; then
  cppcheck --quiet --std=c++20 --language=c++ -j "$(nproc)" -I . --error-exitcode=1 \
    --enable=warning --inline-suppr --suppressions-list=tools/cppcheck.txt \
    --library=googletest weft || bad=1
fi
[ $bad -eq 0 ] && echo "lint: clean"
exit $bad
