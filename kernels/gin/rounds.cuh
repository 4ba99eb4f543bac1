/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll, AllGather and ReduceScatter over GIN between a program's own buffers, which need not be registered and may begin
 * anywhere: each block copies its share of what peers get into slots, puts it, and takes what has come out of the peers' slots,
 * in as many rounds as it takes.
 *
 * Rounds are numbered as calls are, and the argument of calls.cuh holds for them, block by block: a block moves the same place
 * of every slot in every round. For that each block waits for every peer in every round, also where it has nothing to move: a
 * peer's block that is still reading round e - 1 has not raised round e, so nobody who ends with round e, and begins the next
 * call, puts into what it reads.
 *
 * In place works: what a block writes in a round it has sent in the same round.
 */
#ifndef DYN_GIN_ROUNDS_CUH
#define DYN_GIN_ROUNDS_CUH

#include "sum.cuh"
#include "trip.cuh"

namespace dyn {

using GinBytes = Buffer<Shape<false, kMaxRanks>, uint8_t, uint4>;

/* By all threads of the block. */
__device__ __forceinline__ void ginToSlot(char *slot, const char *from, size_t bytes) {
  const GinBytes source(from, bytes);
  for (size_t i = threadIdx.x; i < dyn_packs(bytes, sizeof(uint4)); i += blockDim.x) *(uint4 *)(slot + i * sizeof(uint4)) = source.load(i);
}
__device__ __forceinline__ void ginFromSlot(char *to, const char *slot, size_t bytes) {
  const GinBytes target(to, bytes);
  for (size_t i = threadIdx.x; i < dyn_packs(bytes, sizeof(uint4)); i += blockDim.x) target.store(i, *(const uint4 *)(slot + i * sizeof(uint4)));
}
__device__ __forceinline__ void ginCopy(char *to, const char *from, size_t bytes) {
  const GinBytes source(from, bytes), target(to, bytes);
  for (size_t i = threadIdx.x; i < dyn_packs(bytes, sizeof(uint4)); i += blockDim.x) target.store(i, source.load(i));
}

/* A round, by all threads of the block: to each peer so many bytes, or its signal alone, from what was staged; then waits for
 * all of them. False: for this thread one did not come. some: there are bytes for a peer. timed: as trip.cuh has it. */
template <typename Net, typename Bytes, typename Stage>
__device__ __forceinline__ bool ginOneRound(const Net &net, const Gin &g, typename Net::Window window, uint32_t round, size_t in, Bytes bytesTo, Stage stage, bool some,
                                            bool timed) {
  const auto wholeTo = [&](int peer) { return dyn_packs(bytesTo(peer), sizeof(uint4)) * sizeof(uint4); };
  __syncthreads();
  if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_IDLE && !some) return true;
  eachGinPeer(g, [&](int peer) { ginPut(net, g, timed, peer, window, ginSlot(g, g.rank, round) + in, stage(peer), wholeTo(peer)); });
  const bool fine = ginAwaitData(net, g, timed, round, wholeTo);
  __syncthreads();
  if (timed) ginTellTrips(g, round, wholeTo);
  return fine;
}

/* part: bytes from each rank to each other one, at least 1; the same on all ranks. from(peer): where the part for it begins;
 * one for all peers if kSame. take(share, slotOf) takes bytes [share.begin, share.end) of every peer's part, which begin at
 * slotOf(peer). */
template <bool kSame, typename Net, typename From, typename Take>
__device__ __forceinline__ void ginInRounds(const Net &net, const Gin &g, typename Net::Window window, size_t part, From from, Take take) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinRounds rounds = ginRoundsOf(part, g.slotBytes, gridDim.x);
  char *slots = net.local(window, 0);
  const size_t in = blockIdx.x * rounds.each;
  bool fine = true;
  for (uint32_t round = 0; round < rounds.count && net.all(fine); round++) {
    const GinShare share = ginRoundShare(rounds, part, round, blockIdx.x);
    const size_t bytes = share.end - share.begin;
    const auto stage = [&](int peer) { return ginStage(g, kSame ? g.rank : peer, call + round) + in; };
    if (kSame) ginToSlot(slots + stage(g.rank), from(g.rank) + share.begin, bytes);
    for (int k = 1; k < g.nRanks && !kSame; k++) ginToSlot(slots + stage(ginPeer(g, k)), from(ginPeer(g, k)) + share.begin, bytes);
    fine = ginOneRound(net, g, window, call + round, in, [&](int) { return bytes; }, stage, bytes > 0, round == 0 && ginTimes(g, call)) && fine;
    take(share, [&](int peer) { return slots + ginSlot(g, peer, call + round) + in; });
  }
  ginEnd(g, call + rounds.count - 1);
}

/* part: bytes for each rank. */
template <typename Net>
__device__ __forceinline__ void ginAllToAllSlots(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, size_t part) {
  if (send != recv) {
    const GinShare own = ginShareOf(part, gridDim.x, blockIdx.x);
    ginCopy(recv + g.rank * part + own.begin, send + g.rank * part + own.begin, own.end - own.begin);
  }
  ginInRounds<false>(net, g, window, part, [&](int peer) { return send + peer * part; }, [&](const GinShare &share, auto slotOf) {
    for (int k = 1; k < g.nRanks; k++) ginFromSlot(recv + ginPeer(g, k) * part + share.begin, slotOf(ginPeer(g, k)), share.end - share.begin);
  });
}

/* part: bytes of each rank. */
template <typename Net>
__device__ __forceinline__ void ginAllGather(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, size_t part) {
  if (send != recv + g.rank * part) {
    const GinShare own = ginShareOf(part, gridDim.x, blockIdx.x);
    ginCopy(recv + g.rank * part + own.begin, send + own.begin, own.end - own.begin);
  }
  ginInRounds<true>(net, g, window, part, [&](int) { return send; }, [&](const GinShare &share, auto slotOf) {
    for (int k = 1; k < g.nRanks; k++) ginFromSlot(recv + ginPeer(g, k) * part + share.begin, slotOf(ginPeer(g, k)), share.end - share.begin);
  });
}

/* count: elements for each rank. Sums are in the order of ranks, so they have the bits that AllReduce gives. */
template <typename T, typename Net>
__device__ __forceinline__ void ginReduceScatter(const Net &net, const Gin &g, typename Net::Window window, const T *send, T *recv, size_t count, Op op) {
  using Elements = Buffer<Shape<false, kMaxRanks>, T, uint4>;
  const auto from = [&](int peer) { return (const char *)(send + peer * count); };
  ginInRounds<false>(net, g, window, count * sizeof(T), from, [&](const GinShare &share, auto slotOf) {
    const size_t first = share.begin / sizeof(T), elements = (share.end - share.begin) / sizeof(T);
    const Elements own((const T *)from(g.rank) + first, elements), to(recv + first, elements);
    for (size_t i = threadIdx.x; i < dyn_packs(share.end - share.begin, sizeof(uint4)); i += blockDim.x)
      to.store(i, ginSumOf<T>(g.nRanks, g.rank, op, [&](int r) { return r == g.rank ? own.load(i) : *(const uint4 *)(slotOf(r) + i * sizeof(uint4)); }));
  });
}

}  // namespace dyn

#endif
