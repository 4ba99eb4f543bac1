# Sourced by program_torch.sh, program_decode.sh and program_fused.sh: what is known of this machine before a program starts.

# calibrate STORE [option of calibrate]...: with NCCL_LIB's NCCL, or with PyTorch's, which need not be the loader's: choices are of one version alone.
calibrate() {
  local store=$1 nccl=${NCCL_LIB:-}
  shift
  [ -n "$nccl" ] || nccl=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)/lib/libnccl.so.2 || nccl=
  bin/dynamiccld calibrate --store "$store" ${nccl:+--nccl-lib "$nccl"} "$@" >&2
}
