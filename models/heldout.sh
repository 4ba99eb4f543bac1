#!/usr/bin/env bash
# Trains policies that never saw a table and judges them on it: models/heldout.sh DIR [VARIANT...]
# Every variant is trained without each of the four tables in turn, so that is four runs of `dynamiccld train` each, of a
# quarter of an hour on two idle cores. A run that was stopped goes on where it was; one that is done is not repeated.
# JSON lines on stdout: means over 5 seeds of the noise.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: models/heldout.sh DIR [VARIANT...]" >&2; exit 2; }
case $1 in # before cd: it is relative to where the user stands
  /*) dir=$1 ;;
  *) dir=$PWD/$1 ;;
esac
shift
cd "$(dirname "$0")/.."
tables=tuner/tunersim/testdata/measurements
folds=(h200x4-socket-2nodes-quiet h200x4-socket-2nodes-network-load h200x4-socket-2nodes-cpu-load h200x8-nvlink)
flags() { # of dynamiccld train
  case $1 in
    seed[1-9]) echo --seed "${1#seed}" ;;
    without-memory | without-counter | without-signal | without-cusum | without-peers) echo --without "${1#without-}" ;;
    without-synthetic) echo --pretrain 0 --synthetic 0 ;;
    q-learning | actor-critic) echo --objective "$1" ;;
    *) echo "no variant $1: seedN, without-memory, -counter, -signal, -cusum, -peers, -synthetic, q-learning, actor-critic" >&2; return 1 ;;
  esac
}
for variant in "$@"; do flags "$variant" >/dev/null || exit 2; done # now, not after hours of the ones before
mkdir -p "$dir"
means() { # rows of eval --json to one line a condition and learner; arguments are keys to add
  python3 -c '
import json, statistics, sys
rows, more = {}, dict(a.split("=", 1) for a in sys.argv[1:])
only = more.pop("only", "")
for r in map(json.loads, sys.stdin):
    if r["condition"].endswith(only):
        rows.setdefault((r["trace"], r["condition"], r["learner"]), []).append(r)
for (trace, condition, learner), rs in rows.items():
    out = {"trace": trace, "condition": condition, "learner": learner, **more, "seeds": len(rs), "calls": rs[0]["calls"]}
    for k in ("regret_64", "speed_at_32", "share_97pct_speed_at_32", "worst_window100_over_default", "cost_over_default",
              "calls_to_within_5pct", "calls_to_within_5pct_median"):
        out[k] = round(statistics.mean(r[k] for r in rs), 4)
    out["worst_window100_worst_seed"] = round(max(r["worst_window100_over_default"] for r in rs), 4)
    out["regret_64_interval95"] = round(2.776 * statistics.stdev(r["regret_64"] for r in rs) / len(rs) ** 0.5, 4)
    print(json.dumps(out))' "$@"
}
play() { # calls, noise, traces, learners, policy
  bin/dynamiccld eval --json --seeds 5 --calls "$1" --noise "$2" --traces "$3" --learners "$4" ${5:+--policy "$5"}
}
baselines=ucb,coordinate-descent,thompson,successive-halving,static,default
for noise in 0.05 0.15; do
  for fold in "${folds[@]}"; do
    for calls in 64 192; do play $calls $noise "$tables/$fold.csv" $baselines | means noise=$noise variant=baseline; done
  done
  play 96 $noise "$tables/h200x4-socket-2nodes-*.csv" ucb,coordinate-descent | means noise=$noise variant=baseline | grep -e '->'
done
for variant in "$@"; do
  more=$(flags "$variant")
  for fold in "${folds[@]}"; do
    policy=$dir/$variant-$fold.dynp
    if [ ! -e "$policy" ] || [ -e "$policy.ckpt" ]; then
      # shellcheck disable=SC2086 # flags are words
      bin/dynamiccld train --traces "$tables/*.csv" --hold-out "$fold" --out "$policy" $more $([ -e "$policy.ckpt" ] && echo --resume) >&2
    fi
    for noise in 0.05 0.15; do
      keys=(noise=$noise variant="$variant" held_out="$fold")
      for calls in 64 192; do play $calls $noise "$tables/$fold.csv" lstm "$policy" | means "${keys[@]}"; done
      case $fold in
        *socket*) play 96 $noise "$tables/h200x4-socket-2nodes-*.csv" lstm "$policy" | means "${keys[@]}" only="->${fold#*nodes-}" ;;
      esac
    done
  done
done
