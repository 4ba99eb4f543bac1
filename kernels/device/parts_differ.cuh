/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll whose parts are of any sizes, also none (AllToAllv): small ones in lines (parts_lines.cuh), all others in bulk, if any rank
 * has such a one. What follows is about those. A rank knows what it sends and gets and nothing of
 * what others exchange, but all must make as many rounds: so each tells all others of its largest part that goes in bulk.
 *
 * Rounds are as in bulk.cuh, and the first is sent before anybody knows how many there are. What makes that possible:
 *   A part goes as it would if all were of its size: rounds of an odd number, equal but for the last ones, and of each round the
 *   same packs for block b of every rank. All of that follows from the part's size, which both ends know, and so does a
 *   block's place in the part's slot, which is the same in every round: what one block takes, no other writes over.
 *   The largest part has most rounds. In those that a smaller one has not there is nothing of it.
 *   The first round has the half of the call's lowest bit, however many follow.
 *   The first barrier is a meeting (meet.cuh), and what blocks tell each other there lies beside the slots. A rank may be a
 *   call ahead there, and never two: domain.cuh.
 * Behind the meeting all have the same words, so rounds are of the same number on all ranks, an odd one, and what bulk.cuh
 * says of halves holds.
 *
 * With windows (meet.cuh). Where every rank's result lies in the same one, parts go where they are to be. A rank does not know
 * where: each tells each other one at the meeting where that one's part begins, and all of them where its last one ends, which
 * tells whether every rank can address it all.
 *   Who has its result in a window and more than one round to send meets before it sends anything. Then it writes all of its
 *   parts there at once, behind each other and without barriers between them.
 *   Who sends no more than a round sends that into scratch memory before it meets, as without windows. So small calls wait no
 *   more often than they did, and no rank takes the others' gain for having little to send. What it sent is all there behind
 *   the meeting, and the peers take it out; who met first they know by its largest part.
 *   There is one round then, and a barrier behind it, before which nobody ends; where nobody met first, not even that.
 *   Where a rank's result lies elsewhere all take scratch memory. Who met first sends its first round then, and there is one
 *   barrier more.
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
#include "parts_lines.cuh"

namespace dyn {

/* Of those that it sends to others in bulk. All tell theirs, so what it gets is known, too. */
__device__ __forceinline__ size_t largestPart(int rank, int nRanks, const Parts &p, size_t lines = 0) {
  size_t most = 0;
#pragma unroll 1
  for (int r = 0; r < nRanks; r++)
    if (r != rank && bulkBytes(p.sendBytes[r], lines) > most) most = p.sendBytes[r];
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
__attribute__((noinline)) inline __device__ Share shareOf(size_t part, const Pace &pace, uint32_t round) {
  const size_t first = (size_t)round * pace.round, all = dyn_packs(part, kBulkBytes);
  const uint32_t in = all <= first ? 0 : all - first < pace.round ? (uint32_t)(all - first) : pace.round;
  const uint32_t most = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_MOVING_SHARES ? packsOfBlock(in) : pace.block, begin = blockIdx.x * most;
  const uint32_t bytes = (begin >= in ? 0 : in - begin < most ? in - begin : most) * (uint32_t)kBulkBytes;
  const size_t at = (first + begin) * kBulkBytes;
  return {at, begin * (uint32_t)kBulkBytes, bytes > 0 && part - at < bytes ? (uint32_t)(part - at) : bytes};
}

/* Of a block: its own rank's parts, and what all ranks tell of theirs. */
struct Differing {
  Pace sends[kMaxRanks], takes[kMaxRanks];
  size_t largest[kMaxRanks];                   /* of the parts that it sends to others */
  uint64_t words[kMaxRanks], reach[kMaxRanks]; /* of the window in which its result lies: dyn_meeting.recv, recvMost; 0: none */
  Byte *there[kMaxRanks];                      /* where what this rank sends it begins in that window */
};

/* What it tells all others alike. */
__device__ __forceinline__ dyn_meeting wordsOf(const Domain &d, const Bulk &b, const Parts &p, size_t lines) {
  dyn_meeting own = {};
  size_t end = 0;
  own.largest = largestPart(d.rank, d.nRanks, p, lines);
  if (b.recv.word == 0) return own;
#pragma unroll 1
  for (int r = 0; r < d.nRanks; r++)
    if (p.recvBytes[r] > 0 && p.recvAt[r] + p.recvBytes[r] > end) end = p.recvAt[r] + p.recvBytes[r];
  own.recv = dyn_window_word(dyn_window_of_word(b.recv.word), dyn_offset_of_word(b.recv.word) + end);
  own.recvMost = b.recv.most + end;
  return own;
}
/* Where in its window what this rank gets of a peer begins. */
__device__ __forceinline__ uint64_t partAt(const Bulk &b, const Parts &p, int peer) { return dyn_offset_of_word(b.recv.word) + p.recvAt[peer]; }

/* Meets (meet.cuh). */
__device__ __forceinline__ void tellParts(const Call &c, const Bulk &b, const Parts &p, uint32_t call, const dyn_meeting &own) {
  const Domain &d = c.domain;
  stampSent(c, call);
  __syncthreads();
#pragma unroll 1
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    dyn_meeting *to = &b.meetings[r][meetingPlace(call) + d.rank];
    to->largest = own.largest;
    if (own.recv != 0) to->recv = own.recv, to->recvMost = own.recvMost, to->partAt = partAt(b, p, r);
    storeRelease(&to->come, (uint64_t)(own.recv != 0 ? kRecv : 0) << 32 | call); /* its largest part tells who met first */
  }
}
/* False, to all of the block: one did not come. */
__device__ __forceinline__ bool awaitParts(const Call &c, const Bulk &b, const Parts &p, uint32_t call, const dyn_meeting &own) {
  const Domain &d = c.domain;
  Differing &told = inBlock<Differing>();
  bool inVain = false;
#pragma unroll 1
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) {
      told.largest[r] = own.largest, told.words[r] = own.recv, told.reach[r] = own.recvMost;
      continue;
    }
    const dyn_meeting *from = &b.meetings[d.rank][meetingPlace(call) + r];
    const uint64_t come = awaitMeeting(d, from, r, call);
    const bool in = come >> 32 & kRecv;
    inVain |= (come >> 32 & kGaveUp) != 0;
    told.largest[r] = from->largest;
    told.words[r] = in ? from->recv : 0, told.reach[r] = in ? from->recvMost : 0;
    told.there[r] = (Byte *)b.recv.base[r] + (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_OFFSET ? partAt(b, p, r) : from->partAt);
  }
  return !anyOfBlock(inVain) || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_PASSES_ON;
}

/* What follows from what all ranks have told, on each of them alike. */
struct Agreed {
  size_t largest; /* of all parts */
  bool direct;    /* all results lie in one window, and each rank can address all of them */
  bool first;     /* a rank met before it sent */
};
/* Has its result in a window, and more than a round to send: it meets before it sends. */
__device__ __forceinline__ bool meetsFirst(uint64_t word, size_t largest, size_t slot) { return word != 0 && largest > slot * kBulkBytes; }
__device__ __forceinline__ Agreed agreed(const Domain &d, size_t slot) {
  const Differing &told = inBlock<Differing>();
  Agreed a = {told.largest[d.rank], told.words[d.rank] != 0, false};
#pragma unroll 1
  for (int r = 0; r < d.nRanks; r++) {
    if (told.largest[r] > a.largest && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_ROUNDS) a.largest = told.largest[r];
    a.first |= meetsFirst(told.words[r], told.largest[r], slot);
  }
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_WINDOW) a.direct &= agree(d.nRanks, told.words, told.reach);
  return a;
}

/* Rounds of the own part until so many are copied; owns: that are. */
__device__ __forceinline__ void copyOwnPart(const Call &c, const Parts &p, uint32_t until, uint32_t &owns) {
  const int rank = c.domain.rank;
  const Pace &pace = inBlock<Differing>().sends[rank];
#pragma unroll 1
  for (; owns < until && owns < pace.rounds; owns++) {
    const Share s = shareOf(p.sendBytes[rank], pace, owns);
    copyBytes((Byte *)c.recv + p.recvAt[rank] + s.at, (const Byte *)c.send + p.sendAt[rank] + s.at, s.bytes);
  }
}

/* What does not go in lines, once it is known that any rank has such a part. */
__device__ __forceinline__ void exchangeInBulk(const Call &c, const Bulk &b, const Parts &p, uint32_t call, uint32_t owns) {
  const Domain &d = c.domain;
  const size_t slot = 2 * b.packs;
  const dyn_meeting words = wordsOf(d, b, p, c.count);
  const bool first = meetsFirst(words.recv, words.largest, slot);
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const Differing &parts = inBlock<Differing>();
  const auto slotAt = [&](int of, int from, uint32_t round) { return (Byte *)memoryOf(b, of, half(d, b, call, round) + from * slot); };
  const auto copyOwn = [&](uint32_t until) { copyOwnPart(c, p, until, owns); };
  uint32_t passed = b.passed[blockIdx.x], rounds = 1;
  Agreed all = {};
  bool met = false;
#pragma unroll 1
  for (int64_t step = first ? -1 : 0; step <= rounds; step++) { /* sends round step, takes the one before; -1: meets */
    const bool there = first && all.direct;
    const uint32_t until = step < 0 || step >= rounds ? 0 : there ? paceOf(words.largest, slot).rounds : (uint32_t)step + 1;
#pragma unroll 1
    for (uint32_t round = (uint32_t)step; round < until; round++)
#pragma unroll 1
      for (int k = 1; k < d.nRanks; k++) {
        const int r = peerOf(d, k);
        const Share s = shareOf(p.sendBytes[r], parts.sends[r], round);
        copyBytes(there ? parts.there[r] + s.at : slotAt(r, d.rank, round) + s.begin, send + p.sendAt[r] + s.at, s.bytes);
      }
#pragma unroll 1
    for (int k = 1; k < d.nRanks && step > 0; k++) {
      const int r = peerOf(d, k);
      if (all.direct && meetsFirst(parts.words[r], parts.largest[r], slot) && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_TAKES_ALL) continue;
      const Share s = shareOf(p.recvBytes[r], parts.takes[r], (uint32_t)step - 1);
      copyBytes(recv + p.recvAt[r] + s.at, slotAt(d.rank, r, (uint32_t)step - 1) + s.begin, s.bytes);
    }
    if (!met) {
      tellParts(c, b, p, call, words);
      copyOwn(1);
      if (!awaitParts(c, b, p, call, words)) return;
      all = agreed(d, slot), met = true;
      rounds = all.direct ? 1 : paceOf(all.largest, slot).rounds;
      if (first || !all.first || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_LATE) continue; /* else who met first has yet to send */
    }
    if (step >= rounds || (all.direct && DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_UNCLOSED)) continue;
    arrive(c, b, call, ++passed);
    copyOwn(all.direct ? UINT32_MAX : owns + 1);
    if (!awaitLikes(c, b, call, passed)) return;
  }
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_REST) copyOwn(UINT32_MAX);
  if (threadIdx.x == 0) b.passed[blockIdx.x] = passed; /* all of the block have read it: they met */
}

/* Of send and recv parts begin anywhere; they do not overlap. c.count: lines of one that goes in lines, at most; the same on all ranks;
 * 0: there is no room for lines, and all goes in bulk. */
__device__ inline void allToAllV(const Call &c, const Bulk &b, const Parts &p) {
  const Domain &d = c.domain;
  const Begun begun = beginCall(d);
  const uint32_t call = begun.number;
  if (call == 0) return;
  const size_t slot = 2 * b.packs, lines = c.count;
  const Kinds has = kindsOf(d, p, lines);
  const bool knows = has.bulk || lines == 0; /* this rank sends something in bulk, or gets it: all go on in bulk, and it need not ask */
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  Differing &parts = inBlock<Differing>();
  uint32_t owns = 0;
  bool bulk = knows;
  if (lines > 0 && !begun.over) {
    if (!knows) sendSmall(d, send, p, lines, call, false);
    else if (has.small) sendSmallBeside(d, send, p, lines, call, has.sendsBulk);
    else sendWords(d, call, has.sendsBulk);
  }
#pragma unroll 1
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    parts.sends[r] = paceOf(r == d.rank ? p.sendBytes[r] : bulkBytes(p.sendBytes[r], lines), slot);
    parts.takes[r] = paceOf(bulkBytes(p.recvBytes[r], lines), slot);
  }
  if (anyOfBlock(begun.over)) return; /* before anything speaks for all of the block */
  if (!knows) {
    copyOwnPart(c, p, UINT32_MAX, owns);
    const bool told = takeSmall(d, recv, p, lines, call, true);
    bulk = anyOfBlock(told) && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNTOLD;
  }
  if (bulk) exchangeInBulk(c, b, p, call, owns);
  if (has.small && knows && lines > 0) takeSmallBehind(d, recv, p, lines, call);
  endCall(d, call);
}

}  // namespace dyn

#endif
