#!/usr/bin/env bash
# Everything that the GPU scripts run, built on a machine without a GPU for one that has neither Go nor a network:
#   nccltuner/gputest/bundle.sh [ARCH, default sm_90]
# leaves bin/, lib/ with the kernels of that architecture alone, and in .cache/gpu the CUDA programs, and says what to carry
# beside the repository's files and how to call the scripts there.
# NCCL_TESTS=SOURCES (https://github.com/NVIDIA/nccl-tests) builds nccl-tests as well, into .cache/gpu/nccl-tests; TESTS="all_reduce ..." others of them;
# MPI=1 those of a process a GPU beside them, and Open MPI (.ci/mpi).
# PACK=FILE.tar.xz has it all in one file, which there.sh unpacks.
# libnccl.so.2 is not needed here: programs are linked with a library of its names, and find the real one where they run.
set -euo pipefail
. "$(dirname "$0")/../../kernels/bench/usage.sh"
cd "$(dirname "$0")/../.."
arch=${1:-sm_90}
[[ $arch == sm_* ]] || { echo "ARCH $arch: want sm_80, sm_90, sm_100, ..." >&2; exit 2; }
mpi_too=${MPI:-0} mpi_too=${mpi_too#0}
nvcc=$(.ci/cuda --only-get)
home=${NCCL_HOME:-$(dirname "$nvcc")/../../nccl}
make -s all carrier
rm -rf .cache/gpu/nccl
mkdir -p .cache/gpu/nccl
names=$(grep -hoE '\bp?nccl[A-Z][A-Za-z0-9]*[[:space:]]*\(' "$home/include/nccl.h" "$home/include/nccl_device/core.h" | tr -d '( ' | sort -u)
for name in $names; do echo "void $name(void) {}"; done | gcc -x c -w -fPIC -shared -Wl,-soname,libnccl.so.2 -o .cache/gpu/nccl/libnccl.so.2 -
fatbin() { # FATBIN SOURCE [option of nvcc]...
  "$nvcc" -std=c++17 -O2 --threads 0 -split-compile 0 -fatbin -gencode "arch=compute_${arch#sm_},code=$arch" -o "$1" "${@:3}" "$2"
}
build() { # PROGRAM SOURCE [folder of NCCL's headers]
  "$nvcc" -std=c++17 -arch="$arch" -O2 -I"${3:-$home/include}" -cudart static -o ".cache/gpu/$1" "$2" -L"$(dirname "$nvcc")/../lib" -L.cache/gpu/nccl \
    -l:libnccl.so.2 -lpthread
}
fatbin lib/dynamiccl-kernels.fatbin kernels/kernels.cu
fatbin lib/dynamiccl-gin.fatbin kernels/gin/kernels.cu -I"$home/include" -DDYN_GIN_FOR=22809
newer=${NCCL_NEWER_HOME:-$home-2.32.3}
fatbin lib/dynamiccl-gin-2.32.3.fatbin kernels/gin/kernels.cu -I"$newer/include" -DDYN_GIN_FOR=23203
fatbin lib/dynamiccl-carrier.fatbin kernels/carrier/nic/nic.cu
for source in kernels/bench/*.cu; do build "$(basename "$source" .cu)" "$source"; done
build mix nccltuner/gputest/mix.cu
build_bare() { # PROGRAM SOURCE [option of nvcc]...: nothing of NCCL's is in it
  "$nvcc" -std=c++17 -arch="$arch" -O2 -cudart static -o ".cache/gpu/$1" "${@:3}" "$2" -L"$(dirname "$nvcc")/../lib" -ldl -lpthread
}
build_bare libbeside.so nccltuner/gputest/beside/beside.cu -shared -Xcompiler -fPIC
build_bare gaps nccltuner/gputest/gaps.cu
build gin_first kernels/carrier/test/gin_first.cu
build gin-2.32.3 kernels/bench/gin.cu "$newer/include"
build gin_first-2.32.3 kernels/carrier/test/gin_first.cu "$newer/include"
rm -rf .cache/gpu/nccl-tests
if [ -n "${NCCL_TESTS:-}" ]; then
  mkdir .cache/gpu/nccl/lib .cache/gpu/nccl-tests
  ln -s "$home/include" .cache/gpu/nccl/include
  ln .cache/gpu/nccl/libnccl.so.2 .cache/gpu/nccl/lib
  # CUDA's runtime within them: where they run nobody need have it.
  for mpi in 0 $mpi_too; do
    of=${mpi#0}
    MPI=$mpi BUILD_ONLY=1 MAKE_LIMIT=3600 ARCH=$arch BUILD=.cache/nccl-tests-$arch${of:+-mpi} NVCC=$nvcc CUDARTLIB=cudart_static NCCL_HOME=.cache/gpu/nccl NCCL_TESTS_BUILT="" \
      nccltuner/gputest/nccltests.sh
    for test in ${TESTS:-all_reduce all_gather reduce_scatter}; do cp ".cache/nccl-tests-$arch${of:+-mpi}/${test}_perf${of:+_mpi}" .cache/gpu/nccl-tests; done
  done
fi
rm -r .cache/gpu/nccl
git describe --always --dirty >.cache/gpu/commit
carry=(bin/dynamiccld bin/dynamiccl-worker lib .cache/gpu ${mpi_too:+.cache/mpi})
du -shc "${carry[@]}" | sed 's/^/carry: /'
[ -z "${PACK:-}" ] || tar -cf - "${carry[@]}" | xz -6 -T0 >"$PACK"
cat <<'E3'
There, in the repository's folder:
  . nccltuner/gputest/there.sh [WHAT PACK NAMED]
  LSA=.cache/gpu/lsa kernels/bench/run.sh RESULTS.jsonl
  .cache/gpu/gin_first 2 10      # with the environment that kernels/carrier/Makefile names; then
  GIN=.cache/gpu/gin DYNAMICCL_CARRIER=1 kernels/bench/gin.sh RESULTS.jsonl   # without DYNAMICCL_CARRIER where there are NICs
  GIN=.cache/gpu/gin kernels/bench/gin_waits.sh RESULTS.jsonl   # cudaDeviceSynchronize, cudaFree and their like beside the carrier's card
  # The same in programs, without NICs: DYNAMICCL_CARRIER=1
  # NCCL_NET_PLUGIN=dynamiccl-carrier DYNAMICCL_GIN_NET=dynamiccl-carrier CUDA_DEVICE_MAX_CONNECTIONS=32
  # (NCCL 2.32.3: NCCL_RMA_PLUGIN and, for GDAKI too, NCCL_GIN_PLUGIN=libnccl-net-dynamiccl-carrier.so in place of NCCL_NET_PLUGIN and DYNAMICCL_GIN_NET, and .cache/gpu/gin-2.32.3)
  bin/dynamiccld sweep --nodes 2 --choices gin,ring --collectives AllReduce,AllToAll --sizes 1K,16K,256K,1M --out gin.csv
  GIN=.cache/gpu/gin-2.32.3 NCCL_LIB=FILE GIN_TYPE=3 DYNAMICCL_CARRIER=1 kernels/bench/gin.sh RESULTS.jsonl      # 2.32.3's GDAKI; 2: Proxy
  GIN=.cache/gpu/gin-2.32.3 NCCL_LIB=FILE nccltuner/gputest/gin_types.sh RESULTS.jsonl      # both types beside each other
  SANITIZE=.cache/gpu/sanitize kernels/bench/sanitize.sh RESULTS.jsonl; GIN=.cache/gpu/gin kernels/bench/sanitize_gin.sh RESULTS.jsonl
  nccltuner/gputest/cases.sh RESULTS.jsonl; nccltuner/gputest/stress.sh 600 RESULTS.jsonl; nccltuner/gputest/live.sh RESULTS.jsonl
  for p in fallbacks torch fused decode kill ddp overlap; do nccltuner/gputest/program_$p.sh RESULTS.jsonl; done      # PyTorch
  nccltuner/gputest/program_nccltests.sh RESULTS.jsonl      # where NCCL_TESTS was given here; else NCCL_TESTS=SOURCES and nvcc
  BESIDE=.cache/gpu/libbeside.so nccltuner/gputest/beside.sh RESULTS.jsonl; GAPS=.cache/gpu/gaps nccltuner/gputest/gaps.sh RESULTS.jsonl
  # On one GPU, which ranks share then: ours; and NCCL of 2.30 or newer
  MPS=1 RANKS="4 8" LSA=.cache/gpu/lsa kernels/bench/run.sh RESULTS.jsonl
  MPS=1 RANKS=4 NCCL_LIB=FILE nccltuner/gputest/cases.sh RESULTS.jsonl; MPS=1 RANKS=4 NCCL_LIB=FILE nccltuner/gputest/stress.sh 60 RESULTS.jsonl
E3
