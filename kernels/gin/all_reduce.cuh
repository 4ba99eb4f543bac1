/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce of few bytes over GIN: every rank puts all that it has into its slot on every peer, with a signal, waits for the
 * peers' signals, and adds up all slots in the order of ranks, so all ranks get the same bits. Data goes through the slots'
 * window, so a program's own buffers need not be registered and may begin anywhere.
 */
#ifndef DYN_GIN_ALL_REDUCE_CUH
#define DYN_GIN_ALL_REDUCE_CUH

#include "../device/shape.cuh"
#include "trip.cuh"

namespace dyn {

/* Pack i of all ranks' slots. */
template <typename T>
__device__ __forceinline__ uint4 ginSum(const Gin &g, const char *slots, size_t i, uint32_t call, Op op) {
  using N = Number<T>;
  constexpr int kElements = Pack<T, uint4>::kElements;
  typename N::Wide sum[kElements] = {};
#pragma unroll 4
  for (int k = 0; k < g.nRanks; k++) {
    const int r = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ORDER ? (g.rank + k) % g.nRanks : k;
    const Pack<T, uint4> p = packOf<T>(*(const uint4 *)(slots + ginSlot(g, r, call) + i * sizeof(uint4)));
#pragma unroll
    for (int e = 0; e < kElements; e++) sum[e] = k == 0 ? N::up(p.elements[e]) : combine(op, sum[e], N::up(p.elements[e]));
  }
  Pack<T, uint4> out;
#pragma unroll
  for (int e = 0; e < kElements; e++) out.elements[e] = N::down(finish(op, sum[e], g.nRanks));
  return out.bits;
}

/* At least one element, and no more than a slot has room for; the same on all ranks. */
template <typename T, typename Net>
__device__ __forceinline__ void ginAllReduce(const Net &net, const Gin &g, typename Net::Window window, const T *send, T *recv, size_t count, Op op) {
  const uint32_t call = ginBegin(g);
  const GinShare share = ginShareOf(count * sizeof(T), gridDim.x, blockIdx.x);
  char *slots = net.local(window, 0);
  const Buffer<Shape<false, kMaxRanks>, T, uint4> from(send, count), to(recv, count);
  const size_t begin = dyn_packs(share.begin, sizeof(uint4)), end = dyn_packs(share.end, sizeof(uint4));
  const size_t own = ginSlot(g, g.rank, call), at = own + begin * sizeof(uint4);
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) *(uint4 *)(slots + own + i * sizeof(uint4)) = from.load(i);
  __syncthreads();
  const size_t bytes = (end - begin) * sizeof(uint4);
  const auto bytesTo = [&](int) { return bytes; };
  const bool timed = begin < end && ginTimes(g, call);
  if (begin < end) {
    eachGinPeer(g, [&](int peer) { ginPut(net, g, timed, peer, window, at, at, bytes); });
    ginAwaitData(net, g, timed, call, bytesTo); /* who does not come leaves anything */
  }
  __syncthreads();
  if (timed) ginTellTrips(g, call, bytesTo);
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) to.store(i, ginSum<T>(g, slots, i, call, op));
  ginEnd(g, call);
}

}  // namespace dyn

#endif
