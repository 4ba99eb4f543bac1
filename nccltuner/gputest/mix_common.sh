# Sourced by cases.sh and stress.sh: builds mix, sets the plugin's environment, starts the daemon at full exploration.
# Environment: GPUS=N uses the first N; MPS=1 and RANKS=N, more than GPUs: so many share them under CUDA's multi-process service, which
# NCCL lets them from 2.30 on;
# GIN=1: kernels over GIN are among the choices, by the carrier, between NODES pretended nodes (as many as ranks); needs NCCL 2.28.9 or
# 2.32.3 (GIN_TYPE=2, Proxy, 3, GDAKI, or both: kernels/bench/carrier.sh) and `make kernels carrier`; DEAD_RANK=R with it: that rank's puts go nowhere, so the ranks have to agree on other paths;
# DYNAMICCL_NO_KERNELS=1: no kernels of ours, on purpose; else mix fails where a case that is to run them does not;
# NCCL_LIB=FILE tests another libnccl.so.2; MIX_BUILD=DIR keeps the build;
# MIX_LOGS=DIR keeps the daemon's log and the statuses; SERVE_OPTIONS are more options of `dynamiccld serve`.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
unfit() {
  echo "$*" >&2
  exit 2
}
plugin=$root/lib/libnccl-tuner-dynamiccl.so
[ -x "$root/bin/dynamiccld" ] && [ -e "$plugin" ] || unfit "bin/ or lib/ is empty: run make first"
. "$here/kernels_there.sh"
kernels_there dynamiccl-kernels.fatbin
gpus_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
ranks=${RANKS:-$gpus}
[ "$ranks" -le "$gpus" ] || [ "${MPS:-}" = 1 ] || unfit "RANKS=$ranks, and there are $gpus GPUs: MPS=1 has ranks share them"
. "$root/kernels/bench/mps.sh"
tmp=$(mktemp -d)
logs=${MIX_LOGS:-$tmp}
daemon= job=
cleanup() {
  [ -z "$job" ] || kill "$job" 2>/dev/null || true # timeout hands it on; the ranks die with mix
  [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
  wait 2>/dev/null || true
  mps_end
  rm -rf "$tmp"
}
trap cleanup EXIT
mkdir -m 700 "$tmp/run"
mkdir -p "$logs" "$(dirname "$out")"
: >"$logs/daemon.log" >"$logs/statuses.jsonl"

build=${MIX_BUILD:-$tmp}
mkdir -p "$build"
nccl=$(nccl_home)
if [ ! -x "$build/mix" ] || [ -n "$(find "$here" -name 'mix*' -newer "$build/mix")" ]; then
  nvcc=$(command -v nvcc || "$root/.ci/cuda" --only-get)
  "$nvcc" -std=c++17 -arch=native -O2 -I"$nccl/include" -o "$build/mix" "$here/mix.cu" \
    -L"$(dirname "$nvcc")/../lib" -L"$nccl/lib" -l:libnccl.so.2 -lpthread
fi
lib=$nccl/lib
if [ -n "${NCCL_LIB:-}" ]; then
  lib=$tmp/lib
  mkdir "$lib"
  ln -s "$(realpath "$NCCL_LIB")" "$lib/libnccl.so.2"
fi

# NCCL 2.32.3 by itself gives sums for averages in PAT (docs/design/choices.md), which it has where each rank is its own node.
code=$(python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$lib/libnccl.so.2" || true)
if [[ $code =~ ^[0-9]{5}$ ]] && [ "$code" -ge 23100 ]; then export NCCL_PAT_ENABLE=${NCCL_PAT_ENABLE:-0}; fi

if [ "$ranks" -gt "$gpus" ]; then
  # A program's kernels that wait for others, of up to four communicators at once on each rank, must all have places on the GPU: NCCL's
  # are as large as it is told, ours as the daemon counts (docs/design.md, decision 2).
  of_gpu=$(((ranks + gpus - 1) / gpus)) ctas=8
  while [ "$ctas" -gt 1 ] && [ $(((4 * of_gpu - 1) * ctas)) -ge 108 ]; do ctas=$((ctas / 2)); done
  export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=${NCCL_MAX_CTAS:-$ctas}
  CUDA_DEVICE_MAX_CONNECTIONS=$(mps_queues "$of_gpu")
  export CUDA_DEVICE_MAX_CONNECTIONS
  mps_begin "$tmp"
fi

options=() # of mix, that are not the user's
ours=lsa
if [ "${GIN:-}" = 1 ]; then
  [ -e "$root/lib/libnccl-net-dynamiccl-carrier.so" ] || unfit "$root/lib/libnccl-net-dynamiccl-carrier.so is not there: run make carrier first"
  [ "$ranks" -ge 2 ] || unfit "GIN is between two ranks at least: MPS=1 RANKS=2 has them share a GPU"
  options=(--nodes "${NODES:-$ranks}")
  export NCCL_IB_DISABLE=1 CUDA_MODULE_LOADING=EAGER
  case $code in
    22809) export DYNAMICCL_GIN_NET=dynamiccl-carrier ;;
    23203) export NCCL_NET=Socket ;;
    *) unfit "kernels on GIN are for NCCL 2.28.9 and 2.32.3, and this is ${code:-unknown}: NCCL_LIB=FILE" ;;
  esac
  case $code in
    22809) kernels_there dynamiccl-kernels.fatbin "${DYNAMICCL_GIN_KERNELS:-dynamiccl-gin.fatbin}" ;;
    *) kernels_there dynamiccl-kernels.fatbin "${DYNAMICCL_GIN_KERNELS:-dynamiccl-gin-2.32.3.fatbin}" ;;
  esac
  ours=gin
  . "$root/kernels/bench/carrier.sh"
  carrier_names "$code"
  [ -z "${DEAD_RANK:-}" ] || export DYNAMICCL_CARRIER_DEAD_RANK=$DEAD_RANK
  [ "$ranks" -gt "$gpus" ] || export CUDA_DEVICE_MAX_CONNECTIONS=32 # else there are fewer for each process (docs/design/measuring.md)
  # So that all of the mix's communicators have GIN at once, two of all ranks and two of halves: the carrier has 24 places on a GPU for all of a
  # process's contexts, a place for each rank of each, and two for each communicator that has type Proxy (docs/design/carrier.md, decisions 29 and 31).
  proxies=0
  [ "${GIN_TYPE:-}" != both ] || proxies=8
  contexts=$(((24 / ((ranks + gpus - 1) / gpus) - proxies) / (3 * ranks)))
  [ "$contexts" -ge 1 ] || contexts=1
  [ "$contexts" -le 4 ] || contexts=4
  export NCCL_GIN_NCONTEXTS=${NCCL_GIN_NCONTEXTS:-$contexts}
  lib=$lib:$root/lib
fi

if [ "$ours" = lsa ] && ! nvlink_joins_all; then
  echo "NVLink does not join all GPUs: no kernels of ours are asked for" >&2
  ours=none
fi
# Over a rank whose puts go nowhere nothing of ours is to run.
[ "${DYNAMICCL_NO_KERNELS:-}" != 1 ] || ours=none
[ -z "${DEAD_RANK:-}" ] || ours=none
options+=(--ours "$ours")

MIX_DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)
MIX_DATE=$(date -u +%FT%TZ)
MIX_COMMIT=${MIX_COMMIT:-$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)}
export MIX_DRIVER MIX_DATE MIX_COMMIT
export DYNAMICCL_DIR=$tmp/run NCCL_TUNER_PLUGIN=$plugin
export DYNAMICCL_NEW_GRAPHS=1 # it captures anew and updates no graph: ours are to be in some
export NCCL_SET_STACK_SIZE=${NCCL_SET_STACK_SIZE:-1} NCCL_SYM_NOWIN_ENABLE=${NCCL_SYM_NOWIN_ENABLE:-1} # as `run` has them: decisions 2.6 and 2.5
export NCCL_PROFILER_PLUGIN=$root/lib/libnccl-profiler-dynamiccl.so
export NCCL_NVLS_ENABLE=0 NCCL_DEBUG=${NCCL_DEBUG:-WARN} LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
export LD_PRELOAD=$root/lib/libdynamiccl.so${LD_PRELOAD:+:$LD_PRELOAD} # without it nothing is measured
export DYNAMICCL_SCRATCH_TOTAL_MIB=${DYNAMICCL_SCRATCH_TOTAL_MIB:-2048} # CUDA may let go of graphs behind the making of the next communicators

# In memory only, so that every daemon explores from the start; every epoch is sampled; half of the time may be lost.
serve() {
  # shellcheck disable=SC2086  # several options
  "$root/bin/dynamiccld" serve --dir "$DYNAMICCL_DIR" --store none --explore-budget 50% --sample-every 1 \
    --seed "${1:-1}" --listen "" ${SERVE_OPTIONS:-} >>"$logs/daemon.log" 2>&1 &
  daemon=$!
}

# One line of what the daemon that lives counts.
note_status() {
  timeout 10 python3 - "$root/bin/dynamiccld" "$daemon" <<'E3' >>"$logs/statuses.jsonl" 2>>"$logs/daemon.log" || true
import json, subprocess, sys
ran = subprocess.run([sys.argv[1], "status", "--json"], capture_output=True, text=True, timeout=5, check=True)
print(json.dumps({**json.loads(ran.stdout), "daemon": int(sys.argv[2])}))
E3
}

# summary FIGURE KILLS EXIT-CODE: one JSON line of the daemon's side, appended to $out. Fails when nothing was tuned, and when a call
# ran another algorithm than was chosen; where what ran is not what was chosen for another reason, the line has the reason's count.
summary() {
  python3 - "$logs/statuses.jsonl" "$logs/daemon.log" "$out" "$gpus" "$ranks" "$@" <<'E3'
import collections, json, os, sys
statuses_path, log_path, out, gpus, ranks, figure, kills, code = sys.argv[1:]
statuses = [json.loads(l) for l in open(statuses_path)]
log = open(log_path, errors="replace").read()
comms = [c for s in statuses for c in s.get("comms") or []]
line = {"figure": figure, "gpus": min(int(gpus), int(ranks)), "ranks": int(ranks), "daemon_kills": int(kills), "exit": int(code), "statuses": len(statuses),
        "communicators": len({c["id"] for c in comms}),
        "communicators_tuned": len({c["id"] for c in comms if c.get("plan_version")})}
last = {}
for s in statuses:  # of every daemon the last status: it counts from the daemon's start
    last[s["daemon"]] = s
for key in ("samples", "dropped", "unjoined", "publications"):
    line[key] = sum(s.get(key, 0) for s in last.values())
cores = [s.get("core", {}) for s in last.values()]
line["group_calls"] = sum(c.get("groups", 0) for c in cores)
for key in ("incomplete", "disagreed", "overruled", "slow"):
    line["group_calls_" + key] = sum(c.get(key, 0) for c in cores)
# Each group call is in one of these: what was chosen ran, or NCCL was left to choose, or why nobody can say so (tuner/ran.go).
for key in ("chosen", "default", "overruled", "not_known", "aggregated", "disagreed", "declined", "untold"):
    line["ran_" + key] = sum(c.get("ran", {}).get(key, 0) for c in cores)
calls = [call for s in last.values() for call in s.get("overruled_calls") or []]
if calls:  # what was asked for, and what ran
    line["overruled_calls"] = calls
unknown = collections.Counter()  # by collective and choice
for s in last.values():
    for kind in s.get("not_known_calls") or []:
        unknown[f"{kind['collective']} by {kind['asked']}"] += kind["calls"]
if unknown:
    line["not_known_calls"] = dict(unknown.most_common())
line["plans_agreed"] = sum(c.get("plans_agreed", 0) for c in cores)  # by ranks that are on several hosts
line["over_gin"] = sum(c.get("over_gin", 0) for c in cores)
gin = {c["id"]: f"{c['ranks']} ranks on {c['nodes']} nodes: {c.get('gin') or 'none'}" for c in comms}  # in a communicator's last status
if any(c.get("gin") for c in comms):
    line["gin"] = dict(collections.Counter(gin.values()))
for key in ("decisions", "ignored"):  # of the communicators that lived then
    line[key + "_most_in_a_status"] = max((s.get(key, 0) for s in statuses), default=0)
line["log_warnings"] = sum("level=WARN" in l or "level=ERROR" in l for l in log.splitlines())
line["log_panics"] = log.count("\npanic:") + log.count("DATA RACE")
line["kernels"] = "none: DYNAMICCL_NO_KERNELS" if os.environ.get("DYNAMICCL_NO_KERNELS") == "1" else "ours"
line.update(driver=os.environ["MIX_DRIVER"], date=os.environ["MIX_DATE"], commit=os.environ["MIX_COMMIT"])
text = json.dumps(line)
print(text)
open(out, "a").write(text + "\n")
if not line["samples"] or not line["publications"]:
    print("nothing was tuned: no samples or no plans; see the daemon's log (MIX_LOGS=DIR keeps it)", file=sys.stderr)
    sys.exit(1)
if os.environ.get("GIN") == "1" and bool(line["over_gin"]) == bool(os.environ.get("DEAD_RANK") or os.environ.get("DYNAMICCL_NO_KERNELS") == "1"):
    print(f"{line['over_gin']} calls ran over GIN" + (", over which nothing comes from a rank" if line["over_gin"] else ": see DYNAMICCL's lines above"), file=sys.stderr)
    sys.exit(1)
if sum(v for k, v in line.items() if k.startswith("ran_")) != line["group_calls"]:
    print("what ran is not accounted for in all group calls: daemon and scripts differ in version", file=sys.stderr)
    sys.exit(1)
for key in ("group_calls_disagreed", "group_calls_overruled", "log_panics"):
    if line[key]:
        print(f"{key} is {line[key]}: see the daemon's log (MIX_LOGS=DIR keeps it)", file=sys.stderr)
        sys.exit(1)
E3
}
