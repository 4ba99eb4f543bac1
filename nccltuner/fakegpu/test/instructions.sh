#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Instructions of our libraries in a call that NCCL runs, not timed and not captured, by function, over the stand-ins, which stay the
# same from run to run; and the calls that they make into CUDA's driver, NCCL and libc.
#   instructions.sh [HOW [BYTES]]     HOW as of one_process: threads (default) or group; KERNELS=1: the communicator has kernels of ours
# Needs valgrind, `make all fakegpu`, and nothing else that uses the processor: samples of a late daemon would be counted, which clock_gettime tells.
set -eu -o pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd) how=${1:-threads} bytes=${2:-1024}
fake=$root/.cache/fakegpu lines=4 calls=2000 ranks=2
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
printf '\x50\xed\x55\xba' >"$dir/kernels.fatbin"
"$root/bin/dynamiccld" serve --dir "$dir" --store none --no-explore --sample-every 512 --log-level error &
sleep 1
mkfifo "$dir/in"
: >"$dir/said"
exec 9<>"$dir/in"
if [ "${KERNELS:-0}" = 1 ]; then kernels=FAKEGPU_KERNEL_US=9; else kernels=DYNAMICCL_NO_KERNELS=1; fi
env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$root/lib/libdynamiccl.so:$fake/libnccl.so.2" FAKEGPU_DIR="$dir" FAKEGPU_OPTIONS="--nccl 2.28.9" \
  FAKEGPU_TABLE="$root/tuner/tunersim/testdata/measurements/h200x2-nvlink-quiet.csv" DYNAMICCL_DIR="$dir" DYNAMICCL_SCRATCH_MIB=8 \
  DYNAMICCL_KERNELS="$dir/kernels.fatbin" NCCL_TUNER_PLUGIN="$root/lib/libnccl-tuner-dynamiccl.so" \
  NCCL_PROFILER_PLUGIN="$root/lib/libnccl-profiler-dynamiccl.so" TMPDIR="$dir" $kernels \
  valgrind -q --tool=callgrind --instr-atstart=no --callgrind-out-file="$dir/out" "$fake/one_process" "$how" $ranks "$bytes" $calls <"$dir/in" >"$dir/said" 9>&- &
program=$!
said() { for ((i = 0; i < 300 && $(wc -l <"$dir/said") < $1; i++)); do sleep 0.1; done; [ "$(wc -l <"$dir/said")" -ge "$1" ] || { echo "one_process says nothing" >&2; exit 1; }; }
for n in 1 2; do echo >&9; said $n; sleep 2; done # until the daemon's plan is in force
TMPDIR=$dir callgrind_control -i on >/dev/null 2>&1
for ((n = 0; n < lines; n++)); do echo >&9; done
said $((2 + lines))
TMPDIR=$dir callgrind_control -i off >/dev/null 2>&1
exec 9>&-
wait $program
awk -v calls=$((lines * calls * ranks)) '
  function name(of, text,  id) { id = text; sub(/\).*/, ")", id); if (text ~ /\) /) { sub(/^[^)]*\) /, "", text); of[id] = text }; return of[id] }
  function ours(object) { return object ~ /dynamiccl[^\/]*$/ }
  /^ob=/ { object = name(objects, substr($0, 4)); next }
  /^cob=/ { callee = name(objects, substr($0, 5)); next }
  /^fn=/ { fn = name(fns, substr($0, 4)); next }
  /^cfn=/ { called = name(fns, substr($0, 5)); next }
  /^calls=/ { if (callee == "") callee = object; split($1, n, "="); if (ours(object) && !ours(callee)) out[called] += n[2]; callee = ""; skip = 1; next }
  /^[0-9+*-]/ { if (!skip && ours(object)) { self[fn " " object] += $2; all += $2 }; skip = 0 }
  END {
    for (f in self) if (self[f] >= calls / 10) { at = f; sub(/ .*\//, " ", at); printf "%8.1f %s\n", self[f] / calls, at | "sort -rn" }
    close("sort -rn")
    printf "%8.1f instructions a call; out of our libraries:", all / calls
    for (f in out) if (out[f] >= calls / 100) printf " %s %.2f", f, out[f] / calls
    print ""
  }' "$dir/out"
