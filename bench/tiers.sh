#!/usr/bin/env bash
# What tiers cost: training steps of gpt2-124M with the optimizer states on the device, in host memory and on
# NVMe (much compute per step), in turns, then with little compute, where the disk sets the pace; there the rate of the
# step is held against fio reading and writing together. fio is optional (apt-get install fio).
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
folder=
steps=2
rounds=3
accumulation=4
micro_batch=4
seq_len=1024

usage() {
  echo "usage: bench/tiers.sh [--weft PROGRAM] [--folder NVME_FOLDER] [--steps N] [--rounds N]" \
    "[--accumulation N] [--micro-batch N] [--seq-len N]" >&2
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
    --micro-batch) micro_batch=$2 ;;
    --seq-len) seq_len=$2 ;;
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

# Ticks that a hypervisor kept from this machine: a virtual disk may cost processor time nobody here sees.
steal() { awk '$1 == "cpu" { print $9 }' /proc/stat; }

# run NAME SETTINGS...
run() {
  local name=$1
  shift
  echo "== $name"
  local before
  before=$(steal)
  "$weft" train "$repo/configs/bench-gpt2-124m.toml" --out "$work/$name" \
    --set "data.train=[\"$work/text.txt\"]" --set "memory.nvme=[\"$folder\"]" \
    --set "train.steps=$((steps + 1))" "$@" 2>&1 | grep '^step'
  echo $(($(steal) - before)) >"$work/$name/steal"
}
much=(--set "train.accumulation=$accumulation" --set "train.micro_batch=$micro_batch"
  --set "data.seq_len=$seq_len")
little=(--set train.micro_batch=1 --set data.seq_len=64)
for round in $(seq 1 "$rounds"); do
  run "device-$round" "${much[@]}"
  run "host-$round" "${much[@]}" --set 'offload.optimizer="host"'
  run "nvme-$round" "${much[@]}" --set 'offload.optimizer="nvme"'
done
run disk-bound "${little[@]}" --set 'offload.optimizer="nvme"'

if command -v fio >/dev/null; then
  # Huge pages for its buffers, as the arenas have: a disk may take small pages at a fifth of its rate.
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=mixed --directory="$folder" --size=2G --direct=1 \
    --ioengine=io_uring --registerfiles=1 --fixedbufs=1 --iomem_align=2m --bs=1M --iodepth=16 \
    --rw=readwrite --rwmixread=50 --time_based --runtime=8 --output-format=json >"$work/fio.json"
  rm -f "$folder"/mixed.*
fi

PYTHONPATH=$repo/bench python3 -B - "$work" "$rounds" <<'PY'
import json, os, pathlib, statistics, sys
from records import median, records

work, rounds = pathlib.Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1)
os.chdir(work)


def row(name, runs, ratios=()):
    middle = lambda key: statistics.median(median(run, key) for run in runs)
    ratio = f"{statistics.median(ratios):7.3f}" if ratios else "      -"
    ticks = os.sysconf("SC_CLK_TCK")
    steal = statistics.median(int(pathlib.Path(run, "steal").read_text()) / ticks / len(records(run)) for run in runs)
    print(f"{name:16} {middle('step_ms'):9.0f} {ratio} {steal:9.2f} {middle('copy_exposed_ms'):13.0f}"
          f" {middle('io_exposed_ms'):11.0f} {middle('nvme_read_bytes') / 1e9:9.2f}"
          f" {middle('nvme_write_bytes') / 1e9:12.2f}   {' '.join(f'{r:.3f}' for r in ratios)}")


plan = json.loads((work / "nvme-1/plan.json").read_text())["time"]
print(f"\nplan with nvme: step {plan['step_ms']:.0f} ms, compute {plan['compute_ms']:.0f} ms")
print("optimizer states  step ms   ratio   steal s  copy exposed  io exposed   GB read   GB written   ratio of each round")
for name in ("device", "host", "nvme"):
    runs = [f"{name}-{r}" for r in rounds]
    row(name, runs, [median(run, "step_ms") / median(f"device-{r}", "step_ms") for r, run in zip(rounds, runs)])
row("disk-bound", ["disk-bound"])
if len({records(f"{name}-1")[-1]["loss"] for name in ("device", "host", "nvme")}) != 1:
    sys.exit("tiers: the losses differ")
rate = statistics.median((r["nvme_read_bytes"] + r["nvme_write_bytes"]) / r["step_ms"] / 1e6
                         for r in records("disk-bound"))
print(f"\ndisk-bound step: {rate:.2f} GB/s read and written")
if (work / "fio.json").exists():
    job = json.loads((work / "fio.json").read_text())["jobs"][0]
    fio = (job["read"]["bw_bytes"] + job["write"]["bw_bytes"]) / 1e9
    print(f"fio, 1 MiB blocks, depth 16, half reads: {fio:.2f} GB/s; ratio {rate / fio:.2f}")
PY
