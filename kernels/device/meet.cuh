/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: memory that all ranks have registered with NCCL together, and that each can address of all. Where every rank's
 * buffer lies in one, what goes in bulk goes there directly: nothing is copied out of scratch memory, and all of it goes in
 * one round. Whether it does, no rank can know by itself: a peer's buffer may lie elsewhere. So a call's first barrier is a
 * meeting, at which each rank tells in a word which window its buffer lies in, and where, or that it lies in none. All ranks
 * see the same words, so all take the same decision, and the words say where the peers' buffers are.
 *
 * Before a rank writes into a peer's window it must have met it, for the peer may not have begun. So a rank whose buffers
 * lie in windows meets first, and any other sends its first round into scratch memory before it meets, as ever: where no
 * buffer lies in a window nobody waits more often than without windows. Where some do, those who met first send their first
 * round then, and there is one barrier more.
 *
 * A meeting's place is that of the call's lowest bit, so that a rank can be a call ahead, as in scratch memory (domain.cuh).
 * The flag is the call's number.
 */
#ifndef DYN_MEET_CUH
#define DYN_MEET_CUH

#include "all_reduce.cuh"

namespace dyn {

using Bulk = ::dyn_bulk;
constexpr uint32_t kSend = DYN_IN_SEND_WINDOW, kRecv = DYN_IN_RECV_WINDOW;

/* What a block knows of all ranks behind a meeting. */
struct Met {
  uint32_t said[kMaxRanks], same[kMaxRanks]; /* the buffers that lie in a window, and in the same one as this rank's */
  char *send[kMaxRanks], *recv[kMaxRanks];   /* where these are */
};

/* Of a peer's word, where its buffer is; NULL: not in this rank's window. */
__device__ __forceinline__ char *bufferOf(const dyn_windowed &own, int peer, uint64_t word) {
  const bool same = dyn_window_of_word(word) == dyn_window_of_word(own.word) || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ANY_WINDOW;
  return same ? own.base[peer] + dyn_offset_of_word(DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_OFFSET ? own.word : word) : nullptr;
}

/* What a peer said. has: of this rank's buffers, those in windows. */
__device__ __forceinline__ void note(const Bulk &b, int peer, uint32_t has, uint32_t said, const dyn_meeting *words) {
  Met &met = inBlock<Met>();
  const uint32_t both = said & has;
  char *const send = both & kSend ? bufferOf(b.send, peer, words->send) : nullptr, *const recv = both & kRecv ? bufferOf(b.recv, peer, words->recv) : nullptr;
  met.said[peer] = said;
  met.same[peer] = (send != nullptr ? kSend : 0) | (recv != nullptr ? kRecv : 0);
  met.send[peer] = send, met.recv[peer] = recv;
}

/* What all ranks have in one window each, and in the upper half, whether a rank met first: one that has all that is wanted.
 * As blockBarrier, whose numbers do not count this one. */
__attribute__((noinline)) inline __device__ uint32_t meet(const Call &c, const Bulk &b, uint32_t call, uint32_t has, uint32_t wants) {
  const Domain &d = c.domain;
  Met &met = inBlock<Met>();
  const unsigned place = ((DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_PLACE ? 0 : call & 1) * kMaxBlocks + blockIdx.x) * kMaxRanks;
  stampSent(c, call);
  __syncthreads();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) {
      met.said[r] = met.same[r] = has;
      met.send[r] = (char *)c.send, met.recv[r] = (char *)c.recv;
      continue;
    }
    dyn_meeting *to = &b.meetings[r][place + d.rank];
    const dyn_meeting *from = &b.meetings[d.rank][place + r];
    if (has != 0) to->send = b.send.word, to->recv = b.recv.word;
    storeRelease(&to->come, (uint64_t)has << 32 | call);
    uint64_t come = loadAcquire(&from->come), since = 0;
    for (unsigned spins = 0; (uint32_t)come != call; come = loadAcquire(&from->come))
      if ((++spins & kSpins) == 0 && !goOn(d, r, call, &since)) break;
    note(b, r, has, (uint32_t)come == call ? (uint32_t)(come >> 32) : 0, from);
  }
  __syncthreads();
  uint32_t all = kSend | kRecv, first = 0;
  for (int r = 0; r < d.nRanks; r++) {
    all &= DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_WINDOW ? has : met.same[r];
    first |= (met.said[r] & wants) == wants;
  }
  return all | first << 16;
}

}  // namespace dyn

#endif
