# Which variables NCCL takes the carrier by (docs/design.md, decision 29). Sourced; what is named already stays. From 2.30.5 on GIN_TYPE
# says of which type GIN is: 2 Proxy, as it is without, 3 GDAKI, or both, which 2.32.3 has beside each other.
carrier_names() { # VERSION OF NCCL
  local library=libnccl-net-dynamiccl-carrier.so
  export DYNAMICCL_CARRIER=1 CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32} # with CUDA's own 8 it refuses
  if [ "$1" -lt 23005 ]; then # the type is DYNAMICCL_CARRIER_TYPE's
    export NCCL_NET_PLUGIN=${NCCL_NET_PLUGIN:-dynamiccl-carrier}
    return
  fi
  case ${GIN_TYPE:=${NCCL_GIN_TYPE:-2}} in
    2 | 3) export NCCL_GIN_TYPE=$GIN_TYPE ;;
    both) unset NCCL_GIN_TYPE ;;
    *) echo "GIN_TYPE=$GIN_TYPE: want 2 (Proxy), 3 (GDAKI) or both" >&2; return 2 ;;
  esac
  export NCCL_SYM_GIN_KERNELS_ENABLE=${NCCL_SYM_GIN_KERNELS_ENABLE:-0} # NCCL's own kernels over GIN: four contexts of each communicator of several nodes, of the carrier's few
  [ "$GIN_TYPE" = 3 ] || export NCCL_RMA_PLUGIN=${NCCL_RMA_PLUGIN:-$library}
  [ "$GIN_TYPE" = 2 ] || export NCCL_GIN_PLUGIN=${NCCL_GIN_PLUGIN:-$library}
}
