/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one NVLink domain, as a kernel sees them: their scratch memory, the number of the call, and how long it may
 * wait for them.
 *
 * The call's number. Flags must differ from whatever an earlier call left in the scratch memory, on every rank alike, also
 * when a CUDA graph replays a kernel with the arguments of its capture. So the number lives in the device's memory and
 * each call counts it up, whatever launches it. Every block has a counter of its own, for blocks of one kernel begin at
 * different times; a kernel of fewer blocks counts those of the missing ones up as well (at its end, block b those of b + n,
 * b + 2n, ...), so all counters are equal between kernels. Kernels of one communicator run one after the other on each rank,
 * as NCCL's own do: the host sees to that.
 *
 * Numbers come again after 2^32 - 2 calls. A line that lies there from then is taken for a new one only where no call between the two
 * had as many lines, and this one has: exactly so many calls behind the last that had. Kernels that have given up count no calls, and
 * memory that another communicator had before is cleared before peers know it (host/memory.c).
 *
 * Why two halves of the scratch memory suffice. Call e writes into half e % 2 of its peers. Rank r may be a call ahead of
 * rank p, never two: r ends call e + 1 only when it has a line of p's kernel e + 1, or a sum with p's part in it, so that
 * kernel had begun, and p's kernel e was over. So what r writes in call e + 2 lands in a half that p's call e has read to its
 * end. It holds for any sizes and numbers of blocks, since it is about whole kernels, and needs that every call depends on
 * something of every rank: an empty call is none, and a kernel that moves data without adding up must see to it (move.cuh,
 * parts_lines.cuh).
 */
#ifndef DYN_DOMAIN_CUH
#define DYN_DOMAIN_CUH

#include "count.cuh"

namespace dyn {

using Domain = ::dyn_domain;

constexpr int kMaxRanks = DYN_KERNEL_MAX_RANKS, kMaxBlocks = DYN_KERNEL_MAX_BLOCKS, kFaultPeer = DYN_FAULT_PEER_SHIFT;

static_assert(kMaxBlocks % 2 == 0, "what stands behind the counters is loaded together");
__device__ __forceinline__ Begun beginCall(const Domain &d) { return nextCall(d.calls, kMaxBlocks); }
__device__ __forceinline__ void giveUpCalls(const Domain &d) { giveUp(d.calls, kMaxBlocks, d.lanes); }
/* Behind the block's last use of the scratch memory. */
__device__ __forceinline__ void endCall(const Domain &d, uint32_t call) { countCall(d.calls, kMaxBlocks, call); }

__device__ __forceinline__ int peerOf(const Domain &d, int k) { return kthPeer(d.rank, d.nRanks, k); }

/* Where a peer leaves its lines in this rank's scratch memory, or this rank in a peer's. */
__device__ __forceinline__ char *slot(const Domain &d, int at, int from, uint32_t call) {
  uint32_t half = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_HALF ? 0 : call & 1;
  return d.scratch[at] + (half * d.nRanks + from) * d.lines * kLineBytes;
}

/* A wait that lasts: looks at the clock and at the host now and then. False: no more. */
__attribute__((noinline)) inline __device__ bool goOn(const Domain &d, int peer, uint32_t call, uint64_t *sinceNs) {
  uint64_t now = globalNs();
  if (*sinceNs == 0) *sinceNs = now;
  const uint32_t stop = loadHost(d.stop);
  if (stop == 0 && now - *sinceNs < d.waitNs) {
    if (d.late == nullptr || now - *sinceNs < d.lateNs) return true;
    storeHost(&d.late->about, d.about);
    storeHost(&d.late->word, (uint64_t)(peer + 1) << kFaultPeer | call);
    *sinceNs = now;
    return true;
  }
  if (stop == 0) storeHost(d.fault, (uint64_t)(peer + 1) << kFaultPeer | call);
  else storeHost(d.stop, stop | DYN_STOP_MISSED);
  giveUpCalls(d);
  return false;
}

/* This thread's pieces of line i of those peers that are wanted: all are asked for before any is looked at, so that waiting
 * for one is waiting for all. Threads of a warp wait together, each for its own. False: one does not come, and leaves anything. The host
 * finds the fault, and the result is of no use; it must not go to peers. */
template <int kRanks, typename Wanted>
__device__ __forceinline__ bool awaitLines(const Domain &d, size_t i, uint32_t call, Wanted wanted, Piece (&pieces)[kRanks]) {
  const char *at = slot(d, d.rank, 0, call) + i * kLineBytes;
  const size_t apart = d.lines * kLineBytes;
  uint32_t missing = 0;
#pragma unroll
  for (int r = 0; r < kRanks; r++)
    if (r < d.nRanks && r != d.rank && wanted(r)) missing |= 1u << r;
  uint64_t since = 0;
  for (unsigned spins = 1; bitsOfWarp(missing) != 0; spins++) {
    uint32_t come = 0;
#pragma unroll
    for (int r = 0; r < kRanks; r++)
      if (missing >> r & 1) come |= (uint32_t)loadPiece(at + r * apart, pieces[r].words, call) << r;
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_NO_NUMBER) missing &= bitsOfWarp(missing & ~come);
    else missing = 0;
    if ((spins & kSpins) == 0 && bitsOfWarp(missing != 0 && !goOn(d, lowestBit(missing), call, &since)) != 0) return false;
  }
  return true;
}

/* This thread's piece of one peer's line, which other threads of its warp need not have, nor wait for. */
__device__ __forceinline__ void awaitLine(const Domain &d, int peer, size_t i, uint32_t call, bool wanted, Piece &piece) {
  const char *at = slot(d, d.rank, peer, call) + i * kLineBytes;
  const uint32_t own = 1u << (threadIdx.x % kWarp / kLineLanes); /* of the warp's lines, a bit each */
  uint32_t missing = bitsOfWarp(wanted ? own : 0);
  uint64_t since = 0;
  for (unsigned spins = 1; missing != 0; spins++) {
    const bool come = (missing & own) == 0 || loadPiece(at, piece.words, call), waits = !come && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_NO_NUMBER;
    missing = bitsOfWarp(waits ? own : 0);
    if ((spins & kSpins) == 0 && bitsOfWarp(waits && !goOn(d, peer, call, &since)) != 0) return;
  }
}

__device__ __forceinline__ void sendLineTo(const Domain &d, int peer, size_t i, const Piece &piece, uint32_t call) {
  storePiece(slot(d, peer, d.rank, call) + i * kLineBytes, piece.words, call);
}
/* The same line to every peer. */
template <int kRanks>
__device__ __forceinline__ void sendLine(const Domain &d, size_t i, const Piece &piece, uint32_t call) {
#pragma unroll
  for (int k = 1; k < kRanks; k++)
    if (k < d.nRanks) sendLineTo(d, peerOf(d, k), i, piece, call);
}

}  // namespace dyn

#endif
