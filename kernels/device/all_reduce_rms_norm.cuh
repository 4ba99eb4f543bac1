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

/* A buffer's row; rows begin where they may, so each has an alignment of its own. Numbers of 32 bits suffice for what has
 * room in lines, and leave registers to lines on their way. */
template <typename T>
struct Row {
  T *at;
  uint32_t width;
  bool fast;
  __device__ Row(T *first, uint32_t width) : at(first), width(width), fast(((size_t)first & (kLineData - 1)) == 0) {}
  __device__ Pack<T> load(uint32_t i) const { return loadPack(at, i, width, fast); }
  __device__ void store(uint32_t i, const Pack<T> &p) const { storePack(at, i, width, fast, p); }
};

/* The new residual of one row, written; what this thread's part of it adds to the sum of squares. sumOf(i): pack i of what is
 * to be added. */
template <typename T, typename Sum>
__device__ __forceinline__ float addRow(const Row<T> &residual, uint32_t packs, Sum sumOf) {
  using N = Number<T>;
  float squares = 0;
  for (uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
    Pack<T> sum = sumOf(i), r = residual.load(i);
#pragma unroll
    for (int e = 0; e < Pack<T>::kElements; e++) {
      r.elements[e] = N::down((float)N::up(sum.elements[e]) + (float)N::up(r.elements[e]));
      float x = N::up(r.elements[e]); /* 0 behind the end of the row */
      squares += x * x;
    }
    residual.store(i, r);
  }
  return squares;
}

/* What this thread wrote of the residual, normalised. */
template <typename T>
__device__ __forceinline__ void normRow(const Row<T> &residual, const Row<T> &weight, const Row<T> &out, uint32_t packs, float scale) {
  using N = Number<T>;
  for (uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
    Pack<T> r = residual.load(i), w = weight.load(i);
#pragma unroll
    for (int e = 0; e < Pack<T>::kElements; e++) {
      const T normal = N::down((float)N::up(r.elements[e]) * scale);
      r.elements[e] = N::down((float)N::up(normal) * (float)N::up(w.elements[e]));
    }
    out.store(i, r);
  }
}

/* c.send: rows of n.width elements, c.count in all; c.recv: the same, and may be send. No other buffers may overlap. Block b
 * has rows b, b + blocks, ...: what a thread writes it alone reads. */
template <typename T>
__device__ void allReduceAddRmsNorm(const Call &c, const RmsNorm &n) {
  const Domain &d = c.domain;
  const uint32_t width = (uint32_t)n.width, rows = (uint32_t)(c.count / n.width), packs = (uint32_t)packsOf(n.width, sizeof(T));
  const uint32_t apart = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_CLOSE_ROWS ? width * (uint32_t)sizeof(T) / kLineData : packs;
  const uint32_t call = callNumber(d);
  for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Row<T> in((T *)c.send + (size_t)row * width, width);
    for (uint32_t i = threadIdx.x; i < packs; i += blockDim.x) {
      Pack<T> own = in.load(i);
      for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + (size_t)(row * apart + i) * kLineBytes, own.bits, call);
    }
  }
  const Row<T> weight((T *)n.weight, width);
  for (uint32_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Row<T> in((T *)c.send + (size_t)row * width, width), residual((T *)n.residual + (size_t)row * width, width), out((T *)c.recv + (size_t)row * width, width);
    float squares = addRow(residual, packs, [&](uint32_t i) { return sumLines<T>(d, Op::sum, in.load(i), row * apart + i, call); });
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_OWN_SQUARES) squares = blockSum(squares);
    normRow(residual, weight, out, packs, inverseRoot(squares / (float)width + n.epsilon));
  }
  endCall(d, call);
}

}  // namespace dyn

#endif
