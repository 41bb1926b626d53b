#!/usr/bin/env bash
# Training step of gpt2-124M: weft and PyTorch one after the other on the same threads; prints rates and
# ratios. bench/peers/README.md tells how to make the Python environment.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
python=$repo/build/venv/bin/python
threads=$(nproc)
dtypes=(fp32 bf16)
steps=3

usage() {
  echo "usage: bench/compare.sh [--weft PROGRAM] [--python PYTHON] [--threads N]" \
    "[--dtype fp32|bf16|both] [--steps N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --python) python=$2 ;;
    --threads) threads=$2 ;;
    --dtype) if [ "$2" = both ]; then dtypes=(fp32 bf16); else dtypes=("$2"); fi ;;
    --steps) steps=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "compare: $weft is not there; run make build" >&2; exit 2; }
"$python" -c 'import torch' 2>/dev/null || {
  echo "compare: $python has no torch; see bench/peers/README.md" >&2
  exit 2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 200000 >"$work/text.txt"

for dtype in "${dtypes[@]}"; do
  echo "== gpt2-124M $dtype, $threads threads, micro-batch 4, sequence 1024: weft"
  "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/run-$dtype" \
    --set "data.train=[\"$work/text.txt\"]" --set "precision.compute=\"$dtype\"" \
    --set "device.threads=$threads" --set "train.steps=$((steps + 1))"
  echo "== the same in PyTorch"
  "$python" "$repo/bench/peers/torch_gpt2.py" --dtype "$dtype" --threads "$threads" \
    --steps "$steps" | tee "$work/peer-$dtype.txt"
done

python3 - "$work" "${dtypes[@]}" <<'PY'
import json, pathlib, statistics, sys

work, dtypes = pathlib.Path(sys.argv[1]), sys.argv[2:]
weft, peer = {}, {}
for dtype in dtypes:
    records = map(json.loads, (work / f"run-{dtype}/metrics.jsonl").read_text().splitlines())
    steps = {r["step"]: r["tokens_per_s"] for r in records if r["type"] == "step"}
    weft[dtype] = statistics.median(rate for step, rate in steps.items() if step > 1)
    peer[dtype] = json.loads((work / f"peer-{dtype}.txt").read_text().splitlines()[-1])["tokens_per_s"]
print("\ntokens/s      weft   PyTorch     ratio")
for dtype in dtypes:
    print(f"{dtype:8} {weft[dtype]:9.1f} {peer[dtype]:9.1f} {weft[dtype] / peer[dtype]:9.2f}")
if len(dtypes) > 1:
    best = max(weft.values()) / max(peer.values())
    print(f"{'best':8} {max(weft.values()):9.1f} {max(peer.values()):9.1f} {best:9.2f}")
PY
