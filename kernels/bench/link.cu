/* SPDX-License-Identifier: Apache-2.0
 *
 * What links between GPUs carry, by each way that a kernel, or a copy engine, can move bytes: the roof that kernels in bulk stand under.
 *   link [--mib N] [--ctas N,N,...]
 * Each GPU moves --mib (64) MiB to each of its peers (push) or from it (pull), all GPUs at once, of two GPUs and of all. By threads: 16 bytes an
 * instruction, eight in flight a thread, as device/copy.cuh. By bulk: cp.async.bulk through shared memory (sm_90 and newer), one thread a
 * block, so many chunks of so many bytes in flight. Median of 5 batches of 5 launches; the slowest GPU's time; gbs: what each GPU sends, and
 * as much comes, in 10^9 bytes a second. wrong: words that did not arrive. JSON lines. Exit: 0 if all did, 2 where GPUs do not reach each other.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#define CUDA(call)                                                                                          \
  do {                                                                                                      \
    cudaError_t e = (call);                                                                                 \
    if (e != cudaSuccess) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)), exit(1); \
  } while (0)

constexpr int kMostGpus = 8, kLaunches = 5, kBatches = 5, kAtOnce = 8;

/* Of one GPU: bytes from and to, for each peer. Blocks take chunk after chunk, of the peers by turns. */
struct Moves {
  const char *from[kMostGpus];
  char *to[kMostGpus];
  int peers;
  size_t bytes; /* of each */
};

__global__ void byThreads(Moves m) {
  const size_t words = m.bytes / sizeof(uint4), stride = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (size_t i = first; i < words; i += kAtOnce * stride)
    for (int p = 0; p < m.peers; p++) {
      const uint4 *from = (const uint4 *)m.from[p];
      uint4 *to = (uint4 *)m.to[p], loaded[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; u++)
        if (i + u * stride < words) loaded[u] = from[i + u * stride];
#pragma unroll
      for (int u = 0; u < kAtOnce; u++)
        if (i + u * stride < words) to[i + u * stride] = loaded[u];
    }
}

__device__ __forceinline__ uint32_t shared32(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }

/* One thread: chunks are loaded as far ahead as there are places, stored when they are there, and a place is taken again once its store has
 * read it. */
__global__ void byBulk(Moves m, uint32_t chunk, int places) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char space[];
  __shared__ __align__(8) uint64_t come[32]; /* places at most */
  if (threadIdx.x != 0) return;
  for (int i = 0; i < places; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared32(&come[i])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  const size_t chunks = m.bytes / chunk * m.peers, own = chunks / gridDim.x + (blockIdx.x < chunks % gridDim.x);
  const auto at = [&](size_t i) { return (blockIdx.x + i * gridDim.x) / m.peers * chunk; };
  const auto peer = [&](size_t i) { return (blockIdx.x + i * gridDim.x) % m.peers; };
  const auto load = [&](size_t i) {
    const uint32_t place = (uint32_t)(i % places), barrier = shared32(&come[place]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(chunk) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared32(space + place * chunk)),
                 "l"(m.from[peer(i)] + at(i)), "r"(chunk), "r"(barrier) : "memory");
  };
  for (size_t i = 0; i < own && i < (size_t)places; i++) load(i);
  for (size_t i = 0; i < own; i++) {
    const uint32_t place = (uint32_t)(i % places), barrier = shared32(&come[place]), parity = (uint32_t)(i / places) & 1;
    asm volatile("{ .reg .pred there; again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1; @!there bra again; }" ::"r"(barrier), "r"(parity) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(m.to[peer(i)] + at(i)), "r"(shared32(space + place * chunk)), "r"(chunk) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (i + 1 >= (size_t)places / 2 && i + 1 - places / 2 + places < own) { /* half of the places behind: its store has most likely read it */
      if (places >= 32) asm volatile("cp.async.bulk.wait_group.read 15;" ::: "memory");
      else if (places >= 16) asm volatile("cp.async.bulk.wait_group.read 7;" ::: "memory");
      else if (places >= 8) asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
      else asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      load(i + 1 - places / 2 + places);
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t valueOf(int gpu, int peer, size_t word) { return (uint32_t)(word * 2654435761u) + gpu * 17 + peer * 257 + 1; }
__global__ void fill(uint32_t *at, size_t words, int gpu, int peer) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) at[i] = gpu < 0 ? 0 : valueOf(gpu, peer, i);
}
__global__ void compare(const uint32_t *at, size_t words, int gpu, int peer, unsigned long long *wrong) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    if (at[i] != valueOf(gpu, peer, i)) atomicAdd(wrong, 1ull);
}

/* source: a part for each GPU; result: what each has for this one. */
struct Gpu {
  char *source, *result;
  cudaStream_t streams[kMostGpus];
  cudaEvent_t begun, ended, joined[kMostGpus];
  unsigned long long *wrong;
};
static Gpu gpus[kMostGpus];
static size_t bytes = (size_t)64 << 20;
static unsigned long long allWrong;

static Moves movesOf(int n, int g, bool pull) {
  Moves m = {};
  m.bytes = bytes;
  for (int k = 1; k < n; k++, m.peers++) { /* each begins with another one */
    const int p = (g + k) % n;
    m.from[m.peers] = pull ? gpus[p].source + g * bytes : gpus[g].source + p * bytes;
    m.to[m.peers] = pull ? gpus[g].result + p * bytes : gpus[p].result + g * bytes;
  }
  return m;
}

static void measure(int n, bool pull, const std::string &what, const std::function<void(int, const Moves &)> &move) {
  std::vector<float> us;
  unsigned long long wrong = 0;
  for (int g = 0; g < n; g++) {
    CUDA(cudaSetDevice(g));
    fill<<<256, 256, 0, gpus[g].streams[0]>>>((uint32_t *)gpus[g].result, kMostGpus * bytes / 4, -1, 0);
    CUDA(cudaStreamSynchronize(gpus[g].streams[0]));
  }
  for (int batch = -1; batch < kBatches; batch++) {
    float slowest = 0;
    for (int g = 0; g < n; g++) {
      CUDA(cudaSetDevice(g));
      CUDA(cudaEventRecord(gpus[g].begun, gpus[g].streams[0]));
      for (int i = 0; i < kLaunches; i++) move(g, movesOf(n, g, pull));
      CUDA(cudaEventRecord(gpus[g].ended, gpus[g].streams[0]));
    }
    for (int g = 0; g < n; g++) {
      float ms;
      CUDA(cudaSetDevice(g));
      CUDA(cudaStreamSynchronize(gpus[g].streams[0]));
      CUDA(cudaEventElapsedTime(&ms, gpus[g].begun, gpus[g].ended));
      slowest = std::max(slowest, ms * 1000 / kLaunches);
    }
    if (batch >= 0) us.push_back(slowest);
  }
  for (int g = 0; g < n; g++) {
    CUDA(cudaSetDevice(g));
    CUDA(cudaMemsetAsync(gpus[g].wrong, 0, sizeof *gpus[g].wrong, gpus[g].streams[0]));
    for (int p = 0; p < n; p++)
      if (p != g) compare<<<256, 256, 0, gpus[g].streams[0]>>>((const uint32_t *)(gpus[g].result + p * bytes), bytes / 4, p, g, gpus[g].wrong);
    unsigned long long here;
    CUDA(cudaMemcpy(&here, gpus[g].wrong, sizeof here, cudaMemcpyDeviceToHost));
    wrong += here;
  }
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  printf("{\"figure\":\"link\",\"gpus\":%d,\"way\":\"%s\",%s,\"bytes\":%zu,\"us\":%.1f,\"spread_us\":%.1f,\"gbs\":%.1f,\"wrong\":%llu}\n", n, pull ? "pull" : "push",
         what.c_str(), bytes * (n - 1), median, us.back() - us.front(), (double)bytes * (n - 1) / median / 1e3, wrong);
  fflush(stdout);
  allWrong += wrong;
}

static void byEngines(int g, const Moves &m) {
  CUDA(cudaEventRecord(gpus[g].joined[0], gpus[g].streams[0]));
  for (int p = 0; p < m.peers; p++) {
    cudaStream_t stream = gpus[g].streams[p + 1];
    CUDA(cudaStreamWaitEvent(stream, gpus[g].joined[0]));
    CUDA(cudaMemcpyAsync(m.to[p], m.from[p], m.bytes, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaEventRecord(gpus[g].joined[p + 1], stream));
    CUDA(cudaStreamWaitEvent(gpus[g].streams[0], gpus[g].joined[p + 1]));
  }
}

static void measureAll(int n, const std::vector<int> &ctas) {
  struct Chunks { uint32_t bytes; int places; };
  const Chunks chunks[] = {{2048, 32}, {4096, 16}, {4096, 32}, {16384, 4}, {16384, 8}, {32768, 4}};
  int major;
  CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  for (bool pull : {false, true}) {
    measure(n, pull, "\"by\":\"engines\"", byEngines);
    for (int blocks : ctas)
      for (int threads : {256, 512})
        measure(n, pull, "\"by\":\"threads\",\"ctas\":" + std::to_string(blocks) + ",\"threads\":" + std::to_string(threads),
                [=](int g, const Moves &m) { byThreads<<<blocks, threads, 0, gpus[g].streams[0]>>>(m); });
    for (int blocks : ctas)
      for (const Chunks &c : chunks)
        if (major >= 9)
          measure(n, pull, "\"by\":\"bulk\",\"ctas\":" + std::to_string(blocks) + ",\"chunk\":" + std::to_string(c.bytes) + ",\"places\":" + std::to_string(c.places),
                  [=](int g, const Moves &m) { byBulk<<<blocks, 32, c.bytes * c.places, gpus[g].streams[0]>>>(m, c.bytes, c.places); });
  }
}

int main(int argc, char **argv) {
  std::vector<int> ctas = {8, 16, 32, 64, 128};
  for (int i = 1; i < argc; i++) {
    const bool last = i + 1 == argc;
    if (!strcmp(argv[i], "--mib") && !last) bytes = (size_t)std::max(1, atoi(argv[++i])) << 20;
    else if (!strcmp(argv[i], "--ctas") && !last) {
      ctas.clear();
      for (char *at = argv[++i]; *at != 0; at += *at == ',') ctas.push_back(std::max(1, (int)strtol(at, &at, 10)));
    } else return fprintf(stderr, "link [--mib N] [--ctas N,N,...]: no %s\n", argv[i]), 2;
  }
  int n;
  CUDA(cudaGetDeviceCount(&n));
  n = std::min(n, kMostGpus);
  if (n < 2) return fprintf(stderr, "link: %d GPU; two or more are needed\n", n), 2;
  for (int g = 0; g < n; g++) {
    CUDA(cudaSetDevice(g));
    for (int p = 0; p < n; p++) {
      int can = 1;
      if (p != g) CUDA(cudaDeviceCanAccessPeer(&can, g, p));
      if (!can) return fprintf(stderr, "link: GPU %d cannot reach GPU %d\n", g, p), 2;
      if (p != g) CUDA(cudaDeviceEnablePeerAccess(p, 0));
    }
    CUDA(cudaMalloc(&gpus[g].source, kMostGpus * bytes));
    CUDA(cudaMalloc(&gpus[g].result, kMostGpus * bytes));
    CUDA(cudaMalloc(&gpus[g].wrong, sizeof *gpus[g].wrong));
    for (int p = 0; p < kMostGpus; p++) CUDA(cudaStreamCreateWithFlags(&gpus[g].streams[p], cudaStreamNonBlocking));
    for (int p = 0; p < kMostGpus; p++) CUDA(cudaEventCreateWithFlags(&gpus[g].joined[p], cudaEventDisableTiming));
    CUDA(cudaEventCreate(&gpus[g].begun));
    CUDA(cudaEventCreate(&gpus[g].ended));
    CUDA(cudaFuncSetAttribute(byBulk, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 << 10));
    for (int p = 0; p < kMostGpus; p++) fill<<<256, 256>>>((uint32_t *)(gpus[g].source + p * bytes), bytes / 4, g, p);
    CUDA(cudaDeviceSynchronize());
  }
  measureAll(2, ctas);
  if (n > 2) measureAll(n, ctas);
  return allWrong != 0;
}
