/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN under plain names, for those who load them with the driver's API. A block's context follows from its
 * number and the call's contexts (net.cuh).
 */
#ifndef DYN_GIN_KERNELS_CUH
#define DYN_GIN_KERNELS_CUH

#include "../carrier/expected.h"
#include "../types.h"
#include "all_reduce.cuh"
#include "probe.cuh"
#include "rails.cuh"
#include "rails_differ.cuh"
#include "rails_sum.cuh"
#include "rounds.cuh"
#include "rounds_differ.cuh"

namespace dyn {

/* At a kernel's end, whichever way it comes to it, its last block tells. The first block's end would not do: where roles differ some wait for
 * ranks of their node alone, and others put when those elsewhere come. And at its beginning its first block does, before which none has a place
 * (docs/design/choices.md, decision 2.4): what others put first by some instructions a card finds all the same, and its end is counted behind it. */
struct GinEnding {
  uint32_t *const ended;
  __device__ __forceinline__ explicit GinEnding(const Gin &g) : ended(g.ended) {
    if (ended != nullptr && threadIdx.x == 0 && blockIdx.x == 0) countOne(&ended[DYN_EXPECTED_BEGUN]);
  }
  __device__ __forceinline__ ~GinEnding() {
    if (ended == nullptr || threadIdx.x != 0 || addOne(&ended[DYN_EXPECTED_BLOCKS]) + 1 < gridDim.x) return;
    ended[DYN_EXPECTED_BLOCKS] = 0;
    storeRelease(&ended[DYN_EXPECTED_OVER], ended[DYN_EXPECTED_OVER] + 1); /* kernels of a lane come one after the other */
  }
};

}  // namespace dyn

#define DYN_GIN_KERNEL(NAME) \
  extern "C" __global__ void __launch_bounds__(DYN_KERNEL_THREADS, 1) NAME(const __grid_constant__ ncclDevComm comm, const __grid_constant__ dyn_gin_call c)
#define DYN_GIN_TYPED(NAME, TYPE) \
  DYN_GIN_KERNEL(ginAllReduce_##NAME) { \
    const dyn::GinEnding ending(c.gin); \
    dyn::ginAllReduce<TYPE>(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const TYPE *)c.send, (TYPE *)c.recv, c.count, (dyn::Op)c.op); \
  } \
  DYN_GIN_KERNEL(ginReduceScatter_##NAME) { \
    const dyn::GinEnding ending(c.gin); \
    dyn::ginReduceScatter<TYPE>(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const TYPE *)c.send, (TYPE *)c.recv, c.count, (dyn::Op)c.op); \
  }
DYN_TYPES(DYN_GIN_TYPED)
DYN_GIN_KERNEL(ginAllToAll) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginAllToAllSlots(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const char *)c.send, (char *)c.recv, c.count);
}
DYN_GIN_KERNEL(ginAllGather) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginAllGather(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const char *)c.send, (char *)c.recv, c.count);
}
extern "C" __global__ void __launch_bounds__(DYN_KERNEL_THREADS, 1)
    ginAllToAllV(const __grid_constant__ ncclDevComm comm, const __grid_constant__ dyn_gin_call c, const __grid_constant__ dyn_parts p) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginAllToAllV(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const char *)c.send, (char *)c.recv, p);
}
/* Hierarchical ones: AllGather and AllToAll, AllToAllv, and ReduceScatter. */
DYN_GIN_KERNEL(ginMove) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginMove(dyn::GinNet(comm, c.gin, dyn::ginChannel()), c.gin, (dyn::GinNet::Window)c.slots, (const char *)c.send, (char *)c.recv, c.count, c.same != 0);
}
extern "C" __global__ void __launch_bounds__(DYN_KERNEL_THREADS, 1)
    ginMoveParts(const __grid_constant__ ncclDevComm comm, const __grid_constant__ dyn_gin_call c, const __grid_constant__ dyn_parts p) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginMoveParts(dyn::GinNet(comm, c.gin, dyn::ginChannel()), c.gin, (dyn::GinNet::Window)c.slots, (const char *)c.send, (char *)c.recv, p);
}
#define DYN_GIN_SUMS(NAME, TYPE) \
  DYN_GIN_KERNEL(ginMoveSums_##NAME) { \
    const dyn::GinEnding ending(c.gin); \
    dyn::ginMoveSums<TYPE>(dyn::GinNet(comm, c.gin, dyn::ginChannel()), c.gin, (dyn::GinNet::Window)c.slots, (const TYPE *)c.send, (TYPE *)c.recv, c.count, (dyn::Op)c.op); \
  }
DYN_NORM_TYPES(DYN_GIN_SUMS)
#undef DYN_GIN_SUMS
/* Larger ones than ginAllReduce has room for, flat. */
#define DYN_GIN_ROUNDS(NAME, TYPE) \
  DYN_GIN_KERNEL(ginAllReduceInRounds_##NAME) { \
    const dyn::GinEnding ending(c.gin); \
    dyn::ginAllReduceInRounds<TYPE>(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, (const TYPE *)c.send, (TYPE *)c.recv, c.count, (dyn::Op)c.op); \
  }
DYN_NORM_TYPES(DYN_GIN_ROUNDS)
#undef DYN_GIN_ROUNDS
DYN_GIN_KERNEL(ginProbe) {
  const dyn::GinEnding ending(c.gin);
  dyn::ginProbe(dyn::GinNet(comm, c.gin), c.gin, (dyn::GinNet::Window)c.slots, c.stamps);
}
DYN_GIN_KERNEL(ginLook) {
  const dyn::GinEnding ending(c.gin);
  for (unsigned context = 0; context < c.gin.contexts; context++) dyn::ginLook(dyn::GinNet(comm, context), c.gin, c.stamps);
}
#undef DYN_GIN_TYPED
#undef DYN_GIN_KERNEL

#endif
