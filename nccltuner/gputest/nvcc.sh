# Sourced by scripts that build with the machine's own CUDA: $nvcc is the user's (NVCC), the path's, or CUDA_HOME's.
nvcc=${NVCC:-$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")}
