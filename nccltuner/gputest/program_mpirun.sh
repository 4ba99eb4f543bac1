#!/usr/bin/env bash
# PyTorch's collectives under Open MPI: plain NCCL, a run that starts mpirun, and an mpirun that starts a run for each rank.
#   nccltuner/gputest/program_mpirun.sh [RESULTS.jsonl]
# Needs what `make` left in bin/ and lib/, two or more GPUs, PyTorch, and Open MPI: what `.ci/mpi` gets, or MPIRUN=PROGRAM. examples/collectives.py
# compares every element. A line says of each way its exit status, how many runs told what was gained, and how many left that to another's:
# one and none, or one and all others. Exit status 1: any is something else.
# Environment: GPUS=N; TIMEOUT=120 seconds a way; COMMIT=NAME where there is no git; COLLECTIVES_FLAGS="--kib 1,64 --batches 30".
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
out=${1:-docs/figures/programs-$(date -u +%F).jsonl}
mkdir -p "$(dirname "$out")"
gpus_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
mpirun=$(.ci/mpi)
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 MASTER_ADDR=127.0.0.1 WORLD_SIZE=$gpus
tmp=$(mktemp -d /tmp/dyn-mpirun.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2016 # for each rank's shell
rank='export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK; exec "$@"'
read -ra flags <<<"${COLLECTIVES_FLAGS:---kib 1,64 --batches 30}"
program=(sh -c "$rank" rank python3 examples/collectives.py "${flags[@]}")
launch=("$mpirun" --allow-run-as-root --oversubscribe -np "$gpus")
machine=$(printf '"gpus":%d,"gpu":"%s","driver":"%s","open_mpi":"%s","commit":"%s"' "$gpus" "$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0)" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" "$("$mpirun" --version | sed -n '1s/.* //p')" \
  "${COMMIT:-$(git describe --always --dirty 2>/dev/null || echo unknown)}")
failed=0
way() { # NAME TOLD LEFT command...
  local name=$1 wanted="0 $2 $3" status=0 told left
  shift 3
  mkdir -m 700 "$tmp/dir" # a daemon of its own, and nothing learned before
  MASTER_PORT=$((20000 + RANDOM % 10000)) timeout -k 10 "${TIMEOUT:-120}" "$@" >"$tmp/log" 2>&1 || status=$?
  cat "$tmp/log"
  rm -rf "$tmp/dir" "$tmp/store.db"
  told=$(grep -c 'in total' "$tmp/log") || true
  left=$(grep -c 'the run of another rank reports' "$tmp/log") || true
  [ "$status $told $left" = "$wanted" ] ||
    { failed=1; echo "$name: exit status $status, $told runs told what was gained, $left left it to another's; $wanted were to be" >&2; }
  printf '{"figure":"mpirun","way":"%s",%s,"date":"%s","exit":%d,"told":%d,"left":%d}\n' "$name" "$machine" "$(date -u +%FT%TZ)" "$status" "$told" "$left" >>"$out"
  sed -n "s/^{/{\"way\":\"$name\",/p" "$tmp/log" >>"$out"
}
run=(bin/dynamiccld run --dir "$tmp/dir" --store "$tmp/store.db" --)
way plain 0 0 "${launch[@]}" "${program[@]}"
way "run mpirun" 1 0 "${run[@]}" "${launch[@]}" "${program[@]}"
way "mpirun run" 1 $((gpus - 1)) "${launch[@]}" "${run[@]}" "${program[@]}"
exit $failed
