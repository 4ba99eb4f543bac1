#!/usr/bin/env bash
# nccl-tests, as they are, with and without DynamICCL, by size, interleaved:
#   NCCL_TESTS=DIR nccltuner/gputest/program_nccltests.sh [RESULTS.jsonl]      or, with what bundle.sh has built,
#   NCCL_TESTS_BUILT=.cache/gpu/nccl-tests nccltuner/gputest/program_nccltests.sh [RESULTS.jsonl]
# learn: what learning gains. watch: what watching costs (samples are taken, nothing is ever chosen), and what the plugin costs
# without a daemon. graph, graph-threads: the same for replays of a graph that one thread, or a thread for every GPU, captured.
# calibrated, calibrated-graph: with what `dynamiccld calibrate` found before, and no trials: plain calls, and replays.
# nccl-choices, nccl-choices-graph: the same without our kernels, also while it calibrates: NCCL's own choices alone.
# registered, registered-graph: as calibrated, of buffers that nccl-tests registers (REGISTER=2: as symmetric windows, for which NCCL 2.31 or
# newer has choices of its own; 1: ncclCommRegister, whose buffers choose as plain ones do).
# Environment: FIGURES="learn watch graph graph-threads calibrated calibrated-graph"; REPEAT=5; TIMEOUT=240 seconds a run, BUDGET=100000 for each figure;
# NCCL_LIB=FILE another libnccl.so.2; BUFFERS=plain, registered or all: what is calibrated, in place of what a figure needs; ARMS="plain
# stored=run,--no-explore" other arms than a figure's (commas within an arm stand for spaces: nccl=run,DYNAMICCL_NO_KERNELS=1,--no-explore);
# and what nccltests.sh reads.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
nccl_lib=${NCCL_LIB:-}
unset NCCL_LIB # the driver preloads it
register=${REGISTER:-2}
[[ $register == [12] ]] || { echo "REGISTER is $register; 1 or 2" >&2; exit 2; }
unset REGISTER # of the figures that register alone
BUILD_ONLY=1 nccltuner/gputest/nccltests.sh
observe="observe=run --learner default"
failed=0
tmp=$(mktemp -d /tmp/dyn-nccltests.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
stored() { # plain|registered KERNELS(0: none of ours): the options of the driver; each kind is calibrated once
  local buffers=${BUFFERS:-$1} store
  store=$tmp/$buffers-$2.db
  if [ ! -e "$store" ]; then
    # What nccl-tests are linked with, which need not be the loader's: choices are of one version alone.
    env $([ "$2" = 1 ] || echo DYNAMICCL_NO_KERNELS=1) bin/dynamiccld calibrate --buffers "$buffers" --store "$store" \
      --nccl-lib "${nccl_lib:-${NCCL_HOME:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')}/lib/libnccl.so.2}" >&2 || return
  fi
  more=(--store "$store")
  arms=(--arm plain --arm "stored=run --no-explore")
  [ "$2" = 1 ] || arms=(--arm plain --arm "nccl=run DYNAMICCL_NO_KERNELS=1 --no-explore")
}
for figure in ${FIGURES:-learn watch graph graph-threads calibrated calibrated-graph}; do
  more=() with=()
  case $figure in
    calibrated | calibrated-graph) stored plain 1 || { failed=1; continue; } ;;
    nccl-choices | nccl-choices-graph) stored plain 0 || { failed=1; continue; } ;;
    registered | registered-graph)
      stored "$([ "$register" = 2 ] && echo registered || echo plain)" 1 || { failed=1; continue; }
      with=(REGISTER="$register") ;;
  esac
  case $figure in
    learn) arms=(--arm plain --arm run) more=(--prepare "env ITERS=500 nccltuner/gputest/nccltests.sh") with=(ITERS="${ITERS:-200}") ;;
    watch) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-1000}" MAX="${MAX:-16M}") ;;
    graph) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}") ;;
    graph-threads) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}" THREADS=1) ;;
    calibrated | nccl-choices | registered) with+=(ITERS="${ITERS:-1000}") ;;
    calibrated-graph | nccl-choices-graph | registered-graph) with+=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}") ;;
    *) echo "no figure $figure: learn, watch, graph, graph-threads, calibrated, nccl-choices, registered, and with -graph the last three" >&2; exit 2 ;;
  esac
  if [ -n "${ARMS:-}" ]; then
    arms=()
    for arm in $ARMS; do arms+=(--arm "${arm//,/ }"); done
  fi
  nccltuner/gputest/program_bench.py --figure "nccl-tests, $figure" "${arms[@]}" "${more[@]}" --key collective,bytes,in_place --metric time_us \
    --repeat "${REPEAT:-5}" --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${nccl_lib:+--nccl-lib "$nccl_lib"} --out "$out" \
    -- env "${with[@]}" nccltuner/gputest/nccltests.sh || failed=1
done
exit $failed
