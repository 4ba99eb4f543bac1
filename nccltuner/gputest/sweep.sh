#!/usr/bin/env bash
# Measures a table of real NCCL on the GPUs of this machine, in the format of tuner/tunersim/testdata/measurements.
#   nccltuner/gputest/sweep.sh OUTDIR nvlink|socket CONDITION [option value]...
# CONDITION: quiet, compute-load (kernels on most SMs), network-load (copies between GPUs, or TCP over loopback), or noise
# (no table: the noise of single calls, appended to OUTDIR/gpu-noise.jsonl). socket makes every GPU a node of its own.
# Options of the program: --collectives A,B --min BYTES --max BYTES --seconds S --budget-us US (a point) --calls graph|stream.
# Environment:
# GPUS=N uses the first N; NCCL_LIB=FILE measures another libnccl.so.2; SWEEP_BUILD=DIR keeps the build; ROUNDS=N takes
# the median of N sweeps, each with processes and connections of its own (sockets differ from one to the next);
# SUFFIX is put at the end of the table's name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 3 ] || { sed -n '2,11s/^# //p' "$0" >&2; exit 2; }
out=$1 transport=$2 condition=$3
shift 3
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 | awk '{print $NF}')
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
build=${SWEEP_BUILD:-$tmp}
mkdir -p "$out" "$build"
nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')
if [ ! -x "$build/sweep" ] || [ -n "$(find "$here" -name 'sweep*' -newer "$build/sweep")" ]; then
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -fvisibility=hidden -fPIC -shared -o "$build/libforced.so" "$here/force_tuner.c"
  nvcc -std=c++17 -arch=native -O2 -I"$nccl/include" -o "$build/sweep" "$here/sweep.cu" -L"$nccl/lib" -l:libnccl.so.2 -lpthread
fi
lib=$nccl/lib
if [ -n "${NCCL_LIB:-}" ]; then
  lib=$tmp
  ln -s "$(realpath "$NCCL_LIB")" "$tmp/libnccl.so.2"
fi
name=${gpu,,}x$gpus-$transport load=none nodes=1 max=$((256 << 20))
if [ "$transport" = socket ]; then
  nodes=$gpus max=$((4 << 20)) name=$name-${gpus}nodes
fi
case $condition in
  compute-load) load=compute ;;
  network-load) load=copy; [ "$transport" = nvlink ] || load=tcp ;;
esac
SWEEP_DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)
SWEEP_DATE=${SWEEP_DATE:-$(date -u +%F)}
SWEEP_COMMIT=${SWEEP_COMMIT:-$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)}
export SWEEP_DRIVER SWEEP_DATE SWEEP_COMMIT
export DYNAMICCL_SWEEP_SHARED=$tmp/shared NCCL_TUNER_PLUGIN=$build/libforced.so NCCL_PROFILER_PLUGIN=$build/libforced.so
export NCCL_NVLS_ENABLE=0 NCCL_DEBUG=${NCCL_DEBUG:-WARN} LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
sweep=("$build/sweep" --ranks "$gpus" --nodes "$nodes" --machine "${gpus}x$gpu" --transport "$transport" --load "$load" --max "$max")
if [ "$condition" = noise ]; then
  "${sweep[@]}" --noise "$out/gpu-noise.jsonl" --series "$out/noise-series.csv" "$@"
  exit
fi
for ((i = 0; i < ${ROUNDS:-1}; i++)); do
  "${sweep[@]}" --condition "$condition" --out "$tmp/round$i.csv" --ran "$out/ran.csv" "$@" || [ -s "$tmp/round$i.csv" ]
done
python3 - "$out/$name-$condition${SUFFIX:-}.csv" "$tmp"/round*.csv <<'E2'
import collections, statistics, sys
times, head = {}, ""
for path in sys.argv[2:]:
    head, *rows = open(path).read().splitlines()
    seen = collections.Counter()  # the default stands in a bucket more than once
    for key, us in (row.rsplit(",", 1) for row in rows):
        times.setdefault((key, seen[key]), []).append(float(us))
        seen[key] += 1
with open(sys.argv[1], "w") as out:
    print(head, *(f"{key},{statistics.median(us):.2f}" for (key, _), us in times.items()), sep="\n", file=out)
E2
