/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce over load and store within one NVLink domain, with inline flags (line.cuh): no barrier, one kernel.
 *   one shot: every rank sends all that it has to every other one and adds up all of it.
 *   two shots: every rank adds up its part and sends the sum on.
 */
#ifndef DYN_ALL_REDUCE_CUH
#define DYN_ALL_REDUCE_CUH

#include "domain.cuh"
#include "number.cuh"

namespace dyn {

using Call = ::dyn_call;

constexpr int kThreads = DYN_KERNEL_THREADS;

__device__ __forceinline__ size_t packsOf(size_t count, size_t elementBytes, size_t packBytes = kLineData) { return dyn_packs(count * elementBytes, packBytes); }

__device__ __forceinline__ bool aligned(const Call &c, size_t packBytes = kLineData) {
  return (((size_t)c.send | (size_t)c.recv) & (packBytes - 1)) == 0;
}
/* Where a buffer has parts of count elements, each of them is. */
__device__ __forceinline__ bool alignedParts(const Call &c, size_t elementBytes, size_t packBytes = kLineData) {
  return aligned(c, packBytes) && c.count * elementBytes % packBytes == 0;
}

/* A thread's packs: first, first + stride, ... */
__device__ __forceinline__ size_t firstPack() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ size_t packStride() { return (size_t)gridDim.x * blockDim.x; }

/* Sums up what all ranks have, in their order: part(r) is rank r's, called with r known to the compiler. */
template <typename T, typename Bits = uint2, typename Part>
__device__ __forceinline__ Pack<T, Bits> sumRanks(const Domain &d, Op op, Part part) {
  using N = Number<T>;
  constexpr int kElements = Pack<T, Bits>::kElements;
  typename N::Wide sum[kElements] = {};
#pragma unroll
  for (int k = 0; k < kMaxRanks; k++) {
    if (k >= d.nRanks) break;
    Pack<T, Bits> p = part(DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ORDER ? (d.rank + k) % d.nRanks : k);
#pragma unroll
    for (int e = 0; e < kElements; e++) sum[e] = k == 0 ? N::up(p.elements[e]) : combine(op, sum[e], N::up(p.elements[e]));
  }
  Pack<T, Bits> out;
#pragma unroll
  for (int e = 0; e < kElements; e++) out.elements[e] = N::down(finish(op, sum[e], d.nRanks));
  return out;
}

/* The same of line i of all peers; own is this rank's. */
template <typename T>
__device__ __forceinline__ Pack<T> sumLines(const Domain &d, Op op, const Pack<T> &own, size_t i, uint32_t call) {
  uint2 data[kMaxRanks];
  awaitLines(d, i, call, data);
  return sumRanks<T>(d, op, [&](int r) {
    Pack<T> part = own;
    if (r != d.rank) part.bits = data[r];
    return part;
  });
}

template <typename T>
__device__ void allReduceOneShot(const Call &c) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const uint32_t call = callNumber(d);
  const bool fast = aligned(c);
  const size_t packs = packsOf(c.count, sizeof(T)), first = firstPack(), stride = packStride();
  for (size_t i = first; i < packs; i += stride) {
    Pack<T> own = loadPack(send, i, c.count, fast);
    for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + i * kLineBytes, own.bits, call);
  }
  for (size_t i = first; i < packs; i += stride) {
    Pack<T> own = loadPack(send, i, c.count, fast);
    Pack<T> out = sumLines<T>(d, (Op)c.op, own, i, call);
    storePack((T *)c.recv, i, c.count, fast, out);
  }
  endCall(d, call);
}

/* Part k is rank k's to add up. Of a slot the first half holds what peers send to be added, the second the sender's sums. */
template <typename T>
__device__ void allReduceTwoShot(const Call &c) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const uint32_t call = callNumber(d);
  const bool fast = aligned(c);
  const size_t packs = packsOf(c.count, sizeof(T)), chunk = dyn_part(packs, d.nRanks), first = firstPack(), stride = packStride();
  for (size_t i = first; i < chunk; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * chunk + i;
      if (at < packs) storeLine(slot(d, peer, d.rank, call) + i * kLineBytes, loadPack(send, at, c.count, fast).bits, call);
    }
  for (size_t i = first; i < chunk; i += stride) {
    size_t at = d.rank * chunk + i;
    if (at >= packs) break;
    Pack<T> own = loadPack(send, at, c.count, fast);
    Pack<T> out = sumLines<T>(d, (Op)c.op, own, i, call);
    for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + (chunk + i) * kLineBytes, out.bits, call);
    storePack((T *)c.recv, at, c.count, fast, out);
  }
  for (size_t i = first; i < chunk; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * chunk + i;
      if (at >= packs) continue;
      Pack<T> sum;
      sum.bits = awaitLine(d, peer, chunk + i, call);
      storePack((T *)c.recv, at, c.count, fast, sum);
    }
  endCall(d, call);
}

}  // namespace dyn

#endif
