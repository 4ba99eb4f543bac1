#!/usr/bin/env bash
# One message at a time, there and back over sockets between two pretended nodes, with and without DynamICCL, interleaved.
#   nccltuner/gputest/program_pingpong.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/, and PyTorch. Environment: GPUS, MPS (two ranks share a GPU): program_transport.sh; ARMS="plain
# run" (commas within an arm stand for spaces); REPEAT=3; PINGPONG="" flags of examples/pingpong.py; TIMEOUT=240 seconds a run,
# BUDGET=100000 for all; NCCL_LIB=FILE another libnccl.so.2.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
[ -n "${GPUS:-}" ] || gpus_there
GPUS=${GPUS:-$([ "${MPS:-}" = 1 ] && echo 1 || echo 2)} RANKS=2 NODES=2
. nccltuner/gputest/program_transport.sh
torchrun_there
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
arms=()
for arm in ${ARMS:-plain run}; do arms+=(--arm "${arm//,/ }"); done
transport socket "" "${PINGPONG:-}"
# shellcheck disable=SC2086 # a command is words
nccltuner/gputest/program_bench.py --figure "one message there and back, sockets" "${arms[@]}" --key program,kib --repeat "${REPEAT:-3}" \
  --timeout "${TIMEOUT:-240}" --budget "${BUDGET:-100000}" ${NCCL_LIB:+--nccl-lib "$NCCL_LIB"} --out "$out" -- $launch examples/pingpong.py $flags
