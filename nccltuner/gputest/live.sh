#!/usr/bin/env bash
# What docs/results.md says about learning live, watching and graphs, measured with `dynamiccld bench`: plain NCCL and the others
# make the same calls in turn within one run.     nccltuner/gputest/live.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/ and two or more GPUs. plain+X=1 is plain NCCL under another name: what it differs
# from 1 by is what such a comparison can miss.
# Environment: STEPS="sockets nvlink watching host graphs", and cpu-load (over sockets, all CPUs busy for a while); nccl-choices (NVLink without
# our kernels); graphs-comms (graphs of three communicators, captured at once); calibrated (graphs of what `calibrate` found, without trials);
# registered and calibrated-registered, the same of registered memory, which want NCCL 2.31 or newer; host-parts (which library's share of host
# is which); host-where (in whose code the thread that calls is, CC=gcc); socket-settings, of NCCL's own that no plan can choose; TIME=45
# seconds of a phase that learns, a third of it for the others; LOAD_SIZE=N connections or threads of a load (24, or one a CPU); NODES=N
# machines that sockets stand between (one a GPU), and in watching, host and graphs, too, where it is said; NCCL_LIB=FILE another libnccl.so.2;
# MPS=1 and RANKS=N: so many ranks share the GPUs under CUDA's multi-process service (one is enough for nodes of a rank each) over sockets, and
# in watching, host and graphs over sockets, too, or with NODES=1, NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1 as ranks of one node.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-bench-$(date -u +%F).jsonl}
time=${TIME:-45}
gpus_there
[ -x bin/dynamiccld ] || { echo "bin/ is empty: run make first" >&2; exit 2; }
mkdir -p "$(dirname "$out")"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-1}
tmp=$(mktemp -d)
. kernels/bench/mps.sh
trap 'mps_end; rm -rf "$tmp"' EXIT
bench() { bin/dynamiccld bench ${LOAD_SIZE:+--load-size "$LOAD_SIZE"} ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" "$@" || failed=1; }
gpus=$(nvidia-smi -L | wc -l)
among() { # DEFAULT-NODES ARM,ARM... option...: base arms are added
  local nodes=$1 ranks=${RANKS:-$gpus} arms=plain,plain+X=1,$2 commas
  commas=${arms//[^,]/}
  shift 2
  if [ "${MPS:-}" = 1 ] && [ "$ranks" -gt "$gpus" ]; then
    mps_begin "$tmp"
    CUDA_DEVICE_MAX_CONNECTIONS=$(mps_queues $(((ranks + gpus - 1) / gpus * (${#commas} + 1)))) bench --nodes "${NODES:-$ranks}" --ranks "$ranks" --arms "$arms" "$@"
    mps_end
  else
    bench ${nodes:+--nodes "${NODES:-$nodes}"} ${RANKS:+--ranks "$RANKS"} --arms "$arms" "$@"
  fi
}
over_sockets() { among "$gpus" "$@"; }
here() { among "${NODES:-}" "$@"; } # over NVLink, but where nodes are asked for, or ranks share GPUs
calibrated() { # BUFFERS: in graphs, without trials
  local store=$tmp/store.db
  bin/dynamiccld calibrate --buffers "$1" --store "$store" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} || { failed=1; return 0; }
  bench --buffers "$1" --time graph --arms plain,plain+X=1,run+DYNAMICCL_NO_EXPLORE=1 --store "$store" --phases "quiet:${small}s" \
    --sizes 1K,16K,64K,256K,1M,4M,16M,64M
  rm "$store"
}
failed=0
small=$((time / 3)) most=$((time * 2 / 3))
for step in ${STEPS:-sockets nvlink watching host graphs}; do
  echo "--- $step"
  case $step in
    sockets)
      over_sockets run --sizes 1K,4K,16K,64K,256K,1M --phases "quiet:${time}s,network:${time}s,quiet:${small}s" ;;
    cpu-load) # the detector is to say so, in the lines of the daemons at the end
      over_sockets run --sizes 1K,16K,64K,256K,1M --phases "quiet:${most}s,cpu:$((2 * most))s,quiet:${most}s" ;;
    # To measure, not to use: beyond a few bytes inline data blocks NCCL's proxies, and its receivers lose sizes (docs/design/operation.md, decision 21).
    socket-settings)
      for arms in plain+NCCL_SOCKET_INLINE=4096,plain+NCCL_SOCKET_NTHREADS=4+NCCL_NSOCKS_PERTHREAD=2+NCCL_SOCKET_INLINE=4096 \
        plain+NCCL_SOCKET_NTHREADS=2+NCCL_NSOCKS_PERTHREAD=1,plain+NCCL_SOCKET_NTHREADS=4+NCCL_NSOCKS_PERTHREAD=2; do
        over_sockets "$arms" --sizes 1K,16K,64K,256K,1M,16M --phases "quiet:${time}s"
      done ;;
    nvlink) bench --time gpu --arms plain,run --phases "quiet:${time}s" ;;
    nccl-choices)
      bench --time gpu --arms plain,plain+X=1,run+DYNAMICCL_NO_KERNELS=1 --phases "quiet:${time}s" --sizes 1K,16K,64K,256K,1M,4M,16M,64M,256M ;;
    registered)
      bench --buffers registered --time gpu --arms plain,plain+X=1,run --phases "quiet:${time}s" --sizes 1K,16K,64K,256K,1M,4M,16M,64M ;;
    calibrated) calibrated plain ;;
    calibrated-registered) calibrated registered ;;
    watching) here observe --time gpu --phases "quiet:${small}s" --sizes 1K,16K,64K,256K,1M,4M,16M ;;
    host) here plugin,observe,run --time host --calls 100 --phases "quiet:${small}s" --sizes 1K,64K ;;
    host-parts) # whose share of that it is
      here "plain+NCCL_SET_STACK_SIZE=1,plain+LD_PRELOAD=$PWD/lib/libdynamiccl.so,plain+NCCL_TUNER_PLUGIN=$PWD/lib/libnccl-tuner-dynamiccl.so,plain+NCCL_PROFILER_PLUGIN=$PWD/lib/libnccl-profiler-dynamiccl.so,plugin" \
        --time host --calls 100 --phases "quiet:${small}s" --sizes 1K,64K ;;
    host-where) # in whose code the thread that calls is: a line of each rank, and the same arms without that
      [ "$time" -ge 25 ] || { echo "host-where wants TIME=25 or more: it asks from 15 s after a rank's start" >&2; exit 2; }
      mkdir "$tmp/where"
      "${CC:-gcc}" -O2 -shared -fPIC -o "$tmp/libwhere.so" nccltuner/gputest/where/where.c -lpthread
      asked=WHERE_AFTER_S=15+WHERE_S=$((time - 20))+LD_PRELOAD=$tmp/libwhere.so
      out=$tmp/where.jsonl here "plugin,plain+WHERE_OUT=$tmp/where/plain+$asked,plugin+WHERE_OUT=$tmp/where/plugin+$asked:$PWD/lib/libdynamiccl.so" \
        --time host --calls 100 --phases "quiet:${time}s" --collectives AllReduce --sizes 1K
      python3 nccltuner/gputest/where/where.py "$tmp/where.jsonl" "$tmp/where" $((time - 20)) 100 || failed=1
      cat "$tmp/where.jsonl" >>"$out" ;;
    graphs) here plugin,observe --time graph --sample-every 2 --phases "quiet:${small}s" --sizes 1K,16K,64K,256K,1M,4M,16M ;;
    graphs-comms) # captured by three threads of a rank at the same moment
      here plugin,observe --time graph --comms 3 --sample-every 2 --phases "quiet:${small}s" --sizes 1K,16K,64K,256K,1M,4M,16M ;;
    *) echo "no step $step: sockets, cpu-load, nvlink, nccl-choices, calibrated, registered, calibrated-registered, watching, host, host-parts, host-where, graphs, graphs-comms, socket-settings" >&2; exit 2 ;;
  esac
done
exit $failed
