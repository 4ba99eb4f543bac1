# Sourced by program_ddp.sh and others: what stands between the ranks of a program.
# Environment: GPUS=N uses the first N; NODES=N machines that sockets stand between (one a GPU); MPS=1 and RANKS=N: over sockets so many
# ranks, each a node of its own, share the GPUs under CUDA's multi-process service, and all of them compute on them.
. kernels/bench/mps.sh
[ -n "${GPUS:-}" ] || command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not here: this needs a machine with NVIDIA GPUs" >&2; exit 2; }
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
shared=$(mktemp -d)
trap 'mps_end; rm -rf "$shared"' EXIT

# transport NAME NVLINK-FLAGS SOCKET-FLAGS: NAME is nvlink or socket. What stands before a program's own words is in $launch then, $nodes
# says how many there are, and the flags for this one are in $flags.
transport() {
  local ranks=$gpus queues=
  mps_end
  case $1 in
    nvlink) nodes=1 flags=$2 ;;
    socket)
      nodes=${NODES:-$gpus} flags=$3
      if [ "${MPS:-}" = 1 ]; then
        ranks=${RANKS:-$gpus} nodes=$ranks
        mps_begin "$shared"
        queues=CUDA_DEVICE_MAX_CONNECTIONS=$(mps_queues $(((ranks + gpus - 1) / gpus)))
      fi
      ;;
    *) echo "no transport $1: nvlink, socket" >&2; exit 2 ;;
  esac
  launch="env NODES=$nodes ${queues:+$queues }torchrun --nproc-per-node $ranks --no-python nccltuner/gputest/program_node.sh python3"
}
