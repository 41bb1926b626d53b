#!/usr/bin/env bash
# Trains on two hosts: two network namespaces joined by a wire (veth, MTU 9000), two ranks each, started by
# Open MPI as over ssh. Shows that
#   - losses are those of the threads of one process, to the bit;
#   - only traffic of axis data crosses the wire, as many bytes as `weft plan` says;
#   - with ranks placed the other way round that of axis op does;
#   - a rank that stands still on the other host brings the job down, by name, and leaves nothing behind.
# Usage: scripts/two_hosts.sh [WEFT [traffic] [stop]]. Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), iproute2 and
# Open MPI. Exit code: 0 all shown, 1 not, 77 skipped.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
weft=$(realpath "${1:-$repo/build/weft}")
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(traffic stop)
export WEFT_HOSTS_ID=weft$$
net=10.94.7
steps=10
stall=3             # alarm.stall_seconds
error_seconds=5     # from then on until the error names the rank
launcher_seconds=5  # from then on until Open MPI has ended all: it sends SIGTERM first, later SIGKILL

skip() { echo "two_hosts: SKIPPED: $*"; exit 77; }
say() { printf 'two_hosts: %s\n' "$*"; }
[ -x "$weft" ] || { say "$weft is not there; try make build" >&2; exit 2; }
for tool in ip unshare mpirun python3; do
  command -v $tool >/dev/null || skip "got no program $tool; try tools/setup.sh"
done
[[ $(mpirun --version) == *"Open MPI"* ]] || skip "got an mpirun of another MPI, expected Open MPI"
unshare --uts true 2>/dev/null || skip "may not make namespaces; try as root"

work=$(mktemp -d "${TMPDIR:-/tmp}/two_hosts.XXXXXX")
failed=0
job=
equal=0

# Ends what runs on the hosts, by its ids, then removes them.
clean_up() {
  local host pids
  trap - EXIT
  set +e  # what is gone already is no reason to leave the rest
  [ -n "$job" ] && kill "$job" 2>/dev/null
  for host in 1 2; do
    ip netns list | grep -qw "^$WEFT_HOSTS_ID-$host" || continue
    pids=$(ip netns pids "$WEFT_HOSTS_ID-$host")
    # Words: one id each.
    # shellcheck disable=SC2086
    [ -n "$pids" ] && kill -KILL $pids 2>/dev/null
    ip netns del "$WEFT_HOSTS_ID-$host"
  done
  rm -f "/dev/shm/vader_segment.$WEFT_HOSTS_ID-"*
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

host1=$WEFT_HOSTS_ID-1
host2=$WEFT_HOSTS_ID-2
{
  ip netns add "$host1" && ip netns add "$host2" &&
    ip -n "$host1" link add eth0 mtu 9000 type veth peer name eth0 mtu 9000 netns "$host2"
} 2>"$work/netns" || skip "got no network namespaces ($(head -n 1 "$work/netns")); try as root"
for host in 1 2; do
  ip -n "$WEFT_HOSTS_ID-$host" addr add $net.$host/24 dev eth0
  ip -n "$WEFT_HOSTS_ID-$host" link set lo up
  ip -n "$WEFT_HOSTS_ID-$host" link set eth0 up
  echo "$net.$host slots=2" >>"$work/hosts"
done

python3 "$repo/scripts/two_hosts.py" text "$work/text.txt" 1
cat >"$work/job.toml" <<END
seed = 7
[model]
family = "llama"
hidden_size = 256
intermediate_size = 768
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[data]
train = ["$work/text.txt"]
tokenizer = "bytes"
seq_len = 64
[train]
steps = $steps
micro_batch = 2
accumulation = 1
[optimizer]
lr = 1e-3
[precision]
compute = "fp32"
[parallel]
data = 2
op = 2
sequence = true
[device]
threads = 1
[checkpoint]
every_minutes = 0
final = false
[monitor]
tensorboard = false
END

# on_hosts MPIRUN_OPTIONS -- WEFT_ARGUMENTS: weft on four ranks; each leaves its process id in pid-RANK.
on_hosts() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  # $OMPI_COMM_WORLD_RANK is read on the hosts.
  # shellcheck disable=SC2016
  local command=(mpirun --allow-run-as-root --hostfile "$work/hosts" -n 4 --bind-to none
    --mca plm_rsh_agent "$repo/scripts/netns_agent.sh" --mca orte_tmpdir_base "$work"
    --mca pml ob1 --mca btl self,vader,tcp
    --mca btl_tcp_if_include $net.0/24 --mca oob_tcp_if_include $net.0/24 "${options[@]}"
    sh -c 'echo $$ >"$0/pid-$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work" "$weft" "$@")
  exec "$repo/scripts/netns_agent.sh" $net.1 "exec timeout -k 5 120 ${command[*]@Q}"
}

received() { ip netns exec "$1" cat /sys/class/net/eth0/statistics/rx_bytes; }
check() {
  python3 "$repo/scripts/two_hosts.py" "$@" && return
  failed=1
  return 1
}

# crossing NAME AXIS RUN_OPTIONS [MPIRUN_OPTIONS]: trains on the hosts; what crosses the wire must be the
# traffic of AXIS, and the losses those of RUN.
crossing() {
  local name=$1 axis=$2 run=$3 set=$4
  shift 4
  local before1 before2 bytes
  before1=$(received "$host1")
  before2=$(received "$host2")
  if ! (on_hosts "$@" -- train "$work/job.toml" --out "$work/hosts-$run" --set "$set") \
    >"$work/log" 2>&1; then
    say "$name: the job failed"
    cat "$work/log"
    failed=1
    return
  fi
  bytes=$(python3 "$repo/scripts/two_hosts.py" traffic "$work/plan-$set" "$axis")
  # Each host has two ranks.
  check row "$name" $((2 * steps * bytes)) $(($(received "$host1") - before1)) \
    $(($(received "$host2") - before2)) || true
  if check same "$work/threads-$set/metrics.jsonl" "$work/hosts-$run/metrics.jsonl"; then
    equal=$((equal + 1))
  fi
}

traffic() {
  local set
  for set in parallel.zero=0 parallel.zero=1; do
    "$weft" plan "$work/job.toml" --json --ranks-per-node 2 --set $set >"$work/plan-$set"
    "$weft" train "$work/job.toml" --out "$work/threads-$set" --set $set >"$work/log" 2>&1 || {
      cat "$work/log"
      exit 1
    }
  done
  printf '%-34s%10s%21s%21s\n' "MB in $steps steps" "plan" "into host 1" "into host 2"
  crossing "zero 0, op inside: data crosses" data zero0 parallel.zero=0
  crossing "zero 1, op inside: data crosses" data zero1 parallel.zero=1
  crossing "zero 1, op outside: op crosses" op outside parallel.zero=1 --map-by node
  say "losses and norms equal those of threads to the bit in $equal of 3 runs"
}

# Is the process gone, or dead and only not yet read by its parent?
gone() { ! grep -qsE '^State:\s+[^ZX]' "/proc/$1/status"; }
# wait_for CONDITION...: until it holds; false when the job has ended before.
wait_for() {
  until "$@"; do
    ! gone "$job" || { "$@"; return; }
    sleep 0.05
  done
}
milliseconds() { echo $((${EPOCHREALTIME/./} / 1000)); }
has_steps() { [ "0$(grep -sc '"type":"step"' "$1/metrics.jsonl")" -ge "$2" ]; }
names_rank_3() { grep -q '^weft: error: \[comm\] .*; silent: rank 3$' "$work/log"; }

# A rank of host 2 stands still: an error that names it, and nothing is left.
stop() {
  local start error=none took code=0 rank left=()
  (on_hosts -- train "$work/job.toml" --out "$work/stopped" --set train.steps=1000000 \
    --set alarm.stall_seconds=$stall) >"$work/log" 2>&1 &
  job=$!
  if wait_for has_steps "$work/stopped" 3; then
    kill -STOP "$(cat "$work/pid-3")"
    start=$(milliseconds)
    wait_for names_rank_3 && error=$(($(milliseconds) - start))
  fi
  wait "$job" || code=$?
  job=
  took=$(($(milliseconds) - ${start:-0}))
  for rank in 0 1 2 3; do gone "$(cat "$work/pid-$rank")" || left+=("rank $rank"); done
  mapfile -t -O ${#left[@]} left < <(compgen -G "/dev/shm/vader_segment.$WEFT_HOSTS_ID-*" || true)
  say "rank 3 on host 2 stopped: error after $error ms, all ended after $took ms, exit code $code"
  grep '^weft: error: \[' "$work/log" | sed 's/^/  /'
  [ "$error" != none ] && [ "$error" -le $(((stall + error_seconds) * 1000)) ] &&
    [ "$took" -le $(((stall + error_seconds + launcher_seconds) * 1000)) ] && [ "$code" -eq 6 ] &&
    [ ${#left[@]} -eq 0 ] && [ "$(grep -c '^weft: error: \[' "$work/log")" -eq 1 ] || {
    say "expected one error that names rank 3 within $((stall + error_seconds)) s, exit code 6 within" \
      "$((stall + error_seconds + launcher_seconds)) s, nothing left (there is: ${left[*]:-nothing})"
    cat "$work/log"
    failed=1
  }
}

for part in "${parts[@]}"; do
  case $part in
    traffic | stop) $part ;;
    *) say "got $part, expected traffic or stop" >&2; exit 2 ;;
  esac
done
[ $failed -eq 0 ] && say PASS || say FAIL
exit $failed
