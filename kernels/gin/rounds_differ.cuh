/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll over GIN whose parts are of any sizes, also none (AllToAllv), in rounds as rounds.cuh has them: from a rank to each
 * other one. As in device/parts_differ.cuh each tells all others of its largest part in a first round, so that all make as
 * many. A block has one place in slots, whatever the size of a round: of the first one nobody knows yet what follows.
 */
#ifndef DYN_GIN_ROUNDS_DIFFER_CUH
#define DYN_GIN_ROUNDS_DIFFER_CUH

#include "../device/parts_differ.cuh"
#include "rounds.cuh"

namespace dyn {

template <typename Net>
__device__ __forceinline__ void ginAllToAllV(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, const Parts &p) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  char *slots = net.local(window, 0);
  const size_t most = g.slotBytes / DYN_GIN_UNIT / gridDim.x * DYN_GIN_UNIT;
  const size_t in = (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_MIXED_PLACES ? 0 : blockIdx.x) * most;
  const GinShare own = ginShareOf(p.sendBytes[g.rank], gridDim.x, blockIdx.x);
  ginCopy(recv + p.recvAt[g.rank] + own.begin, send + p.sendAt[g.rank] + own.begin, own.end - own.begin);
  size_t largest = largestPart(g.rank, g.nRanks, p);
  const size_t stated = ginStage(g, g.rank, call) + in;
  if (threadIdx.x == 0) *(uint64_t *)(slots + stated) = largest;
  bool fine = ginOneRound(net, g, window, call, in, [&](int) { return sizeof(uint64_t); }, [&](int) { return stated; }, true, ginTimes(g, call));
  bool all = net.all(fine);
  for (int k = 1; k < g.nRanks && all && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_ROUNDS; k++) {
    const size_t of = *(const uint64_t *)(slots + ginSlot(g, ginPeer(g, k), call) + in);
    if (of > largest) largest = of;
  }
  const GinRounds rounds = largest == 0 ? GinRounds{0, gridDim.x, 0} : ginRoundsOf(largest, g.slotBytes, gridDim.x);
  for (uint32_t round = 0; all && round < rounds.count; round++, all = net.all(fine)) {
    const uint32_t number = call + 1 + round;
    const auto bytesOf = [&](const size_t (&parts)[kMaxRanks], int peer) {
      const GinShare share = ginRoundShare(rounds, parts[peer], round, blockIdx.x);
      return share.end > share.begin ? share.end - share.begin : 0;
    };
    const auto stage = [&](int peer) { return ginStage(g, peer, number) + in; };
    const size_t begin = ((size_t)round * rounds.blocks + blockIdx.x) * rounds.each;
    bool some = false;
    for (int k = 1; k < g.nRanks; k++) {
      const int peer = ginPeer(g, k);
      const size_t bytes = bytesOf(p.sendBytes, peer);
      if (bytes > 0) ginToSlot(slots + stage(peer), send + p.sendAt[peer] + begin, bytes), some = true;
    }
    fine = ginOneRound(net, g, window, number, in, [&](int peer) { return bytesOf(p.sendBytes, peer); }, stage, some, false) && fine;
    for (int k = 1; k < g.nRanks; k++) {
      const int peer = ginPeer(g, k);
      if (bytesOf(p.recvBytes, peer) > 0) ginFromSlot(recv + p.recvAt[peer] + begin, slots + ginSlot(g, peer, number) + in, bytesOf(p.recvBytes, peer));
    }
  }
  ginEnd(g, call + rounds.count);
}

}  // namespace dyn

#endif
