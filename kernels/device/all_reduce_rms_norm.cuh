/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands behind each block of a transformer whose weights are spread over ranks, in one kernel instead of two and
 * without a trip through memory between them: AllReduce in one shot, added to the residual, and normalised by the root of
 * the mean square. For a few tokens, where launches and first bytes are all that it costs.
 *
 * Rounds where the separate kernels do: the sum of ranks as AllReduce gives it, the new residual, the normalised value and
 * its product with the weight are each rounded to the type. Squares are added up in an order that the width and the number
 * of threads alone decide, so all ranks have the same bits in every run, whatever other rows there are.
 */
#ifndef DYN_ALL_REDUCE_RMS_NORM_CUH
#define DYN_ALL_REDUCE_RMS_NORM_CUH

#include "all_reduce.cuh"

namespace dyn {

using RmsNorm = ::dyn_rms_norm;

/* This thread's piece of a row's line, normalised by the root of the mean square and weighted. */
template <typename T>
__device__ __forceinline__ Piece normalised(const Piece &residual, const Piece &weight, float scale) {
  using N = Number<T>;
  Piece out;
#pragma unroll
  for (int w = 0; w < kLineWords; w++) {
    Pack<T> r = packOf<T>(residual.words[w]), by = packOf<T>(weight.words[w]);
#pragma unroll
    for (int e = 0; e < Pack<T>::kElements; e++) {
      const T normal = N::down((float)N::up(r.elements[e]) * scale);
      r.elements[e] = N::down((float)N::up(normal) * (float)N::up(by.elements[e]));
    }
    out.words[w] = r.bits;
  }
  return out;
}

/* residual becomes the sum of both, where there is data, and squares gets its squares. */
template <typename T>
__device__ __forceinline__ void addPiece(Piece &residual, const Piece &sum, float &squares) {
  using N = Number<T>;
#pragma unroll
  for (int w = 0; w < kLineWords; w++) {
    if (!isData(w)) continue;
    Pack<T> r = packOf<T>(residual.words[w]), s = packOf<T>(sum.words[w]);
#pragma unroll
    for (int e = 0; e < Pack<T>::kElements; e++) {
      r.elements[e] = N::down((float)N::up(s.elements[e]) + (float)N::up(r.elements[e]));
      const float x = N::up(r.elements[e]); /* 0 where there is none */
      squares += x * x;
    }
    residual.words[w] = r.bits;
  }
}

/* One row of a block: sumOf(i) is this thread's piece of line i of what is to be added. What a thread writes it alone
 * reads. Of a row of one line a thread, weight and residual are there before the sum is. */
template <class S, typename T, typename Sum>
__device__ __forceinline__ void normRow(const Buffer<S, T> &residual, const Buffer<S, T> &weight, const Buffer<S, T> &out, const RmsNorm &n, Sum sumOf) {
  const uint32_t lines = (uint32_t)dyn_lines(n.width * sizeof(T));
  float squares = 0;
  Piece kept, weights;
  eachLineOfBlock(lines, [&](uint32_t i) {
    kept = residual.loadLine(i), weights = weight.loadLine(i);
    const Piece sum = sumOf(i);
    if (i < lines) addPiece<T>(kept, sum, squares);
    residual.storeLine(i, kept);
  });
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_SQUARES) squares = blockSum(squares);
  const float scale = inverseRoot(squares / (float)n.width + n.epsilon);
  const bool one = lines <= blockDim.x / kLineLanes;
  eachLineOfBlock(lines, [&](uint32_t i) {
    if (!one) kept = residual.loadLine(i), weights = weight.loadLine(i);
    out.storeLine(i, normalised<T>(kept, weights, scale));
  });
}

template <class S, typename T>
__device__ __forceinline__ void allReduceAddRmsNormOf(const Call &c, const RmsNorm &n, uint32_t call) {
  const Domain &d = c.domain;
  const uint32_t rows = (uint32_t)(c.count / n.width), lines = (uint32_t)dyn_lines(n.width * sizeof(T));
  const uint32_t apart = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_CLOSE_ROWS ? lines - 1 : lines;
  const auto row = [&](const void *buffer, uint32_t r) { return Buffer<S, T>((const T *)buffer + r * n.width, n.width); };
  for (uint32_t r = blockIdx.x; r < rows; r += gridDim.x)
    eachLineOfBlock(lines, [&](uint32_t i) {
      if (i < lines) sendLine<S::kRanks>(d, r * apart + i, row(c.send, r).loadLine(i), call);
    });
  for (uint32_t r = blockIdx.x; r < rows; r += gridDim.x)
    normRow<S, T>(row(n.residual, r), row(n.weight, 0), row(c.recv, r), n,
                  [&](uint32_t i) { return sumLines<S, T>(d, Op::sum, r * apart + i, call, i < lines, row(c.send, r).loadLine(i)); });
}
/* c.send: rows of n.width elements, c.count in all; c.recv: the same, and may be send. No other buffers may overlap. Block b
 * has rows b, b + blocks, ... */
template <typename T>
__device__ void allReduceAddRmsNorm(const Call &c, const RmsNorm &n) {
  const bool whole = aligned(c, n.width * sizeof(T)) && (((size_t)n.residual | (size_t)n.weight) & (kPackBytes - 1)) == 0;
  inCall<T>(c, whole, [&](auto shape, uint32_t call) { allReduceAddRmsNormOf<decltype(shape), T>(c, n, call); });
}

}  // namespace dyn

#endif
