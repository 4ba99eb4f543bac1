# Sourced in the repository's folder, on the machine that bundle.sh built for: what the scripts ask the environment for.
#   . nccltuner/gputest/there.sh [BUNDLE.tar.xz]
# unpacks what PACK=BUNDLE.tar.xz had packed. NCCL is that of Python's wheel, or NCCL_LIB's.
[ -z "${1:-}" ] || tar -xJf "$1" || return
[ -e .cache/gpu/commit ] || { echo ".cache/gpu is empty: name what PACK=BUNDLE.tar.xz nccltuner/gputest/bundle.sh packed" >&2; return 2; }
find .cache/gpu lib bin -exec touch {} + # newer than their sources, or they would be built again
COMMIT=$(cat .cache/gpu/commit)
export COMMIT MIX_COMMIT=$COMMIT PROGRAM_COMMIT=$COMMIT MIX_BUILD=.cache/gpu NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
[ ! -e .cache/gpu/nccl-tests ] || export NCCL_TESTS_BUILT=${NCCL_TESTS_BUILT:-.cache/gpu/nccl-tests}
if [ -n "${NCCL_LIB:-}" ]; then
  [ -e "$NCCL_LIB" ] || { echo "NCCL_LIB=$NCCL_LIB is not there" >&2; return 2; }
  LD_LIBRARY_PATH=$(dirname "$(realpath "$NCCL_LIB")")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif python3 -c 'import nvidia.nccl' 2>/dev/null; then
  LD_LIBRARY_PATH=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])')/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
