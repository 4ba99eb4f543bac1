#!/usr/bin/env bash
# A random mix under the plugin while the daemon explores at full rate and is killed (kill -9) every 10 s and started
# again 1 s later: no result may be wrong and nothing may hang.
#   nccltuner/gputest/stress.sh SECONDS [RESULTS.jsonl] [option of mix value]...      e.g. --seed 7 or --one-process
# Environment: see mix_common.sh; KILL_EVERY=S; with --nodes, HOSTS=1: every node has shared files of its own, as on several hosts, and the daemon is
# that of rank 0's. Exit: as of cases.sh.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
seconds=$1
out=${2:-$(dirname "$0")/../../docs/figures/gpu-$(date -u +%Y-%m-%d).jsonl}
shift $(($# > 1 ? 2 : 1))
. "$(dirname "$0")/mix_common.sh"
if [ -n "${HOSTS:-}" ]; then
  export DYNAMICCL_DIR=$tmp/node-0
  mkdir -m 700 "$DYNAMICCL_DIR"
fi
serve 1
sleep 1
# Communicators take a while to come and go; a hang is found by mix itself after 60 s.
timeout -k 10 $((seconds + 240)) "$build/mix" random --ranks "$ranks" "${options[@]}" --seconds "$seconds" --out "$out" ${HOSTS:+--node-env "DYNAMICCL_DIR=$tmp/node-%d"} "$@" &
job=$!
running() { kill -0 "$job" 2>/dev/null; }
kills=0
while running; do
  next=$((SECONDS + ${KILL_EVERY:-10}))
  while running && [ "$SECONDS" -lt "$next" ]; do
    sleep 0.5
    kill -0 "$daemon" 2>/dev/null && continue
    echo "the daemon died by itself:" >&2
    tail -n 20 "$logs/daemon.log" >&2
    exit 1
  done
  running || break
  note_status
  kill -9 "$daemon"
  wait "$daemon" 2>/dev/null || true
  daemon=
  kills=$((kills + 1))
  sleep 1
  serve $((kills + 1))
done
code=0
wait "$job" || code=$?
job=
note_status
[ "$code" -eq 0 ] || tail -n 20 "$logs/daemon.log" >&2
tuned=0
summary "gpu stress, the daemon's side" "$kills" "$code" || tuned=$?
[ "$code" -ne 0 ] || code=$tuned
exit "$code"
