/* SPDX-License-Identifier: Apache-2.0
 *
 * What beside.py measures with, as a shared library: CTAs that hold multiprocessors until they are told to stop, as a collective's do while
 * it waits or moves, and launches beside a thread that asks after events. Functions give 0, or beside_error() says what failed. One thread
 * calls them.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include <dlfcn.h>
#include <sys/prctl.h>
#include <time.h>

#include <cuda_runtime.h>

#define TRY(call)                                            \
  do {                                                       \
    const cudaError_t e = (call);                            \
    if (e != cudaSuccess) return failed(#call, cudaGetErrorString(e)); \
  } while (0)
#define API extern "C" __attribute__((visibility("default")))

constexpr int kThreads = 512, kMostCtas = 64, kAtOnce = 8, kSpinClocks = 2000, kLookClocks = 36000; /* 20 us */
constexpr uint32_t kStepWords = kThreads * kAtOnce; /* of 16 bytes, of a CTA between two looks at the time */
constexpr uint32_t kSteps = 4096;                   /* of all CTAs: 256 MiB are read and as many written, more than L2 holds */
constexpr int kEvents = 8, kPairs = 64;
constexpr int kNotReady = 600; /* CUDA_ERROR_NOT_READY */

/* In the host's memory, which the kernel sees. Each hold has a turn, so nothing is ever cleared. */
struct Cta {
  uint32_t turn, sm, expired, unused;
  uint64_t ns, steps;
};
struct Held {
  uint32_t stop, unused[31];
  Cta ctas[kMostCtas];
};

static char said[256] = "";
static Held *held, *heldThere;
static uint32_t turn;
static int heldCtas;
static bool heldMoves;
static uint4 *from, *to;
static cudaStream_t holding, launching;
static cudaEvent_t behind[kEvents], pairs[kPairs][2];
/* The driver's, as poller.c and preload.c have them. */
static int (*eventQuery)(cudaEvent_t), (*eventRecord)(cudaEvent_t, cudaStream_t), (*streamIsCapturing)(cudaStream_t, int *);

static int failed(const char *what, const char *why) {
  snprintf(said, sizeof said, "%s: %s", what, why);
  return 1;
}

static double nowUs() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static __device__ __forceinline__ uint64_t globalNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* Until the host's word is this turn, or limitNs are over: a host that has gone holds no GPU. */
template <bool kMoves>
__global__ void __launch_bounds__(kThreads) hold(Held *held, uint32_t turn, uint64_t limitNs, const uint4 *from, uint4 *to) {
  const uint64_t began = globalNs();
  Cta *own = &held->ctas[blockIdx.x];
  if (threadIdx.x == 0) {
    asm volatile("mov.u32 %0, %%smid;" : "=r"(own->sm));
    __threadfence_system();
    *(volatile uint32_t *)&own->turn = turn;
  }
  const uint32_t steps = kSteps / gridDim.x;
  uint64_t taken = 0;
  long long looked = clock64();
  uint32_t step = 0;
  bool expired = false;
  for (;;) {
    if (kMoves) {
      const uint32_t at = (blockIdx.x * steps + step) * kStepWords + threadIdx.x;
      uint4 loaded[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; u++) loaded[u] = from[at + u * kThreads];
#pragma unroll
      for (int u = 0; u < kAtOnce; u++) to[at + u * kThreads] = loaded[u];
      if (++step == steps) step = 0;
    } else {
      const long long until = clock64() + kSpinClocks;
      while (clock64() < until) {}
    }
    taken++;
    bool over = false;
    if (threadIdx.x == 0) {
      /* The host's word lies behind PCIe, and the time of the GPU is no multiprocessor's own: read by 24 CTAs every microsecond it made all
       * of them, and what ran beside, several times as slow. */
      if (clock64() - looked >= kLookClocks) {
        looked = clock64();
        over = *(volatile uint32_t *)&held->stop == turn;
        expired = !over && globalNs() - began >= limitNs;
        over = over || expired;
      }
    }
    if (__syncthreads_or(over)) break;
  }
  if (threadIdx.x == 0) {
    own->expired = expired;
    own->ns = globalNs() - began;
    own->steps = taken;
  }
}

static __global__ void empty() {}

static const void *holdOf(bool moves) { return moves ? (const void *)hold<true> : (const void *)hold<false>; }

API const char *beside_error() { return said; }

/* sms: multiprocessors of the GPU; version: CUDA's runtime's; registers: of a thread that spins and one that moves. */
API int beside_open(int *sms, int *version, int registers[2]) {
  TRY(cudaSetDevice(0));
  TRY(cudaDeviceGetAttribute(sms, cudaDevAttrMultiProcessorCount, 0));
  TRY(cudaRuntimeGetVersion(version));
  for (int moves = 0; moves < 2; moves++) {
    cudaFuncAttributes about;
    TRY(cudaFuncGetAttributes(&about, holdOf(moves)));
    registers[moves] = about.numRegs;
  }
  cudaFuncAttributes loaded; /* kernels are loaded when they are first asked for, which may wait for those that run */
  TRY(cudaFuncGetAttributes(&loaded, (const void *)empty));
  TRY(cudaHostAlloc((void **)&held, sizeof *held, cudaHostAllocMapped));
  memset(held, 0, sizeof *held);
  TRY(cudaHostGetDevicePointer((void **)&heldThere, held, 0));
  const size_t bytes = (size_t)kSteps * kStepWords * sizeof(uint4);
  TRY(cudaMalloc((void **)&from, bytes));
  TRY(cudaMalloc((void **)&to, bytes));
  TRY(cudaMemset(from, 1, bytes));
  TRY(cudaStreamCreateWithFlags(&holding, cudaStreamNonBlocking));
  TRY(cudaStreamCreateWithFlags(&launching, cudaStreamNonBlocking));
  for (cudaEvent_t &event : behind) TRY(cudaEventCreate(&event)); /* which tell times, as those of timed calls */
  for (auto &pair : pairs)
    for (cudaEvent_t &event : pair) TRY(cudaEventCreate(&event));
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return failed("dlopen", "no libcuda.so.1");
  eventQuery = (int (*)(cudaEvent_t))dlsym(driver, "cuEventQuery");
  eventRecord = (int (*)(cudaEvent_t, cudaStream_t))dlsym(driver, "cuEventRecord");
  streamIsCapturing = (int (*)(cudaStream_t, int *))dlsym(driver, "cuStreamIsCapturing");
  if (eventQuery == NULL || eventRecord == NULL || streamIsCapturing == NULL) return failed("dlsym", "no cuEventQuery, cuEventRecord, cuStreamIsCapturing");
  TRY(cudaDeviceSynchronize());
  return 0;
}

/* So many CTAs, which are all there when it returns. smem: bytes of shared memory of each; carveout: percent of a multiprocessor's that is to
 * be shared memory, and not L1, beside them; -1: as the driver likes. A call of beside_release has to follow, also where this fails. */
API int beside_hold(int ctas, int moves, int smem, int carveout, double limitMs) {
  heldCtas = 0;
  if (ctas < 1 || ctas > kMostCtas) return failed("beside_hold", "1 to 64 CTAs");
  TRY(cudaFuncSetAttribute(holdOf(moves), cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  TRY(cudaFuncSetAttribute(holdOf(moves), cudaFuncAttributePreferredSharedMemoryCarveout, carveout));
  turn++;
  const uint64_t limitNs = (uint64_t)(limitMs * 1e6);
  if (moves)
    hold<true><<<ctas, kThreads, smem, holding>>>(heldThere, turn, limitNs, from, to);
  else
    hold<false><<<ctas, kThreads, smem, holding>>>(heldThere, turn, limitNs, from, to);
  TRY(cudaGetLastError());
  heldCtas = ctas;
  heldMoves = moves;
  const double until = nowUs() + 1e6;
  for (int i = 0; i < ctas; i++)
    while (*(volatile uint32_t *)&held->ctas[i].turn != turn)
      if (nowUs() > until) return failed("beside_hold", "not all CTAs began within a second");
  return 0;
}

/* Ends them. out: how many had ended by themselves, on how many multiprocessors they were, ms that the first of them was there, and 10^9
 * bytes a second that they read and wrote. */
API int beside_release(double out[4]) {
  *(volatile uint32_t *)&held->stop = turn;
  TRY(cudaStreamSynchronize(holding));
  memset(out, 0, 4 * sizeof *out);
  for (int i = 0; i < heldCtas; i++) {
    const Cta &cta = held->ctas[i];
    bool another = true;
    for (int j = 0; j < i; j++) another = another && held->ctas[j].sm != cta.sm;
    out[0] += cta.expired;
    out[1] += another;
    if (heldMoves && cta.ns > 0) out[3] += 2.0 * sizeof(uint4) * kStepWords * cta.steps / cta.ns;
  }
  if (heldCtas > 0) out[2] = held->ctas[0].ns / 1e6;
  return 0;
}

enum { kComing, kAsking, kOver };
struct Asking {
  int everyUs, events;
  std::atomic<int> state{kComing};
  long asked = 0, wrong = 0; /* wrong: an event was over, or the driver did not tell */
};

static void ask(Asking *a) {
  prctl(PR_SET_TIMERSLACK, 1000ul);
  cudaSetDevice(0);
  const struct timespec pause = {a->everyUs / 1000000, a->everyUs % 1000000 * 1000L};
  a->state = kAsking;
  while (a->state != kOver) {
    for (int i = 0; i < a->events; i++, a->asked++) a->wrong += eventQuery(behind[i]) != kNotReady;
    if (a->everyUs > 0) nanosleep(&pause, NULL);
  }
}

/* What a launch has around it. */
enum { kNothing, kTimed, kQuestion };

/* Launches empty kernels, beside a thread that asks every so many us (0: there is none; -1: without a pause) after so many events that are
 * not over; around: an event before and one behind each, or the question before it whether its stream is captured; atOnce: behind so many it
 * waits for the GPU, which is not timed. out: us of a launch, us that the GPU still took behind the last one, how often was asked, and what
 * makes this round none: queries that told something else, and a spinning kernel that ended too soon. */
API int beside_launches(int launches, int everyUs, int events, int around, int atOnce, double out[4]) {
  memset(out, 0, 4 * sizeof *out);
  double released[4];
  int code = beside_hold(1, 0, 0, -1, 500), recorded = 0, captured = 0;
  if (code == 0 && (events < 0 || events > kEvents || launches < 1 || atOnce < 1)) code = failed("beside_launches", "0 to 8 events, and launches");
  for (int i = 0; code == 0 && i < kEvents; i++) recorded |= eventRecord(behind[i], holding);
  if (recorded != 0) code = failed("cuEventRecord", "failed behind the spinning kernel");
  if (code == 0) {
    Asking asking;
    asking.everyUs = everyUs;
    asking.events = events;
    std::thread asker;
    if (everyUs != 0) {
      asker = std::thread(ask, &asking);
      while (asking.state == kComing) std::this_thread::yield();
    }
    cudaError_t e = cudaSuccess;
    double us = 0;
    for (int done = 0; done < launches && e == cudaSuccess; done += atOnce) {
      const int until = std::min(done + atOnce, launches);
      const double began = nowUs();
      for (int i = done; i < until; i++) {
        if (around == kTimed) recorded |= eventRecord(pairs[i % kPairs][0], launching);
        if (around == kQuestion) recorded |= streamIsCapturing(launching, &captured) | captured;
        empty<<<1, 1, 0, launching>>>();
        if (around == kTimed) recorded |= eventRecord(pairs[i % kPairs][1], launching);
      }
      const double launched = nowUs();
      us += launched - began;
      e = cudaGetLastError();
      const cudaError_t synchronized = cudaStreamSynchronize(launching);
      if (e == cudaSuccess) e = synchronized;
      out[1] = nowUs() - launched;
    }
    out[0] = us / launches;
    asking.state = kOver;
    if (asker.joinable()) asker.join();
    out[2] = asking.asked;
    out[3] = asking.wrong;
    if (e != cudaSuccess) code = failed("empty", cudaGetErrorString(e));
    if (recorded != 0) code = failed("cuEventRecord or cuStreamIsCapturing", "failed beside launches");
  }
  char first[sizeof said];
  memcpy(first, said, sizeof first);
  if (beside_release(released) != 0 && code == 0) return 1;
  if (code != 0) memcpy(said, first, sizeof said);
  out[3] += released[0];
  return code;
}
