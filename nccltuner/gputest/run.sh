#!/usr/bin/env bash
# Real NCCL on the GPUs of this machine: plugin, daemon, unmodified PyTorch. Needs two or more NVIDIA GPUs, PyTorch with
# NCCL, and what `make` and `make kernels` left in bin/ and lib/ (without the latter: DYNAMICCL_NO_KERNELS=1). NCCL_LIB=FILE tests another libnccl.so.2.   nccltuner/gputest/run.sh [RESULTS.jsonl] [SECONDS]
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
gpus_there
torchrun_there
root=$PWD
. nccltuner/gputest/kernels_there.sh
kernels_there dynamiccl-kernels.fatbin
out=${1:-docs/figures/gpu-$(date -u +%Y-%m-%d).jsonl}
seconds=${2:-20}
mkdir -p "$(dirname "$out")"
tmp=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; wait 2>/dev/null; rm -rf "$tmp"' EXIT
mkdir -m 700 "$tmp/run"
gpus=$(nvidia-smi -L | wc -l)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
export DYNAMICCL_DIR=$tmp/run NCCL_TUNER_PLUGIN=$root/lib/libnccl-tuner-dynamiccl.so NCCL_PROFILER_PLUGIN=$root/lib/libnccl-profiler-dynamiccl.so
export SMOKE_KERNELS=1
[ "${DYNAMICCL_NO_KERNELS:-}" != 1 ] && [ "$gpus" -gt 1 ] && nvlink_joins_all || SMOKE_KERNELS=0 # whether ours are to run
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_DEBUG=${NCCL_DEBUG:-WARN} OMP_NUM_THREADS=1
bin/dynamiccld serve --dir "$tmp/run" --store "$tmp/store.db" >"$tmp/daemon.log" 2>&1 &
daemon=$!
sleep 1
bin/dynamiccld doctor || true
timeout $((seconds * 2 + 90)) env LD_PRELOAD="$root/lib/libdynamiccl.so${NCCL_LIB:+:$NCCL_LIB}" torchrun --nproc-per-node "$gpus" nccltuner/gputest/smoke.py "$seconds" "$out" &
job=$!
# While the job runs: communicators and their buckets are shown as long as they live.
until bin/dynamiccld status --json 2>/dev/null | grep -q '"active": true'; do
  kill -0 "$job" || { wait "$job"; exit 1; }
  sleep 0.2
done
sleep $((seconds - 4))
bin/dynamiccld status || true
bin/dynamiccld status --json >"$tmp/status.json" || true
bin/dynamiccld table || true
bin/dynamiccld why AllReduce 64KiB || true
wait "$job"
tail -n 5 "$tmp/daemon.log"
python3 - "$tmp/status.json" "$out" "$gpus" "$driver" <<'E2'
import json, os, subprocess, sys
from datetime import datetime, timezone
s = json.load(open(sys.argv[1]))
line = {"figure": "gpu smoke, the daemon's side", "gpus": int(sys.argv[3]), "driver": sys.argv[4],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "samples": s["samples"], "dropped": s["dropped"],
        "unjoined": s["unjoined"], "decisions": s["decisions"], "plans": s["publications"], "comms": len(s["comms"]), "version": s["version"],
        "kernels": "none: DYNAMICCL_NO_KERNELS" if os.environ.get("DYNAMICCL_NO_KERNELS") == "1" else "ours",
        "transports": sorted({c.get("transport", "") for c in s["comms"] if c["active"]})}
open(sys.argv[2], "a").write(json.dumps(line) + "\n")
print(json.dumps(line))
# What the ranks say connects them is what nvidia-smi says of the machine.
rows = [l.split()[1:] for l in subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True).stdout.splitlines() if l.startswith("GPU")]
pairs = {w.startswith("NV") for i, row in enumerate(rows) for w in row[:len(rows)][i + 1:]}
want = {frozenset([True]): ["nvlink"], frozenset([False]): ["pcie"]}.get(frozenset(pairs), [""])
if line["transports"] != want:
    print(f"ranks say {line['transports']}, nvidia-smi {want}", file=sys.stderr)
    sys.exit(1)
sys.exit(0 if s["samples"] > 0 and s["publications"] > 0 else 1)
E2
