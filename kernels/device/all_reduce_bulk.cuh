/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce in two shots for sizes at which twice the bytes would hurt: 16 bytes at a time without flags, and two barriers.
 *   1. Each rank writes part p of what it has into rank p's inbox.      barrier
 *   2. Rank p adds up part p, in the order of ranks, and writes the sums into everybody's outbox.      barrier
 *   3. Each rank copies the others' sums out.
 * All that crosses a link is written, nothing is read from a peer: a write waits for nobody.
 * Block b of every rank has the same share of every part, so blocks wait for their likes alone.
 *
 * One inbox and one outbox suffice. What a peer writes into this rank's inbox in call e + 1 its kernel e + 1 writes, so its
 * kernel e is over: all of its blocks are through the second barrier, to which this rank's came when they had read the inbox
 * to the end. Into this rank's outbox it writes behind the first barrier of call e + 1, to which this rank's kernel e + 1
 * came, so this rank's kernel e had copied its sums. Both hold whatever the sizes and numbers of blocks of the two calls.
 */
#ifndef DYN_ALL_REDUCE_BULK_CUH
#define DYN_ALL_REDUCE_BULK_CUH

#include "all_reduce.cuh"

namespace dyn {

/* 16 bytes of elements; of the last one of a buffer what is there, and zeros. */
template <typename T>
union Vec {
  static constexpr int kBytes = 16, kElements = kBytes / (int)sizeof(T);
  uint4 bits;
  T elements[kElements];
  __device__ Vec() : bits() {}
};

template <typename T>
__device__ __forceinline__ Vec<T> loadVec(const T *buffer, size_t vec, size_t count, bool fast) {
  Vec<T> v;
  size_t at = vec * Vec<T>::kElements;
  if (fast && at + Vec<T>::kElements <= count) {
    v.bits = *(const uint4 *)(buffer + at);
    return v;
  }
#pragma unroll
  for (int i = 0; i < Vec<T>::kElements; i++)
    if (at + i < count) v.elements[i] = buffer[at + i];
  return v;
}

template <typename T>
__device__ __forceinline__ void storeVec(T *buffer, size_t vec, size_t count, bool fast, const Vec<T> &v) {
  size_t at = vec * Vec<T>::kElements;
  if (fast && at + Vec<T>::kElements <= count) {
    *(uint4 *)(buffer + at) = v.bits;
    return;
  }
#pragma unroll
  for (int i = 0; i < Vec<T>::kElements; i++)
    if (at + i < count) buffer[at + i] = v.elements[i];
}

struct Bulk {
  char *memory[kMaxRanks];    /* of every rank: an inbox of nRanks parts, then an outbox of as many */
  uint32_t *flags[kMaxRanks]; /* of every rank: [kMaxBlocks][kMaxRanks], who has come to which barrier */
  uint32_t *passed;           /* [kMaxBlocks]: barriers that this rank's blocks are through; its alone */
  size_t vecs;                /* room of a part */
};

__host__ __device__ inline size_t vecsOf(size_t count, size_t elementBytes) { return (count * elementBytes + 15) / 16; }
__host__ __device__ inline size_t bulkPart(size_t vecs, int nRanks) { return (vecs + nRanks - 1) / nRanks; }

/* Every rank's block of this number has come, and what it wrote before is seen behind. Each block numbers its own barriers:
 * the same on all ranks, and nobody is further ahead than by one, however long a block had nothing to do. */
__device__ __forceinline__ void blockBarrier(const Domain &d, const Bulk &b, uint32_t call, uint32_t number) {
  __syncthreads();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    storeRelease(&b.flags[r][blockIdx.x * kMaxRanks + d.rank], number);
    const uint32_t *come = &b.flags[d.rank][blockIdx.x * kMaxRanks + r];
    uint64_t since = 0;
    for (unsigned spins = 0; (int32_t)(loadAcquire(come) - number) < 0;)
      if ((++spins & kSpins) == 0 && !goOn(d, r, call, &since)) break;
  }
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_HASTE) __syncthreads();
}

template <typename T>
__device__ void allReduceBulk(const Call &c, const Bulk &b) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  T *recv = (T *)c.recv;
  const uint32_t call = callNumber(d), passed = b.passed[blockIdx.x];
  const bool fast = (((size_t)send | (size_t)recv) & 15) == 0;
  const size_t vecs = vecsOf(c.count, sizeof(T)), part = bulkPart(vecs, d.nRanks), stride = (size_t)gridDim.x * blockDim.x;
  const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, room = b.vecs * d.nRanks;
  for (size_t i = first; i < part; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * part + i;
      if (at < vecs) ((uint4 *)b.memory[peer])[d.rank * b.vecs + i] = loadVec(send, at, c.count, fast).bits;
    }
  blockBarrier(d, b, call, passed + 1);
  for (size_t i = first; i < part; i += stride) {
    using N = Number<T>;
    size_t at = d.rank * part + i;
    if (at >= vecs) break;
    typename N::Wide sum[Vec<T>::kElements] = {};
#pragma unroll
    for (int r = 0; r < kMaxRanks; r++) {
      if (r >= d.nRanks) break;
      Vec<T> v;
      if (r == d.rank) v = loadVec(send, at, c.count, fast);
      else v.bits = ((const uint4 *)b.memory[d.rank])[r * b.vecs + i];
#pragma unroll
      for (int e = 0; e < Vec<T>::kElements; e++) sum[e] = r == 0 ? N::up(v.elements[e]) : combine(c.op, sum[e], N::up(v.elements[e]));
    }
    Vec<T> out;
#pragma unroll
    for (int e = 0; e < Vec<T>::kElements; e++) out.elements[e] = N::down(finish(c.op, sum[e], d.nRanks));
    for (int k = 1; k < d.nRanks; k++) ((uint4 *)b.memory[peerOf(d, k)])[room + d.rank * b.vecs + i] = out.bits;
    storeVec(recv, at, c.count, fast, out);
  }
  blockBarrier(d, b, call, passed + 2);
  for (size_t i = first; i < part; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * part + i;
      if (at >= vecs) continue;
      Vec<T> v;
      v.bits = ((const uint4 *)b.memory[d.rank])[room + peer * b.vecs + i];
      storeVec(recv, at, c.count, fast, v);
    }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed + 2; /* all of the block have read it: they met at barriers */
  endCall(d, call);
}

}  // namespace dyn

#endif
