#!/usr/bin/env bash
# netns_agent.sh ADDRESS COMMAND...: runs a command on one of the hosts of two_hosts.sh, as ssh would: the
# words of the command are joined and read by a shell. mpirun starts its daemons through it
# (--mca plm_rsh_agent). WEFT_HOSTS_ID names the pair of hosts.
set -euo pipefail
address=$1
shift
name=$WEFT_HOSTS_ID-${address##*.}
# A name of its own: Open MPI takes processes with one host name for neighbours that share memory.
exec ip netns exec "$name" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$name" "$*"
