#!/usr/bin/env bash
# What CUDA's calls take that wait for all kernels, behind a put over the carrier, whose card is a kernel that stays a while (docs/design/carrier.md,
# decision 31): cudaDeviceSynchronize, cudaStreamSynchronize, cudaMalloc, cudaFree, and GIN and communicators that go; 0 and 10 ms and 2 s behind
# the last put, and the same calls without NCCL. Two GPUs, one context; three to four minutes.
#   kernels/bench/gin_waits.sh [RESULTS.jsonl]
# A line for each rank, call and delay: median, least and most of WAITS=20 calls, TEARDOWNS=5 of what goes. The first line says on which machine.
# Environment: LIMIT=500 seconds, behind which all is killed; NCCL_LIB=FILE libnccl.so.2, GIN=PROGRAM and, with NCCL 2.30.5 and later, GIN_TYPE,
# as gin.sh has them: 3 is the card. DYNAMICCL_CARRIER_TYPE=proxy with 2.28.9: where no kernel stays. COMMIT=NAME where there is no git.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-waits-$(date -u +%F).jsonl}
gpus_there
. kernels/bench/gin_program.sh
find_nccl
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gin_program "$tmp"
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
version=$(gin_version "$tmp")
. kernels/bench/carrier.sh
carrier_names "$version"
mkdir -p "$(dirname "$out")"
printf '{"figure":"gin machine","gpus":"%s","driver":"%s","nccl":%s,"plugin":"%s","carrier":true,"date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$version" "${NCCL_NET_PLUGIN:-${NCCL_GIN_PLUGIN:-${NCCL_RMA_PLUGIN:-}}}" "$(date -u +%FT%TZ)" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
# The program has an alarm for each step; some calls of CUDA's let no signal in but this one.
timeout -k 10 "${LIMIT:-500}" "$GIN" --ranks 2 --contexts 1 --waits | tee -a "$out"
