#!/usr/bin/env bash
# What recompute costs and saves: steps of gpt2-124M at sequence 1024 without, with selective and with full
# recompute, in turns. Per policy the median step, its ratio to "none" of the same round, the ratio that the
# plan predicts, and the device peak. Fails when the losses differ.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
steps=2
rounds=3
micro_batch=1
threads=$(nproc)

usage() {
  echo "usage: bench/recompute.sh [--weft PROGRAM] [--steps N] [--rounds N] [--micro-batch N]" \
    "[--threads N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --micro-batch) micro_batch=$2 ;;
    --threads) threads=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "recompute: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 400000 >"$work/text.txt"
policies="none selective full"
for round in $(seq 1 "$rounds"); do
  for policy in $policies; do
    echo "== round $round $policy" >&2
    "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/$policy-$round" \
      --set "data.train=[\"$work/text.txt\"]" --set "train.steps=$((steps + 1))" \
      --set "train.micro_batch=$micro_batch" --set "device.threads=$threads" \
      --set "recompute.policy=\"$policy\"" >"$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
  done
done

PYTHONPATH=$repo/bench python3 -B - "$work" "$rounds" $policies <<'PY'
import json, pathlib, statistics, sys
from records import median, records

work, rounds, policies = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def plan(policy):
    return json.loads((work / f"{policy}-1/plan.json").read_text())


def peak(policy):
    return plan(policy)["ranks"][0]["device"]["peak_bytes"]


base = plan("none")["time"]["step_ms"]
losses = {r["loss"] for r in records(work / "none-1")}
print("policy      step ms  ratio of each round   measured  planned  planned/measured   device peak")
same = True
for policy in policies:
    runs = [work / f"{policy}-{r}" for r in range(1, rounds + 1)]
    times = [median(run, "step_ms") for run in runs]
    ratios = [time / median(work / f"none-{i + 1}", "step_ms") for i, time in enumerate(times)]
    measured = statistics.median(ratios)
    planned = plan(policy)["time"]["step_ms"] / base
    same &= all({r["loss"] for r in records(run)} == losses for run in runs)
    print(f"{policy:10} {statistics.median(times):8.0f}  {' '.join(f'{r:.3f}' for r in ratios):20}  {measured:8.3f}"
          f" {planned:8.3f} {planned / measured:17.3f} {peak(policy):13,}")
if not same:
    sys.exit("recompute: the losses differ")
PY
