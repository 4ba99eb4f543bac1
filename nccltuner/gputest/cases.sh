#!/usr/bin/env bash
# Every case of mix (plans, graphs, groups, split, shrink, abort, ...) under the plugin, with a daemon that explores.
#   nccltuner/gputest/cases.sh [RESULTS.jsonl] [option of mix value]...      e.g. --only abort --seed 7
# Environment: see mix_common.sh. Exit: mix's (0 all right, 1 wrong elements, 3 a hang, 4 a rank failed), or 1 when
# nothing was tuned.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
out=${1:-$(dirname "$0")/../../docs/figures/gpu-$(date -u +%Y-%m-%d).jsonl}
shift $(($# > 0))
. "$(dirname "$0")/mix_common.sh"
serve
sleep 1
# First that wrong results are noticed: one in 20 is made wrong.
code=0
timeout -k 10 180 "$build/mix" random --ranks "$ranks" "${options[@]}" --seconds 2 --spoil 20 >"$logs/spoiled.log" 2>&1 || code=$?
if [ "$code" -ne 1 ]; then
  tail -n 40 "$logs/spoiled.log" >&2
  echo "results were made wrong, and mix ended with $code, not 1" >&2
  exit 1
fi
echo "wrong results are noticed, such as: $(grep -m 1 WRONG "$logs/spoiled.log")"
timeout -k 10 1800 "$build/mix" cases --ranks "$ranks" "${options[@]}" --out "$out" "$@" &
job=$!
tick=0
while kill -0 "$job" 2>/dev/null; do
  sleep 1
  # Communicators are in a status as long as they live, and a case lives for some seconds.
  tick=$((tick + 1))
  [ $((tick % 3)) -ne 0 ] || note_status
  kill -0 "$daemon" 2>/dev/null || { echo "the daemon died:" >&2; tail -n 20 "$logs/daemon.log" >&2; exit 1; }
done
code=0
wait "$job" || code=$?
job=
note_status
[ "$code" -eq 0 ] || tail -n 20 "$logs/daemon.log" >&2
tuned=0
summary "gpu mix cases, the daemon's side" 0 "$code" || tuned=$?
[ "$code" -ne 0 ] || code=$tuned
exit "$code"
