/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's share of a call: packs or lines first, first + stride, ... of all the grid's threads.
 *
 * What is to go together is loaded before the first of it is stored. Otherwise a thread would wait for one after the other:
 * the compiler may not move a load before a store, for all it knows to the same place.
 */
#ifndef DYN_SHARE_CUH
#define DYN_SHARE_CUH

#include "shape.cuh"

namespace dyn {

__device__ __forceinline__ size_t firstPack() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ size_t packStride() { return (size_t)gridDim.x * blockDim.x; }

/* store(i, load(i)) of all of a thread's packs, so many at once. */
template <int kAtOnce, typename Load, typename Store>
__device__ __forceinline__ void eachPack(size_t packs, Load load, Store store) {
  const size_t stride = packStride();
  size_t i = firstPack();
  for (; i + (kAtOnce - 1) * stride < packs; i += kAtOnce * stride) {
    decltype(load(i)) loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) loaded[u] = load(i + u * stride);
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) store(i + u * stride, loaded[u]);
  }
  if (kAtOnce > 1) /* else the compiler would have the loop twice */
    for (; i < packs; i += stride) store(i, load(i));
}

/* store(peer, u, load(peer, u)) of things 0 to kAtOnce - 1 of every peer, as far as they are there, beginning at another peer
 * on each rank. */
template <int kRanks, int kAtOnce, typename There, typename Load, typename Store>
__device__ __forceinline__ void eachPeer(const Domain &d, There there, Load load, Store store) {
  decltype(load(0, 0)) loaded[kAtOnce][kRanks];
#pragma unroll
  for (int u = 0; u < kAtOnce; u++)
#pragma unroll
    for (int k = 1; k < kRanks; k++)
      if (k < d.nRanks && there(peerOf(d, k), u)) loaded[u][k] = load(peerOf(d, k), u);
#pragma unroll
  for (int u = 0; u < kAtOnce; u++)
#pragma unroll
    for (int k = 1; k < kRanks; k++)
      if (k < d.nRanks && there(peerOf(d, k), u)) store(peerOf(d, k), u, loaded[u][k]);
}

/* A thread's lines of so many; threads of a warp take as many, so some are behind the end. In one block: of its threads. */
template <typename N, typename Do>
__device__ __forceinline__ void eachLineOf(N thread, N threads, N lines, Do what) {
  const N ahead = threadIdx.x % kWarp / kLineLanes;
  for (N i = thread / kLineLanes; i - ahead < lines; i += threads / kLineLanes) what(i);
}
template <typename Do>
__device__ __forceinline__ void eachLine(size_t lines, Do what) { eachLineOf(firstPack(), packStride(), lines, what); }
template <typename Do>
__device__ __forceinline__ void eachLineOfBlock(uint32_t lines, Do what) { eachLineOf(threadIdx.x, blockDim.x, lines, what); }

}  // namespace dyn

#endif
