/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce in two shots, in bulk:
 *   1. Each rank writes part p of what it has into rank p's inbox.      barrier
 *   2. Rank p adds up part p, in the order of ranks, and writes the sums into everybody's outbox.      barrier
 *   3. Each rank copies the others' sums out.
 * A half of the memory is an inbox of nRanks parts, and an outbox of as many.
 */
#ifndef DYN_ALL_REDUCE_BULK_CUH
#define DYN_ALL_REDUCE_BULK_CUH

#include "bulk.cuh"

namespace dyn {

template <typename T>
__device__ void allReduceBulk(const Call &c, const Bulk &b) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  T *recv = (T *)c.recv;
  const uint32_t call = callNumber(d), passed = b.passed[blockIdx.x];
  const bool fast = aligned(c, kBulkBytes);
  const size_t packs = packsOf(c.count, sizeof(T), kBulkBytes), part = dyn_part(packs, d.nRanks), outbox = b.packs * d.nRanks;
  const uint4 *own = half(d, b, d.rank, call);
  for (int k = 1; k < d.nRanks; k++) {
    const int peer = peerOf(d, k);
    uint4 *inbox = half(d, b, peer, call) + d.rank * b.packs;
    eachPack(packsIn(packs, part, peer), [&](size_t i) { return loadPack<uint4>(send, peer * part + i, c.count, fast).bits; },
             [&](size_t i, uint4 bits) { inbox[i] = bits; });
  }
  blockBarrier(d, b, call, passed + 1);
  for (size_t i = firstPack(), n = packsIn(packs, part, d.rank); i < n; i += packStride()) {
    size_t at = d.rank * part + i;
    Pack<T, uint4> out = sumRanks<T, uint4>(d, (Op)c.op, [&](int r) {
      if (r == d.rank) return loadPack<uint4>(send, at, c.count, fast);
      Pack<T, uint4> p;
      p.bits = own[r * b.packs + i];
      return p;
    });
    for (int k = 1; k < d.nRanks; k++) half(d, b, peerOf(d, k), call)[outbox + d.rank * b.packs + i] = out.bits;
    storePack(recv, at, c.count, fast, out);
  }
  blockBarrier(d, b, call, passed + 2);
  for (int k = 1; k < d.nRanks; k++) {
    const int peer = peerOf(d, k);
    const uint4 *sums = own + outbox + peer * b.packs;
    eachPack(packsIn(packs, part, peer), [&](size_t i) { return sums[i]; },
             [&](size_t i, uint4 bits) { storePack(recv, peer * part + i, c.count, fast, packOf<T>(bits)); });
  }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed + 2; /* all of the block have read it: they met at barriers */
  endCall(d, call);
}

}  // namespace dyn

#endif
