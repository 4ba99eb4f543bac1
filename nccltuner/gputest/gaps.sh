#!/usr/bin/env bash
# From a kernel to the next one of its stream (gaps.cu): alone, beside a stream that waits for it, from each CPU, and, with a second GPU, beside a
# kernel that writes to that one; then, in a process each, beside one stream that is made behind 0 to 3 others. A minute, nothing of NCCL's: what
# a process loses here it loses to the driver and to where it runs.
#   nccltuner/gputest/gaps.sh [RESULTS.jsonl]
# Needs nvcc (NVCC=PROGRAM, ARCH=native), or GAPS=PROGRAM that was built elsewhere. Environment: ROUNDS=7; TURNS="all 0 1 2 3": others before the
# one, all is what does not go by them; LIMIT=120 seconds each; COMMIT=NAME where there is no git.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gaps-$(date -u +%F).jsonl}
gpus_there
tmp=$(mktemp -d /tmp/dyn-gaps.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
program=${GAPS:-$tmp/gaps}
if [ -z "${GAPS:-}" ]; then
  . nccltuner/gputest/nvcc.sh
  "$nvcc" -std=c++17 -arch="${ARCH:-native}" -O2 -cudart static -o "$program" nccltuner/gputest/gaps.cu
fi
mkdir -p "$(dirname "$out")"
IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0)
printf '{"figure": "gaps machine", "machine": "%s", "driver": "%s", "cpus": %d, "date": "%s", "commit": "%s"}\n' "$gpu" "${driver# }" "$(env -u OMP_NUM_THREADS nproc)" \
  "$(date -u +%FT%TZ)" "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
for turns in ${TURNS:-all 0 1 2 3}; do
  timeout -k 5 "${LIMIT:-120}" "$program" "${ROUNDS:-7}" ${turns//all/} | tee -a "$out"
done
