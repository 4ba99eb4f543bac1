#!/usr/bin/env bash
# A rank of a PyTorch program killed (kill -9) while our kernels run its AllReduces over NVLink: how long until each other rank has
# NCCL's error, whether it says who died, and whether its GPU has come to an end (docs/design.md, decision 27). A JSON line for each mode.
#   nccltuner/gputest/program_kill.sh [RESULTS.jsonl]
# calls: plain calls; graph: replays of a CUDA graph, with a plain call now and then; watchdog: plain calls, and PyTorch's own watchdog, off
# in the others, may end the process. Needs what `make` and `make kernels` left in bin/ and lib/, two or more GPUs and PyTorch.
# Environment: MODES="calls graph watchdog"; GPUS=N the first N; KILL=-1 the rank, -1 is the last; BOUND=5 seconds; STORE=FILE is a store to start
# from, and nothing is calibrated; LIMIT=300 seconds a mode; NCCL_LIB=FILE another libnccl.so.2 than PyTorch's. Exit: 0 if all pass.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
. nccltuner/gputest/program_store.sh
[ -n "${GPUS:-}" ] || gpus_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 OMP_NUM_THREADS=1
tmp=$(mktemp -d /tmp/dyn-kill.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
mkdir -m 700 "$tmp/run"
store=${STORE:-$tmp/store.db}
[ -n "${STORE:-}" ] || calibrate "$store" --ranks "$gpus" --collectives AllReduce --max 1M
failed=0
for mode in ${MODES:-calls graph watchdog}; do
  handling=0
  [ "$mode" != watchdog ] || handling=3
  # Set for run, which puts its own library before it.
  timeout -k 30 "${LIMIT:-300}" env ${NCCL_LIB:+LD_PRELOAD="$NCCL_LIB"} TORCH_NCCL_ASYNC_ERROR_HANDLING=$handling \
    bin/dynamiccld run --dir "$tmp/run" --store "$store" --no-explore -- python3 nccltuner/gputest/program_kill.py --name "$mode" --ranks "$gpus" \
    --kill="${KILL:--1}" --bound "${BOUND:-5}" --out "$out" -- python3 nccltuner/gputest/kill_rank.py --mode "$mode" || failed=1
done
exit $failed
