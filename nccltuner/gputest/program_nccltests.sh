#!/usr/bin/env bash
# nccl-tests, as they are, with and without DynamICCL, by size, interleaved:
#   NCCL_TESTS=DIR nccltuner/gputest/program_nccltests.sh [RESULTS.jsonl]
# learn: what learning gains. watch: what watching costs (samples are taken, nothing is ever chosen), and what the plugin costs
# without a daemon. graph, graph-threads: the same for replays of a graph that one thread, or a thread for every GPU, captured.
# calibrated, calibrated-graph: with what `dynamiccld calibrate` found before, and no trials: plain calls, and replays.
# Environment: FIGURES="learn watch graph graph-threads calibrated calibrated-graph"; REPEAT=5; TIMEOUT=240 seconds a run, BUDGET=100000 for each figure;
# NCCL_LIB=FILE another libnccl.so.2; and what nccltests.sh reads.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
nccl_lib=${NCCL_LIB:-}
unset NCCL_LIB # the driver preloads it
BUILD_ONLY=1 nccltuner/gputest/nccltests.sh
observe="observe=run --learner default"
failed=0
tmp=$(mktemp -d /tmp/dyn-nccltests.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
calibrated() { # its options of the driver
  if [ ! -e "$tmp/store.db" ]; then
    # What nccl-tests are linked with, which need not be the loader's: choices are of one version alone.
    bin/dynamiccld calibrate --store "$tmp/store.db" --nccl-lib "${nccl_lib:-${NCCL_HOME:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')}/lib/libnccl.so.2}" >&2 || return
  fi
  arms=(--arm plain --arm "stored=run --no-explore" --store "$tmp/store.db")
}
for figure in ${FIGURES:-learn watch graph graph-threads calibrated calibrated-graph}; do
  case $figure in
    calibrated) calibrated || { failed=1; continue; }; with=(ITERS="${ITERS:-1000}") ;;
    calibrated-graph) calibrated || { failed=1; continue; }; with=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}") ;;
    learn) arms=(--arm plain --arm run --prepare "env ITERS=500 nccltuner/gputest/nccltests.sh") with=(ITERS="${ITERS:-200}") ;;
    watch) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-1000}" MAX="${MAX:-16M}") ;;
    graph) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}") ;;
    graph-threads) arms=(--arm plain --arm "$observe" --arm plugin) with=(ITERS="${ITERS:-20}" GRAPH="${GRAPH:-50}" THREADS=1) ;;
    *) echo "no figure $figure: learn, watch, graph, graph-threads, calibrated, calibrated-graph" >&2; exit 2 ;;
  esac
  nccltuner/gputest/program_bench.py --figure "nccl-tests, $figure" "${arms[@]}" --key collective,bytes,in_place --metric time_us \
    --repeat "${REPEAT:-5}" --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${nccl_lib:+--nccl-lib "$nccl_lib"} --out "$out" \
    -- env "${with[@]}" nccltuner/gputest/nccltests.sh || failed=1
done
exit $failed
