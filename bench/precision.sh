#!/usr/bin/env bash
# The loss that fp32, bf16 and fp16 reach: the model and text of the quickstart on one rank, once per seed and
# precision. Prints the held-out loss, the skipped steps and the last loss scale of every run, then the mean per
# precision beside the spread of fp32 over the seeds.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
data=$repo/build/quickstart-data
seeds="1 2"
steps=400

usage() {
  echo "usage: bench/precision.sh [--weft PROGRAM] [--data FOLDER_WITH_TRAIN_AND_VALID] [--seeds \"1 2\"] [--steps N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --data) data=$2 ;;
    --seeds) seeds=$2 ;;
    --steps) steps=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "precision: $weft is not there; run make build" >&2; exit 2; }
[ -d "$data/train" ] || { echo "precision: $data/train is not there; run make quickstart once" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for seed in $seeds; do
  for precision in fp32 bf16 fp16; do
    echo "== seed $seed $precision" >&2
    "$weft" train "$repo/configs/quickstart.toml" --out "$work/$precision-$seed" --set "seed=$seed" \
      --set "precision.compute=\"$precision\"" --set "train.steps=$steps" \
      --set "data.train=[\"$data/train/*.txt\"]" --set "data.valid=[\"$data/valid/*.txt\"]" \
      --set parallel.data=1 --set parallel.op=1 --set parallel.expert=1 --set parallel.sequence=false \
      --set parallel.zero=0 --set train.micro_batch=16 --set 'memory.device="auto"' \
      --set 'memory.host="auto"' --set 'memory.nvme=[]' --set train.log_every=1 \
      --set checkpoint.every_steps=0 >"$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
  done
done

python3 - "$work" $seeds <<'PY'
import json, pathlib, statistics, sys

work, seeds = pathlib.Path(sys.argv[1]), sys.argv[2:]
print("precision  seed  held-out loss  loss of the last 50 steps  skipped  loss scale")
reached = {}
for precision in ("fp32", "bf16", "fp16"):
    for seed in seeds:
        lines = (work / f"{precision}-{seed}/metrics.jsonl").read_text().splitlines()
        lines = list(map(json.loads, lines))
        steps = [r for r in lines if r["type"] == "step"]
        held_out = [r for r in lines if r["type"] == "eval"][-1]["loss"]
        reached.setdefault(precision, []).append(held_out)
        print(f"{precision:9}  {seed:>4}  {held_out:13.4f}  {statistics.mean(r['loss'] for r in steps[-50:]):25.4f}"
              f"  {sum(r['skipped'] for r in steps):7}  {steps[-1]['loss_scale']:10g}", flush=True)
means = {name: statistics.mean(values) for name, values in reached.items()}
print("mean: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
print(f"fp32 over seeds: {max(reached['fp32']) - min(reached['fp32']):.4f}; per seed against fp32: " + ", ".join(
    f"{name} " + " ".join(f"{a - b:+.4f}" for a, b in zip(reached[name], reached["fp32"]))
    for name in ("bf16", "fp16")))
PY
