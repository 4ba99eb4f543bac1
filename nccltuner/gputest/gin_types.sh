#!/usr/bin/env bash
# GDAKI and Proxy beside each other with NCCL 2.32.3 over the carrier: what a put takes with either (kernels/bench/gin_trips.sh), by turns,
# and a sweep in which one communicator has both: choices gin/gdaki/N and gin/proxy/N.     nccltuner/gputest/gin_types.sh [RESULTS.jsonl]
# What puts take goes to RESULTS.jsonl, the sweep's table to the same name with .csv.
# Needs what `make all carrier kernels` left in bin/ and lib/, two GPUs, Python's nvidia.nccl of 2.32.3 or NCCL_LIB=FILE, its
# libnccl.so.2; and nvcc with NCCL_HOME=FOLDER (FOLDER/include has its headers) or GIN=PROGRAM, .cache/gpu/gin-2.32.3 of bundle.sh.
# Environment: COLLECTIVES, SIZES of the sweep; TYPES="3 2 3 2" of the puts, empty: none; LIMIT=60 seconds for those of a type. Exit: 0 if all puts were timed and the table has both.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-types-$(date -u +%F).jsonl}
GIN_TYPE=both
. nccltuner/gputest/gin_common.sh
[ "$version" = 23203 ] || { echo "$NCCL_LIB is NCCL $version, and both types are 2.32.3's: NCCL_LIB=FILE" >&2; exit 2; }
failed=0
for type in ${TYPES-3 2 3 2}; do
  env -u NCCL_RMA_PLUGIN -u NCCL_GIN_PLUGIN -u DYNAMICCL_CARRIER_FAULTS -u SIZES GIN_TYPE=$type TUNINGS=- NCCL_LIB="$NCCL_LIB" LIMIT="${LIMIT:-60}" \
    kernels/bench/gin_trips.sh "$out" || failed=1
done
table=${out%.jsonl}.csv
bin/dynamiccld sweep --nodes 2 --choices gin,ring --collectives "${COLLECTIVES:-AllReduce,AllToAll}" --sizes "${SIZES:-1K,16K,64K,256K,1M}" --out "$table" || failed=1
for type in gdaki proxy; do
  grep -q ",gin,$type," "$table" 2>/dev/null || { echo "$table has no choice gin/$type/N: NCCL granted no GIN of that type" >&2; failed=1; }
done
exit $failed
