#!/usr/bin/env bash
# Every comparison of this folder and of kernels/bench that `make gpu-bench` leaves out, one after the other: what links carry, what NCCL's
# device kernels run, what compute loses to CTAs beside it, what lies between kernels, samples against events and graphs, bench's other
# steps, programs under Open MPI, messages there and back, and kernels on GIN over the carrier.
#   nccltuner/gputest/all.sh [FOLDER]
# Results are files of FOLDER (docs/figures). A script that fails, or that this machine has not what it needs for, is named at the end, and
# the others go on. Needs what `make all carrier kernels` left in bin/ and lib/, and what each of them says. An hour and a half on 4 GPUs.
# Environment: ONLY="samples links" some of them; what each reads: TIME, NCCL_LIB, NCCL_TESTS, NCCL_TESTS_BUILT. Exit: 0 if none failed.
set -uo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
folder=${1:-docs/figures}
gpus_there
mkdir -p "$folder"
date=$(date -u +%F) gpus=$(nvidia-smi -L | wc -l) here=nccltuner/gputest failed=()
each() { # NAME COMMAND...
  local name=$1
  shift
  case " ${ONLY:-$name} " in *" $name "*) ;; *) return ;; esac
  echo "== $name: $*"
  "$@" || failed+=("$name")
}
each links kernels/bench/link.sh "$folder/gpu-link-$date.jsonl"
each device-types $here/device_types.sh "$folder/gpu-device-types-$date.jsonl"
each beside $here/beside.sh "$folder/gpu-beside-$date.jsonl"
each gaps $here/gaps.sh "$folder/gpu-gaps-$date.jsonl"
each samples $here/samples.sh "$folder/gpu-samples-$date.jsonl"
each samples-sockets env NODES="$gpus" $here/samples.sh "$folder/gpu-samples-sockets-$date.jsonl"
each steps env STEPS="cpu-load nccl-choices calibrated graphs-comms host-parts" $here/live.sh "$folder/gpu-bench-steps-$date.jsonl"
[ "$gpus" -lt 4 ] || each sockets-2-nodes env STEPS=sockets NODES=2 $here/live.sh "$folder/gpu-bench-sockets-2-nodes-$date.jsonl"
[ -z "${NCCL_LIB:-}" ] || each registered env STEPS="registered calibrated-registered" $here/live.sh "$folder/gpu-bench-registered-$date.jsonl"
[ -z "${NCCL_TESTS:-}${NCCL_TESTS_BUILT:-}" ] || each nccltests env FIGURES="registered registered-graph nccl-choices nccl-choices-graph" $here/program_nccltests.sh "$folder/programs-nccltests-$date.jsonl"
each mpirun $here/program_mpirun.sh "$folder/programs-mpirun-$date.jsonl"
each pingpong $here/program_pingpong.sh "$folder/programs-pingpong-$date.jsonl"
each gin-trips kernels/bench/gin_trips.sh "$folder/gpu-gin-trips-$date.jsonl"
each gin-live $here/gin_live.sh "$folder/gpu-gin-live-$date.jsonl"
each gin-trials $here/gin_trials.sh "$folder/gpu-gin-trials-$date.jsonl"
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
