#!/usr/bin/env bash
# The kernels on GIN under compute-sanitizer, on the first two GPUs of this machine: `gin --check --small` of RANKS ranks on NODES pretended
# nodes (2 on 1) over the carrier's type Proxy, whose kernels are NCCL's real ones. A JSON line a tool, with what it found, or that it did not end.
#   kernels/bench/sanitize_gin.sh [RESULTS.jsonl]
# RANKS=4 NODES=2 looks at hierarchical kernels, too: on two GPUs two ranks share each and take turns on it, which takes longer (GIN_LIMIT).
# First without a tool, so that a machine on which GIN does not run at all is not taken for one with findings.
# Needs two GPUs that reach each other, compute-sanitizer, nvcc, Python's nvidia.nccl 2.28.9 and lib/ of `make kernels carrier`. GIN_LIMIT=300
# seconds a tool; GIN_TOOLS="memcheck synccheck"; GIN_TOOL_OPTIONS: more for the tool, such as which kernels it looks at;
# COMPUTE_SANITIZER=PROGRAM; NCCL_LIB=FILE; GIN=PROGRAM, as of gin.sh; LOGS=DIR keeps what was printed. Exit: 0 if all ended and found nothing.
#
# The type is Proxy, moved by CUDA's copies, because the carrier's card is a kernel that stays: the tool would slow it down by as much as what
# it looks at, and it waits for queues that the tool knows nothing of. Ranks are children of one process that has no CUDA, so the tool has to
# follow them: each rank says whether it has the tool's library in it, and there is one report of all. NCCL asks for kernels that a GPU
# may not have and takes no for an answer, so errors of CUDA's API are not reported. racecheck is not among the tools: it looks at shared memory
# alone, of which kernels on GIN have the two times that one thread keeps. One rank's kernel waits for what the other's puts, and for a launch of the carrier's: none may wait for the end of another.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-sanitize-gin-$(date -u +%F).jsonl}
gpus_there
[ "$(nvidia-smi -L | wc -l)" -gt 1 ] || { echo "this needs two GPUs: on one the ranks' kernels would take turns, and a tool makes each turn long" >&2; exit 2; }
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not here: it comes with CUDA's toolkit; COMPUTE_SANITIZER=PROGRAM names it" >&2; exit 2; }
. kernels/bench/gin_program.sh
find_nccl
[ -e lib/dynamiccl-gin.fatbin ] || make -s kernels
[ -e lib/libnccl-net-dynamiccl-carrier.so ] || make -s carrier
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gin_program "$tmp"
ln -s "$PWD/lib/libnccl-net-dynamiccl-carrier.so" "$tmp" # without the kernel beside it
logs=${LOGS:-$tmp}
mkdir -p "$(dirname "$out")" "$logs"
export CUDA_DEVICE_MAX_CONNECTIONS=32 DYNAMICCL_CARRIER=1 DYNAMICCL_CARRIER_TYPE=proxy NCCL_NET_PLUGIN=dynamiccl-carrier
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)
version=$("$sanitizer" --version | sed -n 's/^Version \([0-9.]*\).*/\1/p')
commit=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
ranks=${RANKS:-2} nodes=${NODES:-1}

failed=0
for tool in none ${GIN_TOOLS:-memcheck synccheck}; do
  rm -f "$logs/gin-$tool"-*.log
  began=$(date +%s%N) status=0 command=()
  # shellcheck disable=SC2086 # options are words
  [ "$tool" = none ] || command=("$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --print-limit 20
    --log-file "$logs/gin-$tool-%p.log" ${GIN_TOOL_OPTIONS:-})
  [ "$tool" != memcheck ] || command+=(--report-api-errors no)
  timeout -k 5 "${GIN_LIMIT:-300}" "${command[@]}" "$GIN" --ranks "$ranks" --nodes "$nodes" --check --small --contexts 2 >"$logs/gin-$tool.out" 2>&1 || status=$?
  seconds=$(awk "BEGIN { printf \"%.1f\", $(($(date +%s%N) - began)) / 1e9 }")
  wrong=$(sed -n 's/^{"figure":"gin end".*"wrong":\([0-9]*\)}.*/\1/p' "$logs/gin-$tool.out")
  elements=$(sed -n 's/^{"figure":"gin check".*"elements":\([0-9]*\),.*/\1/p' "$logs/gin-$tool.out" | tail -n 1)
  followed=$(grep -c '"figure":"gin followed"' "$logs/gin-$tool.out" || true)
  errors=0
  if [ "$tool" != none ]; then # a tool that was killed has no summary
    found=$(sed -nE 's/.*ERROR SUMMARY: ([0-9]+) .*/\1/p' "$logs/gin-$tool"-*.log 2>/dev/null || true)
    [ -n "$found" ] && [ "$followed" -eq "$ranks" ] && errors=$((${found//$'\n'/+})) || errors=null
  fi
  ended=true
  [ -n "$wrong" ] && [ "$errors" != null ] && [[ $status =~ ^[019]$ ]] || ended=false
  printf '{"figure":"gin sanitize","ranks":%s,"nodes":%s,"tool":"%s","version":"%s","ended":%s,"errors":%s,"followed":%s,"status":%s,"elements":%s,"wrong":%s,"seconds":%s,"gpus":"%s","driver":"%s","date":"%s","commit":"%s"}\n' \
    "$ranks" "$nodes" "$tool" "$version" "$ended" "$errors" "$followed" "$status" "${elements:-0}" "${wrong:-null}" "$seconds" "$gpus" "$driver" "$(date -u +%FT%TZ)" "$commit" | tee -a "$out"
  if grep '"left_out"' "$logs/gin-$tool.out" >&2; then failed=1; fi # kernels that nobody looked at
  [ "$status $ended $errors $wrong" = "0 true 0 0" ] && continue
  failed=1
  for file in "$logs/gin-$tool".out "$logs/gin-$tool"-*.log; do
    [ -e "$file" ] || continue
    echo "--- $file" >&2
    head -n 60 "$file" >&2
  done
  [ "$tool" != none ] || { echo "GIN does not run here without a tool: no tool is tried" >&2; exit 1; }
done
exit $failed
