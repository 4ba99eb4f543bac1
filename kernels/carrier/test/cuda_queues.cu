/* SPDX-License-Identifier: Apache-2.0
 *
 * What keeps other streams, and other threads, waiting while a kernel is on the GPU for long: the measurement behind what the carrier asks of
 * CUDA's queues, and why it is told of kernels that put (docs/design/carrier.md, decision 31). One GPU, a few seconds, JSON lines:
 *   nvcc -std=c++17 -O2 -arch=native -o cuda_queues cuda_queues.cu -lpthread && CUDA_DEVICE_MAX_CONNECTIONS=32 ./cuda_queues
 * "streams that wait with others": CUDA gives streams few queues to the GPU. So many others wait for an event of that kernel, with kernels
 *   behind the wait; late: of 64 streams of greatest and of least priority, and of such with a copy, how many had not run what was put into
 *   them 200 ms ago.
 * "launches into a full queue": a thread launches kernels behind that one, of so many bytes of arguments, into one stream or by turns into
 *   several, until CUDA takes no more. Then another thread launches one into a stream of its own: whether it came through within 300 ms, and
 *   otherwise how long behind the kernel's end.
 */
#include <cuda_runtime.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

enum { STREAMS = 64, MOST_PARKED = 8 };

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const int failed_ = (int)(call);                                                   \
    if (failed_ != 0) { fprintf(stderr, "%s: CUDA error %d\n", #call, failed_); exit(1); } \
  } while (0)

struct Host {
  volatile uint32_t release;
  volatile uint32_t said[3][STREAMS]; /* rounds */
  volatile uint32_t other;
};

static __global__ void untilReleased(const volatile uint32_t *release, uint32_t round) {
  while ((int32_t)(*release - round) < 0) __nanosleep(1000);
}
static __global__ void say(volatile uint32_t *where, uint32_t round) {
  *where = round;
  __threadfence_system();
}

static int late(const volatile uint32_t *said, uint32_t round) {
  int n = 0;
  for (int i = 0; i < STREAMS; i++) n += said[i] != round;
  return n;
}

template <int BYTES>
struct Arguments {
  char bytes[BYTES];
};
template <int BYTES>
static __global__ void nothing(const __grid_constant__ Arguments<BYTES> a, volatile uint32_t *where) {
  if (a.bytes[BYTES - 1] != 0) *where = 1;
}

static double nowMs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

template <int BYTES>
static void fill(const char *gpu, const char *queues, Host *host, cudaStream_t communicating, cudaStream_t *into, int streams, cudaStream_t own, uint32_t round) {
  std::atomic<int> launched{0};
  std::atomic<double> passedMs{0};
  const Arguments<BYTES> a = {};
  nothing<BYTES><<<1, 1, 0, into[0]>>>(a, &host->other); /* loaded now */
  CHECK(cudaDeviceSynchronize());
  cudaEvent_t communicated;
  CHECK(cudaEventCreateWithFlags(&communicated, cudaEventDisableTiming));
  untilReleased<<<1, 1, 0, communicating>>>(&host->release, round);
  CHECK(cudaEventRecord(communicated, communicating));
  for (int i = 0; i < streams; i++) CHECK(cudaStreamWaitEvent(into[i], communicated, 0));
  std::thread filler([&] {
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 20000; i++, launched++) nothing<BYTES><<<1, 1, 0, into[i % streams]>>>(a, &host->other);
  });
  for (int before = -1; launched != before; usleep(200000)) before = launched;
  const int most = launched;
  std::thread other([&] {
    CHECK(cudaSetDevice(0));
    say<<<1, 1, 0, own>>>(&host->other, 1000 + round);
    passedMs = nowMs();
  });
  const double from = nowMs();
  while (host->other != 1000 + round && nowMs() - from < 300) usleep(100);
  const bool through = host->other == 1000 + round;
  const double released = nowMs();
  host->release = round;
  other.join();
  filler.join();
  CHECK(cudaDeviceSynchronize());
  printf("{\"figure\": \"launches into a full queue\", \"gpu\": \"%s\", \"queues\": \"%s\", \"argument_bytes\": %d, \"streams\": %d, \"launched\": %d, \"full\": %s, \"another_came_through\": %s, "
         "\"ms_behind_release\": %.1f}\n", gpu, queues, BYTES, streams, most, most < 20000 ? "true" : "false", through ? "true" : "false", through ? 0 : passedMs - released);
  fflush(stdout);
}

int main() {
  Host *host;
  uint32_t *source;
  int least, greatest;
  cudaDeviceProp gpu;
  CHECK(cudaSetDevice(0));
  CHECK(cudaGetDeviceProperties(&gpu, 0));
  CHECK(cudaHostAlloc((void **)&host, sizeof *host, cudaHostAllocMapped));
  *host = {};
  CHECK(cudaMalloc((void **)&source, sizeof *source));
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t streams[3][STREAMS], waiting[MOST_PARKED], communicating;
  cudaEvent_t communicated;
  CHECK(cudaStreamCreateWithFlags(&communicating, cudaStreamNonBlocking));
  for (auto &s : waiting) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (int kind = 0; kind < 3; kind++)
    for (auto &s : streams[kind]) CHECK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, kind == 1 ? least : greatest));
  CHECK(cudaEventCreateWithFlags(&communicated, cudaEventDisableTiming));
  say<<<1, 1>>>(&host->said[0][0], 0); /* loaded now */
  untilReleased<<<1, 1>>>(&host->release, 0);
  CHECK(cudaDeviceSynchronize());
  const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  uint32_t round = 0;
  for (int parked : {0, 1, 2, 4, 8}) {
    round++;
    CHECK(cudaMemcpy(source, &round, sizeof round, cudaMemcpyHostToDevice));
    untilReleased<<<1, 1, 0, communicating>>>(&host->release, round);
    CHECK(cudaEventRecord(communicated, communicating));
    for (int i = 0; i < parked; i++) {
      CHECK(cudaStreamWaitEvent(waiting[i], communicated, 0));
      for (int k = 0; k < 4; k++) say<<<1, 1, 0, waiting[i]>>>(&host->other, round);
    }
    for (int kind = 0; kind < 2; kind++)
      for (int i = 0; i < STREAMS; i++) say<<<1, 1, 0, streams[kind][i]>>>(&host->said[kind][i], round);
    for (int i = 0; i < STREAMS; i++) CHECK(cudaMemcpyAsync((void *)&host->said[2][i], source, sizeof round, cudaMemcpyDeviceToHost, streams[2][i]));
    usleep(200000);
    printf("{\"figure\": \"streams that wait with others\", \"gpu\": \"%s\", \"queues\": \"%s\", \"parked\": %d, \"streams\": %d, \"late_greatest\": %d, \"late_least\": %d, \"late_copies\": %d}\n",
           gpu.name, queues == nullptr ? "unset" : queues, parked, STREAMS, late(host->said[0], round), late(host->said[1], round), late(host->said[2], round));
    fflush(stdout);
    host->release = round;
    CHECK(cudaDeviceSynchronize());
    for (int kind = 0; kind < 3; kind++)
      if (late(host->said[kind], round) != 0) return fprintf(stderr, "a stream never ran\n"), 1;
  }
  if (queues == nullptr) queues = "unset";
  for (int several : {1, 4}) {
    fill<16>(gpu.name, queues, host, communicating, waiting, several, streams[0][0], ++round);
    fill<1024>(gpu.name, queues, host, communicating, waiting, several, streams[0][0], ++round);
    fill<4000>(gpu.name, queues, host, communicating, waiting, several, streams[0][0], ++round);
  }
  return 0;
}
