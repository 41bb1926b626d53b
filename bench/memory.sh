#!/usr/bin/env bash
# Bytes that the plan of gpt2-124M announces against the peak resident memory of the process, over two
# steps at sequence 1024 and a background checkpoint. Fails when the device tier used other bytes than
# planned or the process more than --bound MB beyond the plan.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
threads=$(nproc)
dtypes=fp32,bf16
batches=1,4,8
bound=200

usage() {
  echo "usage: bench/memory.sh [--weft PROGRAM] [--threads N] [--dtypes fp32,bf16]" \
    "[--micro-batches 1,4,8] [--bound MB]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --threads) threads=$2 ;;
    --dtypes) dtypes=$2 ;;
    --micro-batches) batches=$2 ;;
    --bound) bound=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "memory: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 200000 >"$work/text.txt"

python3 - "$weft" "$repo/configs/bench-gpt2-124m.toml" "$work" "$threads" "$dtypes" "$batches" \
  "$bound" <<'PY'
import json, os, pathlib, shutil, subprocess, sys

weft, config, work, threads, dtypes, batches, bound = sys.argv[1:]
work = pathlib.Path(work)


def train(dtype, batch):
    """Returns the bytes of device and host planned, of the device used, and the peak RSS."""
    run, log = work / "run", work / "log.txt"
    sets = {"data.train": f'["{work}/text.txt"]', "precision.compute": f'"{dtype}"',
            "train.micro_batch": batch, "train.steps": 2, "device.threads": threads,
            "checkpoint.every_steps": 1, "checkpoint.keep": 1}
    command = [weft, "train", config, "--out", run]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out)
        _, status, usage = os.wait4(child.pid, 0)  # of this child alone, unlike getrusage
    if status != 0:
        sys.exit(f"memory: weft train ended with status {status}:\n{log.read_text()}")
    if not any((run / "checkpoints").iterdir()):
        sys.exit("memory: the run wrote no checkpoint, so the host bytes were not used")
    tiers = json.loads((run / "plan.json").read_text())["ranks"][0]
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    used = max(r["device_peak_bytes"] for r in records if r["type"] == "step")
    shutil.rmtree(run)
    return tiers["device"]["peak_bytes"], tiers["host"]["peak_bytes"], used, usage.ru_maxrss * 1024


print(f"gpt2-124M, sequence 1024, {threads} threads; bytes\n")
print("compute micro-batch  planned device          used  planned host      peak RSS  RSS - plan")
bad = False
for dtype in dtypes.split(","):
    for batch in batches.split(","):
        device, host, used, rss = train(dtype, batch)
        extra = (rss - device - host) / 1e6
        bad |= used != device or extra > float(bound)
        print(f"{dtype:7} {batch:>11} {device:15,} {used:13,} {host:13,} {rss:13,} {extra:8.1f} MB",
              flush=True)
if bad:
    sys.exit(f"memory: used is not what was planned, or RSS is more than {bound} MB above the plan")
PY
