/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll whose parts are of any sizes, also none (AllToAllv), in bulk. A rank knows what it sends and gets and nothing of
 * what others exchange, but all must make as many rounds: so in the first one each tells all others of its largest part.
 *
 * Rounds are as in bulk.cuh, the first one among them: with an even number behind it they are of an odd number. What blocks
 * tell each other lies where the same block sends later, since blocks do not wait for others than their likes.
 */
#ifndef DYN_PARTS_DIFFER_CUH
#define DYN_PARTS_DIFFER_CUH

#include "parts_bulk.cuh"

namespace dyn {

using Parts = ::dyn_parts;

__device__ __forceinline__ size_t largestPart(int nRanks, const Parts &p) {
  size_t most = 0;
  for (int r = 0; r < nRanks; r++) {
    if (p.sendBytes[r] > most) most = p.sendBytes[r];
    if (p.recvBytes[r] > most) most = p.recvBytes[r];
  }
  return most;
}

/* Rounds of parts of up to so many packs behind the first one, each of as many packs as there is room for. */
__device__ __forceinline__ uint32_t roundsBehind(size_t packs, size_t most) {
  const uint32_t count = (uint32_t)((packs + most - 1) / most);
  return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_EVEN_ROUNDS ? count : count + (count & 1);
}

/* What lies in round s of a part. */
__device__ __forceinline__ size_t packsIn(size_t bytes, uint32_t round, size_t most) {
  const size_t all = dyn_packs(bytes, kBulkBytes), before = round * most;
  return all < before ? 0 : all - before < most ? all - before : most;
}

/* store(peer, i, load(peer, i)) of this thread's packs of a round, of each peer as many as there are. */
template <typename In, typename Load, typename Store>
__device__ __forceinline__ void eachPartsPack(const Domain &d, In in, Load load, Store store) {
  for (int k = 1; k < d.nRanks; k++) {
    const int r = peerOf(d, k);
    const size_t packs = in(r);
    eachPack<2>(packs, [&](size_t i) { return load(r, i); }, [&](size_t i, uint4 bits) { store(r, i, bits); });
  }
}

/* Of send and recv parts begin anywhere; they do not overlap. A slot has room for a pack of each thread. */
__device__ inline void allToAllV(const Call &c, const Bulk &b, const Parts &p) {
  using Bytes = Buffer<Shape<false, kMaxRanks>, Byte, uint4>;
  const Domain &d = c.domain;
  const uint32_t call = beginCall(d);
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const size_t slot = 2 * b.packs, told = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_MIXED_PLACES ? blockIdx.x : (size_t)blockIdx.x * blockDim.x;
  uint32_t passed = b.passed[blockIdx.x];
  size_t largest = largestPart(d.nRanks, p);
  for (int k = 1 + (int)threadIdx.x; k < d.nRanks; k += (int)blockDim.x)
    half(d, b, peerOf(d, k), call, 0)[d.rank * slot + told] = make_uint4((uint32_t)largest, (uint32_t)((uint64_t)largest >> 32), 0, 0);
  const Bytes own(send + p.sendAt[d.rank], p.sendBytes[d.rank]), mine(recv + p.recvAt[d.rank], p.sendBytes[d.rank]);
  eachPack<4>(dyn_packs(p.sendBytes[d.rank], kBulkBytes), [&](size_t i) { return own.load(i); }, [&](size_t i, uint4 bits) { mine.store(i, bits); });
  blockBarrier(c, b, call, ++passed);
  for (int k = 1; k < d.nRanks && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_ROUNDS; k++) {
    const uint4 word = half(d, b, d.rank, call, 0)[peerOf(d, k) * slot + told];
    const size_t of = (size_t)((uint64_t)word.y << 32 | word.x);
    if (of > largest) largest = of;
  }
  const uint32_t rounds = roundsBehind(dyn_packs(largest, kBulkBytes), slot);
  for (uint32_t step = 0; step <= rounds && rounds > 0; step++) { /* sends round step + 1, takes round step */
    const size_t from = step * slot, before = from - slot;
    if (step < rounds)
      eachPartsPack(d, [&](int r) { return packsIn(p.sendBytes[r], step, slot); }, [&](int r, size_t i) { return Bytes(send + p.sendAt[r], p.sendBytes[r]).load(from + i); },
                    [&](int r, size_t i, uint4 bits) { half(d, b, r, call, step + 1)[d.rank * slot + i] = bits; });
    if (step > 0)
      eachPartsPack(d, [&](int r) { return packsIn(p.recvBytes[r], step - 1, slot); }, [&](int r, size_t i) { return half(d, b, d.rank, call, step)[r * slot + i]; },
                    [&](int r, size_t i, uint4 bits) { Bytes(recv + p.recvAt[r], p.recvBytes[r]).store(before + i, bits); });
    if (step < rounds) blockBarrier(c, b, call, ++passed);
  }
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed;
  endCall(d, call);
}

}  // namespace dyn

#endif
