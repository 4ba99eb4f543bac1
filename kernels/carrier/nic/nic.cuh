/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of the network card in software (nic.h): for a GPU (nic.cu) and for threads of a CPU (test/nic_machine.h).
 *
 * Order, which is what GIN promises. A warp does a queue's requests one after the other. An addition to a signal is a release
 * over the whole system, behind all that the warp and its helpers wrote: who sees the sum sees the data of its put and of all
 * puts before it in the queue. A completion says that the source is read: it comes when its bytes are on their way.
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

/* Only the test on a CPU has another number here: each plants one mistake that it has to find. */
#ifndef NIC_MUTATE
#define NIC_MUTATE 0
#endif
#define NIC_MUTATE_EARLY 1   /* the last bytes of a put come later (test/nic_machine.h) */
#define NIC_MUTATE_NO_WAIT 2 /* a counter that does not wait for its put */
#define NIC_MUTATE_OWNER 3   /* completions look the same in each lap */
#define NIC_MUTATE_KEYS 4    /* keys stand for any number of bytes */
#define NIC_MUTATE_FORGETS 5 /* a kernel that ends forgets how far it came */
#define NIC_MUTATE_HALF 6    /* a copy is done when its first helper is */

namespace dyn {

using Nic = ::nic;

/* As the warp has it; all lanes the same. */
struct NicQueue {
  uint8_t *requests, *completions;
  uint64_t rung, consumed;
  uint64_t dueNs; /* of the request at its head; 0: not reckoned yet */
  uint32_t failed;
};

enum class NicStep { done, later, failed };

__device__ __forceinline__ uint32_t nicNumberOf(int peer, int side) { return (uint32_t)(peer * NIC_SIDES + side + 1); }

__device__ __forceinline__ uint64_t longAt(const NicRequests &r, int which, int word) {
  return (uint64_t)swapBytes(r.word(which, word)) << 32 | swapBytes(r.word(which, word + 1));
}

/* What the request needs of registered memory; at 0: there is none of that. */
__device__ __forceinline__ uint64_t nicAddress(const Nic &n, int rank, uint32_t keyBe, uint64_t offset, uint64_t bytes) {
  const uint32_t key = swapBytes(keyBe);
  if (key == 0 || key >= n.nKeys) return 0;
  const nic_part part = loadPart(&n.keys[(size_t)key * n.nRanks + rank]);
  if (NIC_MUTATE == NIC_MUTATE_KEYS) return part.at + offset;
  return part.at == 0 || offset > part.bytes || part.bytes - offset < bytes ? 0 : part.at + offset;
}

/* A fault on purpose: when a put of so many bytes may be done that was first looked at now. */
__device__ __forceinline__ uint64_t nicDue(const Nic &n, const NicLook &look, uint64_t bytes) {
  const uint64_t now = nicNowNs();
  const uint32_t pace = look.control(NIC_BYTES_PER_US);
  return (pace == 0 ? now : passLink(n.linkFreeNs, now, bytes * 1000 / pace)) + look.control(NIC_LATENCY_NS);
}

/* With other blocks, if there are any. */
__device__ __forceinline__ bool nicHelped(const Nic &n, int peer, uint64_t to, uint64_t from, uint64_t bytes) {
  const uint32_t helpers = loadCount(&n.helpers[0]), most = (uint32_t)((bytes + NIC_HELP_BYTES - 1) / NIC_HELP_BYTES);
  const uint32_t parts = helpers < most ? helpers : most;
  if (parts == 0) return false;
  const uint32_t number = postJob(&n.jobs[peer], to, from, bytes, parts);
  const uint32_t wanted = NIC_MUTATE == NIC_MUTATE_HALF ? 1 : parts;
  while (!allCopied(&n.copied[peer * NIC_MAX_HELPERS], wanted, number)) continue;
  return true;
}

__device__ __forceinline__ NicStep nicWrite(const Nic &n, int peer, const NicLook &look, NicQueue &q, const NicRequests &r, int which) {
  const uint32_t form = swapBytes(r.word(which, GDAKI_BYTES)), bytes = form & ~GDAKI_INLINE;
  const uint64_t to = nicAddress(n, peer, r.word(which, GDAKI_REMOTE_KEY), longAt(r, which, GDAKI_REMOTE), bytes);
  uint64_t from = 0;
  if (form & GDAKI_INLINE) {
    if (bytes > 4 * (GDAKI_WORDS - GDAKI_LOCAL_KEY)) return q.failed = NIC_BAD_REQUEST, NicStep::failed;
    from = (uint64_t)(q.requests + q.consumed % NIC_DEPTH * NIC_REQUEST_BYTES + 4 * GDAKI_LOCAL_KEY);
  } else {
    from = nicAddress(n, n.rank, r.word(which, GDAKI_LOCAL_KEY), longAt(r, which, GDAKI_LOCAL), bytes);
  }
  if (to == 0 || from == 0) return q.failed = NIC_BAD_KEY, NicStep::failed;
  if (bytes <= NIC_HELP_BYTES || !nicHelped(n, peer, to, from, bytes)) copyBytes((char *)to, (const char *)from, bytes, nicLane(), kNicLanes);
  joinWarp();
  return NicStep::done;
}

__device__ __forceinline__ NicStep nicAdd(const Nic &n, int rank, NicQueue &q, const NicRequests &r, int which) {
  const uint64_t at = nicAddress(n, rank, r.word(which, GDAKI_REMOTE_KEY), longAt(r, which, GDAKI_REMOTE), sizeof(uint64_t));
  if (at == 0 || at % sizeof(uint64_t) != 0) return q.failed = at == 0 ? NIC_BAD_KEY : NIC_BAD_REQUEST, NicStep::failed;
  joinWarp();
  addReleased((uint64_t *)at, longAt(r, which, GDAKI_ADDEND));
  return NicStep::done;
}

/* One request of those that were loaded. */
__device__ __forceinline__ NicStep nicDo(const Nic &n, int peer, int side, const NicLook &look, NicQueue &q, const NicQueue &main, const NicRequests &r,
                                         int which) {
  if (q.failed != NIC_FINE) return NicStep::failed;
  const uint32_t opcode = swapBytes(r.word(which, GDAKI_OPCODE)) & 0xff;
  if (side == NIC_MAIN) {
    if (look.control(NIC_DEAD) >> peer & 1) return NicStep::later;
    if (look.control(NIC_GONE) >> peer & 1) return q.failed = NIC_PEER_GONE, NicStep::failed;
    if ((look.control(NIC_LATENCY_NS) | look.control(NIC_BYTES_PER_US)) != 0) {
      if (q.dueNs == 0) q.dueNs = nicDue(n, look, opcode == GDAKI_WRITE ? swapBytes(r.word(which, GDAKI_BYTES)) & ~GDAKI_INLINE : 0);
      if (nicNowNs() < q.dueNs) return NicStep::later;
    }
  }
  switch (opcode) {
    case GDAKI_NOP: return NicStep::done;
    case GDAKI_WRITE: return side == NIC_MAIN ? nicWrite(n, peer, look, q, r, which) : (q.failed = NIC_BAD_REQUEST, NicStep::failed);
    case GDAKI_FETCH_ADD: return nicAdd(n, side == NIC_MAIN ? peer : n.rank, q, r, which);
    case GDAKI_WAIT: {
      if (side == NIC_MAIN || swapBytes(r.word(which, GDAKI_WAIT_QUEUE)) != nicNumberOf(peer, NIC_MAIN)) break;
      const uint32_t wanted = swapBytes(r.word(which, GDAKI_WAIT_INDEX)) + 1;
      return NIC_MUTATE == NIC_MUTATE_NO_WAIT || (int32_t)((uint32_t)main.consumed - wanted) >= 0 ? NicStep::done : NicStep::later;
    }
  }
  q.failed = NIC_BAD_REQUEST;
  return NicStep::failed;
}

/* The last word of completion `index`, as little-endian memory has its bytes. */
__device__ __forceinline__ uint32_t nicCompletion(uint64_t index, int what) {
  const uint32_t owner = NIC_MUTATE == NIC_MUTATE_OWNER ? 0 : index / NIC_DEPTH & 1;
  return (uint32_t)(index >> 8 & 0xff) | (uint32_t)(index & 0xff) << 8 | ((uint32_t)what << 4 | owner) << 24;
}

/* All that can be done now; false: nothing. */
__device__ __forceinline__ bool nicServe(const Nic &n, int peer, int side, const NicLook &look, NicQueue &q, const NicQueue &main) {
  const uint64_t before = q.consumed;
  while (q.consumed < q.rung) {
    const NicRequests r = loadRequests(q.requests, (uint32_t)(q.consumed % NIC_DEPTH));
    for (int which = 0; which < 2 && q.consumed < q.rung; which++) {
      const NicStep step = nicDo(n, peer, side, look, q, main, r, which);
      if (step == NicStep::later) return q.consumed != before;
      storeCompletion(q.completions, (uint32_t)(q.consumed % NIC_DEPTH), nicCompletion(q.consumed, step == NicStep::done ? GDAKI_DONE : GDAKI_DONE_BADLY));
      q.consumed++;
      q.dueNs = 0;
    }
  }
  return q.consumed != before;
}

/* Doorbells have 24 bits of the index. */
__device__ __forceinline__ uint64_t nicRung(uint64_t consumed, uint64_t doorbell) {
  return consumed + ((swapBytes((uint32_t)doorbell) >> 8) - (uint32_t)consumed & 0xffffff);
}

/* A warp of the first block, for its peer, until the kernel is to end: then a later kernel goes on from there. */
__device__ __forceinline__ void nicPeer(const Nic &n, int peer, NicIdle &idle) {
  NicQueue q[NIC_SIDES];
  for (int side = 0; side < NIC_SIDES; side++) {
    const size_t at = (size_t)(peer * NIC_SIDES + side);
    q[side] = {n.requests + at * NIC_DEPTH * NIC_REQUEST_BYTES, n.completions + at * NIC_DEPTH * NIC_COMPLETION_BYTES, 0, loadConsumed(&n.consumed[at]), 0, NIC_FINE};
  }
  uint32_t looks = 0;
  for (;;) {
    const NicLook look = nicLook(n.control, &n.doorbells[peer * NIC_SIDES]);
    if (look.control(NIC_STOP) != 0 || idle.over()) break;
    bool did = false;
    for (int side = 0; side < NIC_SIDES; side++) {
      q[side].rung = nicRung(q[side].consumed, look.doorbell(side));
      did |= nicServe(n, peer, side, look, q[side], q[NIC_MAIN]);
    }
    if (q[NIC_MAIN].failed != NIC_FINE) reportFailure(n.report, q[NIC_MAIN].failed, (uint32_t)peer);
    /* What is never to be done (NIC_DEAD) keeps no kernel alive, for who frees memory waits for it. */
    looks = did || q[NIC_MAIN].dueNs != 0 ? 0 : looks + 1;
    idle.note(peer, n.nRanks, looks > look.control(NIC_IDLE_LOOKS));
  }
  for (int side = 0; side < NIC_SIDES && NIC_MUTATE != NIC_MUTATE_FORGETS; side++)
    storeConsumed(&n.consumed[peer * NIC_SIDES + side], q[side].consumed), storeReport(&n.report->consumed[peer][side], (uint32_t)q[side].consumed);
  countUp(&n.helpers[1]);
}

/* A block that copies, until all of the first block's warps have ended. Its threads stay together: what one loads, all have. */
__device__ __forceinline__ void nicHelper(const Nic &n, NicBoard &board) {
  board.look(n); /* before anybody counts on this block */
  board.keep(n);
  const uint32_t own = board.join(&n.helpers[0]);
  for (;;) {
    board.look(n);
    if (board.ended() >= (uint32_t)n.nRanks) return;
    bool did = false;
    for (int p = 0; p < n.nRanks; p++) {
      if (!board.isNew(p)) continue;
      const nic_job job = loadJob(&n.jobs[p]);
      if (own >= job.parts) continue;
      const uint64_t each = (job.bytes / job.parts + 127) / 128 * 128, begin = own * each, left = begin < job.bytes ? job.bytes - begin : 0;
      copyBytes((char *)job.to + begin, (const char *)job.from + begin, own + 1 == job.parts || left < each ? left : each, nicThread(), nicThreads());
      storeCopied(&n.copied[p * NIC_MAX_HELPERS + own], job.number);
      did = true;
    }
    board.keep(n);
    if (!did) restHelper();
  }
}

}  // namespace dyn

#endif
