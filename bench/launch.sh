#!/usr/bin/env bash
# Time from launching `weft train` on gpt2-124M to the begin of its first step (weights drawn, data
# indexed, plan made, memory there), median of several launches. Fails above --bound seconds.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
threads=$(nproc)
dtypes=fp32,bf16
batch=4
runs=5
bound=2.0

usage() {
  echo "usage: bench/launch.sh [--weft PROGRAM] [--threads N] [--dtypes fp32,bf16]" \
    "[--micro-batch N] [--runs N] [--bound SECONDS]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --weft) weft=$2 ;;
    --threads) threads=$2 ;;
    --dtypes) dtypes=$2 ;;
    --micro-batch) batch=$2 ;;
    --runs) runs=$2 ;;
    --bound) bound=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$weft" ] || { echo "launch: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 1 200000 >"$work/text.txt"

python3 - "$weft" "$repo/configs/bench-gpt2-124m.toml" "$work" "$threads" "$dtypes" "$batch" "$runs" \
  "$bound" <<'PY'
import datetime, json, pathlib, shutil, statistics, subprocess, sys, time

weft, config, work, threads, dtypes, batch, runs, bound = sys.argv[1:]
work = pathlib.Path(work)


def launch(dtype):
    """Returns the seconds until the first step began, and the seconds that it took."""
    run = work / "run"
    command = [weft, "train", config, "--out", run, "--set", f'data.train=["{work}/text.txt"]',
               "--set", f'precision.compute="{dtype}"', "--set", f"train.micro_batch={batch}",
               "--set", "train.steps=1", "--set", f"device.threads={threads}"]
    start = time.time()
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"launch: weft train ended with status {result.returncode}:\n{result.stdout}")
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    step_s = next(r["step_ms"] for r in records if r["type"] == "step") / 1e3
    line = next(l for l in (run / "log.txt").read_text().splitlines() if " step 1/1 " in l)
    ended = datetime.datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f").timestamp()
    shutil.rmtree(run)
    return ended - step_s - start, step_s


print(f"gpt2-124M, sequence 1024, micro-batch {batch}, {threads} threads, {runs} launches; seconds\n")
print("compute  first step begins   least    most   that step takes")
slow = False
for dtype in dtypes.split(","):
    begins, steps = zip(*(launch(dtype) for _ in range(int(runs))))
    median = statistics.median(begins)
    slow |= median > float(bound)
    print(f"{dtype:7} {median:18.2f} {min(begins):7.2f} {max(begins):7.2f} "
          f"{statistics.median(steps):17.2f}", flush=True)
if slow:
    sys.exit(f"launch: the first step begins later than {bound} s after the launch")
PY
