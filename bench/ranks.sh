#!/usr/bin/env bash
# Training step of gpt2-124M on one rank and one core, then on two ranks and two cores: data 2, and op 2 with
# a sequence-sharded residual stream. Prints rates, ratios and the communication that compute waited for.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
dtype=bf16
steps=3
micro_batch=4

usage() {
  echo "usage: bench/ranks.sh [--weft PROGRAM] [--dtype fp32|bf16] [--steps N] [--micro-batch N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --dtype) dtype=$2 ;;
    --steps) steps=$2 ;;
    --micro-batch) micro_batch=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "ranks: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 400000 >"$work/text.txt"

# run NAME CPUS SETTINGS...: the same sequences per step whatever the ranks.
run() {
  local name=$1 cpus=$2
  shift 2
  echo "== $name"
  taskset -c "$cpus" "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/$name" \
    --set "data.train=[\"$work/text.txt\"]" --set "precision.compute=\"$dtype\"" \
    --set device.threads=1 --set "train.steps=$((steps + 1))" "$@" 2>&1 | grep '^step'
}
run one 0 --set "train.micro_batch=$micro_batch"
run data2 0,1 --set parallel.data=2 --set "train.micro_batch=$((micro_batch / 2))"
run op2 0,1 --set parallel.op=2 --set parallel.sequence=true --set "train.micro_batch=$micro_batch"
run again 0 --set "train.micro_batch=$micro_batch"

PYTHONPATH=$repo/bench python3 -B - "$work" <<'PY'
import os, sys
from records import median

os.chdir(sys.argv[1])

base = (median("one", "tokens_per_s") + median("again", "tokens_per_s")) / 2
print("\nranks        tokens/s   ratio   comm ms   exposed ms   step ms")
for name in ("one", "data2", "op2", "again"):
    print(f"{name:10} {median(name, 'tokens_per_s'):10.1f} {median(name, 'tokens_per_s') / base:7.2f}"
          f" {median(name, 'comm_ms'):9.1f} {median(name, 'comm_exposed_ms'):12.1f}"
          f" {median(name, 'step_ms'):9.1f}")
PY
