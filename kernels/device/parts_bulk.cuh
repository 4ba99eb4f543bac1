/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter, AllGather and AllToAll in bulk: every rank writes what is another's into that one's memory, and each takes what it was
 * given. A half of the memory is nRanks slots of twice b.packs. Step s sends round s and takes round s - 1.
 * With windows (meet.cuh) there is one round. AllGather and AllToAll write where it is to be; ReduceScatter reads where it is; of
 * AllToAll in place two ranks swap what they have for each other.
 */
#ifndef DYN_PARTS_BULK_CUH
#define DYN_PARTS_BULK_CUH

#include "bulk.cuh"
#include "move.cuh"

namespace dyn {

/* A round of every peer's part of send, to to(peer). */
template <class S, typename T, typename To>
__device__ __forceinline__ void sendPacks(const Domain &d, size_t packs, const T *send, size_t count, size_t from, To to) {
  eachPeersPack<S>(d, packs, [](int, size_t) { return true; }, [&](int r, size_t i) { return Buffer<S, T, uint4>(send + r * count, count).load(from + i); },
                   [&](int r, size_t i, uint4 bits) { to(r)[i] = bits; });
}

/* The place of this rank's part in a peer's buffer. */
__device__ __forceinline__ uint4 *ownPart(const Domain &d, char *buffer, size_t packs) { return (uint4 *)buffer + d.rank * packs; }

/* Where each rank's part is takes reads of its own, so it is found once for all packs: calls that come here are long. */
template <class S, typename T>
__device__ __forceinline__ void sumDirectly(const Domain &d, const Bulk &b, Op op, size_t packs, const T *own, T *recv) {
  const uint4 *at[S::kRanks];
#pragma unroll
  for (int r = 0; r < S::kRanks; r++)
    if (r < d.nRanks) at[r] = r == d.rank ? (const uint4 *)own : ownPart(d, sendOf(d, b, r), packs);
  eachPack<1>(packs,
              [&](size_t i) {
                uint4 parts[S::kRanks];
#pragma unroll
                for (int r = 0; r < S::kRanks; r++)
                  if (r < d.nRanks) parts[r] = at[r][i];
                return sumRanks<S, T>(d, op, parts);
              },
              [&](size_t i, uint4 sum) { ((uint4 *)recv)[i] = sum; });
}

template <class S, typename T>
__device__ __forceinline__ uint32_t reduceScatterBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const size_t slot = 2 * b.packs, packs = dyn_packs(c.count * sizeof(T), kBulkBytes);
  const Buffer<S, T, uint4> own(send + d.rank * c.count, c.count), recv(c.recv, c.count);
  Barriers<S> barriers(c, b, call, passed, kSend);
  if (!barriers.fine) return passed;
  const bool direct = barriers.all != 0;
  const Rounds rounds(packs, direct ? packs : slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    if (step < rounds.count && !direct) {
      const size_t mine = half(d, b, call, step) + d.rank * slot;
      sendPacks<S>(d, rounds.in(step), send, c.count, from, [&](int r) { return memoryOf(b, r, mine); });
    }
    if (step > 0 && direct) sumDirectly<S, T>(d, b, (Op)c.op, packs, own.at, recv.at);
    else if (step > 0) {
      const uint4 *slots = memoryOf(b, d.rank, half(d, b, call, step - 1));
      const Buffer<S, T, uint4> given = own.behind(before), sums = recv.behind(before);
      eachPack<1>(rounds.in(step - 1), [&](size_t i) { return sumInbox<S, T>(d, (Op)c.op, i, given, slots, slot); }, [&](size_t i, uint4 sum) { sums.store(i, sum); });
    }
    if ((direct ? step > 0 : step < rounds.count) && !barriers.next()) break;
  }
  return barriers.passed;
}
/* As reduceScatter: count elements of a part. */
template <typename T>
__device__ void reduceScatterBulk(const Call &c, const Bulk &b) {
  inBulkCall<T>(c, b, c.count * sizeof(T), [&](auto shape, uint32_t call, uint32_t passed) { return reduceScatterBulkOf<decltype(shape), T>(c, b, call, passed); });
}

/* What peers gave in a round, to where their parts lie. */
template <class S>
__device__ __forceinline__ void takePacks(const Domain &d, const uint4 *slots, size_t slot, size_t packs, Byte *recv, size_t count, size_t before) {
  eachPeersPack<S>(d, packs, [](int, size_t) { return true; }, [&](int r, size_t i) { return slots[r * slot + i]; },
                   [&](int r, size_t i, uint4 bits) { Buffer<S, Byte, uint4>(recv + r * count, count).store(before + i, bits); });
}

template <class S>
__device__ __forceinline__ uint32_t allGatherBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  Byte *recv = (Byte *)c.recv, *mine = recv + d.rank * c.count;
  const Buffer<S, Byte, uint4> send(c.send, c.count), own(mine, c.count);
  const size_t slot = 2 * b.packs, packs = dyn_packs(c.count, kBulkBytes);
  Barriers<S> barriers(c, b, call, passed, kRecv);
  if (!barriers.fine) return passed;
  const bool direct = barriers.all != 0;
  const Rounds rounds(packs, direct ? packs : slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    const size_t slotAt = half(d, b, call, step) + d.rank * slot;
    const auto to = [&](int r) { return direct ? ownPart(d, recvOf(d, b, r), packs) : memoryOf(b, r, slotAt); };
    if (step < rounds.count)
      eachPack<4>(rounds.in(step), [&](size_t i) { return send.load(from + i); },
                  [&](size_t i, uint4 bits) {
#pragma unroll
                    for (int k = 1; k < S::kRanks; k++)
                      if (k < d.nRanks) to(peerOf(d, k))[i] = bits;
                    if (send.at != mine) own.store(from + i, bits);
                  });
    if (step > 0 && !direct) takePacks<S>(d, memoryOf(b, d.rank, half(d, b, call, step - 1)), slot, rounds.in(step - 1), recv, c.count, before);
    if (step < rounds.count && !barriers.next()) break;
  }
  return barriers.passed;
}
/* As allGather: count bytes of a part. */
__device__ inline void allGatherBulk(const Call &c, const Bulk &b) {
  inBulkCall<Byte>(c, b, c.count, [&](auto shape, uint32_t call, uint32_t passed) { return allGatherBulkOf<decltype(shape)>(c, b, call, passed); });
}

/* In place, with windows. Two ranks have a part for each other, and each of them swaps half of the packs, here and there. Who
 * swaps a pack has loaded both before it stores either, and nobody else touches them: so nothing is written over that is still
 * to be sent, and nothing is kept elsewhere meanwhile. Peer after peer, for there are not registers for all of them. */
__device__ __forceinline__ void swapParts(const Domain &d, const Bulk &b, size_t packs, uint4 *parts) {
#pragma unroll 1
  for (int k = 1; k < d.nRanks; k++) {
    const int r = peerOf(d, k);
    const bool lower = d.rank < r || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_BOTH_SWAP;
    const size_t first = lower ? 0 : packs / 2, count = lower ? packs / 2 : packs - packs / 2;
    uint4 *const own = parts + r * packs + first, *const other = ownPart(d, sendOf(d, b, r), packs) + first;
    eachPack<4>(count, [&](size_t i) { return Two{own[i], other[i]}; }, [&](size_t i, const Two &both) { own[i] = both.second, other[i] = both.first; });
  }
}

/* In place a round's parts are read in its step and written in the next one, and no other round has their places. A rank in place
 * and one that is not have no window in common, and send in bulk. */
template <class S>
__device__ __forceinline__ uint32_t allToAllBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const size_t slot = 2 * b.packs, packs = dyn_packs(c.count, kBulkBytes);
  const Buffer<S, Byte, uint4> given(send + d.rank * c.count, c.count), own(recv + d.rank * c.count, c.count);
  const bool swaps = send == recv && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_INTO_SENDS;
  Barriers<S> barriers(c, b, call, passed, swaps ? kSend : kRecv);
  if (!barriers.fine) return passed;
  const bool direct = barriers.all != 0;
  const Rounds rounds(packs, direct ? packs : slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    const auto to = [&](int r) { return direct ? ownPart(d, recvOf(d, b, r), packs) : memoryOf(b, r, half(d, b, call, step) + d.rank * slot); };
    if (step < rounds.count) {
      if (direct && swaps) swapParts(d, b, packs, (uint4 *)recv);
      else sendPacks<S>(d, rounds.in(step), send, c.count, from, to);
      if (given.at != own.at)
        eachPack<4>(rounds.in(step), [&](size_t i) { return given.load(from + i); }, [&](size_t i, uint4 bits) { own.store(from + i, bits); });
    }
    if (step > 0 && !direct) takePacks<S>(d, memoryOf(b, d.rank, half(d, b, call, step - 1)), slot, rounds.in(step - 1), recv, c.count, before);
    if (step < rounds.count && !barriers.next()) break;
  }
  return barriers.passed;
}
/* As allToAll: count bytes of a part. */
__device__ inline void allToAllBulk(const Call &c, const Bulk &b) {
  inBulkCall<Byte>(c, b, c.count, [&](auto shape, uint32_t call, uint32_t passed) { return allToAllBulkOf<decltype(shape)>(c, b, call, passed); });
}

}  // namespace dyn

#endif
