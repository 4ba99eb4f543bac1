/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of calls, in device memory, a counter for each block (domain.cuh says why), and peers.
 *
 * Who has given up sends nothing more. A wait that ended in vain, or was ended (ncclCommAbort on this rank alone, while the rank that
 * it waited for is late and comes), leaves no result, but peers that live do not know it. Calls that stand in the stream behind it, or
 * in a graph, would give them sums of what is no result, and would write, with nobody to wait for, where a peer still reads what this
 * rank sent in an earlier call. So the call's number stays behind the counters, and every later kernel does nothing: peers
 * wait for this rank, as for one that is dead, until they are stopped or told. A block of the same kernel goes on, also one that
 * begins behind the word: what it waits for has come or it gives up as well, and all its threads see one or the other.
 *
 * Nor in the communicator's other lanes: a graph that stands in the stream behind the call, a call behind the graph, or one over GIN
 * behind one over load and store, has for input what is no result. So each lane has a second word, for the others, and who gives up writes
 * those of all of them. A kernel there that runs already knows nothing of this one, and what it sends is right, but of its blocks and warps
 * those that begin now see the word and those before them did not. In lines who sees it goes at once: a line comes whole or not at all.
 * Where one word speaks for what a whole block has sent (bulk.cuh, parts_differ.cuh) it is not said by who has seen that it is over; over
 * GIN, where a call takes much longer than a barrier, a block sees it together (gin/calls.cuh).
 */
#ifndef DYN_COUNT_CUH
#define DYN_COUNT_CUH

#include "line.cuh"

namespace dyn {

__device__ __forceinline__ uint32_t numberBehind(uint32_t call) {
  const uint32_t next = call + 1;
  return next != 0 ? next : 2; /* 0 is what fresh memory holds, and halves go on to take turns */
}
/* number 0: this rank has given up in an earlier one. over: in another lane, as some threads of a block may see and others not; those
 * of a warp see the same. */
struct Begun {
  uint32_t number;
  bool over;
};
__device__ __forceinline__ Begun nextCall(const uint32_t *calls, unsigned counters) {
  awaitStream();
  const uint32_t next = numberBehind(calls[blockIdx.x]);
  const uint2 gaveUp = loadBoth(&calls[counters]);
  return {gaveUp.x == 0 || gaveUp.x == next || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_SENDS_ON ? next : 0, gaveUp.y != 0};
}
/* In this call. Kept out of the way of those that wait and are not in vain. */
__attribute__((noinline)) inline __device__ void giveUp(uint32_t *calls, unsigned counters, const dyn_lanes *lanes) {
  uint32_t *own = &calls[counters];
  storeRelease(own, numberBehind(calls[blockIdx.x]));
  if (lanes == nullptr || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OTHER_LANE) return;
#pragma unroll 1
  for (int l = 0; l < DYN_LANES; l++)
    if (uint32_t *const other = lanes->gaveUp[l]; other != nullptr && other != own) storeRelease(other + 1, 1u);
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
