#!/usr/bin/env bash
# Whatever is missing, a program runs as plain NCCL and one line says why: a JSON line for each case, pass or fail.
#   nccltuner/gputest/program_fallbacks.sh [RESULTS.jsonl]
# A case passes when the program ends with 0 (the default one, a few DDP steps, fails on parameters that differ over ranks) and
# what it and `dynamiccld run` printed holds the line. Environment: PROGRAM="..." another program; GPUS, NODES, MPS, RANKS:
# program_transport.sh (MPS=1 RANKS=2: over sockets, so one GPU is enough); OLD_NCCL=FILE a libnccl.so.2 of a time before communicators had an
# id (2.26 or older), for one case more; LIMIT=180 seconds a case.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
if [ $# -gt 0 ]; then exec 3>>"$1"; else exec 3>&1; fi
GPUS=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)} || GPUS=0
. nccltuner/gputest/program_transport.sh
transport "$([ "${MPS:-}" = 1 ] && echo socket || echo nvlink)" "" ""
program=${PROGRAM:-$launch examples/ddp.py --layers 4 --hidden 512 --heads 8 --sequence 256 --batch 4 --steps 20 --warmup 2 --check}
read -ra words <<<"$program"
tmp=$(mktemp -d /tmp/dyn-fallbacks.XXXXXX)
trap 'mps_end; rm -rf "$tmp" "$shared"' EXIT
mkdir -m 700 "$tmp/run" "$tmp/alone"
commit=${PROGRAM_COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1) || machine=none
unset NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_ALGO NCCL_PROTO NCCL_DEBUG_SUBSYS
while read -r name; do unset "$name"; done < <(compgen -e DYNAMICCL_ || true)
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_DEBUG=INFO
tuner=NCCL_TUNER_PLUGIN=$root/lib/libnccl-tuner-dynamiccl.so profiler=NCCL_PROFILER_PLUGIN=$root/lib/libnccl-profiler-dynamiccl.so
run=(bin/dynamiccld run --dir "$tmp/run" --store "$tmp/store.db")
failed=0
# fallback CASE REGEX COMMAND...: at least one line must match; the first one is shown.
fallback() {
  local case=$1 regex=$2 code=0 line
  shift 2
  timeout -k 30 "${LIMIT:-180}" "$@" >"$tmp/log" 2>&1 || code=$?
  line=$(grep -m 1 -E "$regex" "$tmp/log" || true)
  if [ $code -ne 0 ] || [ -z "$line" ]; then
    failed=1
    echo "FAILED: $case: exit code $code (wanted 0), line /$regex/ ${line:+found}${line:-not found}; it ended:" >&2
    tail -n 30 "$tmp/log" >&2
  fi
  python3 - "$case" "$code" "$line" "$machine" "$gpus" "$nodes" "$commit" "$tmp/log" >&3 <<'E2'
import json, re, sys
from datetime import datetime, timezone
case, code, line, machine, gpus, nodes, commit, log = sys.argv[1:]
found = re.search(r"NCCL version (\d+\.\d+\.\d+)|nccl\": \"([\d.]+)", open(log, errors="replace").read())
print(json.dumps({"figure": "fallbacks", "case": case, "pass": code == "0" and line != "", "exit_code": int(code), "line": line,
                  "machine": machine, "gpus": int(gpus), "nodes": int(nodes), "nccl": next(filter(None, found.groups())) if found else None, "commit": commit,
                  "date": datetime.now(timezone.utc).isoformat(timespec="seconds")}))
E2
}
fallback "no daemon" 'DynamICCL.*no daemon' env "$tuner" "$profiler" DYNAMICCL_DIR="$tmp/alone" "${words[@]}"
# A folder cannot be made below a file, so no daemon can be started either.
fallback "no daemon can be started" 'dynamiccld: running as plain NCCL' bin/dynamiccld run --dir "$root/Makefile/run" --store "$tmp/store.db" -- "${words[@]}"
fallback "plugin file missing" 'TUNER/Plugin: Could not find.*/nonexistent/libnccl-tuner-dynamiccl.so' \
  env NCCL_TUNER_PLUGIN=/nonexistent/libnccl-tuner-dynamiccl.so "${words[@]}"
fallback "plugin missing, run" 'dynamiccld: running as plain NCCL: libnccl-tuner-dynamiccl.so and .* are not in' "${run[@]}" --plugin-dir /nonexistent -- "${words[@]}"
fallback "NCCL_ALGO set, run" 'dynamiccld: NCCL_ALGO=Ring is yours and stays' env NCCL_ALGO=Ring "${run[@]}" -- "${words[@]}"
fallback "NCCL_ALGO set, plugin" 'DynamICCL: NCCL_ALGO=Ring is set: it is respected' \
  env NCCL_ALGO=Ring "$tuner" "$profiler" DYNAMICCL_DIR="$tmp/alone" "${words[@]}"
fallback "the user's own tuner" 'dynamiccld: NCCL_TUNER_PLUGIN=/nonexistent/libmine.so is yours and stays' env NCCL_TUNER_PLUGIN=/nonexistent/libmine.so "${run[@]}" -- "${words[@]}"
if [ -n "${OLD_NCCL:-}" ]; then
  # As a user has it: run puts its own library before it. Set behind run it would be in that one's place.
  fallback "an old NCCL" 'DynamICCL.*running plain NCCL' env LD_PRELOAD="$OLD_NCCL" "${run[@]}" -- "${words[@]}"
fi
exit $failed
