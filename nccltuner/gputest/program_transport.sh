# Sourced by program_ddp.sh and others: what stands between the ranks of a program.
# Environment: GPUS=N uses the first N; NODES=N machines that sockets stand between (one a GPU); MPS=1 and RANKS=N: so many ranks
# share the GPUs under CUDA's multi-process service, and all of them compute on them: over sockets each is a node of its own, over nvlink they are
# of one, which takes NCCL 2.30 or newer.
. kernels/bench/mps.sh
[ -n "${GPUS:-}" ] || gpus_there
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
shared=$(mktemp -d)
trap 'mps_end; rm -rf "$shared"' EXIT

# share: RANKS of them share the GPUs.
share() {
  ranks=${RANKS:-$gpus}
  mps_begin "$shared"
  queues=CUDA_DEVICE_MAX_CONNECTIONS=$(mps_queues $(((ranks + gpus - 1) / gpus)))
}

# transport NAME NVLINK-FLAGS SOCKET-FLAGS: NAME is nvlink, socket, or gin: over sockets, with kernels over GIN by the carrier (PyTorch's NCCL
# 2.28.9, `make carrier kernels`). What stands before a program's own words is in $launch then, $nodes says how many there are, the flags for
# this one are in $flags, and the arms of program_bench.py, plain NCCL and run, with commas for spaces, in $both.
transport() {
  local ranks=$gpus queues=
  mps_end
  both="plain run"
  case $1 in
    nvlink)
      nodes=1 flags=$2
      if [ "${MPS:-}" = 1 ]; then
        share
        queues="NCCL_MULTI_RANK_GPU_ENABLE=1 $queues"
      fi
      ;;
    socket)
      nodes=${NODES:-$gpus} flags=$3
      if [ "${MPS:-}" = 1 ]; then
        share
        nodes=$ranks
      fi
      ;;
    gin)
      [ -e lib/libnccl-net-dynamiccl-carrier.so ] && [ -e lib/dynamiccl-gin.fatbin ] || { echo "lib/ has no carrier or no kernels: run make all carrier kernels first" >&2; exit 2; }
      nodes=$gpus flags=$3
      queues="CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32} NCCL_NET_PLUGIN=dynamiccl-carrier LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      [ "$gpus" -le 6 ] || queues="$queues NCCL_GIN_NCONTEXTS=${NCCL_GIN_NCONTEXTS:-2}" # the carrier has 24 places for contexts, a place for each rank
      both="plain=plain,NCCL_NET=Socket run=run,DYNAMICCL_CARRIER=1,DYNAMICCL_GIN_NET=dynamiccl-carrier" # plain NCCL's network would be the carrier
      ;;
    *) echo "no transport $1: nvlink, socket, gin" >&2; exit 2 ;;
  esac
  launch="env NODES=$nodes ${queues:+$queues }torchrun --nproc-per-node $ranks --no-python nccltuner/gputest/program_node.sh python3"
}
