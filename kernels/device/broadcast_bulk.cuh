/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcast in bulk. A root that wrote all to everybody would take nRanks - 1 times as long as its link needs for the data.
 * So each other rank has a part to forward. Of each round:
 *   1. The root writes part k into the slot that it has in the memory of the k-th rank.
 *   2. That one writes it into its own slot in the memory of all others but the root, and copies it out.
 *   3. They copy it out.
 * A half of the memory is nRanks slots of twice b.packs. Step s does 1 of round s, 2 of round s - 1 and 3 of round s - 2.
 * With windows (meet.cuh) 1 and 2 write where it is to be, and nothing is copied.
 */
#ifndef DYN_BROADCAST_BULK_CUH
#define DYN_BROADCAST_BULK_CUH

#include "bulk.cuh"
#include "move.cuh"

namespace dyn {

template <class S>
__device__ __forceinline__ uint32_t broadcastBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const int root = b.root;
  const Buffer<S, Byte, uint4> send(c.send, c.count), recv(c.recv, c.count);
  const size_t packs = dyn_packs(c.count, kBulkBytes), part = dyn_part(packs, d.nRanks - 1), slot = 2 * b.packs;
  const auto partOf = [&](int r) { return (size_t)(r - root - 1 + (r > root ? 0 : d.nRanks)) * part; };
  Barriers<S> barriers(c, b, call, passed, kRecv);
  if (!barriers.fine) return passed;
  const bool direct = barriers.all != 0;
  const Rounds rounds(part, slot);
  /* Where what rank r is to have from part of, in this round, is left by rank from. */
  const auto place = [&](int r, int from, int of, uint32_t round) {
    return direct ? (uint4 *)recvOf(d, b, r) + partOf(of) + rounds.first(round) : memoryOf(b, r, half(d, b, call, round) + from * slot);
  };
  if (d.rank == root && send.at != recv.at) eachPack<4>(packs, [&](size_t i) { return send.load(i); }, [&](size_t i, uint4 bits) { recv.store(i, bits); });
  for (uint32_t step = 0; step < rounds.count + 2; step++) {
    const uint32_t second = step - 1, third = step - 2;
    if (step < rounds.count && d.rank == root) {
      const size_t from = rounds.first(step);
      eachPeersPack<S>(d, rounds.in(step), [&](int r, size_t i) { return partOf(r) + from + i < packs; }, [&](int r, size_t i) { return send.load(partOf(r) + from + i); },
                       [&](int r, size_t i, uint4 bits) { place(r, root, r, step)[i] = bits; });
    }
    if (second < rounds.count && d.rank != root) {
      const size_t from = partOf(d.rank) + rounds.first(second), most = from >= packs ? 0 : packs - from, in = rounds.in(second);
      const uint4 *given = direct ? (const uint4 *)recv.at + from : memoryOf(b, d.rank, half(d, b, call, second) + root * slot);
      eachPack<4>(in < most ? in : most, [&](size_t i) { return given[i]; },
                  [&](size_t i, uint4 bits) {
#pragma unroll
                    for (int k = 1; k < S::kRanks; k++)
                      if (k < d.nRanks && peerOf(d, k) != root) place(peerOf(d, k), d.rank, d.rank, second)[i] = bits;
                    if (!direct) recv.store(from + i, bits);
                  });
    }
    if (third < rounds.count && d.rank != root && !direct) {
      const size_t from = rounds.first(third);
      eachPeersPack<S>(d, rounds.in(third), [&](int r, size_t i) { return r != root && partOf(r) + from + i < packs; },
                       [&](int r, size_t i) { return memoryOf(b, d.rank, half(d, b, call, third))[r * slot + i]; },
                       [&](int r, size_t i, uint4 bits) { recv.store(partOf(r) + from + i, bits); });
    }
    if (step <= rounds.count && !barriers.next()) break;
  }
  return barriers.passed;
}
/* As broadcast: count bytes. The root is b's. */
__device__ inline void broadcastBulk(const Call &c, const Bulk &b) {
  inBulkCall<Byte>(c, b, c.count, [&](auto shape, uint32_t call, uint32_t passed) { return broadcastBulkOf<decltype(shape)>(c, b, call, passed); });
}

}  // namespace dyn

#endif
