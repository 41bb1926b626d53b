#!/usr/bin/env bash
# Forward and backward of one layer of experts: PyTorch's loop over experts and weft in turns, the
# best of each; last lines: weft / PyTorch.
#   bench/experts.sh --python build/venv/bin/python --threads 2 [--rounds 2]
set -euo pipefail
cd "$(dirname "$0")/.."

python=python3 threads=2 rounds=2
while [ $# -gt 0 ]; do
  case "$1" in
    --python) python=$2 ;;
    --threads) threads=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "[experts] got $1, expected --python, --threads or --rounds" >&2; exit 2 ;;
  esac
  shift 2
done
records=$(mktemp)
trap 'rm -f "$records"' EXIT
for _ in $(seq "$rounds"); do
  for dtype in fp32 bf16; do
    "$python" bench/peers/torch_moe.py --threads "$threads" --dtype "$dtype" | tail -1 | tee -a "$records"
  done
  build/bench/bench_experts "$threads" layer | tee -a "$records"
done
python3 - "$records" <<'PY'
import json, sys
best = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    key = (r["what"].split()[0], r["dtype"])
    best[key] = max(best.get(key, 0), r["tokens_per_s"])
for dtype in ("fp32", "bf16"):
    print(f"{dtype}: weft {best['weft', dtype]} tokens/s, torch {best['torch', dtype]}, "
          f"ratio {best['weft', dtype] / best['torch', dtype]:.2f}")
top = [max(best[who, d] for d in ("fp32", "bf16")) for who in ("weft", "torch")]
print(f"best precision of each: ratio {top[0] / top[1]:.2f}")
PY
