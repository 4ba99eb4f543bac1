#!/usr/bin/env bash
# A tensor-parallel decode step, one CUDA graph a batch size, with and without DynamICCL, interleaved.
#   nccltuner/gputest/program_decode.sh [RESULTS.jsonl]
# A graph keeps what was chosen when it was captured, so knowledge must be there before: STORE=FILE is a store to start from (as
# a calibration leaves it), CALIBRATE=1 calibrates now. Without, the program first runs under `dynamiccld run` with many steps that are not captured.
# Environment: SHAPES=8b,70b BATCHES=1,8,32; POSITIONS=1024 of the KV cache, 0: no attention; COMPILE=1: norms, sums and gates as one kernel
# each; REPEAT=5; ROUNDS=1 measurements of a batch in a run; LEARN=300 steps to learn from; TIMEOUT=240 seconds a run, BUDGET=100000 for all;
# NCCL_LIB=FILE another libnccl.so.2, such as 2.32.3, whose device kernels matter here; ARMS="plain run stored=run,--no-explore" (commas within an arm stand for spaces).
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
. nccltuner/gputest/program_store.sh
[ -n "${GPUS:-}" ] || gpus_there
torchrun_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
tmp=$(mktemp -d /tmp/dyn-decode.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
mkdir -m 700 "$tmp/run"
decode=(torchrun --nproc-per-node "$gpus" examples/decode.py --shapes "${SHAPES:-8b,70b}" --batches "${BATCHES:-1,8,32}" --positions "${POSITIONS:-1024}" ${COMPILE:+--compile})
store=${STORE:-$tmp/store.db}
if [ -n "${STORE:-}" ]; then
  :
elif [ "${CALIBRATE:-}" = 1 ]; then
  calibrate "$store" --ranks "$gpus" # the step has AllReduce alone, but who serves has others too
else
  # Set for run, which puts its own library before it; behind run it would take that one's place.
  timeout -k 60 "${TIMEOUT:-240}" env ${NCCL_LIB:+LD_PRELOAD="$NCCL_LIB"} bin/dynamiccld run --dir "$tmp/run" --store "$store" -- \
    "${decode[@]}" --no-graph --warm "${LEARN:-300}" --replays 20 >&2
fi
arms=()
for arm in ${ARMS:-plain run stored=run,--no-explore}; do arms+=(--arm "${arm//,/ }"); done
nccltuner/gputest/program_bench.py --figure "decode step${COMPILE:+, compiled}" "${arms[@]}" --store "$store" --key shape,batch,positions --repeat "${REPEAT:-5}" \
  --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" -- "${decode[@]}" --rounds "${ROUNDS:-1}"
