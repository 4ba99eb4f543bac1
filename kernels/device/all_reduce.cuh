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

constexpr int kThreads = 512;

struct Call {
  const void *send;
  void *recv;   /* may be send */
  size_t count; /* elements, at least 1 */
  Op op;        /* of those that add up */
  Domain domain;
};

__host__ __device__ inline size_t packsOf(size_t count, size_t elementBytes) { return (count * elementBytes + kLineData - 1) / kLineData; }

/* Lines that a slot must have room for. */
__host__ __device__ inline size_t oneShotLines(size_t packs) { return packs; }
__host__ __device__ inline size_t twoShotChunk(size_t packs, int nRanks) { return (packs + nRanks - 1) / nRanks; }
__host__ __device__ inline size_t twoShotLines(size_t packs, int nRanks) { return 2 * twoShotChunk(packs, nRanks); }

__device__ __forceinline__ bool aligned(const Call &c) { return (((size_t)c.send | (size_t)c.recv) & (kLineData - 1)) == 0; }

/* Sums up line i of all ranks, in their order; own is this rank's. */
template <typename T>
__device__ __forceinline__ Pack<T> reduceRanks(const Domain &d, Op op, const Pack<T> &own, size_t i, uint32_t call) {
  using N = Number<T>;
  typename N::Wide sum[Pack<T>::kElements] = {};
  uint2 data[kMaxRanks];
  awaitLines(d, i, call, data);
#pragma unroll
  for (int k = 0; k < kMaxRanks; k++) {
    if (k >= d.nRanks) break;
    int r = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ORDER ? (d.rank + k) % d.nRanks : k;
    Pack<T> part;
    part.bits = r == d.rank ? own.bits : data[r];
#pragma unroll
    for (int e = 0; e < Pack<T>::kElements; e++) sum[e] = k == 0 ? N::up(part.elements[e]) : combine(op, sum[e], N::up(part.elements[e]));
  }
  Pack<T> out;
#pragma unroll
  for (int e = 0; e < Pack<T>::kElements; e++) out.elements[e] = N::down(finish(op, sum[e], d.nRanks));
  return out;
}

template <typename T>
__device__ void allReduceOneShot(const Call &c) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const uint32_t call = callNumber(d);
  const bool fast = aligned(c);
  const size_t packs = packsOf(c.count, sizeof(T)), stride = (size_t)gridDim.x * blockDim.x;
  const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (size_t i = first; i < packs; i += stride) {
    Pack<T> own = loadPack(send, i, c.count, fast);
    for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + i * kLineBytes, own.bits, call);
  }
  for (size_t i = first; i < packs; i += stride) {
    Pack<T> own = loadPack(send, i, c.count, fast);
    Pack<T> out = reduceRanks<T>(d, c.op, own, i, call);
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
  const size_t packs = packsOf(c.count, sizeof(T)), chunk = twoShotChunk(packs, d.nRanks), stride = (size_t)gridDim.x * blockDim.x;
  const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
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
    Pack<T> out = reduceRanks<T>(d, c.op, own, i, call);
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
