#!/usr/bin/env bash
# The cold tier against fio: the same folder, file size, block, depth and seconds, in turns within one
# run; medians of the rounds and their ratio. Needs fio (apt-get install fio), which nothing else does.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
program=$repo/build/bench/bench_cold
folder=$PWD
mib=1024
block=1048576
depth=16
seconds=4
rounds=3

usage() {
  echo "usage: bench/cold.sh [--program bench_cold] [--folder F] [--mib N] [--block BYTES]" \
    "[--depth N] [--seconds S] [--rounds N]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --program) program=$2 ;;
    --folder) folder=$2 ;;
    --mib) mib=$2 ;;
    --block) block=$2 ;;
    --depth) depth=$2 ;;
    --seconds) seconds=$2 ;;
    --rounds) rounds=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$program" ] || { echo "cold: $program is not there; configure with -DWEFT_BENCH=ON" >&2; exit 2; }
command -v fio >/dev/null || { echo "cold: fio is not there; try: apt-get install fio" >&2; exit 2; }

python3 - "$program" "$folder" "$mib" "$block" "$depth" "$seconds" "$rounds" <<'PY'
import json, os, pathlib, statistics, subprocess, sys

program, folder = sys.argv[1:3]
mib, block, depth, seconds, rounds = map(int, sys.argv[3:])
# Huge pages for the buffers of fio too: a disk may take small pages at a fifth of its rate.
huge = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
path = pathlib.Path(folder) / "weft-bench-fio.bin"


def fio(mode):
    """MB/s read and written; a job per direction, as the tier has a lane per direction."""
    command = ["fio", "--output-format=json", f"--filename={path}", "--direct=1",
               "--ioengine=io_uring", "--registerfiles=1", "--fixedbufs=1", f"--bs={block}",
               f"--iodepth={depth}", "--iomem_align=2m", "--time_based", f"--runtime={seconds}",
               "--allow_file_create=0"]
    if mode == "mixed":
        command += ["--name=r", "--rw=read", f"--size={mib // 2}m", "--name=w", "--rw=write",
                    f"--size={mib // 2}m", f"--offset={mib // 2}m"]
    else:
        command += ["--name=a", f"--rw={mode}", f"--size={mib}m"]
    jobs = json.loads(subprocess.run(command, check=True, capture_output=True, env=huge).stdout)["jobs"]
    return tuple(sum(job[way]["bw_bytes"] for job in jobs) / 1e6 for way in ("read", "write"))


def weft(mode, checksum):
    command = [program, "--folder", folder, "--mib", mib, "--block", block, "--depth", depth,
               "--seconds", seconds, "--mode", mode, "--checksum", checksum]
    out = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    _, read, write = out.split()
    return float(read), float(write)


print(f"{folder}: {mib} MiB, block {block}, depth {depth}, {rounds} rounds of {seconds} s; MB/s\n")
print("| transfers | fio | weft | ratio | weft without checksums | ratio |")
print("| --- | --- | --- | --- | --- | --- |", flush=True)
try:
    subprocess.run(["fio", "--name=fill", f"--filename={path}", "--rw=write", "--bs=1m", "--direct=1",
                    "--ioengine=io_uring", "--iodepth=16", f"--size={mib}m"],
                   check=True, capture_output=True)
    for mode in ("read", "write", "mixed"):
        got = [(fio(mode), weft(mode, "on"), weft(mode, "off")) for _ in range(rounds)]
        # Read and write together count as one number: how a disk shares itself out varies.
        sums = [[sum(side) for side in turn] for turn in got]
        sides = [statistics.median(turn[i] for turn in sums) for i in range(3)]
        ratios = [statistics.median(turn[i] / turn[0] for turn in sums) for i in (1, 2)]
        print(f"| {'read and write' if mode == 'mixed' else mode} | {sides[0]:.0f} | {sides[1]:.0f} "
              f"| {ratios[0]:.2f} | {sides[2]:.0f} | {ratios[1]:.2f} |", flush=True)
finally:
    path.unlink(missing_ok=True)
PY
