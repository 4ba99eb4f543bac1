#!/usr/bin/env bash
# The kernels on the GPUs of this machine, as JSON lines: every element checked, then times of 1 KiB to 256 MiB beside NCCL's, NCCL's
# with symmetric windows, and those of PyTorch's symmetric memory, with all GPUs and with two.
#   kernels/bench/run.sh [RESULTS.jsonl] [option of lsa]...
# Needs two or more GPUs of one NVLink domain, or one with MPS=1, nvcc, and Python's nvidia.nccl; without PyTorch its part is left out.
# Environment: RANKS="4 2" the tables to make; MPS=1 lets them have more ranks than there are GPUs, on which they run beside each other
# (CUDA's multi-process service), ours alone: one GPU is enough for RANKS="4 8"; NCCL_LIB=FILE another libnccl.so.2; LSA=PROGRAM one that was built elsewhere (make -C
# kernels lsa ARCH=sm_90). Each step has a time limit, and one that fails keeps no other from being run.
# Exit: 0 if every step was and every element is right.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-kernels-$(date -u +%F).jsonl}
shift $(($# > 0))
gpus_there
home=$(nccl_home)
gpus=$(nvidia-smi -L | wc -l)
[ "$gpus" -gt 2 ] && tables="$gpus 2" || tables=$gpus
[ "$gpus" -gt 1 ] || [ "${MPS:-}" != 1 ] || tables="4 8"
tables=${RANKS:-$tables}
for ranks in $tables; do
  [ "$ranks" -le "$gpus" ] || [ "${MPS:-}" = 1 ] || { echo "$ranks ranks, and there are $gpus GPUs: MPS=1 has ranks share them" >&2; exit 2; }
done
. kernels/bench/mps.sh
tmp=$(mktemp -d)
trap 'mps_end; rm -rf "$tmp"' EXIT
nccl=$(realpath "${NCCL_LIB:-$home/lib/libnccl.so.2}")
ln -s "$nccl" "$tmp/libnccl.so.2"
[ -e lib/dynamiccl-kernels.fatbin ] || make -s kernels
if [ -z "${LSA:-}" ]; then
  make -s -C kernels lsa NCCL_HOME="$home" ${NVCC:+NVCC="$NVCC"}
  LSA=.cache/kernels/lsa
fi
mkdir -p "$(dirname "$out")"
export COMMIT=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
printf '{"figure":"lsa machine","gpus":"%s","driver":"%s","date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$(date -u +%FT%TZ)" "$COMMIT" | tee -a "$out"
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1

step() { # NAME SECONDS COMMAND...: its exit status; what it prints is kept whatever that is. torchrun takes up to 30 s to end
  local name=$1 limit=$2 status=0
  shift 2
  timeout -k 45 "$limit" "$@" | tee -a "$out" || status=$?
  [ "$status" -eq 0 ] || echo "$name: exit status $status (124 and 137: not done after $limit s; 3: NCCL could not go on with windows)" >&2
  return "$status"
}

lsa=(env LD_LIBRARY_PATH="$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$LSA")
symm_mem=()
if timeout 120 python3 -c 'import torch.distributed' 2>/dev/null; then
  symm_mem=(env ${NCCL_LIB:+LD_PRELOAD="$nccl"} OMP_NUM_THREADS=1 python3 -m torch.distributed.run --standalone)
else
  echo "PyTorch is not here: its symmetric memory is left out" >&2
fi
failed=0
for ranks in $tables; do
  status=0
  if [ "$ranks" -gt "$gpus" ]; then # not NCCL, and nothing of PyTorch's, which asks it
    mps_begin "$tmp"
    step "lsa, $ranks ranks on $gpus GPUs" 600 env CUDA_DEVICE_MAX_CONNECTIONS="$(mps_queues $(((ranks + gpus - 1) / gpus)))" "${lsa[@]}" --ranks "$ranks" "$@" || failed=1
    mps_end
    continue
  fi
  step "lsa, $ranks ranks" 300 "${lsa[@]}" --ranks "$ranks" "$@" || status=$?
  # Registering waits for other ranks and may hang: then the same without. What was checked before need not be again.
  if [ "$status" -eq 3 ]; then
    status=0
    step "lsa, $ranks ranks, no windows" 300 "${lsa[@]}" --ranks "$ranks" "$@" --time --no-symmetric || status=$?
  fi
  [ "$status" -eq 0 ] || failed=1
  [ ${#symm_mem[@]} -eq 0 ] || step "symm_mem, $ranks ranks" 240 "${symm_mem[@]}" --nproc-per-node "$ranks" nccltuner/gputest/symm_mem.py || failed=1
done
exit $failed
