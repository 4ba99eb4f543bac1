#!/usr/bin/env bash
# What the links between this machine's GPUs carry, pushed and pulled, by threads, by bulk copies of the SMs and by copy engines, as JSON lines.
#   kernels/bench/link.sh [RESULTS.jsonl] [option of link]...
# Needs two or more GPUs that reach each other, and nvcc. Environment: LINK=PROGRAM one that was built elsewhere (make -C kernels link ARCH=sm_90);
# COMMIT=NAME where there is no git; LIMIT=120 seconds. Exit: as of link.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-link-$(date -u +%F).jsonl}
shift $(($# > 0))
gpus_there
if [ -z "${LINK:-}" ]; then
  make -s -C kernels link ${NVCC:+NVCC="$NVCC"}
  LINK=.cache/kernels/link
fi
mkdir -p "$(dirname "$out")"
printf '{"figure":"link machine","gpus":"%s","driver":"%s","date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$(date -u +%FT%TZ)" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
timeout -k 5 "${LIMIT:-120}" "$LINK" "$@" | tee -a "$out"
