#!/usr/bin/env bash
# What compute loses to CTAs that are held beside it, as a collective's are, and what launches cost a host beside a thread that asks after
# events, as ours does: on one GPU, nothing of NCCL's, half a minute.
#   nccltuner/gputest/beside.sh [RESULTS.jsonl]
# compute: products of a transformer and one operation bound by memory, beside k CTAs of 512 threads that spin, or move memory; with as much
# shared memory as NCCL's have, or none. lost: what part of its speed it loses, beside sm_share, k of so many multiprocessors. Each k = 0 is the
# same arm again: they show what equal ones differ by. launches: us of an empty kernel's, also with events recorded round it, or with the question
# whether its stream is captured.
# Needs nvcc (NVCC=PROGRAM, ARCH=native) or BESIDE=LIBRARY that was built elsewhere; compute: PyTorch. Environment: ROUNDS=25 of each arm;
# PARTS="launches compute"; LIMIT=60 seconds for each; COMMIT=NAME where there is no git. Exit: 0 if no part failed; rows of the others stand.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-beside-$(date -u +%F).jsonl}
gpus_there
tmp=$(mktemp -d /tmp/dyn-beside.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
library=${BESIDE:-$tmp/libbeside.so}
if [ -z "${BESIDE:-}" ]; then
  . nccltuner/gputest/nvcc.sh
  "$nvcc" -std=c++17 -arch="${ARCH:-native}" -O2 -shared -Xcompiler -fPIC -cudart static -L"$(dirname "$nvcc")/../lib" -o "$library" \
    nccltuner/gputest/beside/beside.cu -ldl -lpthread
fi
mkdir -p "$(dirname "$out")"
failed=0
for part in machine ${PARTS:-launches compute}; do
  timeout -k 5 "${LIMIT:-60}" python3 nccltuner/gputest/beside/beside.py "$library" "$part" "${ROUNDS:-25}" | tee -a "$out" ||
    { echo "$part: failed, or not done after ${LIMIT:-60} s" >&2; failed=1; }
done
exit $failed
