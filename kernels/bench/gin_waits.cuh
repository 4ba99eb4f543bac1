/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUDA's calls take that wait for all kernels, or might, some time behind the last put over GIN: over the carrier a kernel of
 * its card is on the GPU then, which goes when nothing is asked of it (docs/design/carrier.md, decision 31). Beside it the same calls
 * before NCCL is there, behind an empty kernel, on a GPU that has nothing to do. By the host's clock, all ranks at once.
 */
#ifndef DYN_BENCH_GIN_WAITS_CUH
#define DYN_BENCH_GIN_WAITS_CUH

#include <chrono>

#include "gin_time.cuh"

constexpr unsigned kAfterMs[] = {0, 10, 2000}; /* since the last put */
constexpr uint32_t kPutsBefore = 16;
constexpr size_t kFreed = 8 << 20; /* bytes; of what is small CUDA keeps some */
constexpr const char *kWaits[] = {"cudaDeviceSynchronize", "launch and cudaStreamSynchronize", "cudaMalloc", "cudaFree"};
constexpr int kNumWaits = sizeof kWaits / sizeof *kWaits;

static __global__ void nothingKernel() {}

template <typename Do>
static double usOf(Do what) {
  const auto begin = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

static void printWait(const char *beside, const char *call, unsigned afterMs, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  printf("{\"figure\":\"gin waits\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"beside\":\"%s\",\"call\":\"%s\",\"after_ms\":%u,\"calls\":%zu,\"median_us\":%.1f,\"least_us\":%.1f,\"most_us\":%.1f}\n",
         numRanks, numNodes, rank, beside, call, afterMs, us.size(), us[us.size() / 2], us.front(), us.back());
}

/* use() leaves the GPU as it is behind a put. Where two seconds have passed one wait does for all calls, by turns which comes first: then
 * there is nothing left that one of them could wait for. */
template <typename Use>
static void timeWaits(const char *beside, cudaStream_t stream, int each, Use use) {
  for (unsigned afterMs : kAfterMs) {
    step("waits", 60 + (unsigned)each * (afterMs / 1000 + 8)); /* behind a put cudaFree takes up to a second */
    std::vector<void *> held(each);
    for (void *&memory : held) CUDA(cudaMalloc(&memory, kFreed));
    const auto call = [&](int which) {
      switch (which) {
        case 0: return usOf([] { CUDA(cudaDeviceSynchronize()); });
        case 1: return usOf([&] {
          nothingKernel<<<1, 1, 0, stream>>>();
          CUDA(cudaStreamSynchronize(stream));
        });
        case 2: held.push_back(nullptr); return usOf([&] { CUDA(cudaMalloc(&held.back(), kFreed)); });
        default: {
          void *memory = held.back();
          held.pop_back();
          return usOf([&] { CUDA(cudaFree(memory)); });
        }
      }
    };
    std::vector<double> us[kNumWaits];
    const int atOnce = afterMs >= 1000 ? kNumWaits : 1;
    for (int i = 0; i < each * kNumWaits / atOnce; i++) {
      use();
      barrier();
      usleep(afterMs * 1000);
      for (int j = 0; j < atOnce; j++) us[(i + j) % kNumWaits].push_back(call((i + j) % kNumWaits));
      barrier();
    }
    for (void *memory : held) CUDA(cudaFree(memory));
    for (int w = 0; w < kNumWaits; w++) printWait(beside, kWaits[w], afterMs, us[w]);
  }
}

/* Before there is anything of NCCL's. */
static void timeWaitsAlone(int each) {
  cudaStream_t stream;
  step("waits", 60);
  CUDA(cudaSetDevice(rank % numGpus));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  timeWaits("nothing", stream, each, [&] {
    nothingKernel<<<1, 1, 0, stream>>>();
    CUDA(cudaGetLastError());
    CUDA(cudaStreamSynchronize(stream));
  });
  CUDA(cudaStreamDestroy(stream));
}

/* Puts there and back, on one context. */
static void putSome(const Rank &k, GinLife &life, const GinBuffers &b, dyn_gin_stamp *stamps, uint64_t *missing) {
  const int last = numRanks - 1;
  const GinPath<GinNet> path = {b.send.window, b.recv.window, rank == 0 ? last : 0, sizeof(uint64_t), kPutsBefore, true};
  barrier();
  if (rank == 0) ginPingKernel<<<1, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, stamps);
  if (rank == last) ginPongKernel<<<1, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, missing);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  needHealthy(life);
}

/* Communicators that come, put and go, while the first one stays and is idle: until GIN of one has gone, with windows and memory, and
 * until it has itself. Beside nothing: one without GIN. */
static void timeTeardowns(const Rank &k, int each, dyn_gin_stamp *stamps, uint64_t *missing) {
  std::vector<double> plainUs;
  for (int i = 0; i < each; i++) {
    step("teardown", 120);
    const ncclComm_t one = joinOver(nullptr);
    barrier();
    plainUs.push_back(usOf([&] { needNccl(ncclCommDestroy(one), "ncclCommDestroy"); }));
  }
  if (each > 0) printWait("nothing", "ncclCommDestroy", 0, plainUs);
  for (unsigned afterMs : kAfterMs) {
    std::vector<double> ginUs, commUs;
    for (int i = 0; i < each; i++) {
      step("teardown", 120);
      GinLife life = {};
      GinBuffers b;
      lifeOfRank = &life;
      const ncclComm_t one = joinOver(nullptr);
      needAll(life, ginCreate(life, one, {mostContexts, ginSlotBytes, waitNs, ginCellBytes}));
      needAll(life, ginProve(life, k.stream));
      for (GinWindow *w : {&b.send, &b.recv}) needAll(life, ginWindow(life, 1 << 20, w));
      putSome(k, life, b, stamps, missing);
      barrier();
      usleep(afterMs * 1000);
      bool fine = false;
      ginUs.push_back(usOf([&] { fine = ginDestroy(life); }));
      needAll(life, fine);
      commUs.push_back(usOf([&] { needNccl(ncclCommDestroy(one), "ncclCommDestroy"); }));
      barrier();
    }
    lifeOfRank = nullptr;
    if (each == 0) continue;
    printWait("the card", "ncclDevCommDestroy and windows", afterMs, ginUs);
    printWait("the card", "ncclCommDestroy", afterMs, commUs);
  }
}

static void timeWaitsBeside(const Rank &k, GinLife &life, const GinBuffers &b, int each, int teardowns) {
  dyn_gin_stamp *stamps;
  uint64_t *missing;
  step("waits", 60);
  CUDA(cudaMalloc(&stamps, kPutsBefore * sizeof *stamps));
  CUDA(cudaMalloc(&missing, sizeof *missing));
  timeWaits("the card", k.stream, each, [&] { putSome(k, life, b, stamps, missing); });
  timeTeardowns(k, teardowns, stamps, missing);
  lifeOfRank = &life;
}

#endif
