#!/usr/bin/env bash
# A DDP and an FSDP step of a transformer with and without DynamICCL, over NVLink, over sockets, and over GIN, interleaved.
#   nccltuner/gputest/program_ddp.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/, two or more GPUs and PyTorch. The `run` arm runs once before, to learn, and keeps its
# store. Environment: PROGRAMS="ddp ddp-no-overlap fsdp"; TRANSPORTS="nvlink socket", and gin: program_transport.sh; GPUS, NODES, MPS, RANKS: program_transport.sh;
# REPEAT=3; NVLINK="--steps 60 --warmup 40" and SOCKET="--steps 24 --warmup 24 --layers 6" flags of the programs; TIMEOUT=240 seconds
# a run, BUDGET=100000 for each comparison; NCCL_LIB=FILE another libnccl.so.2; ARMS="plain run" (commas within an arm stand for
# spaces: observe=run,--learner,default).
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
. nccltuner/gputest/program_transport.sh
torchrun_there
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
failed=0
for transport in ${TRANSPORTS:-nvlink socket}; do
  transport "$transport" "${NVLINK:---steps 60 --warmup 40}" "${SOCKET:---steps 24 --warmup 24 --layers 6}"
  arms=()
  for arm in ${ARMS:-$both}; do arms+=(--arm "${arm//,/ }"); done
  for program in ${PROGRAMS:-ddp ddp-no-overlap fsdp}; do
    more=
    [ "$program" != ddp-no-overlap ] || more=--no-overlap
    command="$launch examples/${program%%-*}.py $flags $more --check"
    # shellcheck disable=SC2086 # a command is words
    nccltuner/gputest/program_bench.py --figure "$program step, $transport, $nodes nodes" "${arms[@]}" --prepare "$command" \
      --key program,overlap --repeat "${REPEAT:-3}" --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} \
      --out "$out" -- $command || failed=1
  done
done
exit $failed
