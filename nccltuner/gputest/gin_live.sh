#!/usr/bin/env bash
# Programs learn when calls go over GIN and when over NCCL's sockets, while the carrier's links change under them: as they are, each
# put 1.3 us late (as by a fall back to a proxy), a link of GBS GB/s, and as they were. Plain NCCL over sockets makes the same calls
# beside.     nccltuner/gputest/gin_live.sh [RESULTS.jsonl] [option of bench]...
# Lines of `dynamiccld bench`, and at the end of each phase one of what the daemon's links say (figure "gin links").
# Needs what `make all carrier kernels` left in bin/ and lib/, two or more GPUs and Python's nvidia.nccl of 2.28.9 or 2.32.3, or
# NCCL_LIB=FILE, a libnccl.so.2 of one of them. With 2.28.9 the carrier gives the type that DYNAMICCL_CARRIER_TYPE says (gdaki), with
# 2.32.3 the one that GIN_TYPE says (2, Proxy; 3, GDAKI; both).
# Environment: TIME=30 seconds a phase; GBS=0.2 of a capped link; FAULTS="quiet;latency_us 1.3;gbs 0.2;quiet again" other phases:
# what each asks of the carrier; NODES=2; COLLECTIVES, SIZES; MPS=1 and RANKS=N: so many ranks share the GPUs under CUDA's
# multi-process service, on two contexts (one GPU is enough for nodes of a rank each). Exit: as of bench.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-live-$(date -u +%F).jsonl}
shift $(($# > 0))
. nccltuner/gputest/gin_common.sh
IFS=";" read -ra names <<<"${FAULTS:-quiet;latency_us 1.3;gbs ${GBS:-0.2};quiet again}"
phases=$(printf "quiet:${TIME:-30}s,%.0s" "${names[@]}")
phase=0
now() { # what the carrier is to do in this phase
  case ${names[$phase]} in quiet*) fault "# none" ;; *) fault "${names[$phase]}" ;; esac
}
now
bin/dynamiccld bench --nodes "${NODES:-2}" ${RANKS:+--ranks "$RANKS"} --arms "$arms" --collectives "${COLLECTIVES:-AllReduce,AllToAll}" \
  --sizes "${SIZES:-1K,16K,64K,256K,1M}" --phases "${phases%,}" --out "$tmp/bench.jsonl" "${more[@]}" "$@" &
bench=$!
links() { # what the daemon of the arm that learns says now
  local dir said
  dir=$(arm_dir) || return 0
  said=$(bin/dynamiccld links --dir "$dir" --json 2>/dev/null) || [ $? = 4 ] || return 0 # 4: it has seen none, and [] says so
  printf '{"figure":"gin links","phase":%d,"faults":"%s","at":"%s","links":%s}\n' "$phase" "${names[$phase]}" "$1" "$(tr -d '\n' <<<"$said")" >>"$tmp/links.jsonl"
}
while kill -0 "$bench" 2>/dev/null; do
  sleep 0.1
  ended=$(grep -c '"kind":"phase"' "$tmp/bench.jsonl" 2>/dev/null || true)
  [ "${ended:-0}" -gt "$phase" ] || continue
  links end
  phase=$ended
  [ "$phase" -lt ${#names[@]} ] || break
  now
done
status=0
wait "$bench" || status=$?
bench=
cat "$tmp/bench.jsonl" "$tmp/links.jsonl" >>"$out"
exit "$status"
