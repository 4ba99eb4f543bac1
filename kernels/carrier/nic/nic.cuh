/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of the network card in software (nic.h): for a GPU (nic.cu) and for threads of a CPU (test/nic_machine.h).
 *
 * Order, which is what GIN promises. A warp does a queue's requests one after the other. An addition to a signal is a release
 * over the whole system, behind all that the warp and its helpers wrote: who sees the sum sees the data of its put and of all
 * puts before it in the queue. A completion says that the source is read, no more: so that of an addition, which has no source,
 * comes before it is made, and a counter waits for no peer. That of a get says that its bytes are here, so it is a release over the
 * GPU.
 *
 * Why one fence of the system is enough. A helper's threads meet, and one tells the queue's warp with a release over the GPU, which
 * the warp acquires. Causality in PTX's memory model is transitive, whatever the scopes of its links, as long as both ends of
 * each are within its scope: the helper's data come before its word, this before the warp's fence of the system, and this with
 * the addition before who acquires the sum on another GPU.
 *
 * Why a job needs none. What a helper reads is older than the request, whose poster made it ready with a release; the helper
 * acquires that count itself, in the load that brings the job. Only that what was written before may not come behind what the
 * helper writes takes a fence, and where the last addition had one nothing has been written since.
 */
#ifndef DYN_NIC_CUH
#define DYN_NIC_CUH

#include "gdaki_abi.h"
#include "nic.h"

#ifdef __CUDACC__
#include "nic_machine.cuh"
#else
#include "../test/nic_machine.h"
#endif

#include "nic_mistakes.h"
#include "nic_watch.cuh"

namespace dyn {

/* A key that was looked up last, as a request has it. */
struct NicKey {
  uint32_t key;
  nic_part part;
};

/* As the warp has it; all lanes the same. */
struct NicQueue {
  int peer, side;
  uint8_t *requests, *completions;
  uint64_t *known; /* to posters, as done */
  uint64_t consumed;
  uint64_t dueNs; /* of the request at its head; 0: not reckoned yet */
  uint32_t failed;
  NicKey remote, local, target; /* of writes and reads, and of additions */
  uint32_t job;   /* number of the last one */
  uint32_t unasked; /* so many blocks copy their parts of the request at its head unasked, if it has any */
  bool large;     /* the last write was also theirs: only then the next one may be */
  bool unordered; /* something was written behind the last fence */
  uint32_t blocks; /* as jobs have it: how many help, and with which of them this queue's copies begin */
};

/* Of a warp, where it needs no registers. With faults on purpose: requests rung for, and when that was seen; and the ring before. */
struct NicRings {
  uint64_t rung, ns, rungBefore, nsBefore;
  uint64_t usedNs; /* since it would go: when a request was done last */
};

enum class NicStep { done, later, failed };

/* What is left to be done behind the completion. at 0: nothing. pair: of the request behind this one, which is done with it. And in
 * front of it, where a get brought something. */
struct NicAddition {
  uint64_t at, value;
  bool pair, got;
};

__device__ __forceinline__ uint32_t nicNumberOf(int peer, int side) { return (uint32_t)(peer * NIC_SIDES + side + 1); }

__device__ __forceinline__ NicStep nicFail(NicQueue &q, nic_failure why) {
  q.failed = why;
  return NicStep::failed;
}

__device__ __forceinline__ uint64_t longAt(const NicRequests &r, int which, int word) {
  return (uint64_t)swapBytes(r.word(which, word)) << 32 | swapBytes(r.word(which, word + 1));
}

/* What the request needs of registered memory; 0: there is none of that. */
__device__ __forceinline__ uint64_t nicAddress(const Nic &n, int rank, NicKey &known, uint32_t key, uint64_t offset, uint64_t bytes) {
  if (known.key != key) {
    const uint32_t number = swapBytes(key);
    if (number == 0 || number >= n.nKeys) return 0;
    known = {key, loadPart(&n.keys[(size_t)number * n.nRanks + rank])};
  }
  const nic_part part = known.part;
  if (NIC_MUTATE == NIC_MUTATE_KEYS) return part.at + offset;
  return part.at == 0 || offset > part.bytes || part.bytes - offset < bytes ? 0 : part.at + offset;
}

/* A fault on purpose: when the request at the queue's head, of so many bytes, may be done. All that was rung for at once is as
 * late as the first of it. */
__device__ __forceinline__ uint64_t nicDue(const Nic &n, const NicView &view, const NicQueue &q, const NicRings &rings, uint64_t bytes) {
  const uint64_t rung = q.consumed < rings.rungBefore ? rings.nsBefore : rings.ns;
  const uint32_t pace = view.control[NIC_BYTES_PER_US];
  return (pace == 0 || bytes == 0 ? rung : passLink(n.linkFreeNs, rung, bytes * 1000 / pace)) + view.control[NIC_LATENCY_NS];
}
__device__ __forceinline__ void nicNoteRing(NicRings &rings, uint64_t rung) {
  const bool is = rung != rings.rung;
  joinWarp(); /* all have looked */
  if (is && nicLane() == 0) rings = {rung, nicNowNs(), rings.rung, rings.ns, rings.usedNs};
  joinWarp();
}

/* Of a part, where so many bytes have so many parts. */
__device__ __forceinline__ uint32_t nicEach(uint32_t bytes, uint32_t parts) {
  if (NIC_MUTATE == NIC_MUTATE_SHORT) return bytes / parts / 128 * 128;
  return (((bytes - 1) >> lowestBit(parts)) / 128 + 1) * 128;
}

/* Why an addition is none that can be made; NIC_FINE: it can, and `add` has it. */
__device__ __forceinline__ nic_failure nicReadAddition(const Nic &n, NicQueue &q, const NicRequests &r, int which, NicAddition &add) {
  const uint64_t at = nicAddress(n, q.side == NIC_MAIN ? q.peer : n.rank, q.target, r.word(which, GDAKI_REMOTE_KEY), longAt(r, which, GDAKI_REMOTE), sizeof(uint64_t));
  if (at == 0) return NIC_BAD_KEY;
  if (at % sizeof(uint64_t) != 0) return NIC_BAD_REQUEST;
  add.at = at, add.value = longAt(r, which, GDAKI_ADDEND);
  return NIC_FINE;
}

/* While others copy: the request behind, if it is an addition that can be made as soon as the copy is over. What it is otherwise,
 * and what is wrong with it, is found when its turn comes; and with faults on purpose it has a time of its own. */
__device__ __forceinline__ void nicReadAhead(const Nic &n, const NicView &view, NicQueue &q, const NicRequests &r, int which, NicAddition &add) {
  if (which != 0 || (view.control[NIC_LATENCY_NS] | view.control[NIC_BYTES_PER_US]) != 0) return;
  if (NIC_MUTATE != NIC_MUTATE_UNREADY && q.consumed + 1 >= view.rung) return;
  if ((swapBytes(r.word(1, GDAKI_OPCODE)) & 0xff) != GDAKI_FETCH_ADD) return;
  add.pair = nicReadAddition(n, q, r, 1, add) == NIC_FINE || NIC_MUTATE == NIC_MUTATE_UNLOOKED;
}

/* What a request to write, or to read, wants. */
struct NicMove {
  uint32_t form;
  bool gets;
  __device__ __forceinline__ NicMove(const NicRequests &r, int which, uint32_t opcode) : form(swapBytes(r.word(which, GDAKI_BYTES))), gets(opcode == GDAKI_READ) {}
  __device__ __forceinline__ bool isInline() const { return (form & GDAKI_INLINE) != 0; }
  __device__ __forceinline__ uint32_t bytes() const { return form & ~GDAKI_INLINE; }
  __device__ __forceinline__ uint64_t remote(const Nic &n, int peer, NicKey &known, const NicRequests &r, int which) const {
    return nicAddress(n, peer, known, r.word(which, GDAKI_REMOTE_KEY), longAt(r, which, GDAKI_REMOTE), bytes());
  }
  __device__ __forceinline__ uint64_t local(const Nic &n, int peer, NicKey &known, const NicRequests &r, int which) const {
    return nicAddress(n, NIC_MUTATE == NIC_MUTATE_LOCAL && gets ? peer : n.rank, known, r.word(which, GDAKI_LOCAL_KEY), longAt(r, which, GDAKI_LOCAL), bytes());
  }
  __device__ __forceinline__ uint64_t to(uint64_t remote, uint64_t local) const { return gets && NIC_MUTATE != NIC_MUTATE_BACKWARDS ? local : remote; }
  __device__ __forceinline__ uint64_t from(uint64_t remote, uint64_t local) const { return gets && NIC_MUTATE != NIC_MUTATE_BACKWARDS ? remote : local; }
};
__device__ __forceinline__ bool nicMoves(uint32_t opcode) { return opcode == GDAKI_WRITE || opcode == GDAKI_READ; }

/* How many of so many blocks help with so many bytes. */
__device__ __forceinline__ uint32_t nicHelpers(const nic_sizes &sizes, uint32_t bytes, uint32_t there) {
  if (bytes <= sizes.warp || bytes <= sizes.block) return 0;
  const uint32_t parts = (bytes - sizes.block) >> sizes.partBits, most = parts < there ? parts : there;
  return most > 0 ? 1u << highestBit(most) : 0;
}

/* Each peer's copies begin with another block. */
__device__ __forceinline__ uint32_t nicBlocks(const Nic &n, NicQueue &q, uint32_t there) {
  if (there != q.blocks >> 24) q.blocks = (uint32_t)q.peer * there / (uint32_t)n.nRanks << 16 | there << 24;
  return (uint32_t)(uint16_t)(q.consumed + 1) | q.blocks;
}

/* Behind a fence: the next request may be begun with by other blocks as soon as it is ready, for nothing was written since. */
__device__ __forceinline__ void nicLetBegin(const Nic &n, const NicView &view, NicQueue &q) {
  if (!q.large || view.helpers == 0 || (view.control[NIC_LATENCY_NS] | view.control[NIC_BYTES_PER_US]) != 0) return;
  q.unasked = 1u << highestBit(view.helpers);
  q.job = ((q.job | NIC_JOB_HELPERS) + 1) | q.unasked;
  storeNext(&n.jobs[q.peer], q.job, nicBlocks(n, q, q.unasked));
}

/* By all warps that copy, and with other blocks where it is much and they are there. */
__device__ __forceinline__ void nicCopy(const Nic &n, NicBlock &block, const NicView &view, NicQueue &q, const NicRequests &r, int which, uint64_t to, uint64_t from, uint32_t bytes,
                                        NicAddition &add) {
  q.large = false;
  NIC_STAMP(begin(bytes));
  if (bytes <= n.sizes.warp) {
    copyByWarp((char *)to, (const char *)from, bytes);
    joinWarp();
    NIC_STAMP(note(NIC_COPIED));
    q.unordered = true;
    nicReadAhead(n, view, q, r, which, add); /* while the bytes are on their way */
    return;
  }
  const uint32_t helpers = nicHelpers(n.sizes, bytes, q.unasked != 0 ? q.unasked : view.helpers), own = helpers > 0 ? n.sizes.block : bytes;
  q.large = helpers > 0;
  const bool asks = helpers > 0 && q.unasked == 0;
  if (asks) {
    q.job = ((q.job | NIC_JOB_HELPERS) + 1) | helpers;
    postJob(&n.jobs[q.peer], q.job, to + own, from + own, bytes - own, nicBlocks(n, q, view.helpers), q.unordered);
  }
  NIC_STAMP(note(NIC_ASKED));
  block.beginCopy((char *)to, (const char *)from, own);
  nicReadAhead(n, view, q, r, which, add);
  if (NIC_MUTATE == NIC_MUTATE_PAIR && add.pair) addReleased((uint64_t *)add.at, add.value), add.value = 0;
  block.endCopy();
  NIC_STAMP(note(NIC_COPIED));
  const uint32_t wanted = NIC_MUTATE == NIC_MUTATE_HALF && helpers > 1 ? 1 : helpers;
  while (asks && !allCopied(&n.copied[q.peer * NIC_MAX_HELPERS], wanted, q.job)) continue;
  q.unordered = true;
}

__device__ __forceinline__ NicStep nicMove(const Nic &n, NicBlock &block, const NicView &view, NicQueue &q, const NicRequests &r, int which, uint32_t opcode, NicAddition &add) {
  const NicMove move(r, which, opcode);
  const uint64_t remote = move.remote(n, q.peer, q.remote, r, which);
  uint64_t local = 0;
  if (!move.isInline()) local = move.local(n, q.peer, q.local, r, which);
  else if (!move.gets && move.bytes() <= 4 * (GDAKI_WORDS - GDAKI_LOCAL_KEY)) local = (uint64_t)(q.requests + q.consumed % NIC_DEPTH * NIC_REQUEST_BYTES + 4 * GDAKI_LOCAL_KEY);
  if (remote == 0 || local == 0) return nicFail(q, NIC_BAD_KEY);
  nicCopy(n, block, view, q, r, which, move.to(remote, local), move.from(remote, local), move.bytes(), add);
  add.got = move.gets;
  return NicStep::done;
}

/* One request of those that were loaded. */
__device__ __forceinline__ NicStep nicDo(const Nic &n, NicBlock &block, const NicView &view, NicQueue &q, const NicRings &rings, const NicRequests &r, int which, NicAddition &add) {
  const uint32_t opcode = swapBytes(r.word(which, GDAKI_OPCODE)) & 0xff;
  add = {};
  if (q.failed != NIC_FINE) return NicStep::failed;
  if (q.side == NIC_MAIN) {
    if (view.control[NIC_DEAD] >> q.peer & 1) {
      q.dueNs = 0; /* what was due keeps no kernel alive, either */
      return NicStep::later;
    }
    if (view.control[NIC_GONE] >> q.peer & 1) return nicFail(q, NIC_PEER_GONE);
    if ((view.control[NIC_LATENCY_NS] | view.control[NIC_BYTES_PER_US]) != 0) {
      if (q.dueNs == 0) q.dueNs = nicDue(n, view, q, rings, nicMoves(opcode) ? swapBytes(r.word(which, GDAKI_BYTES)) & ~GDAKI_INLINE : 0);
      const uint64_t now = nicNowNs();
      if (now + NIC_LATE_NS < q.dueNs) return NicStep::later;
      while (nicNowNs() < q.dueNs) continue; /* to come back would make it later still */
    }
  }
  if (opcode == GDAKI_NOP) return NicStep::done;
  if (nicMoves(opcode) && q.side == NIC_MAIN) return nicMove(n, block, view, q, r, which, opcode, add);
  if (opcode == GDAKI_DUMP && q.side == NIC_MAIN) return NicStep::done; /* what gets before it brought is here when they are done */
  if (opcode == GDAKI_FETCH_ADD) {
    const nic_failure why = nicReadAddition(n, q, r, which, add);
    return why == NIC_FINE ? NicStep::done : nicFail(q, why);
  }
  if (opcode == GDAKI_WAIT && q.side == NIC_SIDE && swapBytes(r.word(which, GDAKI_WAIT_QUEUE)) == nicNumberOf(q.peer, NIC_MAIN)) {
    const uint32_t wanted = swapBytes(r.word(which, GDAKI_WAIT_INDEX)) + 1;
    if (NIC_MUTATE == NIC_MUTATE_NO_WAIT) return NicStep::done;
    for (int spins = 0; spins < NIC_WAIT_SPINS; spins++) /* it is most often under way, and to come back takes long */
      if ((int32_t)(block.mainConsumed() - wanted) >= 0) return NicStep::done;
    return NicStep::later;
  }
  return nicFail(q, NIC_BAD_REQUEST);
}

/* The last word of completion `index`, as little-endian memory has its bytes. */
__device__ __forceinline__ uint32_t nicCompletion(uint64_t index, int what) {
  const uint32_t owner = NIC_MUTATE == NIC_MUTATE_OWNER ? 0 : index / NIC_DEPTH & 1;
  return (uint32_t)(index >> 8 & 0xff) | (uint32_t)(index & 0xff) << 8 | ((uint32_t)what << 4 | owner) << 24;
}

__device__ __forceinline__ NicSlots nicSlots(const NicQueue &q) { return NicSlots(q.requests, (uint32_t)(q.consumed % NIC_DEPTH)); }

/* All that can be done now, of which the first is loaded; false: nothing. fed: by the host (nic.h), which looks at completions, and to which one says that
 * the bytes are there. */
template <bool kFed>
__device__ __forceinline__ bool nicServe(const Nic &n, NicBlock &block, const NicView &view, NicQueue &q, const NicRings &rings, NicSlots &slots) {
  const uint64_t before = q.consumed;
  while (q.consumed < view.rung) {
    if (q.consumed != before) slots = nicSlots(q), slots.load();
    NIC_STAMP(note(NIC_READY));
    const NicRequests r = block.share(q.side, slots);
    for (int which = 0; which < 2 && q.consumed < view.rung; which++) {
      NicAddition add;
      const NicStep step = nicDo(n, block, view, q, rings, r, which, add);
      if (step == NicStep::later) return q.consumed != before;
      /* Whatever it was: who looked at it unasked has its part done, and looks no more. */
      while (q.unasked != 0 && NIC_MUTATE != NIC_MUTATE_UNANSWERED && !allCopied(&n.copied[q.peer * NIC_MAX_HELPERS], q.unasked, q.job)) continue;
      q.unasked = 0;
      NIC_STAMP(note(NIC_ANSWERED));
      if (kFed) releaseAll();
      else if (add.got) releaseGot();
      storeCompletion(q.completions, (uint32_t)(q.consumed % NIC_DEPTH), nicCompletion(q.consumed, step == NicStep::done ? GDAKI_DONE : GDAKI_DONE_BADLY));
      q.consumed++;
      if (add.pair) {
        storeCompletion(q.completions, (uint32_t)(q.consumed % NIC_DEPTH), nicCompletion(q.consumed, GDAKI_DONE));
        q.consumed++, which++;
      }
      q.dueNs = 0;
      raiseKnown(q.known, q.consumed);
      if (q.side == NIC_MAIN) block.setMainConsumed((uint32_t)q.consumed);
      NIC_STAMP(note(NIC_TOLD));
      if (!kFed && add.at != 0 && q.side == NIC_MAIN) addReleased((uint64_t *)add.at, add.value), q.unordered = false, nicLetBegin(n, view, q);
      else if (NIC_MUTATE == NIC_MUTATE_UNFENCED && q.side == NIC_MAIN) nicLetBegin(n, view, q);
      else if (add.at != 0) addPlain((uint64_t *)add.at, add.value); /* fed: behind the fence of its completion */
      if (add.pair) NIC_STAMP(end());
    }
  }
  return q.consumed != before;
}

/* A warp, for a queue, until the kernel is to end: then a later kernel goes on from there. */
template <bool kFed>
__device__ __forceinline__ void nicQueue(const Nic &n, NicBlock &block, NicRings &rings, int peer, int side) {
  rings = {};
  const size_t at = (size_t)(peer * NIC_SIDES + side);
  const uint32_t all = (1u << n.nRanks * NIC_SIDES) - 1;
  NicQueue q = {peer, side, n.requests + at * NIC_DEPTH * NIC_REQUEST_BYTES, n.completions + at * NIC_DEPTH * NIC_COMPLETION_BYTES, n.posted[at].known};
  const uint64_t kept = loadConsumed(&n.consumed[at]);
  q.consumed = kept & NIC_CONSUMED, q.failed = (uint32_t)(kept >> NIC_CONSUMED_BITS);
  q.job = lastJob(&n.jobs[peer]), q.unordered = true;
  NicView view(n.control, n.posted[at].rung, n.launch);
  uint32_t looks = 0, keys = 0;
  bool idle = false, used = NIC_MUTATE == NIC_MUTATE_STAYS;
  for (NicSlots slots = nicSlots(q);;) {
    view.look<kFed>();
    if (q.consumed < view.rung) joinWarp(), slots.load(); /* at once: it takes as long as a look */
    if (view.control[NIC_STOP] != 0 || view.over) break;
    if (view.control[NIC_KEYS] != keys) q.remote = q.local = q.target = {}, keys = view.control[NIC_KEYS];
    if ((view.control[NIC_LATENCY_NS] | view.control[NIC_BYTES_PER_US]) != 0) nicNoteRing(rings, view.rung);
    const bool did = nicServe<kFed>(n, block, view, q, rings, slots);
    if (q.failed != NIC_FINE) reportFailure(n.report, q.failed, (uint32_t)peer);
    /* What is never to be done (NIC_DEAD) keeps no kernel alive, for who frees memory waits for it. */
    if (did) slots = nicSlots(q);
    looks = did || q.dueNs != 0 ? 0 : looks + 1;
    if (looks == 0) rings.usedNs = 0;
    if (looks == 0 && !used) used = true, tellUsed(n.report, n.number);
    /* A kernel that finds nothing when it comes does not stay, and asks with its first look; nor does one that is there for when nobody can
     * launch, whatever there is to do, as soon as somebody has. */
    const bool wants = !used || looks > view.control[NIC_IDLE_LOOKS] || n.alone != 0;
    if (wants && rings.usedNs == 0) rings.usedNs = nicUsed(n, used);
    const bool isOver = wants && ((idle && looks != 0) || n.followed != 0 || (looks % kAskLooks == (used ? 0u : 1u) && nicMayEnd(n, rings.usedNs)));
    if (idle != isOver) idle = isOver, noteIdle(n.launch, 1u << at, all, idle);
  }
  if (side == NIC_MAIN) storeNext(&n.jobs[peer], q.job & ~NIC_JOB_HELPERS, 0); /* nobody: a later kernel has other blocks */
  if (NIC_MUTATE != NIC_MUTATE_FORGETS) storeConsumed(&n.consumed[at], &n.report->consumed[peer][side], q.consumed, q.failed);
  if (side == NIC_MAIN) NIC_STAMP(print(n.rank, peer));
  countUp(&n.launch[NIC_ENDED]);
  if (side == NIC_MAIN) block.endCopies();
}

/* A request as a job, for a block that looks at it unasked; bytes 0: it has no part in it. The keys that it remembers are those
 * of one peer, and of as many changes of keys; it sees all changes that came before the request. */
struct NicReader {
  int peer;
  uint32_t keys;
  NicKey remote, local;
  __device__ __forceinline__ void read(const Nic &n, NicBlock &block, int p, NicJob &job) {
    uint32_t now;
    const NicRequests r = block.loadRequest(n.requests + (size_t)p * NIC_SIDES * NIC_DEPTH * NIC_REQUEST_BYTES, (uint16_t)(job.blocks - 1) % NIC_DEPTH, &n.control[NIC_KEYS], &now);
    if (p != peer || now != keys) remote = local = {}, peer = p, keys = now;
    const uint32_t opcode = swapBytes(r.word(0, GDAKI_OPCODE)) & 0xff;
    const NicMove move(r, 0, opcode);
    const bool moves = NIC_MUTATE == NIC_MUTATE_PASSED ? opcode == GDAKI_WRITE : nicMoves(opcode);
    const uint32_t helpers = !moves || move.isInline() ? 0 : nicHelpers(n.sizes, move.bytes(), job.number & NIC_JOB_HELPERS);
    job.bytes = 0, job.helpers = helpers;
    if (helpers == 0) return;
    const uint64_t there = move.remote(n, p, remote, r, 0), here = move.local(n, p, local, r, 0);
    if (there == 0 || here == 0) return; /* the queue's warp finds it, too */
    job.to = move.to(there, here) + n.sizes.block, job.from = move.from(there, here) + n.sizes.block, job.bytes = move.bytes() - n.sizes.block;
  }
};

/* The first warp of a block that copies, until all queues' warps have ended. */
template <bool kFed>
__device__ __forceinline__ void nicHelper(const Nic &n, NicBlock &block) {
  NicBoard<kFed> board(n);
  NicReader reader = {};
  board.look(); /* before anybody counts on this block: what is there now is none of its jobs */
  board.forget();
  const uint32_t own = joinHelpers(&n.launch[NIC_HELPERS]);
  /* While a queue's warp waits for an answer it has not ended, so jobs come first. */
  for (uint32_t peers; board.look(), (peers = board.jobsOf(own)) != 0 || !board.haveEnded(n);) {
    for (; peers != 0; peers &= peers - 1) {
      const int p = lowestBit(peers) % NIC_MAX_RANKS;
      NicJob job = board.take(block, p, lowestBit(peers) >= NIC_MAX_RANKS);
      const uint32_t place = job.placeOf(own);
      if (lowestBit(peers) >= NIC_MAX_RANKS) reader.read(n, block, p, job);
      if (job.bytes > 0) {
        const uint32_t each = nicEach(job.bytes, job.helpers), begin = place * each;
        if (begin < job.bytes) {
          block.beginCopy((char *)job.to + begin, (const char *)job.from + begin, job.bytes - begin < each ? job.bytes - begin : each);
          block.endCopy();
        }
      }
      storeCopied(&n.copied[p * NIC_MAX_HELPERS + place], job.number);
    }
  }
  block.endCopies();
}

}  // namespace dyn

#endif
