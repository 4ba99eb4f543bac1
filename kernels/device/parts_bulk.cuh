/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter, AllGather and AllToAll in bulk: every rank writes what is another's into that one's memory, and each takes what it was
 * given. A half of the memory is nRanks slots of twice b.packs. Step s sends round s and takes round s - 1.
 */
#ifndef DYN_PARTS_BULK_CUH
#define DYN_PARTS_BULK_CUH

#include "bulk.cuh"
#include "move.cuh"

namespace dyn {

/* A round of every peer's part of send into that one's memory. */
template <class S, typename T>
__device__ __forceinline__ void sendPacks(const Domain &d, const Bulk &b, uint32_t call, uint32_t round, size_t packs, const T *send, size_t count, size_t from) {
  eachPeersPack<S>(d, packs, [](int, size_t) { return true; }, [&](int r, size_t i) { return Buffer<S, T, uint4>(send + r * count, count).load(from + i); },
                   [&](int r, size_t i, uint4 bits) { half(d, b, r, call, round)[d.rank * 2 * b.packs + i] = bits; });
}

template <class S, typename T>
__device__ __forceinline__ uint32_t reduceScatterBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const size_t slot = 2 * b.packs;
  const Buffer<S, T, uint4> own(send + d.rank * c.count, c.count), recv(c.recv, c.count);
  const Rounds rounds(dyn_packs(c.count * sizeof(T), kBulkBytes), slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    if (step < rounds.count) sendPacks<S>(d, b, call, step, rounds.in(step), send, c.count, from);
    if (step > 0) {
      const uint4 *slots = half(d, b, d.rank, call, step - 1);
      eachPack<1>(rounds.in(step - 1), [&](size_t i) { return sumSlots<S, T>(d, (Op)c.op, slots, slot, i, own.load(before + i)); },
                  [&](size_t i, uint4 sum) { recv.store(before + i, sum); });
    }
    if (step < rounds.count) blockBarrier(c, b, call, ++passed);
  }
  return passed;
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
  const size_t slot = 2 * b.packs;
  const Rounds rounds(dyn_packs(c.count, kBulkBytes), slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    if (step < rounds.count)
      eachPack<4>(rounds.in(step), [&](size_t i) { return send.load(from + i); },
                  [&](size_t i, uint4 bits) {
#pragma unroll
                    for (int k = 1; k < S::kRanks; k++)
                      if (k < d.nRanks) half(d, b, peerOf(d, k), call, step)[d.rank * slot + i] = bits;
                    if (send.at != mine) own.store(from + i, bits);
                  });
    if (step > 0) takePacks<S>(d, half(d, b, d.rank, call, step - 1), slot, rounds.in(step - 1), recv, c.count, before);
    if (step < rounds.count) blockBarrier(c, b, call, ++passed);
  }
  return passed;
}
/* As allGather: count bytes of a part. */
__device__ inline void allGatherBulk(const Call &c, const Bulk &b) {
  inBulkCall<Byte>(c, b, c.count, [&](auto shape, uint32_t call, uint32_t passed) { return allGatherBulkOf<decltype(shape)>(c, b, call, passed); });
}

/* In place a round's parts are read in its step and written in the next one, and no other round has their places. */
template <class S>
__device__ __forceinline__ uint32_t allToAllBulkOf(const Call &c, const Bulk &b, uint32_t call, uint32_t passed) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const size_t slot = 2 * b.packs;
  const Buffer<S, Byte, uint4> given(send + d.rank * c.count, c.count), own(recv + d.rank * c.count, c.count);
  const Rounds rounds(dyn_packs(c.count, kBulkBytes), slot);
  for (uint32_t step = 0; step <= rounds.count; step++) {
    const size_t from = rounds.first(step), before = from - rounds.each;
    if (step < rounds.count) {
      sendPacks<S>(d, b, call, step, rounds.in(step), send, c.count, from);
      if (given.at != own.at)
        eachPack<4>(rounds.in(step), [&](size_t i) { return given.load(from + i); }, [&](size_t i, uint4 bits) { own.store(from + i, bits); });
    }
    if (step > 0) takePacks<S>(d, half(d, b, d.rank, call, step - 1), slot, rounds.in(step - 1), recv, c.count, before);
    if (step < rounds.count) blockBarrier(c, b, call, ++passed);
  }
  return passed;
}
/* As allToAll: count bytes of a part. */
__device__ inline void allToAllBulk(const Call &c, const Bulk &b) {
  inBulkCall<Byte>(c, b, c.count, [&](auto shape, uint32_t call, uint32_t passed) { return allToAllBulkOf<decltype(shape)>(c, b, call, passed); });
}

}  // namespace dyn

#endif
