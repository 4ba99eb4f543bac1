/* SPDX-License-Identifier: Apache-2.0
 *
 * How long it is from a kernel to the next one of its stream, which waits to be launched already: alone, beside another stream that waits for
 * the kernels' events, as a collective's does in a backward pass, launched from each CPU, with a peer's memory reachable, and beside a kernel that
 * writes to it, in the same domain of memory operations or in another one. One GPU, and a second one to reach; nothing of NCCL's.
 *   gaps [ROUNDS [TURNS]]
 * TURNS: beside one stream alone, which is made when so many others have been made, have had work and are no more (docs/design/kernels.md, decision
 * 34); also where what waits on it is launched as NCCL launches a kernel, and kernels of that stream which wait for another's events each, as that
 * one does for theirs: so does NCCL with its calls (ncclLaunchPrepare and ncclLaunchFinish of 2.28.9).
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
constexpr int kPushThreads = 512, kPushes = 8, kMostPushers = 24; /* of a thread, of 16 bytes, between two looks */
constexpr int kCollectiveCtas = 24, kClusterCtas = 4, kCollectiveClocks = 150000, kCalls = 100;
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

static __global__ void __launch_bounds__(kPushThreads) spinsAsNccl() {
  const long long until = clock64() + kCollectiveClocks;
  while (clock64() < until) {}
}

/* Writes what a collective does, until the host's word is this turn. */
static __global__ void __launch_bounds__(kPushThreads) pushes(float4 *to, volatile uint32_t *stop, uint32_t turn, uint64_t limitNs) {
  float4 *own = to + (size_t)blockIdx.x * kPushThreads * kPushes + threadIdx.x;
  uint64_t began, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  for (bool over = false; !__syncthreads_or(over);) {
    for (int again = 0; again < 64; again++)
#pragma unroll
      for (int i = 0; i < kPushes; i++) own[i * kPushThreads] = make_float4((float)again, 1, 2, 3);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    over = threadIdx.x == 0 && (*stop == turn || now - began > limitNs);
  }
}

static uint32_t *go, *goThere, turn; /* go[1]: stop */
static float *words;
static float4 *peers;
static cpu_set_t allowed; /* CPUs of this process */
static cudaStream_t streams[kStreams], ncclsOwn;
static int turns = -1; /* that were taken before the only one was made; -1: there are all */
static cudaEvent_t begin, end, behind[kMoreParts], around[kMoreParts][2];

static double nowMs() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

enum Kernel { kEmpty, kWrites, kSpins };
static const char *const kNames[] = {"empty", "writes 4 MiB", "spins 15 us"};

static void launch(Kernel kernel) {
  if (kernel == kEmpty) empty<<<1, 32>>>();
  if (kernel == kWrites) writes<<<kWords / kThreads, kThreads>>>(words);
  if (kernel == kSpins) spins<<<1, 32>>>();
}

struct Arm {
  const char *name;
  Kernel kernel;
  int waiter = -1;     /* the stream that waits for each part's event; -1: none */
  bool timed = false;  /* with events round its own kernels, as calls have them that are timed */
  bool full = false;   /* more than the queue has room for, and the thread that launches waits for that; else all are launched before the first begins */
  int cpu = -1;        /* that launches; -1: any */
  int pushers = 0;     /* CTAs that write to a peer meanwhile, */
  bool remote = false; /* in the domain that is for that */
  bool asNccl = false; /* what waits is as long as a collective, in clusters and in that domain, and NCCL's own stream waits for it */
  bool calls = false;  /* the kernels are that stream's, and NCCL's own waits for each, and is waited for */
  std::vector<double> us = {};
};

static void push(const Arm &arm) {
  cudaLaunchAttribute domain = {};
  cudaLaunchConfig_t config = {};
  domain.id = cudaLaunchAttributeMemSyncDomain, domain.val.memSyncDomain = arm.remote ? cudaLaunchMemSyncDomainRemote : cudaLaunchMemSyncDomainDefault;
  config.gridDim = dim3((unsigned)arm.pushers), config.blockDim = dim3(kPushThreads), config.stream = streams[0], config.attrs = &domain, config.numAttrs = 1;
  MUST(cudaLaunchKernelEx(&config, pushes, peers, (volatile uint32_t *)(goThere + 1), turn, (uint64_t)(kMostMs * 1e6)));
}

static void waitFor(cudaStream_t stream, cudaStream_t other) {
  MUST(cudaEventRecord(behind[0], other));
  MUST(cudaStreamWaitEvent(stream, behind[0], 0));
}

static void launchWaiting(const Arm &arm) {
  if (!arm.asNccl) {
    empty<<<1, 32, 0, streams[arm.waiter]>>>();
    return;
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  attributes[0].id = cudaLaunchAttributeMemSyncDomain, attributes[0].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  attributes[1].id = cudaLaunchAttributeClusterDimension, attributes[1].val.clusterDim = {kClusterCtas, 1, 1};
  config.gridDim = dim3(kCollectiveCtas), config.blockDim = dim3(kPushThreads), config.stream = streams[arm.waiter], config.attrs = attributes, config.numAttrs = 2;
  waitFor(streams[arm.waiter], ncclsOwn);
  MUST(cudaLaunchKernelEx(&config, spinsAsNccl));
  waitFor(ncclsOwn, streams[arm.waiter]);
}

/* How many kernels they are. */
static int issueParts(const Arm &arm) {
  const int parts = arm.full ? kMoreParts : kParts;
  for (int part = 0; part < parts; part++) {
    for (int i = 0; i < kOfPart; i++) launch(arm.kernel);
    if (arm.waiter < 0) continue;
    const cudaStream_t waits = streams[arm.waiter];
    MUST(cudaEventRecord(behind[part], 0));
    MUST(cudaStreamWaitEvent(waits, behind[part], 0));
    if (arm.timed) MUST(cudaEventRecord(around[part][0], waits));
    launchWaiting(arm);
    if (arm.timed) MUST(cudaEventRecord(around[part][1], waits));
  }
  return parts * kOfPart;
}

static int issueCalls(cudaStream_t stream) {
  for (int call = 0; call < kCalls; call++) {
    waitFor(stream, ncclsOwn);
    empty<<<1, 32, 0, stream>>>();
    waitFor(ncclsOwn, stream);
  }
  return kCalls;
}

/* us of one kernel. Negative: the host was too slow to have all of them launched before the first began. */
static double once(const Arm &arm) {
  const double began = nowMs();
  const cudaStream_t stream = arm.calls ? streams[arm.waiter] : 0;
  turn++;
  if (arm.full) *(volatile uint32_t *)go = turn;
  if (arm.pushers > 0) push(arm);
  hold<<<1, 1, 0, stream>>>(goThere, turn, (uint64_t)(kMostMs * 1e6));
  MUST(cudaEventRecord(begin, stream));
  const int kernels = arm.calls ? issueCalls(stream) : issueParts(arm);
  MUST(cudaEventRecord(end, stream));
  MUST(cudaGetLastError());
  const bool queued = nowMs() - began < kMostMs / 2;
  *(volatile uint32_t *)go = turn;
  MUST(cudaEventSynchronize(end));
  *(volatile uint32_t *)(go + 1) = turn;
  MUST(cudaDeviceSynchronize());
  float ms;
  MUST(cudaEventElapsedTime(&ms, begin, end));
  return queued ? 1e3 * ms / kernels : -1;
}

static void show(Arm &arm) {
  printf("{\"figure\": \"from kernel to kernel\", \"arm\": \"%s\", \"kernel\": \"%s\", \"stream\": %d, \"timed\": %s, \"cpu\": %d, \"pushers\": %d, \"remote_domain\": %s, \"turns\": %d, \"rounds\": %zu, ",
         arm.name, kNames[arm.kernel], arm.waiter, arm.timed ? "true" : "false", arm.cpu, arm.pushers, arm.remote ? "true" : "false", turns, arm.us.size());
  std::sort(arm.us.begin(), arm.us.end());
  if (arm.us.empty()) printf("\"error\": \"launches took longer than %.0f ms\"}\n", kMostMs / 2);
  else printf("\"median_us\": %.3f, \"least_us\": %.3f, \"most_us\": %.3f}\n", arm.us[arm.us.size() / 2], arm.us.front(), arm.us.back());
}

/* True: this thread launches from one CPU, or, negative, from any. */
static bool pinned(int cpu) {
  cpu_set_t one = allowed;
  if (cpu >= 0) {
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
  }
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

static void measure(std::vector<Arm> &arms, int rounds) {
  for (int round = -1; round < rounds; round++) /* one before, in which what is made on first use is made */
    for (Arm &arm : arms) {
      if (!pinned(arm.cpu)) continue;
      const double us = once(arm);
      if (round >= 0 && us > 0) arm.us.push_back(us);
    }
  for (Arm &arm : arms) show(arm);
  fflush(stdout);
}

static void streamsByTurns(const char *name, int rounds) {
  std::vector<Arm> arms;
  for (Kernel kernel : {kEmpty, kWrites}) {
    for (const char *alone : {"alone", "alone, again"}) arms.push_back({alone, kernel});
    for (bool timed : {false, true})
      for (int i = 0; i < (timed ? kStreams / 3 : kStreams); i++) arms.push_back({name, kernel, i, timed});
  }
  for (bool full : {false, true})
    for (int waiter : {-1, 0, 1}) arms.push_back({full ? "the queue is full" : "the queue has room", kSpins, waiter, false, full});
  measure(arms, rounds);
}

static void cpusByTurns(int rounds) {
  std::vector<Arm> arms;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &allowed))
      for (bool full : {false, true}) arms.push_back({full ? "from one CPU, the queue is full" : "from one CPU", full ? kSpins : kWrites, -1, false, full, cpu});
  measure(arms, rounds);
}

/* True: another GPU's memory can be reached now. */
static bool reachPeer() {
  int count = 0, can = 0;
  MUST(cudaGetDeviceCount(&count));
  if (count > 1) MUST(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (!can) return false;
  MUST(cudaSetDevice(1));
  MUST(cudaMalloc((void **)&peers, sizeof *peers * kMostPushers * kPushThreads * kPushes));
  MUST(cudaSetDevice(0));
  MUST(cudaDeviceEnablePeerAccess(1, 0));
  return true;
}

static void pushersByTurns(int rounds) {
  std::vector<Arm> arms;
  for (Kernel kernel : {kEmpty, kWrites})
    for (int pushers : {0, 1, 8, kMostPushers})
      for (bool remote : {false, true}) arms.push_back({"beside a kernel that writes to a peer", kernel, -1, false, false, -1, pushers, remote});
  measure(arms, rounds);
}

/* Behind the default stream's first work, and that of NCCL's own. */
static void takeTurns() {
  empty<<<1, 32>>>();
  MUST(cudaDeviceSynchronize());
  MUST(cudaStreamCreateWithFlags(&ncclsOwn, cudaStreamNonBlocking));
  MUST(cudaMemsetAsync(words, 0, sizeof *words, ncclsOwn));
  for (int turn = 0; turn < turns; turn++) {
    cudaStream_t other;
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    MUST(cudaMemsetAsync(words, 0, sizeof *words, other));
    MUST(cudaStreamSynchronize(other));
    MUST(cudaStreamDestroy(other));
  }
}

static void besideOne(int rounds) {
  std::vector<Arm> arms;
  static const char *const names[2][3] = {{"alone", "one stream", "one stream as NCCL's"},
                                          {"alone, the queue is full", "one stream, the queue is full", "one stream as NCCL's, the queue is full"}};
  for (Kernel kernel : {kEmpty, kWrites, kSpins})
    for (bool full : {false, true})
      for (int beside = 0; beside < 3; beside++) {
        arms.push_back({names[full][beside], kernel, beside == 0 ? -1 : 0, false, full});
        arms.back().asNccl = beside == 2;
      }
  for (bool full : {false, true}) {
    arms.push_back({full ? "calls as NCCL makes them, as fast as the host is" : "calls as NCCL makes them", kEmpty, 0, false, full});
    arms.back().calls = true;
  }
  measure(arms, rounds);
}

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 7;
  if (argc > 2) turns = atoi(argv[2]);
  if (argc > 3 || rounds < 1 || (argc > 2 && turns < 0)) {
    fprintf(stderr, "gaps [ROUNDS [TURNS]]: how many times each is measured, 1 or more (7); turns of other streams, 0 or more, before the only one is made\n");
    return 1;
  }
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    perror("gaps: CPUs");
    return 1;
  }
  MUST(cudaSetDevice(0));
  MUST(cudaHostAlloc((void **)&go, 2 * sizeof *go, cudaHostAllocMapped));
  go[0] = go[1] = 0;
  MUST(cudaHostGetDevicePointer((void **)&goThere, go, 0));
  MUST(cudaMalloc((void **)&words, kWords * sizeof *words));
  for (cudaEvent_t *event : {&begin, &end}) MUST(cudaEventCreate(event));
  for (auto &pair : around)
    for (cudaEvent_t &event : pair) MUST(cudaEventCreate(&event));
  for (cudaEvent_t &event : behind) MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  if (turns >= 0) takeTurns();
  for (int i = 0; i < (turns < 0 ? kStreams : 1); i++) MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  cudaFuncAttributes loaded; /* kernels are loaded when they are first asked for, which may wait for those that run */
  for (const void *kernel : {(const void *)empty, (const void *)writes, (const void *)spins, (const void *)hold, (const void *)pushes, (const void *)spinsAsNccl}) MUST(cudaFuncGetAttributes(&loaded, kernel));
  const double until = nowMs() + 500;
  while (nowMs() < until) once({"clocks", kWrites});
  if (turns >= 0) return besideOne(rounds), 0;
  streamsByTurns("a stream waits", rounds);
  cpusByTurns(std::min(rounds, 5));
  if (!reachPeer()) return 0;
  streamsByTurns("a stream waits, a peer's memory can be reached", rounds);
  pushersByTurns(rounds);
  return 0;
}
