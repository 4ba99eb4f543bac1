/* SPDX-License-Identifier: Apache-2.0
 *
 * For sizes at which a line's threads would wait for one line after the other: 16 bytes at a time without numbers, and
 * barriers. All that crosses a link is written, nothing is read from a peer: a write waits for nobody. Block b of every rank
 * has the same share of every part, so blocks wait for their likes alone.
 *
 * Rounds. What does not fit into the memory goes in rounds, step by step: while round s is sent, round s - 1 is taken (added
 * up, sent on), and behind each step but the last is a barrier. Memory has two halves; round s of call e has half (e + s) % 2.
 * What is written in a step lands in a half that the peers are through with:
 *   Within a call, round s has the half of round s - 2, which a peer's block has read before its barrier of step s - 1, and
 *   what comes back from a peer has a place of its own in the half (all_reduce_bulk.cuh).
 *   The first round of a call: a peer may still be in its call before (not further back: domain.cuh), reading that one's last
 *   round. Rounds are of an odd number, so that it has the half of the first, and this call has the other one.
 *   Later rounds of a call wait for the same block of all peers in this call, whose kernel before is over then.
 * That is about whole kernels and about likes of blocks, so it holds for any kernels, sizes and numbers of blocks.
 */
#ifndef DYN_BULK_CUH
#define DYN_BULK_CUH

#include "meet.cuh"

namespace dyn {

constexpr size_t kBulkBytes = DYN_BULK_BYTES;

/* inCall of what goes in bulk: body(shape, call, passed) gives the number of the barrier that it passed last. */
template <typename T, typename Body>
__device__ __forceinline__ void inBulkCall(const Call &c, const Bulk &b, size_t partBytes, Body body) {
  const Begun begun = beginCall(c.domain);
  if (begun.number == 0) return;
  noteOver(begun);
  inNumber<T>(c, begun.number, aligned(c, partBytes, kBulkBytes), [&](auto shape) {
    const uint32_t passed = body(shape, begun.number, b.passed[blockIdx.x]);
    if (threadIdx.x == 0) b.passed[blockIdx.x] = passed; /* all of the block have read it: they met at barriers */
  });
}

/* The half of a call's round, 2 * nRanks times b.packs: where it begins in each rank's memory. What is the same for all ranks is found
 * once, for all packs: finding it again takes more instructions than a pack does. */
__device__ __forceinline__ size_t half(const Domain &d, const Bulk &b, uint32_t call, uint32_t round) {
  uint32_t h = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_BULK_HALF ? 0 : (call + round) & 1;
  return h * (2 * d.nRanks * b.packs);
}
__device__ __forceinline__ uint4 *memoryOf(const Bulk &b, int rank, size_t at) { return (uint4 *)b.memory[rank] + at; }

/* Packs of a part, in rounds of the same size but for the last ones, which may be empty. */
struct Rounds {
  uint32_t count;
  size_t each, packs;
  __device__ Rounds(size_t packs, size_t most) : packs(packs) {
    count = (uint32_t)((packs + most - 1) / most);
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_EVEN_ROUNDS) count |= 1;
    each = (packs + count - 1) / count;
  }
  __device__ size_t first(uint32_t round) const { return round * each; }
  __device__ size_t in(uint32_t round) const { return first(round) >= packs ? 0 : packs - first(round) < each ? packs - first(round) : each; }
};

/* store(peer, i, load(peer, i)) of all of a thread's packs of each peer that are there. */
template <class S, typename There, typename Load, typename Store>
__device__ __forceinline__ void eachPeersPack(const Domain &d, size_t packs, There there, Load load, Store store) {
  constexpr int kAtOnce = S::kRanks <= 4 ? 2 : 1; /* as many as there are registers for */
  const size_t stride = packStride();
  for (size_t i = firstPack(); i < packs; i += kAtOnce * stride) {
    eachPeer<S::kRanks, kAtOnce>(d, [&](int r, int u) { return i + u * stride < packs && there(r, i + u * stride); },
                                 [&](int r, int u) { return load(r, i + u * stride); }, [&](int r, int u, uint4 bits) { store(r, i + u * stride, bits); });
  }
}

/* Pack i of what a rank adds up: its own, and what each peer left in a part of inbox. */
template <class S, typename T>
__device__ __forceinline__ uint4 sumInbox(const Domain &d, Op op, size_t i, const Buffer<S, T, uint4> &own, const uint4 *inbox, size_t part) {
  uint4 parts[S::kRanks];
  const uint4 *at = inbox + i;
#pragma unroll
  for (int r = 0; r < S::kRanks; r++, at += part)
    if (r < d.nRanks) parts[r] = !S::kWhole && r == d.rank ? own.load(i) : *(r == d.rank ? (const uint4 *)own.at + i : at);
  return sumRanks<S, T>(d, op, parts);
}
/* The same of what lies at from(peer). */
template <class S, typename T, typename From>
__device__ __forceinline__ uint4 sumPeers(const Domain &d, Op op, size_t i, const Buffer<S, T, uint4> &own, From from) {
  uint4 parts[S::kRanks];
#pragma unroll
  for (int r = 0; r < S::kRanks; r++)
    if (r < d.nRanks) parts[r] = r == d.rank ? own.load(i) : from(r)[i];
  return sumRanks<S, T>(d, op, parts);
}

/* Tells every rank's block of this number that this one has come, and what it wrote before is seen behind. Each block numbers its
 * own barriers: the same on all ranks, and nobody is further ahead than by one, however long a block had nothing to do. */
__device__ __forceinline__ void arrive(const Call &c, const Bulk &b, uint32_t call, uint32_t number) {
  const Domain &d = c.domain;
  stampSent(c, call); /* nothing is sent behind the last barrier */
  __syncthreads();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x)
    if (r != d.rank) storeRelease(&b.flags[r][blockIdx.x * kMaxRanks + d.rank], number);
}
/* They have come, too. False, to all of the block: one has not, and is not waited for any longer. */
__device__ __forceinline__ bool awaitLikes(const Call &c, const Bulk &b, uint32_t call, uint32_t number) {
  const Domain &d = c.domain;
  bool inVain = false;
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    const uint32_t *come = &b.flags[d.rank][blockIdx.x * kMaxRanks + r];
    uint64_t since = 0;
    for (unsigned spins = 0; !inVain && (int32_t)(loadAcquire(come) - number) < 0;)
      if ((++spins & kSpins) == 0 && !goOn(d, r, call, &since)) inVain = true;
  }
  if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_HASTE) return true;
  return !anyOfBlock(inVain) || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_PASSES_ON;
}
__device__ __forceinline__ bool blockBarrier(const Call &c, const Bulk &b, uint32_t call, uint32_t number) {
  arrive(c, b, call, number);
  return awaitLikes(c, b, call, number);
}

/* The barriers of a call, of which the first is the meeting (meet.cuh). wants: the buffers that go directly where all ranks
 * have them in windows. Buffers that are not whole packs are taken for in none: there is less to compile. Where it is not fine, or next()
 * says so, a peer did not come, and the block does nothing further (count.cuh). */
template <class S>
struct Barriers {
  static constexpr bool kWindows = S::kWhole;
  const Call &c;
  const Bulk &b;
  const uint32_t call, wants, has;
  uint32_t passed, all = 0; /* barriers; buffers that all ranks have in windows, once it is known */
  bool met = false, fine = true;

  __device__ __forceinline__ Barriers(const Call &c, const Bulk &b, uint32_t call, uint32_t passed, uint32_t wants)
      : c(c), b(b), call(call), wants(wants), has(kWindows ? wants & ((b.send.word != 0 ? kSend : 0) | (b.recv.word != 0 ? kRecv : 0)) : 0), passed(passed) {
    if (kWindows && has == wants) know(meetFirst(c, b, call, has));
  }
  __device__ __forceinline__ void know(uint32_t answer) {
    met = true, all = kWindows ? answer & wants : 0;
    fine = !(answer >> 16 & kGaveUp) || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_PASSES_ON;
  }
  /* True: a rank that met before it sent may have to send yet. */
  __device__ __forceinline__ bool meetNow() {
    const uint32_t answer = meet(c, b, call, has);
    know(answer);
    return (answer >> 16 & kMetFirst) && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_LATE;
  }
  /* Also behind the last use of windows: a rank must not end while a peer writes into its own, or reads it. */
  __device__ __forceinline__ bool next() {
    if (!met && !(meetNow() && fine)) return fine;
    if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_UNCLOSED && all != 0) return true;
    return blockBarrier(c, b, call, ++passed);
  }
};

}  // namespace dyn

#endif
