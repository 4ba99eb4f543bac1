/* SPDX-License-Identifier: Apache-2.0
 *
 * How long it is from a kernel to the next one of its stream, which waits to be launched already: alone, beside another stream that waits for
 * the kernels' events, as a collective's does in a backward pass, with the peers' memory reachable, and launched from each CPU. One GPU,
 * and another one to reach; nothing of NCCL's.     gaps [ROUNDS]
 * Lines of JSON: us of a kernel and what lies behind it, the median of the rounds, the least and the most. Exit: 0, or 1 and what failed.
 */
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sched.h>

#include <cuda_runtime.h>

#define MUST(call)                                                        \
  do {                                                                    \
    const cudaError_t e = (call);                                         \
    if (e != cudaSuccess) {                                               \
      fprintf(stderr, "gaps: %s: %s\n", #call, cudaGetErrorString(e));    \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

constexpr int kOfPart = 50;                /* kernels between two events */
constexpr int kParts = 14, kMoreParts = 60; /* 700 in all, which the driver's queue has room for, and 3,000, which it has not */
constexpr int kStreams = 48, kThreads = 256, kWords = 1 << 20, kSpinClocks = 30000;
constexpr double kMostMs = 2000; /* then the GPU goes on by itself: a host that has gone holds none */

static __global__ void hold(volatile uint32_t *go, uint32_t turn, uint64_t limitNs) {
  uint64_t began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    __nanosleep(5000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*go != turn && now - began < limitNs);
}
static __global__ void empty() {}
static __global__ void __launch_bounds__(kThreads) writes(float *to) { to[blockIdx.x * kThreads + threadIdx.x] += 1; }

static __global__ void spins() {
  const long long until = clock64() + kSpinClocks;
  while (clock64() < until) {}
}

static uint32_t *go, *goThere, turn;
static float *words;
static cudaStream_t streams[kStreams];
static cudaEvent_t begin, end, behind[kMoreParts];

static double nowMs() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

enum Kernel { kEmpty, kWrites, kSpins };
static const char *const kNames[] = {"empty", "writes 4 MiB", "spins 15 us"};

static void launch(Kernel kernel) {
  if (kernel == kEmpty) empty<<<1, 32>>>();
  if (kernel == kWrites) writes<<<kWords / kThreads, kThreads>>>(words);
  if (kernel == kSpins) spins<<<1, 32>>>();
}

/* us of one kernel. waiter: the stream that waits for each part's event, -1: none. full: there are more than the queue has room for, and the
 * thread that launches waits for that; else all are launched before the first begins. Negative: the host was too slow for that. */
static double once(Kernel kernel, int waiter, bool full) {
  const double began = nowMs();
  const int parts = full ? kMoreParts : kParts;
  turn++;
  if (full) *(volatile uint32_t *)go = turn;
  hold<<<1, 1>>>(goThere, turn, (uint64_t)(kMostMs * 1e6));
  MUST(cudaEventRecord(begin, 0));
  for (int part = 0; part < parts; part++) {
    for (int i = 0; i < kOfPart; i++) launch(kernel);
    if (waiter < 0) continue;
    MUST(cudaEventRecord(behind[part], 0));
    MUST(cudaStreamWaitEvent(streams[waiter], behind[part], 0));
    empty<<<1, 32, 0, streams[waiter]>>>();
  }
  MUST(cudaEventRecord(end, 0));
  MUST(cudaGetLastError());
  const bool queued = nowMs() - began < kMostMs / 2;
  *(volatile uint32_t *)go = turn;
  MUST(cudaDeviceSynchronize());
  float ms;
  MUST(cudaEventElapsedTime(&ms, begin, end));
  return queued ? 1e3 * ms / (parts * kOfPart) : -1;
}

struct Arm {
  const char *name;
  Kernel kernel;
  int waiter, cpu;
  bool full;
  std::vector<double> us;
};

static void show(Arm &arm) {
  const char *kernel = kNames[arm.kernel];
  if (arm.us.empty()) {
    printf("{\"figure\": \"from kernel to kernel\", \"arm\": \"%s\", \"kernel\": \"%s\", \"stream\": %d, \"cpu\": %d, \"rounds\": 0, \"error\": \"launches took longer than %.0f ms\"}\n",
           arm.name, kernel, arm.waiter, arm.cpu, kMostMs / 2);
    return;
  }
  std::sort(arm.us.begin(), arm.us.end());
  printf("{\"figure\": \"from kernel to kernel\", \"arm\": \"%s\", \"kernel\": \"%s\", \"stream\": %d, \"cpu\": %d, \"median_us\": %.3f, \"least_us\": %.3f, \"most_us\": %.3f, \"rounds\": %zu}\n",
         arm.name, kernel, arm.waiter, arm.cpu, arm.us[arm.us.size() / 2], arm.us.front(), arm.us.back(), arm.us.size());
}

static void measure(std::vector<Arm> &arms, int rounds) {
  for (int round = -1; round < rounds; round++) /* one before, in which what is made on first use is made */
    for (Arm &arm : arms) {
      const double us = once(arm.kernel, arm.waiter, arm.full);
      if (round >= 0 && us > 0) arm.us.push_back(us);
    }
  for (Arm &arm : arms) show(arm);
  fflush(stdout);
}

static void streamsByTurns(const char *name, int rounds) {
  std::vector<Arm> arms;
  for (Kernel kernel : {kEmpty, kWrites}) {
    for (const char *alone : {"alone", "alone, again"}) arms.push_back({alone, kernel, -1, -1, false, {}});
    for (int i = 0; i < kStreams; i++) arms.push_back({name, kernel, i, -1, false, {}});
  }
  for (bool full : {false, true})
    for (int waiter : {-1, 0, 1}) arms.push_back({full ? "the queue is full" : "the queue has room", kSpins, waiter, -1, full, {}});
  measure(arms, rounds);
}

/* True: another GPU's memory can be reached now. */
static bool reachPeer() {
  int count = 0, can = 0;
  MUST(cudaGetDeviceCount(&count));
  if (count > 1) MUST(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (!can) return false;
  MUST(cudaDeviceEnablePeerAccess(1, 0));
  return true;
}

static void cpusByTurns(int rounds) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::vector<Arm> arms;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &all))
      for (bool full : {false, true}) arms.push_back({full ? "launched from one CPU, the queue is full" : "launched from one CPU", full ? kSpins : kWrites, -1, cpu, full, {}});
  for (int round = 0; round < rounds; round++)
    for (Arm &arm : arms) {
      CPU_ZERO(&one);
      CPU_SET(arm.cpu, &one);
      if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
      const double us = once(arm.kernel, -1, arm.full);
      if (us > 0) arm.us.push_back(us);
    }
  sched_setaffinity(0, sizeof all, &all);
  for (Arm &arm : arms) show(arm);
}

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 7;
  if (argc > 2 || rounds < 1) {
    fprintf(stderr, "gaps [ROUNDS]: how many times each is measured, 1 or more (7)\n");
    return 1;
  }
  MUST(cudaSetDevice(0));
  MUST(cudaHostAlloc((void **)&go, sizeof *go, cudaHostAllocMapped));
  *go = 0;
  MUST(cudaHostGetDevicePointer((void **)&goThere, go, 0));
  MUST(cudaMalloc((void **)&words, kWords * sizeof *words));
  for (cudaEvent_t *event : {&begin, &end}) MUST(cudaEventCreate(event));
  for (cudaEvent_t &event : behind) MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (cudaStream_t &stream : streams) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaFuncAttributes loaded; /* kernels are loaded when they are first asked for, which may wait for those that run */
  for (const void *kernel : {(const void *)empty, (const void *)writes, (const void *)spins, (const void *)hold}) MUST(cudaFuncGetAttributes(&loaded, kernel));
  const double until = nowMs() + 500;
  while (nowMs() < until) once(kWrites, -1, false); /* clocks */
  streamsByTurns("a stream waits", rounds);
  cpusByTurns(std::min(rounds, 5));
  if (reachPeer()) streamsByTurns("a stream waits, a peer's memory can be reached", rounds);
  return 0;
}
