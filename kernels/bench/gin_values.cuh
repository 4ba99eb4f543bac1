/* SPDX-License-Identifier: Apache-2.0
 *
 * What of GIN no kernel of ours has, or has in hierarchical ones alone, on real NCCL: values of 1 to 8 bytes, put without a source,
 * and signals raised by several at once, as release and acquire without a fence. Each value is compared when its signal is seen,
 * with the bytes beside it; the receiver clears them, and the signal alone that follows is all that says so.
 */
#ifndef DYN_BENCH_GIN_VALUES_CUH
#define DYN_BENCH_GIN_VALUES_CUH

#include "gin_rank.cuh"

constexpr uint32_t kTurns = 64;

/* Of 2.28.9's Proxy NCCL computes the value's place from a pointer into its stack (docs/design.md, decision 29); right from 2.29.7 on. */
static bool valuesWork(const GinLife &life) {
  for (int c = 0; c < (int)life.device.ginContextCount; c++)
    if (NCCL_VERSION_CODE < 22907 && ginTypeOf(life.device, c) == NCCL_NET_DEVICE_GIN_PROXY) return false;
  return true;
}

__device__ __forceinline__ uint64_t valueBits(int from, int to, uint32_t turn) {
  return ((uint64_t)(turn + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(from * kMaxRanks + to + 1) * 0xD1342543DE82EF95u) | 1;
}

/* A thread a peer. values: where there are none the word stays 0. */
template <typename T>
__global__ void ginValuesKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t recv, bool values, unsigned long long *wrong) {
  const GinNet net(comm, g);
  const uint32_t call = ginBegin(g);
  const auto wordOf = [&](int from) { return ((size_t)blockIdx.x * g.nRanks + from) * sizeof(uint64_t); };
  eachGinPeer(g, [&](int peer) {
    uint64_t *readySeen = ginSeenOf(net, g) + ginSignalOf(g.nRanks, DYN_GIN_READY, blockIdx.x, peer);
    volatile uint64_t *came = (volatile uint64_t *)net.local(recv, wordOf(peer));
    for (uint32_t turn = 0; turn < kTurns; turn++) {
      const uint32_t at = turn % (sizeof(uint64_t) / sizeof(T)) * sizeof(T), by = 1 + turn % 3;
      if (values) net.gin.putValue(ncclTeamWorld(comm), peer, recv, wordOf(g.rank) + at, (T)valueBits(g.rank, peer, turn), GinSignalAdd{ownSignal(g, DYN_GIN_DATA), 1});
      else net.raise(peer, ownSignal(g, DYN_GIN_DATA));
      if (!awaitSignal(net, g, DYN_GIN_DATA, peer, call)) return;
      if (*came != (values ? (uint64_t)(T)valueBits(peer, g.rank, turn) << 8 * at : 0)) atomicAdd(wrong, 1);
      *came = 0;
      net.raise(peer, ownSignal(g, DYN_GIN_READY), by);
      if (!awaitSignalOf(net, g, DYN_GIN_READY, peer, call, *readySeen + by)) return;
      *readySeen += by;
    }
  });
  ginEnd(g, call);
}

template <typename T>
static void checkValuesOf(const Rank &k, const GinLife &life, ncclWindow_t recv, bool values) {
  for (unsigned contexts = 1; contexts <= (unsigned)life.device.ginContextCount; contexts++) {
    Gin g = life.gin;
    g.contexts = contexts;
    ginValuesKernel<T><<<kGinMaxContexts, 32, 0, k.stream>>>(life.device, g, recv, values, k.wrong);
    CUDA(cudaGetLastError());
    shared->compared += kTurns * kGinMaxContexts * (numRanks - 1);
  }
  CUDA(cudaStreamSynchronize(k.stream));
}

/* True: with values. */
static bool checkValues(const Rank &k, const GinLife &life, const GinWindow &recv) {
  const bool values = valuesWork(life);
  CUDA(cudaMemsetAsync(recv.memory, 0, kGinMaxContexts * (size_t)numRanks * sizeof(uint64_t), k.stream));
  CUDA(cudaStreamSynchronize(k.stream));
  barrier(); /* nobody puts into what is yet to be cleared */
  checkValuesOf<uint64_t>(k, life, recv.window, values);
  if (values) checkValuesOf<uint8_t>(k, life, recv.window, true), checkValuesOf<uint16_t>(k, life, recv.window, true), checkValuesOf<uint32_t>(k, life, recv.window, true);
  return values;
}

#endif
