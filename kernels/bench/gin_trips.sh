#!/usr/bin/env bash
# What the carrier's card needs for a put (docs/design.md, decision 31), two GPUs, one context: there and back, and to the counter,
# for sizes from 8 B to 4 MiB, beside what a copy engine and a kernel need to copy as much; for each way to share copies among blocks.
#   kernels/bench/gin_trips.sh [RESULTS.jsonl]
# The first line says on which machine, when and of which commit.
# Environment: TUNINGS="WARP,BLOCK,PART,HELPERS ..." (DYNAMICCL_CARRIER_SIZES of each run: bytes that are a warp's,
# that are one block's, that another block's part has at least, and how many such blocks; - is what the card has by itself);
# COMMIT=NAME where there is no git; SIZES=BYTES,...; FATBINS="FILE ..." kernels of the card to be measured in place of lib/dynamiccl-carrier.fatbin, each with all
# tunings, or with one: FILE=TUNING; LIMIT=60 seconds for each run; NCCL_LIB=FILE libnccl.so.2, GIN=PROGRAM and, with NCCL 2.30.5 and
# later, GIN_TYPE, as gin.sh has them: GIN_TYPE=3 is the card, 2 copies that the host drives, which no tuning is for (TUNINGS=-).
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
gpus_there
out=${1:-/dev/null}
[ -n "${NCCL_LIB:-}" ] || NCCL_LIB=$(nccl_home)/lib/libnccl.so.2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$(realpath "$NCCL_LIB")" "$tmp/libnccl.so.2"
ln -s "$PWD/lib/libnccl-net-dynamiccl-carrier.so" "$tmp"
if [ -z "${GIN:-}" ]; then
  make -s -C kernels gin NCCL_LIB="$tmp" ${NVCC:+NVCC="$NVCC"}
  GIN=.cache/kernels/gin
fi
export NCCL_NVLS_ENABLE=0 LD_LIBRARY_PATH="$tmp${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
version=$(timeout 60 python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$tmp/libnccl.so.2") || version=0
. kernels/bench/carrier.sh
carrier_names "$version"
printf '{"figure":"gin machine","gpus":"%s","driver":"%s","nccl":%s,"plugin":"%s","carrier":true,"date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$version" "${NCCL_NET_PLUGIN:-${NCCL_GIN_PLUGIN:-${NCCL_RMA_PLUGIN:-}}}" "$(date -u +%FT%TZ)" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
failed=0
for fatbin in ${FATBINS:-lib/dynamiccl-carrier.fatbin}; do
  tunings=${TUNINGS:-- 4096,98304,8192,16}
  [ "$fatbin" = "${fatbin#*=}" ] || tunings=${fatbin#*=}
  ln -sf "$(realpath "${fatbin%%=*}")" "$tmp/dynamiccl-carrier.fatbin" # the library looks for it beside itself
  for tuning in $tunings; do
    [ "$tuning" = - ] && unset DYNAMICCL_CARRIER_SIZES || export DYNAMICCL_CARRIER_SIZES=$tuning
    printf '{"figure":"gin trips","kernel":"%s","sizes":"%s"}\n' "$(basename "${fatbin%%=*}" .fatbin)" "$tuning" | tee -a "$out"
    status=0
    timeout -k 5 "${LIMIT:-60}" "$GIN" --ranks 2 --contexts 1 --trips --sizes "${SIZES:-8,4096,16384,32768,65536,131072,262144,1048576,4194304}" | tee -a "$out" || status=$?
    [ "$status" -eq 0 ] || { failed=1; echo "gin --trips: exit status $status (3: no GIN, the lines say why; 124 and 137: not done after LIMIT=${LIMIT:-60} s)" >&2; }
  done
done
exit $failed
