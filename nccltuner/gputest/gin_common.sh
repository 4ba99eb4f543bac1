# What scripts have in common that run `dynamiccld bench` over the carrier while its faults change. Sourced from the tree's root;
# leaves arms and more, options of bench, and tmp; fault LINE... says what is in force; arm_dir, with bench the number of bench's process, where to ask its daemon. out: the file of results; GIN_TYPE: of which
# type GIN is with NCCL 2.30.5 and later (kernels/bench/carrier.sh).
gpus_there
[ -e lib/libnccl-net-dynamiccl-carrier.so ] && [ -e lib/dynamiccl-gin.fatbin ] || { echo "lib/ has no carrier or no kernels: run make all carrier kernels first" >&2; exit 2; }
if [ -z "${NCCL_LIB:-}" ]; then
  home=$(nccl_home)
  NCCL_LIB=$home/lib/libnccl.so.2
fi
version=$(timeout 60 python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)' "$NCCL_LIB") ||
  { echo "$NCCL_LIB does not load: name a libnccl.so.2 with NCCL_LIB=FILE" >&2; exit 2; }
. kernels/bench/mps.sh
tmp=$(mktemp -d)
bench=
more=()
stop() {
  [ -z "$bench" ] || kill "$bench" 2>/dev/null || true
  wait
  mps_end
  rm -rf "$tmp"
}
trap stop EXIT
fault() { # LINE...: renamed into place, so that no half of it is read
  printf '%s\n' "$@" >"$tmp/new"
  mv "$tmp/new" "$tmp/faults"
}
fault "# none"
arm_dir() { # where the daemon of the arm that learns answers
  compgen -G "/dev/shm/dynamiccl-bench-$bench-*/1/run" || compgen -G "${TMPDIR:-/tmp}/dynamiccl-bench-$bench-*/1/run"
}
ln -s "$(realpath "$NCCL_LIB")" "$tmp/libnccl.so.2"
. kernels/bench/carrier.sh
carrier_names "$version"
if [ "$version" -ge 23005 ]; then # GIN stands on a plugin of its own, and NCCL's Socket network stays (docs/design.md, decision 29)
  [ -e lib/dynamiccl-gin-2.32.3.fatbin ] || { echo "lib/dynamiccl-gin-2.32.3.fatbin is not there: run make kernels first" >&2; exit 2; }
  export NCCL_NET=Socket
  arms=plain,run
  # NCCL's threads and the carrier's spin there: with bench's 4 CPUs a rank they take them from each other.
  [ "$(nproc)" -lt 32 ] || more=(--cpus-per-rank 8)
else
  arms=plain+NCCL_NET=Socket,run+DYNAMICCL_GIN_NET=dynamiccl-carrier
fi
export NCCL_NVLS_ENABLE=0 NCCL_IB_DISABLE=1 DYNAMICCL_CARRIER_FAULTS=$tmp/faults
export LD_LIBRARY_PATH=$tmp:$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
if [ "${MPS:-}" = 1 ]; then # there are fewer queues for each process then
  export CUDA_DEVICE_MAX_CONNECTIONS=16 NCCL_GIN_NCONTEXTS=${NCCL_GIN_NCONTEXTS:-2}
  mps_begin "$tmp"
fi
mkdir -p "$(dirname "$out")"
