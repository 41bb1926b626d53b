#!/usr/bin/env bash
# DeepSpeed ZeRO-Infinity on its CPU accelerator beside weft: gpt2-124M, the optimizer states on one NVMe folder
# (with --weights the weights too), the same batch and threads, in turns. See bench/peers/README.md.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
python=python3
folder=
dtype=fp32
steps=2
rounds=2
seq_len=1024
accumulation=1
weights=0
threads=$(nproc)
limit=900

usage() {
  echo "usage: bench/infinity.sh --python PYTHON [--weft PROGRAM] [--folder NVME_FOLDER] [--dtype fp32|bf16]" \
    "[--steps N] [--rounds N] [--seq-len N] [--accumulation N] [--weights 0|1] [--threads N]" \
    "[--limit SECONDS]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --python) python=$2 ;;
    --folder) folder=$2 ;;
    --dtype) dtype=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --seq-len) seq_len=$2 ;;
    --accumulation) accumulation=$2 ;;
    --weights) weights=$2 ;;
    --threads) threads=$2 ;;
    --limit) limit=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "infinity: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work/nvme}
mkdir -p "$folder"
seq 1 400000 >"$work/text.txt"
away=()
theirs=()
if [ "$weights" = 1 ]; then
  away=(--set 'offload.weights="nvme"')
  theirs=(--weights)
fi
for round in $(seq 1 "$rounds"); do
  "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/weft-$round" \
    --set "data.train=[\"$work/text.txt\"]" --set "memory.nvme=[\"$folder\"]" \
    --set 'offload.optimizer="nvme"' --set "precision.compute=\"$dtype\"" \
    --set "train.steps=$((steps + 1))" --set train.micro_batch=1 --set "data.seq_len=$seq_len" \
    --set "train.accumulation=$accumulation" --set "device.threads=$threads" "${away[@]}" \
    2>&1 | grep '^step'
  DS_ACCELERATOR=cpu PATH=$(dirname "$python"):$PATH timeout "$limit" "$python" \
    "$repo/bench/peers/deepspeed_infinity.py" --folder "$folder" --dtype "$dtype" --steps "$steps" \
    --seq-len "$seq_len" --accumulation "$accumulation" --threads "$threads" "${theirs[@]}" \
    >"$work/peer-$round.txt" 2>"$work/peer-$round.err" ||
    { echo "infinity: the peer ended with $?"; tail -n 25 "$work/peer-$round.err"; }
  grep '^step' "$work/peer-$round.txt" || true
  rm -rf "$folder"/zero_stage_3
done

PYTHONPATH=$repo/bench python3 -B - "$work" "$rounds" "$dtype" <<'PY'
import json, pathlib, statistics, sys
from records import median

work, rounds, dtype = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ours = [median(work / f"weft-{r}", "tokens_per_s") for r in range(1, rounds + 1)]
theirs = []
for r in range(1, rounds + 1):
    lines = (work / f"peer-{r}.txt").read_text().splitlines()
    theirs += [json.loads(line)["tokens_per_s"] for line in lines if line.startswith("{")]
print(f"\n{dtype}: weft {statistics.median(ours):.1f} tokens/s", end="")
if theirs:
    middle = statistics.median(theirs)
    print(f", ZeRO-Infinity {middle:.1f} tokens/s, ratio {statistics.median(ours) / middle:.2f}")
else:
    print(", ZeRO-Infinity made no step")
PY
