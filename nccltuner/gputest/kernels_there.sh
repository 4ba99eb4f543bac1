# Sourced with root set by what is to test our kernels.

# Our kernels over load and store run where NVLink joins all GPUs, as far as nvidia-smi knows.
nvlink_joins_all() {
  nvidia-smi topo -m | awk '/^GPU[0-9]/ { line[++n] = $0 }
    END { for (i = 1; i < n; i++) { split(line[i], of); for (j = i + 2; j <= n + 1; j++) if (of[j] !~ /^NV/) lacks = 1 } exit lacks }'
}

# Before anything is started: without their file NCCL runs all calls, and is right. DYNAMICCL_NO_KERNELS=1 leaves them out on purpose, which
# the JSON lines say.
kernels_there() { # FILE... in lib/, of which DYNAMICCL_KERNELS names the first
  [ "${DYNAMICCL_NO_KERNELS:-}" != 1 ] || return 0
  local file
  for file in "${DYNAMICCL_KERNELS:-$root/lib/$1}" "${@:2}"; do
    [[ $file == */* ]] || file=$root/lib/$file
    [ -s "$file" ] && continue
    echo "$file is not there: run make kernels first (DYNAMICCL_NO_KERNELS=1 tests NCCL's kernels alone, on purpose)" >&2
    exit 2
  done
}
