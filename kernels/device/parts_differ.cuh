/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll whose parts are of any sizes, also none (AllToAllv), in bulk. A rank knows what it sends and gets and nothing of
 * what others exchange, but all must make as many rounds: so each tells all others of its largest part.
 *
 * Rounds are as in bulk.cuh, and the first is sent before anybody knows how many there are. What makes that possible:
 *   A part goes as it would if all were of its size: rounds of an odd number, equal but for the last ones, and of each round the
 *   same packs for block b of every rank. All of that follows from the part's size, which both ends know, and so does a
 *   block's place in the part's slot, which is the same in every round: what one block takes, no other writes over.
 *   The largest part has most rounds. In those that a smaller one has not there is nothing of it.
 *   The first round has the half of the call's lowest bit, however many follow.
 *   The first barrier is a meeting (meet.cuh), and what blocks tell each other there lies beside the slots. A rank may be a
 *   call ahead there, and never two, since each call meets, also one in which nobody sends anything.
 * Behind the meeting all have the same words, so rounds are of the same number on all ranks, an odd one, and what bulk.cuh
 * says of halves holds.
 *
 * The own part is nobody else's business: a block copies it where it would wait for others, a round at a time so that these
 * do not wait for it, and behind the rounds what is left, if it is larger than what others exchange.
 *
 * A thread has up to eight words on their way, of one peer's part after the other's. So few CTAs are enough, and the number of
 * ranks costs no registers.
 */
#ifndef DYN_PARTS_DIFFER_CUH
#define DYN_PARTS_DIFFER_CUH

#include "bulk.cuh"
#include "copy.cuh"

namespace dyn {

using Parts = ::dyn_parts;

/* Of those that it sends to others. All tell theirs, so what it gets is known, too. */
__device__ __forceinline__ size_t largestPart(int rank, int nRanks, const Parts &p) {
  size_t most = 0;
  for (int r = 0; r < nRanks; r++)
    if (r != rank && p.sendBytes[r] > most) most = p.sendBytes[r];
  return most;
}

/* Of a part: its rounds, packs in each, and of those in each block: what a warp writes at once stays together. */
struct Pace {
  uint32_t rounds, round, block;
};
__device__ __forceinline__ uint32_t packsOfBlock(uint32_t packs) { return (packs + gridDim.x * kWarp - 1) / (gridDim.x * kWarp) * kWarp; }
__attribute__((noinline)) inline __device__ Pace paceOf(size_t bytes, size_t slot) {
  if (bytes == 0) return {1, 0, 0};
  const Rounds rounds(dyn_packs(bytes, kBulkBytes), slot);
  return {rounds.count, (uint32_t)rounds.each, packsOfBlock((uint32_t)rounds.each)};
}

/* Bytes of a part, from its beginning and from that of its slot. */
struct Share {
  size_t at;
  uint32_t begin, bytes;
};
/* This block's of a round. */
__device__ __forceinline__ Share shareOf(size_t part, const Pace &pace, uint32_t round) {
  const size_t first = (size_t)round * pace.round, all = dyn_packs(part, kBulkBytes);
  const uint32_t in = all <= first ? 0 : all - first < pace.round ? (uint32_t)(all - first) : pace.round;
  const uint32_t most = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_MOVING_SHARES ? packsOfBlock(in) : pace.block, begin = blockIdx.x * most;
  const uint32_t bytes = (begin >= in ? 0 : in - begin < most ? in - begin : most) * (uint32_t)kBulkBytes;
  const size_t at = (first + begin) * kBulkBytes;
  return {at, begin * (uint32_t)kBulkBytes, bytes > 0 && part - at < bytes ? (uint32_t)(part - at) : bytes};
}

/* Of a block. */
struct Differing {
  Pace sends[kMaxRanks], takes[kMaxRanks];
  size_t largest[kMaxRanks]; /* as the peers tell it */
};

/* Meets (meet.cuh): largest is this rank's largest part. */
__device__ __forceinline__ void tellLargest(const Call &c, const Bulk &b, uint32_t call, size_t largest) {
  const Domain &d = c.domain;
  stampSent(c, call);
  __syncthreads();
#pragma unroll 1
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    dyn_meeting *to = &b.meetings[r][meetingPlace(call) + d.rank];
    to->largest = largest;
    storeRelease(&to->come, (uint64_t)call); /* no buffer is said to lie in a window */
  }
}
/* Of all ranks. */
__device__ __forceinline__ size_t awaitLargest(const Call &c, const Bulk &b, uint32_t call, size_t largest) {
  const Domain &d = c.domain;
  Differing &told = inBlock<Differing>();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    const dyn_meeting *from = &b.meetings[d.rank][meetingPlace(call) + r];
    told.largest[r] = r != d.rank && awaitMeeting(d, from, r, call) != 0 ? from->largest : 0;
  }
  __syncthreads();
  for (int r = 0; r < d.nRanks && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_ROUNDS; r++)
    if (told.largest[r] > largest) largest = told.largest[r];
  return largest;
}

/* Of send and recv parts begin anywhere; they do not overlap. */
__device__ inline void allToAllV(const Call &c, const Bulk &b, const Parts &p) {
  const Domain &d = c.domain;
  const uint32_t call = beginCall(d);
  const size_t slot = 2 * b.packs, largest = largestPart(d.rank, d.nRanks, p);
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  Differing &parts = inBlock<Differing>();
  const auto slotAt = [&](int of, int from, uint32_t round) { return (Byte *)(half(d, b, of, call, round) + from * slot); };
  const auto copyOwn = [&](uint32_t round) {
    const Share s = shareOf(p.sendBytes[d.rank], parts.sends[d.rank], round);
    copyBytes(recv + p.recvAt[d.rank] + s.at, send + p.sendAt[d.rank] + s.at, s.bytes);
  };
  uint32_t passed = b.passed[blockIdx.x], rounds = 1;
#pragma unroll 1
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) parts.sends[r] = paceOf(p.sendBytes[r], slot), parts.takes[r] = paceOf(p.recvBytes[r], slot);
  __syncthreads();
  for (uint32_t step = 0; step <= rounds; step++) { /* sends round step, takes the one before */
#pragma unroll 1
    for (int k = 1; k < d.nRanks && step < rounds; k++) {
      const int r = peerOf(d, k);
      const Share s = shareOf(p.sendBytes[r], parts.sends[r], step);
      copyBytes(slotAt(r, d.rank, step) + s.begin, send + p.sendAt[r] + s.at, s.bytes);
    }
#pragma unroll 1
    for (int k = 1; k < d.nRanks && step > 0; k++) {
      const int r = peerOf(d, k);
      const Share s = shareOf(p.recvBytes[r], parts.takes[r], step - 1);
      copyBytes(recv + p.recvAt[r] + s.at, slotAt(d.rank, r, step - 1) + s.begin, s.bytes);
    }
    if (step == 0) {
      tellLargest(c, b, call, largest);
      copyOwn(0);
      rounds = paceOf(awaitLargest(c, b, call, largest), slot).rounds;
    } else if (step < rounds) {
      arrive(c, b, call, ++passed);
      copyOwn(step);
      awaitLikes(c, b, call, passed);
    }
  }
  const size_t each = parts.sends[d.rank].round * kBulkBytes;
#pragma unroll 1
  for (uint32_t round = rounds; round * each < p.sendBytes[d.rank] && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_REST; round++) copyOwn(round);
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed; /* all of the block have read it: they met */
  endCall(d, call);
}

}  // namespace dyn

#endif
