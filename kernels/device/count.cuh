/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of calls, in device memory, a counter for each block (domain.cuh says why), and peers.
 */
#ifndef DYN_COUNT_CUH
#define DYN_COUNT_CUH

#include "line.cuh"

namespace dyn {

__device__ __forceinline__ uint32_t nextCall(const uint32_t *calls) {
  awaitStream();
  uint32_t next = calls[blockIdx.x] + 1;
  return next != 0 ? next : 2; /* 0 is what fresh memory holds, and halves go on to take turns */
}

/* Of so many counters, this block's and those of blocks that are missing. Behind all that the block does in the call. */
__device__ __forceinline__ void countCall(uint32_t *calls, unsigned counters, uint32_t call) {
  __syncthreads();
  if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_COUNTER) {
    calls[blockIdx.x] = call;
    return;
  }
  for (unsigned b = blockIdx.x + threadIdx.x * gridDim.x; b < counters; b += blockDim.x * gridDim.x) calls[b] = call;
}

/* The k-th peer, from 1: each rank begins with another one. */
__device__ __forceinline__ int kthPeer(int rank, int nRanks, int k) { return rank + k < nRanks ? rank + k : rank + k - nRanks; }

}  // namespace dyn

#endif
