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

using Bulk = ::dyn_bulk;
constexpr size_t kBulkBytes = DYN_BULK_BYTES;

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
  const bool fast = aligned(c, kBulkBytes);
  const size_t packs = packsOf(c.count, sizeof(T), kBulkBytes), part = dyn_part(packs, d.nRanks), first = firstPack(), stride = packStride(), room = b.packs * d.nRanks;
  for (size_t i = first; i < part; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * part + i;
      if (at < packs) ((uint4 *)b.memory[peer])[d.rank * b.packs + i] = loadPack<uint4>(send, at, c.count, fast).bits;
    }
  blockBarrier(d, b, call, passed + 1);
  for (size_t i = first; i < part; i += stride) {
    size_t at = d.rank * part + i;
    if (at >= packs) break;
    Pack<T, uint4> out = sumRanks<T, uint4>(d, (Op)c.op, [&](int r) {
      if (r == d.rank) return loadPack<uint4>(send, at, c.count, fast);
      Pack<T, uint4> p;
      p.bits = ((const uint4 *)b.memory[d.rank])[r * b.packs + i];
      return p;
    });
    for (int k = 1; k < d.nRanks; k++) ((uint4 *)b.memory[peerOf(d, k)])[room + d.rank * b.packs + i] = out.bits;
    storePack(recv, at, c.count, fast, out);
  }
  blockBarrier(d, b, call, passed + 2);
  for (size_t i = first; i < part; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      size_t at = peer * part + i;
      if (at >= packs) continue;
      Pack<T, uint4> p;
      p.bits = ((const uint4 *)b.memory[d.rank])[room + peer * b.packs + i];
      storePack(recv, at, c.count, fast, p);
    }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed + 2; /* all of the block have read it: they met at barriers */
  endCall(d, call);
}

}  // namespace dyn

#endif
