/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce over load and store within one NVLink domain, in lines (line.cuh): no barrier, one kernel.
 *   one shot: every rank sends all that it has to every other one and adds up all of it.
 *   two shots: every rank adds up its part and sends the sum on.
 */
#ifndef DYN_ALL_REDUCE_CUH
#define DYN_ALL_REDUCE_CUH

#include "share.cuh"
#include "stamp.cuh"

namespace dyn {

constexpr int kThreads = DYN_KERNEL_THREADS;

/* Both buffers begin at a pack, and so does each part of so many bytes. */
__device__ __forceinline__ bool aligned(const Call &c, size_t partBytes, size_t packBytes = kPackBytes) {
  return (((size_t)c.send | (size_t)c.recv | partBytes) & (packBytes - 1)) == 0;
}

/* body(shape) between the call's beginning and its end. whole: its packs are. */
template <typename T, typename Body>
__device__ __forceinline__ void inNumber(const Call &c, uint32_t call, bool whole, Body body) {
  stampBegin(c, call);
  inShape<T>(c.domain, whole, body);
  endCall(c.domain, call);
  stampEnd(c, call);
}
/* body(shape, call) of what goes in lines, unless this rank has given up. */
template <typename T, typename Body>
__device__ __forceinline__ void inCall(const Call &c, bool whole, Body body) {
  const Begun begun = beginCall(c.domain);
  if (begun.number == 0 || begun.over) return;
  inNumber<T>(c, begun.number, whole, [&](auto shape) { body(shape, begun.number); });
}

/* Whose part is added up as number k. */
__device__ __forceinline__ int inOrder(const Domain &d, int k) { return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ORDER ? (d.rank + k) % d.nRanks : k; }

/* What has been added up so far stays wide: it is rounded once, at the end. */
template <typename N>
__device__ __forceinline__ typename N::Wide kept(typename N::Wide sum) { return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NARROW ? N::up(N::down(sum)) : sum; }

/* Sums up what all ranks have, in their order, or takes the mean. */
template <typename T, typename Bits, int kRanks>
__device__ __forceinline__ Bits sumPacks(const Domain &d, Op op, const Bits (&parts)[kRanks]) {
  using N = Number<T>;
  constexpr int kElements = Pack<T, Bits>::kElements;
  typename N::Wide sum[kElements] = {};
#pragma unroll
  for (int k = 0; k < kRanks; k++) {
    if (k >= d.nRanks) break;
    const Pack<T, Bits> p = packOf<T>(parts[inOrder(d, k)]);
    const auto add = [&](int e, typename N::Wide x) { sum[e] = k == 0 ? x : kept<N>(sum[e] + x); };
    if constexpr (N::kPairs) {
#pragma unroll
      for (int e = 0; e < kElements; e += 2) {
        const float2 two = N::up(p.pairs[e / 2]);
        add(e, two.x), add(e + 1, two.y);
      }
    } else {
#pragma unroll
      for (int e = 0; e < kElements; e++) add(e, N::up(p.elements[e]));
    }
  }
  if (op == Op::avg) {
#pragma unroll
    for (int e = 0; e < kElements; e++) sum[e] = finish(Op::avg, sum[e], d.nRanks);
  }
  Pack<T, Bits> out;
  if constexpr (N::kPairs) {
#pragma unroll
    for (int e = 0; e < kElements; e += 2) out.pairs[e / 2] = N::down(sum[e], sum[e + 1]);
  } else {
#pragma unroll
    for (int e = 0; e < kElements; e++) out.elements[e] = N::down(sum[e]);
  }
  return out.bits;
}

/* The same of any operator, element by element. */
template <typename T, typename Bits>
__attribute__((noinline)) __device__ Bits sumSlowly(int nRanks, Op op, const Bits *parts) {
  using N = Number<T>;
  Pack<T, Bits> out;
#pragma unroll 1
  for (int e = 0; e < out.kElements; e++) {
    typename N::Wide sum = N::up(packOf<T>(parts[0]).elements[e]);
#pragma unroll 1
    for (int k = 1; k < nRanks; k++) sum = kept<N>(combine(op, sum, N::up(packOf<T>(parts[k]).elements[e])));
    out.elements[e] = N::down(finish(op, sum, nRanks));
  }
  return out.bits;
}

/* Fast for what training and serving do mostly; and short, for the GPU fetches a kernel's code anew for each call. */
template <class S, typename T, typename Bits, int kRanks>
__device__ __forceinline__ Bits sumRanks(const Domain &d, Op op, const Bits (&parts)[kRanks]) {
  if (S::kWhole && (op == Op::sum || op == Op::avg)) return sumPacks<T>(d, op, parts);
  Bits all[kRanks];
#pragma unroll
  for (int r = 0; r < kRanks; r++) all[r] = parts[inOrder(d, r)];
  return sumSlowly<T>(d.nRanks, op, all);
}

/* The same of line i of all peers and this thread's own piece, if all came. */
template <class S, typename T>
__device__ __forceinline__ bool sumLines(const Domain &d, Op op, size_t i, uint32_t call, bool wanted, const Piece &own, Piece &sum) {
  Piece pieces[S::kRanks];
  const bool all = awaitLines(d, i, call, [&](int) { return wanted; }, pieces);
#pragma unroll
  for (int w = 0; w < kLineWords; w++) {
    uint2 parts[S::kRanks];
#pragma unroll
    for (int r = 0; r < S::kRanks; r++) parts[r] = r == d.rank ? own.words[w] : pieces[r].words[w];
    sum.words[w] = sumRanks<S, T>(d, op, parts);
  }
  return all;
}
template <class S, typename T>
__device__ __forceinline__ Piece sumLines(const Domain &d, Op op, size_t i, uint32_t call, bool wanted, const Piece &own) {
  Piece sum;
  sumLines<S, T>(d, op, i, call, wanted, own, sum);
  return sum;
}

template <class S, typename T>
__device__ __forceinline__ void allReduceOneShotOf(const Call &c, uint32_t call) {
  const Domain &d = c.domain;
  const Buffer<S, T> send(c.send, c.count), recv(c.recv, c.count);
  const size_t lines = dyn_lines(c.count * sizeof(T));
  eachLine(lines, [&](size_t i) {
    if (i < lines) sendLine<S::kRanks>(d, i, send.loadLine(i), call);
  });
  stampSent(c, call);
  eachLine(lines, [&](size_t i) { recv.storeLine(i, sumLines<S, T>(d, (Op)c.op, i, call, i < lines, send.loadLine(i))); });
}
template <typename T>
__device__ void allReduceOneShot(const Call &c) {
  inCall<T>(c, aligned(c, c.count * sizeof(T)), [&](auto shape, uint32_t call) { allReduceOneShotOf<decltype(shape), T>(c, call); });
}

/* Part k is rank k's to add up. Of a slot the first half holds what peers send to be added, the second the sender's sums. */
template <class S, typename T>
__device__ __forceinline__ void allReduceTwoShotOf(const Call &c, uint32_t call) {
  const Domain &d = c.domain;
  const Buffer<S, T> send(c.send, c.count), recv(c.recv, c.count);
  const size_t lines = dyn_lines(c.count * sizeof(T)), part = dyn_part(lines, d.nRanks);
  const auto there = [&](int r, size_t i) { return i < part && r * part + i < lines; };
  eachLine(part, [&](size_t i) {
    eachPeer<S::kRanks, 1>(d, [&](int r, int) { return there(r, i); }, [&](int r, int) { return send.loadLine(r * part + i); },
                        [&](int r, int, const Piece &piece) { sendLineTo(d, r, i, piece, call); });
  });
  eachLine(part, [&](size_t i) {
    const bool mine = there(d.rank, i);
    Piece sum;
    const bool all = sumLines<S, T>(d, (Op)c.op, i, call, mine, send.loadLine(d.rank * part + i), sum);
    if (!mine || !(all || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_SUMS_ON)) return;
    sendLine<S::kRanks>(d, part + i, sum, call);
    recv.storeLine(d.rank * part + i, sum);
  });
  stampSent(c, call);
  eachLine(part, [&](size_t i) {
    Piece sums[S::kRanks];
    awaitLines(d, part + i, call, [&](int r) { return there(r, i); }, sums);
#pragma unroll
    for (int r = 0; r < S::kRanks; r++)
      if (r < d.nRanks && r != d.rank && there(r, i)) recv.storeLine(r * part + i, sums[r]);
  });
}
template <typename T>
__device__ void allReduceTwoShot(const Call &c) {
  inCall<T>(c, aligned(c, c.count * sizeof(T)), [&](auto shape, uint32_t call) { allReduceTwoShotOf<decltype(shape), T>(c, call); });
}

}  // namespace dyn

#endif
