#!/usr/bin/env bash
# A DDP or FSDP step over NVLink with parts of DynamICCL and nothing chosen, and of plain NCCL with turns of the GPU's front end taken before it begins
# (program_perturbed.py has more such things), interleaved: which of them makes a step longer?
#   nccltuner/gputest/program_parts.sh [RESULTS.jsonl]
# Needs what `make` and `make kernels` left in bin/ and lib/, two or more GPUs and PyTorch. Environment: GPUS=2; REPEAT=3; PROGRAM=ddp, or fsdp;
# FLAGS="--steps 30 --warmup 15 --kernels 3" of that program; ARMS instead of those below (commas within an arm stand for spaces, and in PERTURB "+" for commas);
# LOGS=FOLDER what ranks print; TIMEOUT=120 seconds a run, BUDGET=100000 for all; NCCL_LIB=FILE another libnccl.so.2.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
[ -n "${GPUS:-}" ] || gpus_there
GPUS=${GPUS:-2}
program=${PROGRAM:-ddp}
. nccltuner/gputest/program_transport.sh
torchrun_there
out=${1:-docs/figures/programs-parts-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
joined="plugin,LD_PRELOAD=$PWD/lib/libdynamiccl.so"
parts="plain watched=run,--learner,default nokernels=run,DYNAMICCL_NO_KERNELS=1,--learner,default joined=$joined
joined-nokernels=$joined,DYNAMICCL_NO_KERNELS=1 joined-noprofiler=$joined,NCCL_PROFILER_PLUGIN=none joined-notuner=$joined,NCCL_TUNER_PLUGIN=none"
for thing in turn early-turn early-turn+early-turn; do parts="$parts ${thing//+/-}=plain,PERTURB=$thing"; done
arms=()
for arm in ${ARMS:-$parts}; do
  arm=${arm//,/ }
  arms+=(--arm "${arm//+/,}")
done
transport nvlink "${FLAGS:---steps 30 --warmup 15 --kernels 3}" ""
# shellcheck disable=SC2086 # a command is words
nccltuner/gputest/program_bench.py --figure "$program step by parts, nvlink" "${arms[@]}" --key program,overlap --repeat "${REPEAT:-3}" \
  --timeout "${TIMEOUT:-120}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} ${LOGS:+--logs "$LOGS"} --out "$out" -- \
  $launch nccltuner/gputest/program_perturbed.py "examples/$program.py" $flags
