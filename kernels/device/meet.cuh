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
constexpr uint32_t kSend = DYN_IN_SEND_WINDOW, kRecv = DYN_IN_RECV_WINDOW, kMetFirst = DYN_MET_FIRST, kGaveUp = DYN_MET_IN_VAIN;

/* What a block knows of all ranks behind a meeting. */
struct Met {
  bool over[kMaxRanks];     /* by threads: has seen that this rank has given up in another lane. Before a meeting, too: it takes no register */
  uint32_t said[kMaxRanks]; /* the buffers that lie in a window, whether it met first, and of the buffers: */
  uint64_t send[kMaxRanks], recv[kMaxRanks], sendMost[kMaxRanks], recvMost[kMaxRanks];
};

/* At the call's beginning. */
__device__ __forceinline__ void noteOver(const Begun &begun) {
  if (threadIdx.x < kMaxRanks) inBlock<Met>().over[threadIdx.x] = begun.over;
}
__device__ __forceinline__ bool isOver() { return threadIdx.x < kMaxRanks && inBlock<Met>().over[threadIdx.x]; }

__device__ __forceinline__ char *bufferOf(const dyn_windowed &own, const uint64_t *words, int rank, int peer) {
  return own.base[peer] + dyn_offset_of_word(words[DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_OFFSET ? rank : peer]);
}
/* Where a peer's buffer is, which is known to lie in a window. */
__device__ __forceinline__ char *sendOf(const Domain &d, const Bulk &b, int peer) { return bufferOf(b.send, inBlock<Met>().send, d.rank, peer); }
__device__ __forceinline__ char *recvOf(const Domain &d, const Bulk &b, int peer) { return bufferOf(b.recv, inBlock<Met>().recv, d.rank, peer); }

/* All lie in the same window, and every rank can address all of it. */
__device__ __forceinline__ bool agree(int nRanks, const uint64_t *words, const uint64_t *most) {
  uint64_t furthest = 0, least = UINT64_MAX;
  bool same = true;
#pragma unroll 1
  for (int r = 0; r < nRanks; r++) {
    const uint64_t offset = dyn_offset_of_word(words[r]);
    same &= dyn_window_of_word(words[r]) == dyn_window_of_word(words[0]) || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ANY_WINDOW;
    furthest = offset > furthest ? offset : furthest, least = most[r] < least ? most[r] : least;
  }
  return same && (furthest <= least || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_TOO_FAR);
}

__device__ __forceinline__ void note(Met &met, int r, uint32_t said, const dyn_meeting &words) {
  met.said[r] = said;
  if (said == 0) return;
  met.send[r] = words.send, met.recv[r] = words.recv, met.sendMost[r] = words.sendMost, met.recvMost[r] = words.recvMost;
}

__device__ __forceinline__ dyn_meeting ownWords(const Bulk &b) { return {0, b.send.word, b.recv.word, b.send.most, b.recv.most, 0, 0, 0}; }

/* Of meetings: those of this block in this call, of each rank. */
__device__ __forceinline__ unsigned meetingPlace(uint32_t call) {
  return ((DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_PLACE ? 0 : call & 1) * kMaxBlocks + blockIdx.x) * kMaxRanks;
}
/* What the peer came with, the call below, or kGaveUp in its place: it is not waited for any longer. */
__device__ __forceinline__ uint64_t awaitMeeting(const Domain &d, const dyn_meeting *from, int peer, uint32_t call) {
  uint64_t come = loadAcquire(&from->come), since = 0;
  for (unsigned spins = 0; (uint32_t)come != call; come = loadAcquire(&from->come))
    if ((++spins & kSpins) == 0 && !goOn(d, peer, call, &since)) return (uint64_t)kGaveUp << 32;
  return come;
}

/* The buffers that all ranks have in one window each, and in the upper half what any of them said: everybody's words are there.
 * Kept out of what calls run mostly. */
__attribute__((noinline)) inline __device__ uint32_t compareWords(const Call &c, const Bulk &b, uint32_t call, uint32_t says) {
  const Domain &d = c.domain;
  Met &met = inBlock<Met>();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    const dyn_meeting *from = &b.meetings[d.rank][meetingPlace(call) + r];
    const uint64_t come = r == d.rank ? 0 : loadAcquire(&from->come);
    if (r == d.rank) note(met, r, says, ownWords(b));
    else note(met, r, (uint32_t)come == call && !isOver() ? (uint32_t)(come >> 32) : kGaveUp, *from);
  }
  if (isOver()) giveUpCalls(d); /* in this lane, too: no call behind this one sends where peers that wait for it read */
  __syncthreads();
  uint32_t all = says, any = 0;
  for (int r = 0; r < d.nRanks; r++) {
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_WINDOW) all &= met.said[r];
    any |= met.said[r];
  }
  if (all & kSend && !agree(d.nRanks, met.send, met.sendMost)) all &= ~kSend;
  if (all & kRecv && !agree(d.nRanks, met.recv, met.recvMost)) all &= ~kRecv;
  return all | any << 16;
}

/* As blockBarrier, whose numbers do not count this one; gives what compareWords does. says: of this rank's buffers, and kMetFirst.
 * Where nobody has said anything, which the flags tell that everybody waits for, it costs what a barrier does. A thread that has seen
 * that this rank has given up in another lane tells its peer nothing, and the block does nothing further. */
__device__ __forceinline__ uint32_t meet(const Call &c, const Bulk &b, uint32_t call, uint32_t says) {
  const Domain &d = c.domain;
  const unsigned place = meetingPlace(call);
  const bool over = isOver();
  uint32_t heard = over ? kGaveUp : says;
  stampSent(c, call);
  __syncthreads();
  for (int r = over ? d.nRanks : (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    dyn_meeting *to = &b.meetings[r][place + d.rank];
    if (says != 0) {
      const dyn_meeting own = ownWords(b);
      to->send = own.send, to->recv = own.recv, to->sendMost = own.sendMost, to->recvMost = own.recvMost;
    }
    storeRelease(&to->come, (uint64_t)says << 32 | call);
    heard |= (uint32_t)(awaitMeeting(d, &b.meetings[d.rank][place + r], r, call) >> 32);
  }
  return anyOfBlock(heard != 0) ? compareWords(c, b, call, says) : 0;
}
/* Before anything is sent: that one has windows is rare, so this is kept out of the way, too. */
__attribute__((noinline)) inline __device__ uint32_t meetFirst(const Call &c, const Bulk &b, uint32_t call, uint32_t says) {
  return meet(c, b, call, says | kMetFirst);
}

}  // namespace dyn

#endif
