#!/usr/bin/env bash
# B84: two jobs that start at once on one host train as if each were alone.
# Usage: two_jobs.sh WEFT MPIEXEC
set -euo pipefail

weft=$1
mpiexec=$2
helpers=$(cd "$(dirname "$0")/../../scripts" && pwd)/two_hosts.py
# Variables instead of options: other launchers ignore them. Ranks that wait do not yield the core: on a
# busy machine that would cost a turn of all others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=0
steps=5
work=$(mktemp -d "${TMPDIR:-/tmp}/two_jobs.XXXXXX")
jobs=()

clean_up() {
  trap - EXIT
  set +e  # what is gone already is no reason to leave the rest
  for job in "${jobs[@]}"; do kill "$job" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 143' INT TERM

fail() {
  echo "two_jobs: FAIL: $*"
  tail -n 20 "$work"/log-* || true
  exit 1
}

python3 "$helpers" text "$work/text.txt" 1
cat >"$work/job.toml" <<END
[model]
family = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
[data]
train = ["$work/text.txt"]
tokenizer = "bytes"
seq_len = 16
[train]
steps = $steps
micro_batch = 2
accumulation = 1
[optimizer]
lr = 1e-3
[schedule]
name = "constant"
[parallel]
data = 2
[device]
threads = 1
[checkpoint]
every_minutes = 0
[monitor]
tensorboard = false
END

recorded() { [ "0$(grep -sc '"type":"step"' "$work/run-$1/metrics.jsonl")" -ge $steps ]; }

# The jobs go on until both have trained at the same time.
for seed in 1 2; do
  timeout -k 5 120 "$mpiexec" -n 2 "$weft" train "$work/job.toml" --out "$work/run-$seed" \
    --set seed=$seed --set train.steps=1000000 >"$work/log-$seed" 2>&1 &
  jobs+=($!)
done
until recorded 1 && recorded 2; do
  for job in "${jobs[@]}"; do kill -0 "$job" 2>/dev/null || fail "a job ended early"; done
  sleep 0.05
done
for job in "${jobs[@]}"; do kill -0 "$job" 2>/dev/null || fail "a job ended early"; done
for job in "${jobs[@]}"; do
  kill "$job"
  wait "$job" || true
done
jobs=()

for seed in 1 2; do
  "$weft" train "$work/job.toml" --out "$work/threads-$seed" --set seed=$seed \
    >"$work/log-threads-$seed" 2>&1 || fail "the run on threads"
  python3 "$helpers" same "$work/threads-$seed/metrics.jsonl" "$work/run-$seed/metrics.jsonl" ||
    fail "job $seed is not what it is alone"
done
! cmp -s <(grep -o '"loss":[^,]*' "$work/threads-1/metrics.jsonl") \
  <(grep -o '"loss":[^,]*' "$work/threads-2/metrics.jsonl") || fail "both jobs train the same"
echo "two_jobs: PASS"
