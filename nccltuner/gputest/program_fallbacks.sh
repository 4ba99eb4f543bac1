#!/usr/bin/env bash
# Whatever is missing, a program runs as plain NCCL and one line says why, with NCCL_DEBUG not set, as users have it: a JSON line for each case, pass or fail.
#   nccltuner/gputest/program_fallbacks.sh [RESULTS.jsonl]
# A case passes when the program ends with 0 (the default one, a few DDP steps, fails on parameters that differ over ranks) and
# what it and `dynamiccld run` printed has the line so often as is wanted: once; once from each rank where none knows its rank. Environment: PROGRAM="..." another program; GPUS, NODES, MPS, RANKS:
# program_transport.sh (MPS=1 RANKS=2: over sockets, so one GPU is enough); OLD_NCCL=FILE a libnccl.so.2 of a time before communicators had an
# id (2.26 or older), for one case more; LIMIT=180 seconds a case.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
root=$PWD
. nccltuner/gputest/program_transport.sh
[ -n "${PROGRAM:-}" ] || torchrun_there
if [ $# -gt 0 ]; then exec 3>>"$1"; else exec 3>&1; fi
transport "$([ "${MPS:-}" = 1 ] && echo socket || echo nvlink)" "" ""
program=${PROGRAM:-$launch examples/ddp.py --layers 4 --hidden 512 --heads 8 --sequence 256 --batch 4 --steps 20 --warmup 2 --check}
read -ra words <<<"$program"
tmp=$(mktemp -d /tmp/dyn-fallbacks.XXXXXX)
trap 'mps_end; rm -rf "$tmp" "$shared"' EXIT
mkdir -m 700 "$tmp/run" "$tmp/alone" "$tmp/other"
commit=${PROGRAM_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1) || machine=none
unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_ALGO NCCL_PROTO NCCL_DEBUG NCCL_DEBUG_SUBSYS LD_PRELOAD
while read -r name; do unset "$name"; done < <(compgen -e DYNAMICCL_ || true)
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
tuner=NCCL_TUNER_PLUGIN=$root/lib/libnccl-tuner-dynamiccl.so profiler=NCCL_PROFILER_PLUGIN=$root/lib/libnccl-profiler-dynamiccl.so
run=(bin/dynamiccld run --dir "$tmp/run" --store "$tmp/store.db")
failed=0
# fallback CASE LINES REGEX COMMAND...: so many lines must match ("many": one or more); the first one is shown.
fallback() {
  local case=$1 lines=$2 regex=$3 code=0 line count
  shift 3
  timeout -k 30 "${LIMIT:-180}" "$@" >"$tmp/log" 2>&1 || code=$?
  line=$(grep -m 1 -E "$regex" "$tmp/log" || true)
  count=$(grep -cE "$regex" "$tmp/log" || true)
  if [ $code -ne 0 ] || ! { [ "$count" = "$lines" ] || { [ "$lines" = many ] && [ "$count" -gt 0 ]; }; }; then
    failed=1
    echo "FAILED: $case: exit code $code (wanted 0), $count lines /$regex/ (wanted $lines); it ended:" >&2
    tail -n 30 "$tmp/log" >&2
    set -- false
  else
    set -- true
  fi
  python3 - "$case" "$1" "$code" "$count" "$line" "$machine" "$gpus" "$nodes" "$commit" "$tmp/log" >&3 <<'E2'
import json, re, sys
from datetime import datetime, timezone
case, passed, code, count, line, machine, gpus, nodes, commit, log = sys.argv[1:]
found = re.search(r"NCCL version (\d+\.\d+\.\d+)|nccl\": \"([\d.]+)", open(log, errors="replace").read())
print(json.dumps({"figure": "fallbacks", "case": case, "pass": passed == "true", "exit_code": int(code), "lines": int(count), "line": line,
                  "machine": machine, "gpus": int(gpus), "nodes": int(nodes), "nccl": next(filter(None, found.groups())) if found else None, "commit": commit,
                  "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}))
E2
}
plugin=(env "$tuner" "$profiler" DYNAMICCL_DIR="$tmp/alone")
fallback "no daemon" 1 'dynamiccl: no daemon in .*: running plain NCCL' "${plugin[@]}" "${words[@]}"
fallback "no daemon, DYNAMICCL_QUIET" 0 'dynamiccl: ' "${plugin[@]}" DYNAMICCL_QUIET=1 "${words[@]}"
fallback "no daemon, NCCL_DEBUG=INFO" many 'NCCL INFO.*DynamICCL: no daemon' "${plugin[@]}" NCCL_DEBUG=INFO "${words[@]}"
# A folder cannot be made below a file, so no daemon can be started either.
fallback "no daemon can be started" 1 'dynamiccl.*: running as plain NCCL' bin/dynamiccld run --dir "$root/Makefile/run" --store "$tmp/store.db" -- "${words[@]}"
# On several nodes each rank may have a directory of its own.
fallback "directory not usable" "$([ "$nodes" = 1 ] && echo 1 || echo many)" 'dynamiccl: .* cannot create the directory .*: running plain NCCL' \
  env "$tuner" "$profiler" DYNAMICCL_DIR="$root/Makefile/run" "${words[@]}"
printf '1\n1\n' >"$tmp/other/daemon.lock"
fallback "a daemon of another layout" 1 'dynamiccl: the daemon of .* speaks shared-memory layout 1 and this library [0-9]+: running plain NCCL' \
  flock "$tmp/other/daemon.lock" env "$tuner" "$profiler" DYNAMICCL_DIR="$tmp/other" "${words[@]}"
fallback "plugin file missing" 1 'dynamiccl: NCCL_TUNER_PLUGIN=/nonexistent/libnccl-tuner-dynamiccl.so cannot be read: running plain NCCL' \
  env NCCL_TUNER_PLUGIN=/nonexistent/libnccl-tuner-dynamiccl.so LD_PRELOAD="$root/lib/libdynamiccl.so" "${words[@]}"
fallback "plugin file missing, nothing of ours, NCCL_DEBUG=INFO" many 'TUNER/Plugin: Could not find.*/nonexistent/libnccl-tuner-dynamiccl.so' \
  env NCCL_DEBUG=INFO NCCL_TUNER_PLUGIN=/nonexistent/libnccl-tuner-dynamiccl.so "${words[@]}"
fallback "plugin missing, run" 1 'dynamiccld: running as plain NCCL: libnccl-tuner-dynamiccl.so and .* are not in' "${run[@]}" --plugin-dir /nonexistent -- "${words[@]}"
fallback "NCCL_ALGO set, run" 1 'dynamiccld?: NCCL_ALGO=Ring is' env NCCL_ALGO=Ring "${run[@]}" -- "${words[@]}"
fallback "NCCL_ALGO set, plugin" 1 'dynamiccl: NCCL_ALGO=Ring is set: it is respected' "${plugin[@]}" NCCL_ALGO=Ring "${words[@]}"
fallback "the user's own tuner" 1 'dynamiccld: NCCL_TUNER_PLUGIN=/nonexistent/libmine.so is yours and stays' env NCCL_TUNER_PLUGIN=/nonexistent/libmine.so "${run[@]}" -- "${words[@]}"
if [ -n "${OLD_NCCL:-}" ]; then
  # As a user has it: run puts its own library before it. Set behind run it would be in that one's place.
  fallback "an old NCCL" many 'dynamiccl: .*: running plain NCCL; tuning needs NCCL 2.28' env LD_PRELOAD="$OLD_NCCL" "${run[@]}" -- "${words[@]}"
fi
exit $failed
