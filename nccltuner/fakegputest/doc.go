// Package fakegputest builds and runs the C tests of the stand-ins for CUDA's driver and NCCL (nccltuner/fakegpu): kernels of
// kernels/ between rank processes, with real data.
package fakegputest
