#!/usr/bin/env bash
# What the daemon would charge choices, held against CUDA events of calls that nobody watches, and against CUDA graphs: two sweeps and
# samples_check.py.     nccltuner/gputest/samples.sh [RESULTS.jsonl] [option of sweep]...
# The points of both stay beside it, as .points.jsonl and .graphs.points.jsonl, and what machine it was, as .json.
# Needs what `make all kernels` left in bin/ and lib/, two or more GPUs, Python, and NCCL's wheel of Python's or NCCL_LIB=FILE, a libnccl.so.2.
# Environment: NODES=N over sockets between so many pretended nodes; COLLECTIVES=AllReduce,AllGather,ReduceScatter,Broadcast,AllToAll;
# SIZES=1K,16K,64K,1M; BUDGET=60ms of a point. Exit: 0 if choices that differ by more than 3% are ordered alike in 99% of pairs.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-samples-$(date -u +%F).jsonl}
shift $(($# > 0))
gpus_there
[ -x bin/dynamiccld ] || { echo "bin/ is empty: run make first" >&2; exit 2; }
mkdir -p "$(dirname "$out")"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for calls in stream graph; do
  samples=()
  [ $calls = graph ] || samples=(--samples "$tmp/samples.csv")
  bin/dynamiccld sweep --calls $calls --budget "${BUDGET:-60ms}" --collectives "${COLLECTIVES:-AllReduce,AllGather,ReduceScatter,Broadcast,AllToAll}" \
    --sizes "${SIZES:-1K,16K,64K,1M}" ${NODES:+--nodes "$NODES"} ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} "${samples[@]}" --out "$tmp/$calls.csv" "$@"
done
base=${out%.jsonl}
mv "$tmp/stream.points.jsonl" "$base.points.jsonl"
mv "$tmp/stream.json" "$base.json" # of which machine they are
mv "$tmp/graph.points.jsonl" "$base.graphs.points.jsonl"
python3 nccltuner/gputest/samples_check.py "$base.points.jsonl" "$base.graphs.points.jsonl" | tee -a "$out" >"$tmp/lines"
tail -n 1 "$tmp/lines" | python3 -c '
import json, sys
summary = json.load(sys.stdin)
alike, pairs = summary["ordered_alike"], summary["pairs_more_than_3pct_apart"]
print(f"{alike} of {pairs} pairs of choices are ordered alike")
sys.exit(alike < 0.99 * pairs)'
