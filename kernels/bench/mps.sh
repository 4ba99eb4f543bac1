# Sourced: CUDA's multi-process service, under which processes that share a GPU run their kernels beside each other and not in turns
# (docs/design/measuring.md). It is no setting of the GPU's, and needs no rights.

# mps_begin FOLDER: one of ours, unless CUDA_MPS_PIPE_DIRECTORY names one that runs. It numbers GPUs as programs do without it.
mps_begin() {
  [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || return 0
  command -v nvidia-cuda-mps-control >/dev/null || { echo "nvidia-cuda-mps-control is not here: it comes with NVIDIA's driver" >&2; exit 2; }
  export CUDA_MPS_PIPE_DIRECTORY=$1 CUDA_MPS_LOG_DIRECTORY=$1
  mps_ours=1
  timeout 30 env -u CUDA_VISIBLE_DEVICES nvidia-cuda-mps-control -d
}

# mps_end: ours ends, and what is started now runs without.
mps_end() {
  [ -n "${mps_ours:-}" ] || return 0
  echo quit | timeout 30 nvidia-cuda-mps-control >/dev/null || true
  unset mps_ours CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

# mps_queues PROCESSES-OF-A-GPU: one's, for CUDA_DEVICE_MAX_CONNECTIONS. With 128 of all together processes are refused a context, with 64
# they are not.
mps_queues() { echo $(($1 > 4 ? 64 / $1 : 16)); }
