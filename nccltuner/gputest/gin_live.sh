#!/usr/bin/env bash
# Programs learn when calls go over GIN and when over NCCL's sockets, while the carrier's links change under them: as they are, each
# put 1.3 us late (as by a fall back to a proxy), a link of GBS GB/s, and as they were. Plain NCCL over sockets makes the same calls
# beside.     nccltuner/gputest/gin_live.sh [RESULTS.jsonl] [option of bench]...
# Lines of `dynamiccld bench`, and at the end of each phase one of what the daemon's links say (figure "gin links").
# Needs what `make all carrier kernels` left in bin/ and lib/, two or more GPUs and Python's nvidia.nccl of 2.28.9 or 2.32.3, or
# NCCL_LIB=FILE, a libnccl.so.2 of one of them. With 2.28.9 the carrier gives the type that DYNAMICCL_CARRIER_TYPE says (gdaki), with
# 2.32.3 Proxy alone (docs/design.md, decision 29).
# Environment: TIME=30 seconds a phase; GBS=0.2 of a capped link; NODES=2; COLLECTIVES, SIZES; MPS=1 and RANKS=N: so many ranks share
# the GPUs under CUDA's multi-process service, on two contexts (one GPU is enough for nodes of a rank each). Exit: as of bench.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-live-$(date -u +%F).jsonl}
shift $(($# > 0))
command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
[ -e lib/libnccl-net-dynamiccl-carrier.so ] && [ -e lib/dynamiccl-gin.fatbin ] || { echo "lib/ has no carrier or no kernels: run make all carrier kernels first" >&2; exit 2; }
if [ -z "${NCCL_LIB:-}" ]; then
  home=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])') ||
    { echo "NCCL is not here: pip install nvidia-nccl-cu13==2.28.9, or NCCL_LIB=FILE" >&2; exit 2; }
  NCCL_LIB=$home/lib/libnccl.so.2
fi
version=$(timeout 60 python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$NCCL_LIB") ||
  { echo "$NCCL_LIB does not load: name a libnccl.so.2 with NCCL_LIB=FILE" >&2; exit 2; }
. kernels/bench/mps.sh
tmp=$(mktemp -d)
bench=
stop() {
  [ -z "$bench" ] || kill "$bench" 2>/dev/null || true
  wait
  mps_end
  rm -rf "$tmp"
}
trap stop EXIT
fault() { # LINE...: renamed into place, so that no half of it is read
  printf '%s\n' "$@" >"$tmp/new"
  mv "$tmp/new" "$tmp/faults"
}
fault "# none"
mkdir -p "$(dirname "$out")"
ln -s "$(realpath "$NCCL_LIB")" "$tmp/libnccl.so.2"
if [ "$version" -ge 23005 ]; then # GIN stands on a plugin of its own, and NCCL's Socket network stays (docs/design.md, decision 29)
  [ -e lib/dynamiccl-gin-2.32.3.fatbin ] || { echo "lib/dynamiccl-gin-2.32.3.fatbin is not there: run make kernels first" >&2; exit 2; }
  export NCCL_RMA_PLUGIN=libnccl-net-dynamiccl-carrier.so NCCL_NET=Socket
  arms=plain,run
  # NCCL's threads and the carrier's spin there: with bench's 4 CPUs a rank they take them from each other.
  [ "$(nproc)" -lt 32 ] || set -- --cpus-per-rank 8 "$@"
else
  export NCCL_NET_PLUGIN=dynamiccl-carrier
  arms=plain+NCCL_NET=Socket,run+DYNAMICCL_GIN_NET=dynamiccl-carrier
fi
export NCCL_NVLS_ENABLE=0 NCCL_IB_DISABLE=1 DYNAMICCL_CARRIER=1 DYNAMICCL_CARRIER_FAULTS=$tmp/faults
export LD_LIBRARY_PATH=$tmp:$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
if [ "${MPS:-}" = 1 ]; then # there are fewer queues for each process then
  export CUDA_DEVICE_MAX_CONNECTIONS=16 NCCL_GIN_NCONTEXTS=${NCCL_GIN_NCONTEXTS:-2}
  mps_begin "$tmp"
fi
names=("quiet" "latency_us 1.3" "gbs ${GBS:-0.2}" "quiet again")
each=quiet:${TIME:-30}s
bin/dynamiccld bench --nodes "${NODES:-2}" ${RANKS:+--ranks "$RANKS"} --arms "$arms" --collectives "${COLLECTIVES:-AllReduce,AllToAll}" \
  --sizes "${SIZES:-1K,16K,64K,256K,1M}" --phases "$each,$each,$each,$each" --out "$tmp/bench.jsonl" "$@" &
bench=$!
phase=0
links() { # what the daemon of the arm that learns says now
  local dir said
  dir=$(compgen -G "/dev/shm/dynamiccl-bench-$bench-*/1/run" || compgen -G "${TMPDIR:-/tmp}/dynamiccl-bench-$bench-*/1/run") || return 0
  said=$(bin/dynamiccld links --dir "$dir" --json 2>/dev/null) || return 0
  printf '{"figure":"gin links","phase":%d,"faults":"%s","at":"%s","links":%s}\n' "$phase" "${names[$phase]}" "$1" "$(tr -d '\n' <<<"$said")" >>"$tmp/links.jsonl"
}
while kill -0 "$bench" 2>/dev/null; do
  sleep 0.1
  ended=$(grep -c '"kind":"phase"' "$tmp/bench.jsonl" 2>/dev/null || true)
  [ "${ended:-0}" -gt "$phase" ] || continue
  links end
  phase=$ended
  case $phase in
    1) fault "latency_us 1.3" ;;
    2) fault "gbs ${GBS:-0.2}" ;;
    *) fault "# none" ;;
  esac
  [ "$phase" -lt 4 ] || break
done
status=0
wait "$bench" || status=$?
bench=
cat "$tmp/bench.jsonl" "$tmp/links.jsonl" >>"$out"
exit "$status"
