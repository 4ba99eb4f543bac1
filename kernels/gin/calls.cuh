/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of kernels on GIN: its number, its slots, and its waits, none of which lasts for ever.
 *
 * The number counts up in device memory, as in device/domain.cuh, so that a replayed graph has numbers of its own.
 *
 * Why two halves of the slots suffice. Call e puts into half e % 2 of its peers' slots, from the same half of its own.
 *   What lands. Rank r may be a call ahead of rank p, never two: r ends call e + 1 only when it has p's signal of call e + 1.
 *   p raised that in its kernel e + 1, so p's kernel e was over. What r puts in call e + 2 lands in a half that p's call e has
 *   read to its end.
 *   What is sent. r's call e + 2 writes into the slot that its puts of call e read. By then every peer's kernel e was over, as
 *   above, and it ended with r's signal of call e. NCCL shows a signal only behind the payload of its put, and payload that has
 *   arrived was read. So no call has to wait for a counter, or to flush.
 *   What is counted. A signal may be ahead by a call, too: a wait is for at least a number, and the signal of call e + 1 stands
 *   behind the payloads of all puts before it on its context.
 *
 * Why any number of contexts does. Which context a put has none of the above asks but the last, so what is to be shown is that a
 * block's wait ends with its own peers' blocks, and with all that these have put.
 *   Blocks that share a context. Signals and counters are numbered by block (gin.h), so no other block's put raises what one waits
 *   for. NCCL shows a signal behind the puts before it on its context and to its peer: its own put among them, which goes into the
 *   queue with its signal as one (both backends claim places for the two at once), whatever other blocks put between. What others
 *   have put comes first as well, which costs time and nothing else: no put waits for a kernel.
 *   A block that changes its context. Each context counts a block's signals for itself, so how far they have come is kept for each
 *   (seen). All ranks change it in the same call, so whoever raises has the context in which the other one waits. A signal of
 *   call e + 1 on another context cannot be taken for one of call e: it is another word. On the same context it is the one after.
 *   A flush, in kernels that have one, waits for what all blocks have put on the context: that is read without anybody's doing.
 *   Queues. A block has at most a put, an answer and a counter on its way to a peer, so 16 blocks of one context have 16 places of
 *   each, and a queue that is shorter has them wait for the NIC, or NCCL's thread, and for no kernel.
 *
 * Why slots are read with plain loads. Who waits acquires over the system, which empties its multiprocessor's first-level cache, and its
 * block reads behind a barrier. A share begins at any 16 bytes, so another block there may have had the cache take the first bytes of this
 * share before they came; but not between this block's acquire and its loads, for then they are there.
 *
 * It needs, as there, that kernels of one communicator run one after the other on each rank, in one order on all of them, and
 * that every call waits for something of every rank.
 */
#ifndef DYN_GIN_CALLS_CUH
#define DYN_GIN_CALLS_CUH

#include "../device/count.cuh"
#include "gin.h"

namespace dyn {

constexpr unsigned kGinSpins = kSpins & 0xff; /* a look at a signal takes longer than one at a line */
constexpr int kSignalBits = 64, kCounterBits = 56;

static_assert(DYN_GIN_CALLS % 2 == 0, "what stands behind the counters is loaded together");
/* 0, to all of the block: this rank has given up, in any lane. Whoever puts speaks for what all threads of its block have put together. */
__device__ __forceinline__ uint32_t ginBegin(const Gin &g) {
  const Begun begun = nextCall(g.calls, DYN_GIN_CALLS);
  const bool over = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_SOME_LEAVE ? begun.over : anyOfBlock(begun.over);
  return over ? 0 : begun.number;
}
/* Behind the block's last use of the slots. */
__device__ __forceinline__ void ginEnd(const Gin &g, uint32_t call) { countCall(g.calls, DYN_GIN_CALLS, call); }

__device__ __forceinline__ int ginPeer(const Gin &g, int k) { return kthPeer(g.rank, g.nRanks, k); }

/* Where in the window rank `from` leaves what it has, on itself and on its peers. */
__device__ __forceinline__ size_t ginSlot(const Gin &g, int from, uint32_t call) {
  const uint32_t half = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_HALF ? 0 : call & 1;
  return g.slotsAt + ((size_t)half * g.nRanks + from) * g.slotBytes;
}

/* Where AllToAll leaves what is to go to rank `to`. */
__device__ __forceinline__ size_t ginStage(const Gin &g, int to, uint32_t call) { return ginSlot(g, to, call) + 2 * (size_t)g.nRanks * g.slotBytes; }

/* do(peer) of this thread's peers. A block of fewer threads than peers has threads of several. */
template <typename Do>
__device__ __forceinline__ void eachGinPeer(const Gin &g, Do what) {
  for (int k = 1 + (int)threadIdx.x; k < g.nRanks; k += (int)blockDim.x) what(ginPeer(g, k));
}

/* The same peers, by threads from that one on. */
template <typename Do>
__device__ __forceinline__ void eachGinPeerFrom(const Gin &g, unsigned thread, Do what) {
  const unsigned place = threadIdx.x >= thread ? threadIdx.x - thread : threadIdx.x + blockDim.x - thread;
  for (int k = 1 + (int)place; k < g.nRanks; k += (int)blockDim.x) what(ginPeer(g, k));
}

/* To the host, which says it. Kept out of the way of those that do not wait for long. */
__attribute__((noinline)) inline __device__ void ginTellLate(dyn_late *late, uint64_t about, uint64_t word) {
  storeHost(&late->about, about);
  storeHost(&late->word, word);
}

/* Until reached(). False: it took too long, which the host can read, or the host has had enough. Who has given up on one peer
 * gives up on all, at once, and takes no part in kernels to come (device/count.cuh): a graph of many calls ends soon. */
template <typename Reached>
__device__ __forceinline__ bool ginAwait(const Gin &g, int peer, int step, uint32_t call, Reached reached) {
  uint64_t since = 0, told = 0;
  for (unsigned spins = 1; !reached(); spins++) {
    if ((spins & kGinSpins) != 0) continue;
    const uint64_t now = globalNs();
    if (since == 0) since = told = now;
    const uint32_t stop = loadHost(g.stop);
    if (stop == 0 && now - since < g.waitNs) {
      if (g.late == nullptr || peer == g.rank || now - told < g.lateNs) continue; /* another block of this rank waits for somebody itself, and says whom */
      ginTellLate(g.late, g.about | (uint64_t)step << DYN_ABOUT_STEP_SHIFT, (uint64_t)(peer + 1) << DYN_FAULT_PEER_SHIFT | call);
      told = now;
      continue;
    }
    if (stop == 0) storeHost(&g.fault[peer], (uint64_t)step << 32 | call);
    storeRelease(g.stop, stop == 0 ? 1 : stop | DYN_STOP_MISSED);
    giveUp(g.calls, DYN_GIN_CALLS, g.lanes); /* behind the host's words: who sees this in another lane is over at once, and the program asks why */
    return false;
  }
  return true;
}

/* Whose signals and counters a block has. */
__device__ __forceinline__ unsigned ginSignalBlock(const Gin &g) { return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_SIGNAL ? blockIdx.x % g.contexts : blockIdx.x; }

/* What this rank has seen of the context's signals and counters. */
template <typename Net>
__device__ __forceinline__ uint64_t *ginSeenOf(const Net &net, const Gin &g) {
  return g.seen + (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_COUNT ? 0 : (size_t)net.context * ginSeen(g.nRanks));
}

/* The peer has raised this block's signal of the kind so far. */
template <typename Net>
__device__ __forceinline__ bool awaitSignalOf(const Net &net, const Gin &g, int kind, int peer, uint32_t call, uint64_t least) {
  const uint32_t signal = ginSignalOf(g.nRanks, kind, ginSignalBlock(g), peer);
  const int step = kind == DYN_GIN_READY ? DYN_GIN_WAIT_READY : DYN_GIN_WAIT_DATA;
  return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NO_NUMBER ||
         ginAwait(g, peer, step, call, [&] { return ginReached(net.signalValue(g.firstSignal + signal), least, kSignalBits); });
}
/* The next time that the peer raises it. */
template <typename Net>
__device__ __forceinline__ bool awaitSignal(const Net &net, const Gin &g, int kind, int peer, uint32_t call) {
  const uint32_t signal = ginSignalOf(g.nRanks, kind, ginSignalBlock(g), peer);
  uint64_t *seen = ginSeenOf(net, g) + signal;
  const uint64_t next = *seen + 1;
  if (!awaitSignalOf(net, g, kind, peer, call, next)) return false;
  *seen = next;
  return true;
}

/* The next of this block's puts to the peer has been read at its source. */
template <typename Net>
__device__ __forceinline__ bool awaitCounter(const Net &net, const Gin &g, int peer, uint32_t call) {
  const uint32_t counter = ginCounterOf(g.nRanks, blockIdx.x, peer);
  uint64_t *seen = ginSeenOf(net, g) + ginSignals(g.nRanks) + counter;
  const uint64_t next = *seen + 1;
  if (!ginAwait(g, peer, DYN_GIN_WAIT_COUNTER, call, [&] { return ginReached(net.counterValue(g.firstCounter + counter), next, kCounterBits); })) return false;
  *seen = next;
  return true;
}

/* Raised on the peer. */
__device__ __forceinline__ uint32_t ownSignal(const Gin &g, int kind) { return g.firstSignal + ginSignalOf(g.nRanks, kind, ginSignalBlock(g), g.rank); }
__device__ __forceinline__ uint32_t ownCounter(const Gin &g, int peer) { return g.firstCounter + ginCounterOf(g.nRanks, blockIdx.x, peer); }

}  // namespace dyn

#endif
