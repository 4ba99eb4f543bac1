/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce over GIN, in two ways that give all ranks the same bits, and both the same ones.
 *   ginAllReduce          of few bytes: every rank puts all that it has into its slot on every peer, with a signal, waits for
 *                         the peers' signals, and adds up all slots in the order of ranks.
 *   ginAllReduceInRounds  of any number, in rounds (rounds.cuh): each rank gets of its peers what they have of its part, adds
 *                         that up, and puts the sums to them: no more than twice what it has, however many ranks there are.
 * Data goes through the slots' window, so a program's own buffers need not be registered and may begin anywhere.
 */
#ifndef DYN_GIN_ALL_REDUCE_CUH
#define DYN_GIN_ALL_REDUCE_CUH

#include "rounds.cuh"

namespace dyn {

/* At least one element, and no more than a slot has room for; the same on all ranks. */
template <typename T, typename Net>
__device__ __forceinline__ void ginAllReduce(const Net &net, const Gin &g, typename Net::Window window, const T *send, T *recv, size_t count, Op op) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinShare share = ginShareOf(count * sizeof(T), gridDim.x, blockIdx.x);
  char *slots = net.local(window, 0);
  const Buffer<Shape<false, kMaxRanks>, T, uint4> from(send, count), to(recv, count);
  const size_t begin = dyn_packs(share.begin, sizeof(uint4)), end = dyn_packs(share.end, sizeof(uint4));
  const size_t own = ginSlot(g, g.rank, call), at = own + begin * sizeof(uint4);
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) *(uint4 *)(slots + own + i * sizeof(uint4)) = from.load(i);
  __syncthreads();
  const size_t bytes = (end - begin) * sizeof(uint4);
  const auto bytesTo = [&](int) { return bytes; };
  const bool timed = begin < end && ginTimes(g, call);
  if (begin < end) {
    eachGinPeer(g, [&](int peer) { ginPut(net, g, timed, peer, window, at, at, bytes); });
    ginAwaitData(net, g, timed, call, bytesTo); /* who does not come leaves anything */
  }
  __syncthreads();
  if (timed) ginTellTrips(g, call, bytesTo);
  for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    to.store(i, ginSumOf<T>(g.nRanks, g.rank, op, [&](int r) { return *(const uint4 *)(slots + ginSlot(g, r, call) + i * sizeof(uint4)); }));
  ginEnd(g, call);
}

/* A rank's part is so many bytes, a multiple of DYN_GIN_UNIT, of which the last ranks' may have fewer, or none. Of it goes what
 * ginRoundShare says: in an even round what is to be added up, in the odd one behind it the sums. */
template <typename T, typename Net>
__device__ __forceinline__ void ginAllReduceInRounds(const Net &net, const Gin &g, typename Net::Window window, const T *send, T *recv, size_t count, Op op) {
  using Elements = Buffer<Shape<false, kMaxRanks>, T, uint4>;
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const size_t bytes = count * sizeof(T), part = dyn_packs(bytes, (size_t)g.nRanks * DYN_GIN_UNIT) * DYN_GIN_UNIT;
  const GinRounds rounds = ginRoundsOf(part, g.slotBytes, gridDim.x);
  char *slots = net.local(window, 0);
  const size_t in = blockIdx.x * rounds.each;
  for (uint32_t i = 0; i < 2 * rounds.count; i++) {
    const uint32_t round = call + i;
    const bool sums = i % 2 == 1;
    const GinShare share = ginRoundShare(rounds, part, i / 2, blockIdx.x);
    const auto beginOf = [&](int rank) { return rank * part + share.begin < bytes ? rank * part + share.begin : bytes; };
    const auto bytesOf = [&](int rank) { return (rank * part + share.end < bytes ? rank * part + share.end : bytes) - beginOf(rank); };
    const auto stage = [&](int peer) { return ginStage(g, sums ? g.rank : peer, round) + in; };
    const auto slotOf = [&](int peer) { return slots + ginSlot(g, peer, round) + in; };
    for (int k = 1; k < g.nRanks && !sums; k++) ginToSlot(slots + stage(ginPeer(g, k)), (const char *)send + beginOf(ginPeer(g, k)), bytesOf(ginPeer(g, k)));
    const bool fine = ginOneRound(net, g, window, round, in, [&](int peer) { return bytesOf(sums ? g.rank : peer); }, stage, share.begin < share.end, i == 0 && ginTimes(g, call));
    if (!net.all(fine)) break;
    if (sums) {
      for (int k = 1; k < g.nRanks; k++) ginFromSlot((char *)recv + beginOf(ginPeer(g, k)), slotOf(ginPeer(g, k)), bytesOf(ginPeer(g, k)));
      continue;
    }
    const size_t first = beginOf(g.rank) / sizeof(T), mine = bytesOf(g.rank);
    const Elements own(send + first, mine / sizeof(T)), to(recv + first, mine / sizeof(T));
    char *staged = slots + ginStage(g, g.rank, round + 1) + in;
    for (size_t at = threadIdx.x; at < dyn_packs(mine, sizeof(uint4)); at += blockDim.x) {
      const uint4 sum = ginSumOf<T>(g.nRanks, g.rank, op, [&](int r) { return r == g.rank ? own.load(at) : *(const uint4 *)(slotOf(r) + at * sizeof(uint4)); });
      to.store(at, sum);
      *(uint4 *)(staged + at * sizeof(uint4)) = sum;
    }
  }
  ginEnd(g, call + (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ROUNDS_ONCE ? 1 : 2) * rounds.count - 1);
}

}  // namespace dyn

#endif
