#!/usr/bin/env bash
# What NCCL asks its tuner about broadcasts of one group, and whether their results are right: on two GPUs, plain NCCL, nothing tuned.
#   nccltuner/gputest/asked.sh [RESULTS.jsonl [CASE...]]
# From 2.29 on broadcasts of several roots are one kernel, about which it asks as about an AllGather (docs/design/choices.md). What has been
# read in NCCL's source is held against it here; of an NCCL without source it is how one knows. Environment: NCCL_LIB=FILE another
# libnccl.so.2 than the loader's.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
gpus_there
out=${1:-docs/figures/gpu-asked-$(date -u +%F).jsonl}
tmp=$(mktemp -d /tmp/dyn-asked.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -fPIC -shared -o "$tmp/libnccl-tuner-asked.so" nccltuner/gputest/asked/tuner.c
if [ -n "${NCCL_LIB:-}" ]; then
  ln -s "$(realpath "$NCCL_LIB")" "$tmp/libnccl.so.2"
  export LD_LIBRARY_PATH="$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
export NCCL_TUNER_PLUGIN="$tmp/libnccl-tuner-asked.so" NCCL_NVLS_ENABLE=0
shift $(($# > 0))
python3 nccltuner/gputest/asked/broadcasts.py "$@" | tee "$out"
