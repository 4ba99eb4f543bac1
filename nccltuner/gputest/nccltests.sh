#!/usr/bin/env bash
# Builds nccl-tests from source and runs it; JSON lines on standard output, one a collective, size and buffer (in place or not).
#   git clone https://github.com/NVIDIA/nccl-tests
#   NCCL_TESTS=./nccl-tests nccltuner/gputest/nccltests.sh [option of nccl-tests]...
# The sources are left as they are. Headers and library are those of PyTorch's NCCL wheel, or of NCCL_HOME; NCCL_LIB=FILE
# runs another libnccl.so.2. One process drives all GPUs (-g N), so nodes cannot be faked with NCCL_HOSTID here, which is one for all
# ranks of a process. MPI=1: a process a GPU, started by what `.ci/mpi` gets; or by MPIRUN=PROGRAM, whose headers and library MPI_HOME=DIR has.
# Environment: GPUS=N the first N; THREADS=1 gives every GPU a thread of its own (-t N -g 1), so that several threads capture
# graphs at once; TESTS="all_reduce all_gather reduce_scatter"; MIN=1K MAX=256M FACTOR=4 sizes; ITERS=100 calls a size,
# WARMUP=20; GRAPH=N replays a graph of the ITERS calls N times (0: no graph); REGISTER=1 registers the buffers (ncclCommRegister), 2 as
# symmetric windows (ncclCommWindowRegister), 0: neither; LIMIT=300 seconds for one test;
# ARCH=native, or for example sm_90 to build without a GPU; BUILD=DIR keeps the build; BUILD_ONLY=1 builds and ends.
# NCCL_TESTS_BUILT=DIR in place of NCCL_TESTS: programs that bundle.sh has built; neither sources nor nvcc nor make are needed then.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
read -ra tests <<<"${TESTS:-all_reduce all_gather reduce_scatter}"
suffix=
if [ "${MPI:-0}" != 0 ]; then
  [ "$MPI" = 1 ] || { echo "MPI is $MPI; 0 or 1" >&2; exit 2; }
  [ -z "${THREADS:-}" ] || { echo "THREADS=1 is of one process, MPI=1 of a process a GPU: take one of them" >&2; exit 2; }
  suffix=_mpi
  mpirun=$("$here/../../.ci/mpi")
  mpi=$(cd "${MPI_HOME:-$(dirname "$mpirun")/..}" && pwd)
fi
find_nccl() {
  nccl=${NCCL_HOME:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')}
  nccl=$(cd "$nccl" && pwd)
}
built() { # DIR: nothing is built, so all has to be there
  local test missing=
  for test in "${tests[@]}"; do [ -x "$1/${test}_perf$suffix" ] || missing+=" ${test}_perf$suffix"; done
  [ -z "$missing" ] || { echo "NCCL_TESTS_BUILT=$1 lacks$missing: build them with ${MPI:+MPI=1 }NCCL_TESTS=SOURCES TESTS=\"${tests[*]}\" nccltuner/gputest/bundle.sh, and carry .cache/gpu" >&2; exit 2; }
  find_nccl
  [ -f "$nccl/lib/libnccl.so.2" ] || { echo "$nccl holds no lib/libnccl.so.2; set NCCL_HOME" >&2; exit 2; }
  build=$(cd "$1" && pwd) libraries=$nccl/lib
}
make_them() {
  local source=${NCCL_TESTS:?set NCCL_TESTS to the sources: git clone https://github.com/NVIDIA/nccl-tests} nvcc cuda cudart targets
  [ -f "$source/src/common.cu" ] || { echo "NCCL_TESTS=$source holds no src/common.cu: it is not nccl-tests" >&2; exit 2; }
  build=${BUILD:-$here/../../.cache/nccl-tests$suffix} # objects of both kinds have one name
  mkdir -p "$build/home/lib"
  build=$(cd "$build" && pwd)
  find_nccl
  [ -f "$nccl/include/nccl.h" ] || { echo "$nccl holds no include/nccl.h; set NCCL_HOME" >&2; exit 2; }
  # The wheel has no libnccl.so, for which nccl-tests asks the linker.
  ln -sfn "$nccl/include" "$build/home/include"
  ln -sf "$nccl/lib/libnccl.so.2" "$build/home/lib/libnccl.so"
  . "$here/nvcc.sh"
  cuda=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
  cudart=$cuda/lib64
  [ -d "$cudart" ] || cudart=$cuda/lib
  targets=("${tests[@]/#/$build/}") libraries=$nccl/lib:$cudart
  # src alone, so that only what is run is built. A limit: a build that hangs must not take the GPUs' time.
  [ -z "$suffix" ] || [ -f "$mpi/include/mpi.h" ] || { echo "$mpi holds no include/mpi.h; set MPI_HOME" >&2; exit 2; }
  timeout "${MAKE_LIMIT:-600}" make --no-print-directory -C "$source/src" -j "$(nproc)" MPI="${MPI:-0}" NAME_SUFFIX="$suffix" MPI_HOME="${mpi:-}" BUILDDIR="$build" \
    NCCL_HOME="$build/home" CUDA_HOME="$cuda" CUDA_LIB="$cudart" NVCC="$nvcc" NVCC_GENCODE="-arch=${ARCH:-native}" "${targets[@]/%/_perf$suffix}" >&2
}
if [ -n "${NCCL_TESTS_BUILT:-}" ]; then built "$NCCL_TESTS_BUILT"; else make_them; fi
[ -z "${BUILD_ONLY:-}" ] || exit 0
[ -n "${GPUS:-}" ] || command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
ranks=(-t 1 -g "$gpus")
[ -z "${THREADS:-}" ] || ranks=(-t "$gpus" -g 1)
launch=()
if [ -n "$suffix" ]; then
  ranks=(-t 1 -g 1) launch=("$mpirun" --allow-run-as-root --oversubscribe -np "$gpus") libraries=$libraries:$mpi/lib
fi
export NCCL_NVLS_ENABLE=0 LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
for test in "${tests[@]}"; do
  timeout "${LIMIT:-300}" env ${NCCL_LIB:+LD_PRELOAD="$NCCL_LIB"} "${launch[@]}" "$build/${test}_perf$suffix" "${ranks[@]}" -b "${MIN:-1K}" -e "${MAX:-256M}" \
    -f "${FACTOR:-4}" -n "${ITERS:-100}" -w "${WARMUP:-20}" -G "${GRAPH:-0}" ${REGISTER:+-R "$REGISTER"} -c 1 "$@" |
    python3 "$here/program_nccltests.py" "${test}_perf" "${GRAPH:-0}" "$gpus" "${REGISTER:-0}" || { echo "${test}_perf$suffix failed" >&2; failed=1; }
done
exit $failed
