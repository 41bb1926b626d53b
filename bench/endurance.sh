#!/usr/bin/env bash
# A long run with the optimizer states on NVMe: does anything grow? Steps of a small llama on real text; while
# it runs, resident memory, open files and bytes on the disk are noted. Fails when the median step of the last
# 500 steps is more than 10 % above that of steps 100 to 600, or when something grew (one file more may be a save).
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$repo/build/weft
folder=
text=
steps=3000

usage() {
  echo "usage: bench/endurance.sh --text FILE [--weft PROGRAM] [--folder NVME_FOLDER] [--steps N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --text) text=$2 ;;
    --weft) weft=$2 ;;
    --folder) folder=$2 ;;
    --steps) steps=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$text" ] && [ "$steps" -ge 1200 ] || usage
[ -x "$weft" ] || { echo "endurance: $weft is not there; run make build" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=${folder:-$work/nvme}
mkdir -p "$folder"
cat >"$work/config.toml" <<TOML
[model]
family = "llama"
hidden_size = 64
intermediate_size = 160
num_hidden_layers = 2
num_attention_heads = 4
[data]
train = ["$(realpath "$text")"]
valid_fraction = 0.02
tokenizer = "bytes"
seq_len = 32
[train]
steps = $steps
micro_batch = 4
eval_every = 1000
[optimizer]
lr = 1e-3
[schedule]
name = "constant"
[precision]
compute = "bf16"
[memory]
nvme = ["$folder"]
[offload]
optimizer = "nvme"
[checkpoint]
every_steps = 500
keep = 1
[monitor]
tensorboard = false
TOML

python3 -B - "$weft" "$work" "$folder" "$steps" <<'PY'
import json, os, pathlib, statistics, subprocess, sys, time

weft, work, folder, steps = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
run = work / "run"
log = (work / "log.txt").open("wb")
child = subprocess.Popen([weft, "train", work / "config.toml", "--out", run], stdout=log, stderr=log)


def look():
    """Steps done; MB resident; open files; MB on the disk of the cold tier."""
    try:
        lines = (run / "metrics.jsonl").read_bytes().count(b'"type":"step"')
        pages = int(pathlib.Path(f"/proc/{child.pid}/statm").read_text().split()[1])
        files = len(os.listdir(f"/proc/{child.pid}/fd"))
        disk = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))
    except OSError:
        return None
    return lines, pages * os.sysconf("SC_PAGESIZE") / 1e6, files, disk / 1e6


seen = []
while child.poll() is None:
    time.sleep(0.5)
    now = look()
    if now and now[0] >= 100:
        seen.append(now)
if child.returncode != 0:
    sys.exit(f"endurance: weft train ended with {child.returncode}\n{(work / 'log.txt').read_text()}")
records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
step = [r for r in records if r["type"] == "step"]
print("steps          step ms  MB resident  open files  MB on disk  NVMe GB read and written")
moved = lambda part: sum(r["nvme_read_bytes"] + r["nvme_write_bytes"] for r in part) / 1e9
spans = [(100, 600)] + [(b, b + 500) for b in range(600, steps - 500, 500)] + [(steps - 500, steps)]
table = []
for begin, end in spans:
    part = [r for r in step if begin < r["step"] <= end]
    at = [s for s in seen if begin <= s[0] < end] or [seen[-1]]
    row = [statistics.median(r["step_ms"] for r in part)] + [max(s[i] for s in at) for i in (1, 2, 3)]
    table.append(row)
    print(f"{begin:5} to {end:5} {row[0]:8.2f} {row[1]:12.1f} {row[2]:11} {row[3]:11.2f} {moved(part):12.2f}")
first, last = table[0], table[-1]
print(f"last 500 / steps 100 to 600: {last[0] / first[0]:.3f}; loss {step[0]['loss']:.3f} -> "
      f"{statistics.mean(r['loss'] for r in step[-100:]):.3f}")
grew = last[1] > 1.02 * first[1] + 1 or last[2] > first[2] + 1 or last[3] > first[3]
if grew or last[0] > 1.1 * first[0]:
    sys.exit("endurance: the run does not stay as it began")
PY
