#!/usr/bin/env bash
# Starts a rank as if it stood on another machine, so that NCCL talks over sockets on the loopback: it believes NCCL_HOSTID.
#   NODES=4 torchrun --nproc-per-node 4 --no-python nccltuner/gputest/program_node.sh python3 PROGRAM...
# Ranks are dealt to the NODES in blocks. Without NODES, or with 1, nothing is changed. CPUS="0-3 4-7": the CPUs of each rank, by its number
# on this machine, for taskset; else the system moves them about.
set -euo pipefail
if [ "${NODES:-1}" -gt 1 ]; then
  export NCCL_HOSTID=program-node$((LOCAL_RANK * NODES / LOCAL_WORLD_SIZE))
fi
if [ -n "${CPUS:-}" ]; then
  read -ra cpus <<<"$CPUS"
  [ "${#cpus[@]}" -ge "$LOCAL_WORLD_SIZE" ] || { echo "CPUS=\"$CPUS\" has no CPUs for rank $LOCAL_RANK of $LOCAL_WORLD_SIZE: one word for each" >&2; exit 2; }
  exec taskset -c "${cpus[LOCAL_RANK]}" "$@"
fi
exec "$@"
