/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN: every element of calls of several types, operators, sizes, alignments and numbers of blocks and of contexts
 * that they share; and sums that round, which have to have the same bits on all ranks.
 */
#ifndef DYN_BENCH_GIN_CHECK_CUH
#define DYN_BENCH_GIN_CHECK_CUH

#include <algorithm>

#include "../gin/all_reduce.cuh"
#include "../gin/all_to_all.cuh"
#include "../gin/rounds.cuh"
#include "gin_rank.cuh"
#include "gin_values.cuh"

template <typename T>
__global__ void ginAllReduceKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t slots, const T *send, T *recv, size_t count, Op op) {
  ginAllReduce<T>(GinNet(comm, g), g, slots, send, recv, count, op);
}
template <typename T>
__global__ void ginAllReduceInRoundsKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t slots, const T *send, T *recv, size_t count, Op op) {
  ginAllReduceInRounds<T>(GinNet(comm, g), g, slots, send, recv, count, op);
}
static __global__ void ginAllToAllKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t send, size_t sendAt, ncclWindow_t recv,
                                         size_t recvAt, size_t part, Locally locally) {
  ginAllToAll(GinNet(comm, g), g, send, sendAt, recv, recvAt, part, locally);
}

static __global__ void ginAllGatherKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t slots, const char *send, char *recv, size_t part) {
  ginAllGather(GinNet(comm, g), g, slots, send, recv, part);
}
template <typename T>
__global__ void ginReduceScatterKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t slots, const T *send, T *recv, size_t count, Op op) {
  ginReduceScatter<T>(GinNet(comm, g), g, slots, send, recv, count, op);
}

constexpr int kGinThreads = 256;

/* Elements of a call, at most: under compute-sanitizer all takes a hundred times as long (--small). */
static size_t mostChecked = SIZE_MAX;

/* Windows beside the slots. */
struct GinBuffers {
  GinWindow send, recv;
};

template <typename T>
static void sumOver(const Rank &k, const GinLife &life, const Gin &g, const T *in, T *out, size_t count, Op op, int blocks) {
  const auto kernel = count * sizeof(T) > g.slotBytes ? ginAllReduceInRoundsKernel<T> : ginAllReduceKernel<T>;
  kernel<<<blocks, kGinThreads, 0, k.stream>>>(life.device, g, life.slots.window, in, out, count, op);
  CUDA(cudaGetLastError());
}
static void exchangeOver(const Rank &k, const GinLife &life, const Gin &g, const GinBuffers &b, size_t shift, size_t part, Locally locally, int blocks) {
  ginAllToAllKernel<<<blocks, kGinThreads, 0, k.stream>>>(life.device, g, b.send.window, shift, b.recv.window, shift, part, locally);
  CUDA(cudaGetLastError());
}

/* Blocks: fewer than contexts, as many, and more. */
static int blocksOf(unsigned seed) { return 1 + (int)(seed % 6); }
/* Contexts that they share, other ones in each call: from one to all. */
static Gin sharing(const GinLife &life, unsigned seed) {
  Gin g = life.gin;
  g.contexts = 1 + seed * 2654435761u / 6 % (unsigned)life.device.ginContextCount;
  return g;
}

template <typename T>
static void checkSums(const Rank &k, const GinLife &life) {
  unsigned seed = 1;
  for (Op op : {Op::sum, Op::max, Op::avg})
    for (size_t count : {(size_t)1, (size_t)3, (size_t)8, (size_t)63, (size_t)1000, (size_t)4097, (size_t)65536, 3 * ginSlotBytes / sizeof(T) + 5}) /* the last in rounds */
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        if (count > mostChecked) continue;
        T *in = (T *)k.in + shift, *out = seed % 2 ? in : (T *)k.out + shift;
        fill<T><<<32, 256, 0, k.stream>>>(in, count, rank, op, seed);
        sumOver<T>(k, life, sharing(life, seed), in, out, count, op, blocksOf(seed));
        verify<T><<<32, 256, 0, k.stream>>>(out, count, 0, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
}

static void checkExchanges(const Rank &k, const GinLife &life, const GinBuffers &b) {
  unsigned seed = 1;
  for (size_t part : {1, 7, 16, 63, 1000, 4097, 65536})
    for (Locally locally : {Locally::counter, Locally::flush})
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        if (part > mostChecked) continue;
        CUDA(cudaMemsetAsync(b.recv.memory, 0xff, part * numRanks + shift, k.stream));
        fill<Byte><<<32, 256, 0, k.stream>>>((Byte *)b.send.memory + shift, part * numRanks, rank, Op::sum, seed);
        exchangeOver(k, life, sharing(life, seed), b, shift, part, locally, blocksOf(seed));
        verifyMoved<<<32, 256, 0, k.stream>>>((Byte *)b.recv.memory + shift, part, numRanks, 0, rank * part, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)(part * numRanks);
      }
  CUDA(cudaStreamSynchronize(k.stream));
}

/* Parts of one round and of several: what is larger than a slot goes in rounds. */
static void checkGathers(const Rank &k, const GinLife &life) {
  unsigned seed = 1;
  for (size_t part : {(size_t)1, (size_t)17, (size_t)4097, ginSlotBytes + 5, 3 * ginSlotBytes / 2})
    for (bool inPlace : {false, true}) {
      if (part * numRanks > bufferBytes) continue;
      Byte *out = (Byte *)k.out, *in = inPlace ? out + rank * part : (Byte *)k.in;
      fill<Byte><<<32, 256, 0, k.stream>>>(in, part, rank, Op::sum, ++seed);
      ginAllGatherKernel<<<blocksOf(seed), kGinThreads, 0, k.stream>>>(life.device, sharing(life, seed), life.slots.window, (const char *)in, (char *)out, part);
      verifyMoved<<<32, 256, 0, k.stream>>>(out, part, numRanks, 0, 0, seed, k.wrong);
      CUDA(cudaGetLastError());
      shared->compared += (long)(part * numRanks);
    }
  CUDA(cudaStreamSynchronize(k.stream));
}

template <typename T>
static void checkScatters(const Rank &k, const GinLife &life) {
  unsigned seed = 1;
  for (Op op : {Op::sum, Op::max})
    for (size_t count : {(size_t)1, (size_t)63, (size_t)4097, (ginSlotBytes + 64) / sizeof(T)})
      for (bool inPlace : {false, true}) {
        if (count * sizeof(T) * numRanks > bufferBytes) continue;
        T *in = (T *)k.in, *out = inPlace ? in + rank * count : (T *)k.out;
        fill<T><<<32, 256, 0, k.stream>>>(in, count * numRanks, rank, op, ++seed);
        ginReduceScatterKernel<T><<<blocksOf(seed), kGinThreads, 0, k.stream>>>(life.device, sharing(life, seed), life.slots.window, in, out, count, op);
        verify<T><<<32, 256, 0, k.stream>>>(out, count, rank * count, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
}

/* Of several magnitudes. As float exact, so it makes no difference whether the compiler joins a multiplication with an addition. */
template <typename T>
__device__ T fractionOf(int r, size_t i) {
  unsigned x = (unsigned)i * 2654435761u + r * 40503u;
  x ^= x >> 15;
  x *= 2246822519u;
  return Number<T>::down(((float)(x & 0xffff) - 32768) * (1.f / (float)(1u << (x >> 16 & 15))));
}
template <typename T>
__global__ void fillFractions(T *at, size_t count, int r) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) at[i] = fractionOf<T>(r, i);
}
/* In the order of ranks, as float. */
template <typename T>
__global__ void verifyFractions(const T *at, size_t count, int nRanks, unsigned long long *wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    float sum = Number<T>::up(fractionOf<T>(0, i));
    for (int r = 1; r < nRanks; r++) sum += Number<T>::up(fractionOf<T>(r, i));
    compare(Number<T>::down(sum), at[i], wrong);
  }
}

/* Every rank's bits are those of one sum in one order, so they are each other's. */
template <typename T>
static void checkOrder(const Rank &k, const GinLife &life) {
  const size_t count = std::min<size_t>(65536, mostChecked);
  T *in = (T *)k.in, *out = (T *)k.out;
  fillFractions<T><<<32, 256, 0, k.stream>>>(in, count, rank);
  sumOver<T>(k, life, life.gin, in, out, count, Op::sum, life.device.ginContextCount);
  verifyFractions<T><<<32, 256, 0, k.stream>>>(out, count, numRanks, k.wrong);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  shared->compared += (long)count;
}

static void printCheck(const Rank &k, const char *what) {
  static unsigned long long before;
  shared->wrong += (long)(*k.wrong - before);
  before = *k.wrong;
  barrier();
  if (rank == 0)
    printf("{\"figure\":\"gin check\",\"ranks\":%d,\"nodes\":%d,\"what\":\"%s\",\"elements\":%ld,\"wrong\":%ld}\n", numRanks, numNodes, what, shared->compared.load(),
           shared->wrong.load());
  barrier();
}

static void checkAll(const Rank &k, GinLife &life, const GinBuffers &b) {
  step("check of values and signals", 120);
  const bool values = checkValues(k, life, b.recv);
  needHealthy(life);
  printCheck(k, values ? "values, signals" : "signals; no values, which this Proxy has not");
  step("check of AllToAll", 120);
  checkExchanges(k, life, b);
  needHealthy(life);
  printCheck(k, "alltoall");
  step("check of AllGather and ReduceScatter", 120);
  checkGathers(k, life);
  checkScatters<float>(k, life), checkScatters<__nv_bfloat16>(k, life), checkScatters<int8_t>(k, life);
  needHealthy(life);
  printCheck(k, "allgather, reducescatter");
  step("check of AllReduce", 240);
  checkSums<float>(k, life), checkSums<double>(k, life), checkSums<__half>(k, life), checkSums<__nv_bfloat16>(k, life);
  checkSums<int8_t>(k, life), checkSums<int32_t>(k, life);
  needHealthy(life);
  printCheck(k, "allreduce");
  checkOrder<float>(k, life), checkOrder<__half>(k, life), checkOrder<__nv_bfloat16>(k, life);
  needHealthy(life);
  printCheck(k, "order of sums");
}

#endif
