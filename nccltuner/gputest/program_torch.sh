#!/usr/bin/env bash
# PyTorch's collectives by size, in CUDA graphs and as plain calls, with what `dynamiccld calibrate` found before and without DynamICCL,
# interleaved.     nccltuner/gputest/program_torch.sh [RESULTS.jsonl]
# Microseconds of a call are base_median and arm_median of the comparisons; what a kernel takes alone kernels/bench/run.sh says.
# Needs what `make` left in bin/ and lib/, two or more GPUs and PyTorch. Environment: GPUS=N the first N; STORE=FILE is a store to start from, and
# nothing is calibrated; REPEAT=5; COLLECTIVES_FLAGS="" flags of examples/collectives.py; ARMS="plain stored=run,--no-explore" (commas within an arm
# stand for spaces); TIMEOUT=240 seconds a run, BUDGET=100000 for all; NCCL_LIB=FILE another libnccl.so.2 than PyTorch's.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
. nccltuner/gputest/program_store.sh
[ -n "${GPUS:-}" ] || gpus_there
torchrun_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 OMP_NUM_THREADS=1
tmp=$(mktemp -d /tmp/dyn-torch.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
store=${STORE:-$tmp/store.db}
[ -n "${STORE:-}" ] || calibrate "$store" --ranks "$gpus" --collectives AllReduce,AllGather,ReduceScatter
arms=()
for arm in ${ARMS:-plain stored=run,--no-explore}; do arms+=(--arm "${arm//,/ }"); done
# shellcheck disable=SC2086 # flags are words
nccltuner/gputest/program_bench.py --figure "PyTorch collectives" "${arms[@]}" --store "$store" --key collective,bytes,graph --repeat "${REPEAT:-5}" \
  --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" -- \
  torchrun --nproc-per-node "$gpus" examples/collectives.py ${COLLECTIVES_FLAGS:-}
