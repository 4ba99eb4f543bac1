#!/usr/bin/env bash
# How soon a daemon tells of faults on live kernels over GIN, how often rightly, and what it says where there is none: a program calls
# over the carrier while the carrier's faults are switched on and off under it. Odd trials: each put 1.3 us late (backend-fallback);
# even ones: a link of GBS GB/s (congestion).     nccltuner/gputest/gin_trials.sh [RESULTS.jsonl] [option of bench]...
# A line for each trial and each quiet part of what was in force at its end for each collective and size (figure "gin trial choices"), one of
# what was said, and one of totals (gin_trials_count.py): puts told of, calls and seconds until an alarm, puts and seconds until the right
# diagnosis, what the ways say at the end, and alarms in the quiet parts. A way from a rank to another one over a context is a trial.
# Needs what gin_live.sh needs, and Python. Environment: TRIALS=16; QUIET=8, FAULT=8, WARM=20 seconds; GBS=0.2; NODES=2; COLLECTIVES,
# SIZES; LATENCY_US=1.3; RANKS=N of them all (one a GPU), and with MPS=1 as in gin_live.sh; TRACE=FILE.gz keeps switches and what the daemon saw. With these 16 trials
# take five minutes. Exit: as of bench.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/gpu-gin-trials-$(date -u +%F).jsonl}
shift $(($# > 0))
. nccltuner/gputest/gin_common.sh
: "${TRIALS:=16}" "${QUIET:=8}" "${FAULT:=8}" "${WARM:=20}"
total=$((WARM + TRIALS * (QUIET + FAULT) + QUIET))
bin/dynamiccld bench --nodes "${NODES:-2}" ${RANKS:+--ranks "$RANKS"} --arms "$arms" --collectives "${COLLECTIVES:-AllReduce,AllToAll}" \
  --sizes "${SIZES:-1K,16K,64K,256K,1M}" --phases "quiet:${total}s" --trace "$tmp/trace.csv" --out "$tmp/bench.jsonl" "${more[@]}" "$@" &
bench=$!
part=-1 now=
choices() { # what is in force at the end of a part
  local dir said
  dir=$(arm_dir) && said=$(bin/dynamiccld table --dir "$dir" --json 2>/dev/null) || return 0 # the program may have ended
  printf '{"trial":%d,"fault":"%s","table":%s}\n' "$part" "$now" "$(tr -d '\n' <<<"$said")" >>"$tmp/tables.jsonl"
}
switch() { # NAME LINE: from now on
  [ "$part" = -1 ] || choices
  part=$((part + 1)) now=$1
  fault "$2"
  printf '{"at":%s,"fault":"%s"}\n' "$(date +%s.%N)" "$1" >>"$tmp/switches.jsonl"
}
wait_s() { # SECONDS, or until the program has ended
  local until=$((SECONDS + $1))
  while [ "$SECONDS" -lt "$until" ] && kill -0 "$bench" 2>/dev/null; do sleep 0.1; done
  kill -0 "$bench" 2>/dev/null
}
trials() {
  while ! [ -s "$tmp/trace.csv" ]; do wait_s 1 || return; done # ranks have made communicators
  switch none "# none"
  wait_s "$WARM" || return
  for ((trial = 1; trial <= TRIALS; trial++)); do
    if [ $((trial % 2)) = 1 ]; then switch backend-fallback "latency_us ${LATENCY_US:-1.3}"; else switch congestion "gbs ${GBS:-0.2}"; fi
    wait_s "$FAULT" || return
    switch none "# none"
    wait_s "$QUIET" || return
  done
}
trials || true
switch none "# none" # the end of the last part
status=0
wait "$bench" || status=$?
bench=
touch "$tmp/tables.jsonl"
python3 nccltuner/gputest/gin_trials_count.py "$tmp/trace.csv" "$tmp/switches.jsonl" "$tmp/tables.jsonl" >"$tmp/trials.jsonl" || status=1
[ -z "${TRACE:-}" ] || { cat "$tmp/switches.jsonl"; cat "$tmp/trace.csv"; } | gzip >"$TRACE"
head -n 1 "$tmp/bench.jsonl" >>"$out" # on which machine, when and of which commit
cat "$tmp/trials.jsonl" >>"$out"
tail -n 1 "$tmp/trials.jsonl"
exit "$status"
