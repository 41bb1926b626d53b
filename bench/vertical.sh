#!/usr/bin/env bash
# Horizontal against vertical order of micro-batches with the weights on NVMe: little compute per micro-batch,
# so that the traffic of weights sets the pace. In turns; then "auto", which must take the faster one.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
folder=
steps=4
rounds=2
accumulation=4
seq_len=64

usage() {
  echo "usage: bench/vertical.sh [--weft PROGRAM] [--folder NVME_FOLDER] [--steps N] [--rounds N]" \
    "[--accumulation N] [--seq-len N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --folder) folder=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --accumulation) accumulation=$2 ;;
    --seq-len) seq_len=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "vertical: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work/nvme}
mkdir -p "$folder"
seq 1 400000 >"$work/text.txt"

# run NAME ORDER
run() {
  echo "== $1" >&2
  "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/$1" \
    --set "data.train=[\"$work/text.txt\"]" --set "memory.nvme=[\"$folder\"]" \
    --set 'model.tie_word_embeddings=false' --set model.vocab_size=512 \
    --set 'offload.weights="nvme"' --set 'offload.late_update="off"' \
    --set "train.steps=$((steps + 1))" --set train.micro_batch=1 --set "data.seq_len=$seq_len" \
    --set "train.accumulation=$accumulation" --set "train.microbatch_order=\"$2\"" \
    >"$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
}
for round in $(seq 1 "$rounds"); do
  run "horizontal-$round" horizontal
  run "vertical-$round" vertical
done
run auto-1 auto

PYTHONPATH=$repo/bench python3 -B - "$work" "$rounds" <<'PY'
import json, pathlib, statistics, sys
from records import median, records

work, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("order        step ms  planned ms  io exposed ms   MB read  MB written")
step = {}
for order in ("horizontal", "vertical", "auto"):
    runs = [work / f"{order}-{r}" for r in range(1, rounds + 1 if order != "auto" else 2)]
    middle = lambda key: statistics.median(median(run, key) for run in runs)
    planned = json.loads((runs[0] / "plan.json").read_text())["time"]["step_ms"]
    step[order] = middle("step_ms")
    print(f"{order:10} {step[order]:9.0f} {planned:11.0f} {middle('io_exposed_ms'):14.0f}"
          f" {middle('nvme_read_bytes') / 1e6:9.0f} {middle('nvme_write_bytes') / 1e6:11.0f}")
for line in (work / "auto-1/plan.txt").read_text().splitlines():
    if "micro-batches in" in line:
        print(line.strip())
print(f"vertical / horizontal: {step['vertical'] / step['horizontal']:.3f}")
if len({records(work / f"{order}-1")[-1]["loss"] for order in step}) != 1:
    sys.exit("vertical: the losses differ")
PY
