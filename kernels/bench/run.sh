#!/usr/bin/env bash
# The kernels on the GPUs of this machine: every element checked, then times beside NCCL's, as JSON lines.
#   kernels/bench/run.sh [RESULTS.jsonl] [option of lsa]...
# Needs two or more GPUs of one NVLink domain, nvcc, and Python's nvidia.nccl. NCCL_LIB=FILE runs another libnccl.so.2;
# LSA=PROGRAM runs one that was built elsewhere (make -C kernels lsa ARCH=sm_90). Exit: 0 if every element is right.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-kernels-$(date -u +%F).jsonl}
shift $(($# > 0))
command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
home=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])') ||
  { echo "NCCL is not here: pip install nvidia-nccl-cu13 (PyTorch brings it)" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$(realpath "${NCCL_LIB:-$home/lib/libnccl.so.2}")" "$tmp/libnccl.so.2"
[ -e lib/dynamiccl-kernels.fatbin ] || make -s kernels
if [ -z "${LSA:-}" ]; then
  make -s -C kernels lsa NCCL_HOME="$home" ${NVCC:+NVCC="$NVCC"}
  LSA=.cache/kernels/lsa
fi
mkdir -p "$(dirname "$out")"
printf '{"figure":"lsa machine","gpus":"%s","driver":"%s","date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$(date -u +%FT%TZ)" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
export NCCL_NVLS_ENABLE=0 LD_LIBRARY_PATH=$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"$LSA" "$@" | tee -a "$out"
