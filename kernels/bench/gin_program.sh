# What runs `gin`: sourced, from the tree's root. NCCL_LIB, NCCL_HOME, NVCC, GIN: as gin.sh has them.
find_nccl() { # into NCCL_LIB, unless it is named
  [ -z "${NCCL_LIB:-}" ] || return 0
  local home
  home=$(nccl_home)
  NCCL_LIB=$home/lib/libnccl.so.2
}
gin_program() { # FOLDER: gets libnccl.so.2 of NCCL_LIB, alone, which the program that is in GIN then finds
  ln -s "$(realpath "$NCCL_LIB")" "$1/libnccl.so.2"
  if [ -z "${GIN:-}" ]; then
    make -s -C kernels gin NCCL_LIB="$1" ${NVCC:+NVCC="$NVCC"}
    GIN=.cache/kernels/gin
  fi
  export NCCL_NVLS_ENABLE=0 LD_LIBRARY_PATH="$1:$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
gin_version() { # FOLDER: NCCL's there; 0: it does not load
  timeout 60 python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$1/libnccl.so.2" || echo 0
}
