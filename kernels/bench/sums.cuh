/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of values that do round, of floating types: the bound of ../test/rounding.h, and the same bits on all ranks and from all
 * kernels. What rig.cuh has every kernel add up is exact in whatever order, so it shows neither.
 */
#ifndef DYN_BENCH_SUMS_CUH
#define DYN_BENCH_SUMS_CUH

#include "../test/rounding.h"
#include "rig.cuh"

template <typename T>
__global__ void fillRounding(T *at, size_t count, int r, Op op, unsigned seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) at[i] = roundingValue<T>(op, seed, r, i);
}
template <typename T>
__global__ void verifyRounding(const T *at, size_t count, int nRanks, Op op, unsigned seed, unsigned long long *off) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    if (!within<T>(exactOf<T>(op, nRanks, [&](int r) { return roundingValue<T>(op, seed, r, i); }), at[i])) atomicAdd(off, 1ull);
}
template <typename T>
__global__ void compareElements(const T *a, const T *b, size_t count, unsigned long long *differ) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) compare(a[i], b[i], differ);
}

/* One shot of all ranks' elements is held against the bound and against rank 0's, which lies in a window of this process, once
 * all are done; then every kernel, in place and not, against this rank's one shot. */
template <typename T>
static void checkSumsOf(Rank &k, Op op, size_t count, size_t shift, unsigned seed, unsigned long long *off, unsigned long long *differ) {
  const Kernels<T> kernels;
  const size_t all = count * numRanks, apart = bufferBytes / 2;
  T *const in = (T *)k.in + shift, *const sums = (T *)(k.out + apart) + shift, *const out = (T *)k.out + shift;
  const auto callOf = [&](T *to, size_t elements) { return Call{in, to, elements, (int32_t)op, 0, k.stamps, k.domain}; };
  const auto refill = [&] { fillRounding<T><<<32, 256, 0, k.stream>>>(in, all, rank, op, seed); };
  refill();
  launchOn(k, kernels.oneShot, 8, kThreads, callOf(sums, all));
  verifyRounding<T><<<32, 256, 0, k.stream>>>(sums, all, numRanks, op, seed, off);
  CUDA(cudaStreamSynchronize(k.stream));
  barrier();
  compareElements<T><<<32, 256, 0, k.stream>>>(sums, (const T *)(k.outs[0] + apart) + shift, all, differ);
  shared->compared += (long)all;
  enum { kTwoShot, kBulk, kDirect, kScatter, kScatterBulk, kScatterDirect, kKinds };
  for (int kind = 0; kind < kKinds; kind++)
    for (bool inPlace : {false, true}) {
      const bool scatters = kind >= kScatter;
      const size_t elements = scatters ? count : all, skip = scatters ? rank * count : 0;
      T *const to = inPlace ? in + skip : out;
      const Call c = callOf(to, elements);
      const int blocks = 1 + (int)(seed + (unsigned)kind) % 7;
      if (kind == kTwoShot) launchOn(k, kernels.twoShot, blocks, kThreads, c);
      else if (kind == kBulk) launchOn(k, kernels.bulk, blocks, kThreads, c, k.bulk);
      else if (kind == kDirect) launchOn(k, kernels.bulk, blocks, kThreads, c, withWindows(k, c));
      else if (kind == kScatter) launchOn(k, kernels.reduceScatter, blocks, kThreads, c);
      else if (kind == kScatterBulk) launchOn(k, kernels.reduceScatterBulk, blocks, kThreads, c, k.bulk);
      else launchOn(k, kernels.reduceScatterBulk, blocks, kThreads, c, withWindows(k, c));
      compareElements<T><<<32, 256, 0, k.stream>>>(to, sums + skip, elements, differ);
      if (inPlace) refill();
      shared->compared += (long)elements;
    }
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  barrier(); /* rank 0's sums have been read */
}

template <typename T>
static void checkSums(Rank &k) {
  unsigned long long *counts;
  unsigned seed = 1;
  CUDA(cudaMallocManaged(&counts, 2 * sizeof *counts));
  counts[0] = counts[1] = 0;
  for (Op op : {Op::sum, Op::prod, Op::avg, Op::min, Op::max})
    for (size_t count : {1, 9, 1000, 16384})
      for (size_t shift = 0; shift < 2; shift++) checkSumsOf<T>(k, op, count, shift, ++seed, &counts[0], &counts[1]);
  healthy(k);
  if (counts[0] + counts[1] > 0)
    printf("{\"figure\":\"lsa sums\",\"ranks\":%d%s,\"type\":\"%s\",\"rank\":%d,\"out_of_bounds\":%llu,\"unlike_others\":%llu}\n", numRanks, sharing(), Kernels<T>::name,
           rank, counts[0], counts[1]);
  *k.wrong += counts[0] + counts[1];
  CUDA(cudaFree(counts));
}

#endif
