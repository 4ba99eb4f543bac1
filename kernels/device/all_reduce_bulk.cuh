/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce in two shots, in bulk. Of each round:
 *   1. Each rank writes part p of what it has into rank p's inbox.
 *   2. Rank p adds up part p, in the order of ranks, and writes the sums into everybody's outbox.
 *   3. Each rank copies the others' sums out.
 * A half of the memory is an inbox of nRanks parts, and an outbox of as many. Step s does 1 of round s, 2 of round s - 1 and
 * 3 of round s - 2.
 * With windows (meet.cuh): where all ranks' results are to be in one, sums go straight there, and 3 is left out. In place,
 * rank p writes over what it has been sent before. Where what they add up lies in one as well, rank p reads it there, and 1
 * is left out, too.
 */
#ifndef DYN_ALL_REDUCE_BULK_CUH
#define DYN_ALL_REDUCE_BULK_CUH

#include "bulk.cuh"

namespace dyn {

template <class S, typename T>
__device__ __forceinline__ uint32_t allReduceBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const Buffer<S, T, uint4> send(c.send, c.count), recv(c.recv, c.count);
  const size_t packs = dyn_packs(c.count * sizeof(T), kBulkBytes), part = dyn_part(packs, d.nRanks), outbox = b.packs * d.nRanks;
  Barriers<S> barriers(c, b, call, passed, kSend | kRecv);
  if (!barriers.fine) return passed;
  const bool reads = barriers.all == (kSend | kRecv);
  const Rounds rounds(part, reads ? part : b.packs);
  for (uint32_t step = 0; step < rounds.count + 2; step++) {
    const uint32_t second = step - 1, third = step - 2;
    const bool writes = barriers.all & kRecv; /* known behind the first step */
    if (step < rounds.count && !reads) {
      const size_t from = rounds.first(step);
      const size_t inbox = half(d, b, call, step) + d.rank * b.packs;
      eachPeersPack<S>(d, rounds.in(step), [&](int r, size_t i) { return r * part + from + i < packs; }, [&](int r, size_t i) { return send.load(r * part + from + i); },
                       [&](int r, size_t i, uint4 bits) { memoryOf(b, r, inbox)[i] = bits; });
    }
    if (second < rounds.count) {
      const size_t from = d.rank * part + rounds.first(second), most = from >= packs ? 0 : packs - from, in = rounds.in(second) < most ? rounds.in(second) : most;
      const size_t mine = half(d, b, call, second) + outbox + d.rank * b.packs;
      const uint4 *inbox = memoryOf(b, d.rank, half(d, b, call, second));
      const Buffer<S, T, uint4> own = send.behind(from), sums = recv.behind(from);
      const auto keep = [&](size_t i, uint4 sum, auto to) {
#pragma unroll
        for (int k = 1; k < S::kRanks; k++)
          if (k < d.nRanks) to(peerOf(d, k))[i] = sum;
        sums.store(i, sum);
      };
      if (!writes)
        eachPack<1>(in, [&](size_t i) { return sumInbox<S, T>(d, (Op)c.op, i, own, inbox, b.packs); },
                    [&](size_t i, uint4 sum) { keep(i, sum, [&](int r) { return memoryOf(b, r, mine); }); });
      else
        eachPack<1>(in, [&](size_t i) { return sumPeers<S, T>(d, (Op)c.op, i, own, [&](int r) { return reads ? (const uint4 *)sendOf(d, b, r) + from : inbox + r * b.packs; }); },
                    [&](size_t i, uint4 sum) { keep(i, sum, [&](int r) { return (uint4 *)recvOf(d, b, r) + from; }); });
    }
    if (third < rounds.count && !writes) {
      const size_t from = rounds.first(third);
      const uint4 *sums = memoryOf(b, d.rank, half(d, b, call, third) + outbox);
      eachPeersPack<S>(d, rounds.in(third), [&](int r, size_t i) { return r * part + from + i < packs; }, [&](int r, size_t i) { return sums[r * b.packs + i]; },
                       [&](int r, size_t i, uint4 bits) { recv.store(r * part + from + i, bits); });
    }
    if (step <= rounds.count && !(reads && step == 0) && !barriers.next()) break;
  }
  return barriers.passed;
}
template <typename T>
__device__ void allReduceBulk(const Call &c, const Bulk &b) {
  inBulkCall<T>(c, b, c.count * sizeof(T), [&](auto shape, uint32_t call, uint32_t passed) { return allReduceBulkOf<decltype(shape), T>(c, b, call, passed); });
}

}  // namespace dyn

#endif
