#!/usr/bin/env bash
# Which calls NCCL's device kernels run, and run rightly: plain NCCL, nothing of ours, a process a GPU (device_types.py). First on ordinary
# memory as `dynamiccld run` has it, with LL forced, and on registered memory; then on registered memory without these settings.
#   nccltuner/gputest/device_types.sh [RESULTS.jsonl]
# Needs two or more GPUs, PyTorch, and NCCL's wheel of Python's, or NCCL_LIB=FILE another libnccl.so.2. Exit: 0 whatever NCCL does.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-device-types-$(date -u +%F).jsonl}
gpus_there
mkdir -p "$(dirname "$out")"
lib=${NCCL_LIB:-$(nccl_home)/lib/libnccl.so.2}
[ -e "$lib" ] || { echo "NCCL_LIB=$lib is not there" >&2; exit 2; }
MACHINE=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0)
COMMIT=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
export MACHINE COMMIT LD_PRELOAD=$lib NCCL_NVLS_ENABLE=0 # PyTorch's own is another one
NCCL_SYM_NOWIN_ENABLE=1 NCCL_PROTO=LL python3 nccltuner/gputest/device_types.py "$out"
python3 nccltuner/gputest/device_types.py "$out"
