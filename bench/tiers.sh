#!/usr/bin/env bash
# What tiers cost: training steps of gpt2-124M with the optimizer states on the device, in host memory and on
# NVMe (much compute per step), then with little compute, where the disk sets the pace; there the rate of the
# step is held against fio reading and writing together. fio is optional (apt-get install fio).
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
folder=
steps=4
accumulation=4

usage() {
  echo "usage: bench/tiers.sh [--weft PROGRAM] [--folder NVME_FOLDER] [--steps N] [--accumulation N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --folder) folder=$2 ;;
    --steps) steps=$2 ;;
    --accumulation) accumulation=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "tiers: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work/nvme}
mkdir -p "$folder"
seq 1 400000 >"$work/text.txt"

# run NAME SETTINGS...
run() {
  local name=$1
  shift
  echo "== $name"
  "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/$name" \
    --set "data.train=[\"$work/text.txt\"]" --set "memory.nvme=[\"$folder\"]" \
    --set "train.steps=$((steps + 1))" "$@" 2>&1 | grep '^step'
}
much=(--set "train.accumulation=$accumulation")
little=(--set train.micro_batch=1 --set data.seq_len=64)
run device "${much[@]}"
run host "${much[@]}" --set 'offload.optimizer="host"'
run nvme "${much[@]}" --set 'offload.optimizer="nvme"'
run device-again "${much[@]}"
run disk-bound "${little[@]}" --set 'offload.optimizer="nvme"'

if command -v fio >/dev/null; then
  fio --name=mixed --directory="$folder" --size=2G --direct=1 --ioengine=io_uring --bs=1M --iodepth=16 \
    --rw=readwrite --rwmixread=50 --time_based --runtime=8 --output-format=json >"$work/fio.json"
  rm -f "$folder"/mixed.*
fi

PYTHONPATH=$repo/bench python3 -B - "$work" <<'PY'
import json, os, pathlib, statistics, sys
from records import median, records

work = pathlib.Path(sys.argv[1])
os.chdir(work)

base = (median("device", "step_ms") + median("device-again", "step_ms")) / 2
print("\noptimizer states      step ms   ratio  copy exposed  io exposed   GB read   GB written")
for name in ("device", "host", "nvme", "device-again", "disk-bound"):
    ratio = f"{median(name, 'step_ms') / base:7.3f}" if name != "disk-bound" else "      -"
    print(f"{name:18} {median(name, 'step_ms'):10.0f} {ratio} {median(name, 'copy_exposed_ms'):13.0f}"
          f" {median(name, 'io_exposed_ms'):11.0f} {median(name, 'nvme_read_bytes') / 1e9:9.2f}"
          f" {median(name, 'nvme_write_bytes') / 1e9:12.2f}")
rate = statistics.median((r["nvme_read_bytes"] + r["nvme_write_bytes"]) / r["step_ms"] / 1e6
                         for r in records("disk-bound"))
print(f"\ndisk-bound step: {rate:.2f} GB/s read and written")
if (work / "fio.json").exists():
    job = json.loads((work / "fio.json").read_text())["jobs"][0]
    fio = (job["read"]["bw_bytes"] + job["write"]["bw_bytes"]) / 1e9
    print(f"fio, 1 MiB blocks, depth 16, half reads: {fio:.2f} GB/s; ratio {rate / fio:.2f}")
PY
