/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter and AllGather in bulk: every rank writes what is another's into that one's memory, a barrier, and each takes
 * what it was given. A half of the memory is nRanks slots of twice b.packs.
 */
#ifndef DYN_PARTS_BULK_CUH
#define DYN_PARTS_BULK_CUH

#include "bulk.cuh"
#include "move.cuh"

namespace dyn {

/* As reduceScatter: count elements of a part. */
template <typename T>
__device__ void reduceScatterBulk(const Call &c, const Bulk &b) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const uint32_t call = callNumber(d), passed = b.passed[blockIdx.x];
  const bool fast = alignedParts(c, sizeof(T), kBulkBytes);
  const size_t packs = packsOf(c.count, sizeof(T), kBulkBytes), slot = 2 * b.packs;
  const uint4 *own = half(d, b, d.rank, call);
  for (int k = 1; k < d.nRanks; k++) {
    const int peer = peerOf(d, k);
    uint4 *to = half(d, b, peer, call) + d.rank * slot;
    eachPack(packs, [&](size_t i) { return loadPack<uint4>(send + peer * c.count, i, c.count, fast).bits; }, [&](size_t i, uint4 bits) { to[i] = bits; });
  }
  blockBarrier(d, b, call, passed + 1);
  for (size_t i = firstPack(); i < packs; i += packStride()) {
    Pack<T, uint4> out = sumRanks<T, uint4>(d, (Op)c.op, [&](int r) {
      if (r == d.rank) return loadPack<uint4>(send + r * c.count, i, c.count, fast);
      Pack<T, uint4> p;
      p.bits = own[r * slot + i];
      return p;
    });
    storePack((T *)c.recv, i, c.count, fast, out);
  }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed + 1; /* the block has read it: it met at the barrier */
  endCall(d, call);
}

/* As allGather: count bytes of a part. */
__device__ inline void allGatherBulk(const Call &c, const Bulk &b) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const uint32_t call = callNumber(d), passed = b.passed[blockIdx.x];
  const bool fast = alignedParts(c, 1, kBulkBytes), inPlace = send == recv + d.rank * c.count;
  const size_t packs = packsOf(c.count, 1, kBulkBytes), slot = 2 * b.packs;
  const uint4 *own = half(d, b, d.rank, call);
  eachPack(packs, [&](size_t i) { return loadPack<uint4>(send, i, c.count, fast).bits; },
           [&](size_t i, uint4 bits) {
             for (int k = 1; k < d.nRanks; k++) half(d, b, peerOf(d, k), call)[d.rank * slot + i] = bits;
             if (!inPlace) storePack(recv + d.rank * c.count, i, c.count, fast, packOf<Byte>(bits));
           });
  blockBarrier(d, b, call, passed + 1);
  for (int k = 1; k < d.nRanks; k++) {
    const int peer = peerOf(d, k);
    eachPack(packs, [&](size_t i) { return own[peer * slot + i]; },
             [&](size_t i, uint4 bits) { storePack(recv + peer * c.count, i, c.count, fast, packOf<Byte>(bits)); });
  }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed + 1;
  endCall(d, call);
}

}  // namespace dyn

#endif
