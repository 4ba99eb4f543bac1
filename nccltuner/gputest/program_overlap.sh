#!/usr/bin/env bash
# Collectives beside matrix products: what is chosen, and how long a step is, when a call is charged what it takes (--reward call)
# and when it is charged what it adds to the step (--reward exposed). Plain NCCL is the base; runs are interleaved.
#   nccltuner/gputest/program_overlap.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/, two or more GPUs and PyTorch. What was chosen is in each line's "report". Both arms
# learn within each run, in steps that are not timed (--warmup): what --reward exposed learns goes into no store.
# Environment: TRANSPORTS="nvlink socket"; GPUS, NODES, MPS, RANKS: program_transport.sh; OVERLAP="yes no"; REPEAT=3;
# NVLINK="--mib 4,16,64 --products 2,4,12" and SOCKET="--mib 1,4 --products 40,120 --blocks 4 --steps 40 --warmup 200" flags of
# examples/overlap.py (products so many that they take about as long as the collective: see compute_us and alone_us);
# LEARNERS="lstm coordinate-descent"; BUDGET_SHARE=10% of time that exploration may lose; TIMEOUT=240 seconds a run,
# BUDGET=100000 for each comparison; NCCL_LIB=FILE another libnccl.so.2.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
. nccltuner/gputest/program_transport.sh
torchrun_there
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
arms=(--arm plain)
for learner in ${LEARNERS:-lstm coordinate-descent}; do
  for reward in call exposed; do
    arms+=(--arm "$learner-$reward=run --learner $learner --reward $reward --explore-budget ${BUDGET_SHARE:-10%}")
  done
done
failed=0
for transport in ${TRANSPORTS:-nvlink socket}; do
  transport "$transport" "${NVLINK:---mib 4,16,64 --products 2,4,12}" "${SOCKET:---mib 1,4 --products 40,120 --blocks 4 --steps 40 --warmup 200}"
  for overlap in ${OVERLAP:-yes no}; do
    case $overlap in
      yes) more= ;;
      no) more=--no-overlap ;;
      *) echo "OVERLAP is $overlap; yes, no or both" >&2; exit 2 ;;
    esac
    command="$launch examples/overlap.py $flags $more"
    # shellcheck disable=SC2086 # a command is words
    nccltuner/gputest/program_bench.py --figure "overlap step, $transport, $nodes nodes, overlap $overlap" "${arms[@]}" --key program,overlap,mib \
      --repeat "${REPEAT:-3}" --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} \
      --out "$out" -- $command || failed=1
  done
done
exit $failed
