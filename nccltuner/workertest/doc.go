// Package workertest tests the worker (nccltuner/worker) where there is no GPU: real worker processes and the real plugin
// over the stand-ins for CUDA's driver and NCCL (nccltuner/fakegpu).
package workertest
