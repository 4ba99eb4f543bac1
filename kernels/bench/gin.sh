#!/usr/bin/env bash
# The kernels on NCCL's GIN on the GPUs of this machine, as JSON lines: what NCCL granted, the probe of every peer, every element
# checked, then times of one put there and back and of collectives beside NCCL's; for two ranks, for four, and with NCCL told that
# they are on two hosts, where two may share a GPU and are then checked, not timed, unless MPS=1; then random traffic, every byte compared, with a delay on purpose where the carrier can have one, and a rank
# that is killed in it.
#   kernels/bench/gin.sh [RESULTS.jsonl] [option of gin]...
# Needs two or more GPUs that reach each other, nvcc, Python's nvidia.nccl of the version that the kernels are compiled with, and
# NICs that NCCL drives, or a plugin that brings GIN: DYNAMICCL_CARRIER=1 takes the one for development, dynamiccl-carrier, with NCCL
# 2.30.5 and later of the type GIN_TYPE: 2 Proxy, 3 GDAKI (carrier.sh).
# Hierarchical kernels, which 4/2 has ranks enough for, and AllToAllv are those of lib/dynamiccl-gin.fatbin, or -gin-2.32.3.fatbin (make kernels); without
# it a line says that they were left out.
# Environment: TABLES="2 4 4/2" ranks, or ranks/hosts, " " none; MESSAGES=60000 of the traffic, from each rank to each on each context, 0: none;
# a tenth of these are of up to 1 MiB, with stops; RANKS=N of the traffic, and of the rank that is killed: more than GPUs are a node each;
# MPS=1 has processes that share a GPU run beside each other (CUDA's multi-process service) and timed, on two contexts: with more of
# them the carrier's kernels and the programs' wait for each other's queues, 2 ms each time;
# LIMIT=300 seconds for each; NCCL_LIB=FILE another libnccl.so.2, and NCCL_HOME=FOLDER the headers of its version (FOLDER/include);
# GIN=PROGRAM one that was built elsewhere (make -C kernels gin ARCH=sm_90). A table that fails keeps no other from being made.
# Exit: 0 if every table was made and every element is right.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-$(date -u +%F).jsonl}
shift $(($# > 0))
gpus_there
. kernels/bench/gin_program.sh
find_nccl
gpus=$(nvidia-smi -L | wc -l)
[ "$gpus" -ge 4 ] && tables="2 4 2/2 4/2" || tables="2 2/2 4/2"
tmp=$(mktemp -d)
. kernels/bench/mps.sh
trap 'mps_end; rm -rf "$tmp"' EXIT
gin_program "$tmp"
version=$(gin_version "$tmp")
. kernels/bench/carrier.sh
[ "${DYNAMICCL_CARRIER:-}" != 1 ] || carrier_names "$version"
mkdir -p "$(dirname "$out")"
printf '{"figure":"gin machine","gpus":"%s","driver":"%s","nccl":%s,"plugin":"%s","carrier":%s,"date":"%s","commit":"%s"}\n' \
  "$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$version" "${NCCL_NET_PLUGIN:-${NCCL_GIN_PLUGIN:-${NCCL_RMA_PLUGIN:-}}}" \
  "$([ "${DYNAMICCL_CARRIER:-}" = 1 ] && echo true || echo false)" "$(date -u +%FT%TZ)" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}" | tee -a "$out"
failed=0
gin() { # RANKS NODES option...
  local ranks=$1 nodes=$2 status=0
  shift 2
  timeout -k 10 "${LIMIT:-300}" "$GIN" --ranks "$ranks" --nodes "$nodes" "$@" | tee -a "$out" || status=$?
  [ "$status" -eq 0 ] && return
  failed=1
  printf '{"figure":"gin table","ranks":%s,"nodes":%s,"options":"%s","status":%s}\n' "$ranks" "$nodes" "$*" "$status" | tee -a "$out"
  echo "gin, $ranks ranks on $nodes $*: exit status $status (3: no GIN, the lines say why; 4: a step was late; 124 and 137: not done after ${LIMIT:-300} s)" >&2
}
for table in ${TABLES:-$tables}; do
  nodes=1
  [ "$table" = "${table%/*}" ] || nodes=${table#*/}
  # Ranks that share a GPU take turns on it, but under MPS: what is right can be seen there, but not how long it takes.
  shared=
  [ "${table%/*}" -le "$gpus" ] || shared=--check
  if [ -n "$shared" ] && [ "${MPS:-}" = 1 ]; then
    mps_begin "$tmp"
    shared="--check --time --contexts 2"
  fi
  gin "${table%/*}" "$nodes" $shared "$@"
done
messages=${MESSAGES:-60000} ranks=${RANKS:-$gpus} alone=1 few=
if [ "$ranks" -gt "$gpus" ]; then # NCCL lets ranks of pretended nodes share a GPU, and none of one node
  alone=$ranks
  [ "${MPS:-}" != 1 ] || { mps_begin "$tmp"; few="--contexts 2"; }
fi
if [ "$messages" -gt 0 ]; then
  gin "$ranks" "$alone" $few --traffic "$messages"
  gin "$ranks" "$alone" $few --traffic $((messages / 10)) --largest 20 --stops 200
  [ "${DYNAMICCL_CARRIER:-}" != 1 ] || DYNAMICCL_CARRIER_LATENCY_US=1.3 gin "$ranks" "$ranks" $few --traffic "$messages"
  [ "${DYNAMICCL_CARRIER:-}" != 1 ] || DYNAMICCL_CARRIER_LATENCY_US=20 DYNAMICCL_CARRIER_GBS=5 gin "$ranks" "$alone" $few --traffic $((messages / 3))
  mps_end # which a client that is killed may take others along with
  gin "$ranks" "$alone" $few --kill
  # Is anything left on a GPU? What nvidia-smi says is of up to a second before.
  for ((look = 0; look < 10; look++)); do
    busy=$(nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits | paste -sd ,)
    [[ $busy =~ [1-9] ]] || break
    sleep 1
  done
  printf '{"figure":"gin kill left","ranks":%s,"nodes":%s,"utilization":"%s"}\n' "$ranks" "$alone" "$busy" | tee -a "$out"
  [[ ! $busy =~ [1-9] ]] || { failed=1; echo "GPUs have something to do behind the killed rank: $busy %" >&2; }
fi
exit $failed
