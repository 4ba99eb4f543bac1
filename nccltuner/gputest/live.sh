#!/usr/bin/env bash
# What docs/results.md says about learning live, watching and graphs, measured with `dynamiccld bench`: plain NCCL and the others
# make the same calls in turn within one run.     nccltuner/gputest/live.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/ and two or more GPUs. plain+X=1 is plain NCCL under another name: what it differs
# from 1 by is what such a comparison can miss.
# Environment: STEPS="sockets nvlink watching host graphs", and registered and calibrated-registered (graphs of what `calibrate` found there, without
# trials), which want NCCL 2.31 or newer; socket-settings, of NCCL's own that no plan can choose; TIME=45 seconds of a phase that learns, a
# third of it for the others; LOAD_SIZE=N connections of a load (24); NODES=N machines that sockets stand between (one a GPU); NCCL_LIB=FILE another libnccl.so.2; MPS=1 and
# RANKS=N: over sockets so many ranks share the GPUs under CUDA's multi-process service (one is enough for nodes of a rank each).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-bench-$(date -u +%F).jsonl}
time=${TIME:-45}
command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
[ -x bin/dynamiccld ] || { echo "bin/ is empty: run make first" >&2; exit 2; }
mkdir -p "$(dirname "$out")"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-1}
tmp=$(mktemp -d)
. kernels/bench/mps.sh
trap 'mps_end; rm -rf "$tmp"' EXIT
bench() { bin/dynamiccld bench ${LOAD_SIZE:+--load-size "$LOAD_SIZE"} ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" "$@" || failed=1; }
over_sockets() { # ARM,ARM... option...: base arms are added
  local gpus ranks arms=plain,plain+X=1,$1 commas
  shift
  gpus=$(nvidia-smi -L | wc -l) ranks=${RANKS:-$gpus} commas=${arms//[^,]/}
  if [ "${MPS:-}" = 1 ] && [ "$ranks" -gt "$gpus" ]; then
    mps_begin "$tmp"
    CUDA_DEVICE_MAX_CONNECTIONS=$(mps_queues $(((ranks + gpus - 1) / gpus * (${#commas} + 1)))) bench --nodes "${NODES:-$ranks}" --ranks "$ranks" --arms "$arms" "$@"
    mps_end
  else
    bench --nodes "${NODES:-$gpus}" ${RANKS:+--ranks "$RANKS"} --arms "$arms" "$@"
  fi
}
failed=0
small=$((time / 3))
for step in ${STEPS:-sockets nvlink watching host graphs}; do
  echo "--- $step"
  case $step in
    sockets)
      over_sockets run --sizes 1K,16K,64K,256K,1M --phases "quiet:${time}s,network:${time}s,quiet:${small}s" ;;
    # To measure, not to use: beyond a few bytes inline data blocks NCCL's proxies, and its receivers lose sizes (docs/design/operation.md, decision 21).
    socket-settings)
      for arms in plain+NCCL_SOCKET_INLINE=4096,plain+NCCL_SOCKET_NTHREADS=4+NCCL_NSOCKS_PERTHREAD=2+NCCL_SOCKET_INLINE=4096 \
        plain+NCCL_SOCKET_NTHREADS=2+NCCL_NSOCKS_PERTHREAD=1,plain+NCCL_SOCKET_NTHREADS=4+NCCL_NSOCKS_PERTHREAD=2; do
        over_sockets "$arms" --sizes 1K,16K,64K,256K,1M,16M --phases "quiet:${time}s"
      done ;;
    nvlink) bench --time gpu --arms plain,run --phases "quiet:${time}s" ;;
    registered)
      bench --buffers registered --time gpu --arms plain,plain+X=1,run --phases "quiet:${time}s" --sizes 1K,16K,64K,256K,1M,4M,16M,64M ;;
    calibrated-registered)
      store=$tmp/store.db
      bin/dynamiccld calibrate --buffers registered --store "$store" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} || { failed=1; continue; }
      bench --buffers registered --time graph --arms plain,plain+X=1,run+DYNAMICCL_NO_EXPLORE=1 --store "$store" --phases "quiet:${small}s" \
        --sizes 1K,16K,64K,256K,1M,4M,16M,64M
      rm "$store" ;;
    watching) bench --time gpu --arms plain,plain+X=1,observe --phases "quiet:${small}s" --sizes 1K,16K,64K,256K,1M,4M,16M ;;
    host) bench --time host --calls 100 --arms plain,plain+X=1,plugin,observe --phases "quiet:${small}s" --sizes 1K,64K ;;
    graphs)
      bench --time graph --sample-every 2 --arms plain,plain+X=1,plugin,observe --phases "quiet:${small}s" \
        --sizes 1K,16K,64K,256K,1M,4M,16M ;;
    *) echo "no step $step: sockets, nvlink, registered, calibrated-registered, watching, host, graphs, socket-settings" >&2; exit 2 ;;
  esac
done
exit $failed
