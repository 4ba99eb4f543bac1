/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce with residual and normalisation: held against the same in two kernels, bit by bit.
 */
#ifndef DYN_BENCH_FUSED_CUH
#define DYN_BENCH_FUSED_CUH

#include "rig.cuh"

/* A block for each row, with the fused kernel's own steps. */
template <typename T>
__global__ void __launch_bounds__(kThreads) addNorm(const T *x, T *residual, const T *weight, T *out, size_t width, float epsilon) {
  using B = Buffer<Shape<false, 2>, T>;
  const size_t at = blockIdx.x * width;
  const B in(x + at, width);
  normRow(B(residual + at, width), B(weight, width), B(out + at, width), {residual, weight, width, epsilon, 0}, [&](uint32_t i) { return in.loadLine(i); });
}

__global__ void compareBytes(const char *a, const char *b, size_t bytes, unsigned long long *wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += (size_t)gridDim.x * blockDim.x)
    if (a[i] != b[i]) atomicAdd(wrong, 1ull);
}

/* Buffers of tokens rows in k.in and k.out: input, residual, the same again, weight; sum, two outputs. */
template <typename T>
struct Norm {
  T *in, *residual, *again, *weight, *sum, *out, *fused;
  size_t tokens, width, count;
  unsigned blocks, threads;
  static constexpr float epsilon = 1e-5f;
  Norm(const Rank &k, size_t tokens, size_t width) : tokens(tokens), width(width), count(tokens * width) {
    const size_t room = (count + 63) / 64 * 64;
    in = (T *)k.in, residual = in + room, again = residual + room, weight = again + room;
    sum = (T *)k.out, out = sum + room, fused = out + room;
    const size_t all = (dyn_lines(width * sizeof(T)) * kLineLanes + 31) / 32 * 32;
    blocks = (unsigned)std::min<size_t>(tokens, (size_t)mostBlocks), threads = (unsigned)(all < kThreads ? all : kThreads);
  }
  Call call(const Rank &k, T *to) const { return {in, to, count, (int32_t)Op::sum, 0, k.stamps, k.domain}; }
  void fill(const Rank &k, unsigned seed) const {
    ::fill<T><<<32, 256, 0, k.stream>>>(in, count, rank, Op::sum, seed);
    ::fill<T><<<32, 256, 0, k.stream>>>(residual, count, 0, Op::sum, seed + 1); /* the same on all ranks */
    ::fill<T><<<32, 256, 0, k.stream>>>(again, count, 0, Op::sum, seed + 1);
    ::fill<T><<<32, 256, 0, k.stream>>>(weight, width, 0, Op::sum, seed + 2);
  }
  void norm(const Rank &k) const { addNorm<T><<<(unsigned)tokens, threads, 0, k.stream>>>(sum, residual, weight, out, width, epsilon); }
  void all(const Rank &k, cudaKernel_t kernel) const { launchOn(k, kernel, blocks, threads, call(k, fused), RmsNorm{again, weight, width, epsilon, 0}); }
};

template <typename T>
static void checkFused(Rank &k, const std::string &type, const std::vector<size_t> &widths, const std::vector<size_t> &rows, int blocks, int threads) {
  const Kernels<T> kernels;
  const cudaKernel_t kernel = kernelOf("allReduceAddRmsNorm_" + type);
  unsigned seed = 1;
  for (size_t width : widths)
    for (size_t tokens : rows) {
      const Norm<T> n(k, tokens, width);
      n.fill(k, seed += 3);
      launchOn(k, kernels.oneShot, blocks, threads, n.call(k, n.sum));
      n.norm(k);
      n.all(k, kernel);
      compareBytes<<<32, 256, 0, k.stream>>>((char *)n.residual, (char *)n.again, n.count * sizeof(T), k.wrong);
      compareBytes<<<32, 256, 0, k.stream>>>((char *)n.out, (char *)n.fused, n.count * sizeof(T), k.wrong);
      CUDA(cudaGetLastError());
      shared->compared += 2 * (long)n.count;
    }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

#endif
