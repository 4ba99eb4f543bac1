#!/usr/bin/env bash
# Every kernel under compute-sanitizer's memcheck, racecheck and synccheck, on the first two GPUs of this machine, or by two processes in
# turns on its only one: a JSON line a tool, with what it found, or that it did not end.     kernels/bench/sanitize.sh [RESULTS.jsonl]
# First without a tool, so that a machine on which the kernels do not run at all is not taken for one with findings.
# Needs two GPUs of one NVLink domain, or one, compute-sanitizer, nvcc. LIMIT=120 seconds a tool, 300 on one GPU; TOOLS="memcheck racecheck synccheck";
# COMPUTE_SANITIZER=PROGRAM; SANITIZE=PROGRAM runs one that was built elsewhere (make -C kernels sanitize ARCH=sm_90); LOGS=DIR
# keeps what tools and program printed. Exit: 0 if all ended and found nothing.
#
# Kernels of two ranks wait for each other, so no launch may wait for the end of another one. By its manual ("Nonblocking
# mode") the tool does not block launches unless --force-blocking-launches or --force-synchronization-limit say so; the first is
# a switch, no "no" may follow it. And each rank has a tool of its own, which has one process and one GPU to look at. On one GPU
# the processes take turns: nothing here needs them beside each other, and nobody says that the tool works under the multi-process service.
# By the manual racecheck looks at shared memory alone, which kernels in bulk, AllToAllv and those with the normalisation have, and initcheck
# reports memory that another process wrote, so it is not among the tools.
set -euo pipefail
. "$(dirname "$0")/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-sanitize-$(date -u +%F).jsonl}
gpus_there
[ "$(nvidia-smi -L | wc -l)" -gt 1 ] && limit=${LIMIT:-120} || limit=${LIMIT:-300}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not here: it comes with CUDA's toolkit; COMPUTE_SANITIZER=PROGRAM names it" >&2; exit 2; }
[ -e lib/dynamiccl-kernels.fatbin ] || make -s kernels
if [ -z "${SANITIZE:-}" ]; then
  make -s -C kernels sanitize ${NVCC:+NVCC="$NVCC"}
  SANITIZE=.cache/kernels/sanitize
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
logs=${LOGS:-$tmp}
mkdir -p "$(dirname "$out")" "$logs"
export CUDA_MODULE_LOADING=LAZY # kernels that are not run are not rewritten
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd ';')
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)
version=$("$sanitizer" --version | sed -n 's/^Version \([0-9.]*\).*/\1/p')
commit=${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}

run() { # TOOL RANK: prints its exit status
  local tool=() status=0
  # Ports apart, so that two tools that start at once do not ask for the same one.
  [ "$1" = none ] || tool=("$sanitizer" --tool "$1" --target-processes application-only --port $((49152 + 50 * $2)) --error-exitcode 9
    --print-limit 20 --log-file "$logs/$1-$2.log")
  timeout -k 5 "$limit" "${tool[@]}" "$SANITIZE" "$2" 2 "$tmp/shared" lib/dynamiccl-kernels.fatbin >"$logs/$1-$2.out" 2>&1 || status=$?
  echo "$status" >"$tmp/status-$2"
}

failed=0
for tool in none ${TOOLS:-memcheck racecheck synccheck}; do
  : >"$tmp/shared"
  rm -f "$logs/$tool"-?.log
  began=$(date +%s%N)
  run "$tool" 0 &
  run "$tool" 1 &
  wait
  seconds=$(awk "BEGIN { printf \"%.1f\", $(($(date +%s%N) - began)) / 1e9 }")
  said=$(grep -h '"figure":"lsa sanitize"' "$logs/$tool"-?.out | grep -v '"ended":false' | head -n 1 | sed 's/^{"figure":"lsa sanitize",//; s/}$//' || true)
  errors=0
  if [ "$tool" != none ]; then
    # One summary a rank; a tool that was killed has none.
    found=$(sed -nE 's/.*(ERROR|RACECHECK) SUMMARY: ([0-9]+) .*/\2/p' "$logs/$tool"-?.log 2>/dev/null || true)
    [ "$(wc -w <<<"$found")" -eq 2 ] && errors=$((${found//$'\n'/+})) || errors=null
  fi
  ended=true
  # Of the exit statuses 9 says that the tool found something, 1 that a rank did or could not go on; all others are no end.
  [ -n "$said" ] && [ "$errors" != null ] && [[ $(cat "$tmp/status-0" "$tmp/status-1" | paste -sd ' ') =~ ^[019]\ [019]$ ]] || ended=false
  printf '{"figure":"lsa sanitize","tool":"%s","version":"%s","ended":%s,"errors":%s,"status":[%s,%s],%s"seconds":%s,"gpus":"%s","driver":"%s","date":"%s","commit":"%s"}\n' \
    "$tool" "$version" "$ended" "$errors" "$(cat "$tmp/status-0")" "$(cat "$tmp/status-1")" "${said:+$said,}" "$seconds" "$gpus" "$driver" \
    "$(date -u +%FT%TZ)" "$commit" | tee -a "$out"
  if [ "$(cat "$tmp/status-0" "$tmp/status-1" | sort -u)" != 0 ] || [ "$ended $errors" != "true 0" ]; then
    failed=1
    for file in "$logs/$tool"-?.*; do
      echo "--- $file" >&2
      head -n 60 "$file" >&2
    done
    [ "$tool" != none ] || { echo "the kernels do not run here without a tool: no tool is tried" >&2; exit 1; }
  fi
done
exit $failed
