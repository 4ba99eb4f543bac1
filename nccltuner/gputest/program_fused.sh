#!/usr/bin/env bash
# AllReduce, residual and RMSNorm of a decode step in one kernel of ours (fused_norm.py) beside the same one by one, after
# `dynamiccld calibrate` (unfused) and with plain NCCL, in CUDA graphs and as plain calls, interleaved.
#   nccltuner/gputest/program_fused.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/, `make kernels` as well, two or more GPUs and PyTorch. Environment: GPUS=N the first N; STORE=FILE is a
# store to start from, and nothing is calibrated; HIDDEN="4096 8192" widths; TOKENS=1,8,32; REPEAT=5; ARMS=... others (commas within an arm stand
# for spaces); TIMEOUT=240 seconds a run, BUDGET=100000 for each width; NCCL_LIB=FILE another libnccl.so.2 than PyTorch's.
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
tmp=$(mktemp -d /tmp/dyn-fused.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
store=${STORE:-$tmp/store.db}
[ -n "${STORE:-}" ] || calibrate "$store" --ranks "$gpus" --collectives AllReduce --max 4M
arms=()
for arm in ${ARMS:-plain=plain,FUSED_NORM=one-by-one unfused=run,FUSED_NORM=one-by-one,--no-explore fused=run,FUSED_NORM=fused,--no-explore}; do
  arms+=(--arm "${arm//,/ }")
done
failed=0
for hidden in ${HIDDEN:-4096 8192}; do
  nccltuner/gputest/program_bench.py --figure "fused norm, $hidden wide" "${arms[@]}" --store "$store" --key hidden,tokens,graph --zero wrong,missing_kernels \
    --repeat "${REPEAT:-5}" --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" -- \
    torchrun --nproc-per-node "$gpus" nccltuner/gputest/fused_norm.py --hidden "$hidden" --tokens "${TOKENS:-1,8,32}" || failed=1
done
exit $failed
