/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll over GIN between a program's own buffers, which need not be registered and may begin anywhere: each block copies its
 * share of every part into a slot, puts it, and copies what has come out of the peers' slots, in as many rounds as it takes.
 *
 * Rounds are numbered as calls are, and the argument of calls.cuh holds for them, block by block: a block moves the same place
 * of every slot in every round. For that each block waits for every peer in every round, also where it has nothing to move: a
 * peer's block that is still reading round e - 1 has not raised round e, so nobody who ends with round e, and begins the next
 * call, puts into what it reads.
 *
 * In place works: what a block writes in a round it has sent in the same round.
 */
#ifndef DYN_GIN_ALL_TO_ALL_SLOTS_CUH
#define DYN_GIN_ALL_TO_ALL_SLOTS_CUH

#include "../device/shape.cuh"
#include "calls.cuh"

namespace dyn {

using GinBytes = Buffer<Shape<false, kMaxRanks>, uint8_t, uint4>;

/* part: bytes for each rank, at least 1; the same on all ranks. */
template <typename Net>
__device__ __forceinline__ void ginAllToAllSlots(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, size_t part) {
  const uint32_t call = ginBegin(g);
  const GinRounds rounds = ginRoundsOf(part, g.slotBytes, gridDim.x);
  char *slots = net.local(window, 0);
  const size_t in = blockIdx.x * rounds.each;
  const GinShare whole = ginShareOf(part, gridDim.x, blockIdx.x);
  if (send != recv) {
    const size_t own = (size_t)g.rank * part + whole.begin;
    const GinBytes from(send + own, whole.end - whole.begin), to(recv + own, whole.end - whole.begin);
    for (size_t i = threadIdx.x; i < dyn_packs(from.count, sizeof(uint4)); i += blockDim.x) to.store(i, from.load(i));
  }
  bool fine = true;
  for (uint32_t round = 0; round < rounds.count && net.all(fine); round++) {
    const GinShare share = ginRoundShare(rounds, part, round, blockIdx.x);
    const size_t bytes = share.end - share.begin, packs = dyn_packs(bytes, sizeof(uint4));
    for (int k = 1; k < g.nRanks; k++) {
      const int peer = ginPeer(g, k);
      const GinBytes from(send + (size_t)peer * part + share.begin, bytes);
      char *stage = slots + ginStage(g, peer, call + round) + in;
      for (size_t i = threadIdx.x; i < packs; i += blockDim.x) *(uint4 *)(stage + i * sizeof(uint4)) = from.load(i);
    }
    __syncthreads();
    if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_IDLE && bytes == 0) continue;
    eachGinPeer(g, [&](int peer) {
      const size_t from = ginStage(g, peer, call + round) + in, to = ginSlot(g, g.rank, call + round) + in;
      if (bytes > 0) net.put(peer, window, to, window, from, packs * sizeof(uint4), ownSignal(g, DYN_GIN_DATA));
      else net.raise(peer, ownSignal(g, DYN_GIN_DATA));
    });
    eachGinPeer(g, [&](int peer) { fine = awaitSignal(net, g, DYN_GIN_DATA, peer, call + round) && fine; });
    __syncthreads();
    for (int k = 1; k < g.nRanks; k++) {
      const int peer = ginPeer(g, k);
      const GinBytes to(recv + (size_t)peer * part + share.begin, bytes);
      const char *slot = slots + ginSlot(g, peer, call + round) + in;
      for (size_t i = threadIdx.x; i < packs; i += blockDim.x) to.store(i, *(const uint4 *)(slot + i * sizeof(uint4)));
    }
  }
  ginEnd(g, call + rounds.count - 1);
}

}  // namespace dyn

#endif
