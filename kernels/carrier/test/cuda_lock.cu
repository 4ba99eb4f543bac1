/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUDA's driver keeps its context's lock for while kernels are on the GPU, or are parked behind cuStreamWaitValue32: the
 * measurement behind decision 31 (docs/design/carrier.md). One GPU, 10 s; every part is bounded by a watchdog thread, for some calls
 * let no signal in.     nvcc -std=c++17 -O2 -arch=native -o cuda_lock cuda_lock.cu -lcuda -lpthread && ./cuda_lock
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cstdint>
#include <atomic>
#include <thread>
#include <vector>
#include <functional>
#include <algorithm>

#define SAY(...) do { printf(__VA_ARGS__); fflush(stdout); beat = now(); } while (0)
#define CK(x) do { int e_ = (int)(x); if (e_) SAY("  FAILED %s -> %d (line %d)\n", #x, e_, __LINE__); } while (0)
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; } // us
static std::atomic<double> beat{0};
struct Host { volatile uint32_t stop; uint32_t pad[31]; volatile uint32_t word[64][32], flag[64][32]; };
static Host *h;
static CUcontext ctx;
enum { NS = 40 };
static CUstream hi[NS], lo[NS];

__device__ unsigned long long gt() { unsigned long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
__global__ void spin(volatile uint32_t *stop, unsigned long long mostNs) { unsigned long long t = gt(); while (*stop == 0 && gt() - t < mostNs) __nanosleep(100); }
__global__ void nop(int *p) { if (p != nullptr) *p = 1; }
__global__ void say(volatile uint32_t *flag, uint32_t value) { *flag = value; __threadfence_system(); }
__global__ void stay(volatile uint32_t *flag, uint32_t value, unsigned long long ns) { *flag = value; __threadfence_system(); unsigned long long t = gt(); while (gt() - t < ns) ; }
__global__ void never(int *p) { if (p != nullptr) *p = 2; }   // loaded late, on purpose
__global__ void never2(int *p) { if (p != nullptr) *p = 3; }
__global__ void stacky(int *p, int n) { volatile int a[6000]; for (int i = 0; i < 6000; i++) a[i] = n; if (p != nullptr) *p = a[n]; }

static void releaseAll() { h->stop = 1; for (int i = 0; i < 64; i++) h->word[i][0] = 0x7fffffff; }
static void dog() {
  bool let = false;
  for (double begin = now();; usleep(50000)) {
    double quiet = now() - beat;
    if (quiet > 6e6 && !let) { printf("WATCHDOG: 6 s without a line: everything released\n"); fflush(stdout); releaseAll(); let = true; }
    if (quiet > 10e6 || now() - begin > 90e6) { printf("WATCHDOG: gives up\n"); fflush(stdout); releaseAll(); usleep(100000); _exit(3); }
    if (quiet < 1e6) let = false;
  }
}
static void push() { CK(cuCtxSetCurrent(ctx)); }

// A thread that stands ready, with the context or without, and does one thing when asked.
struct Asked {
  std::atomic<int> go{0}, state{0}; std::atomic<double> us{0};
  std::thread t; const char *what;
  Asked(const char *w, bool has, std::function<void()> f) : what(w) {
    t = std::thread([this, f, has] { if (has) push(); state = 1; while (!go) usleep(5); double b = now(); f(); us = now() - b; state = 2; });
    while (!state) usleep(10);
  }
  bool ask(double limit, bool print = true) {
    double b = now(); go = 1; while (state != 2 && now() - b < limit) usleep(5);
    if (print) { if (state == 2) SAY("    %-46s %.0f us\n", what, us.load()); else SAY("    %-46s BLOCKED for %.0f ms and on\n", what, limit / 1000); }
    return state == 2;
  }
  ~Asked() { go = 1; t.join(); }
};

static void full(const char *name, std::function<int(int)> one, int most) {
  SAY("(1,2) %s\n", name);
  h->stop = 0; for (int i = 0; i < 3; i++) h->word[i][0] = 0, h->flag[i][0] = 0;
  for (int i = 0; i < 3; i++) { CK(cuStreamWaitValue32(hi[i], (CUdeviceptr)&h->word[i][0], 1, CU_STREAM_WAIT_VALUE_GEQ)); say<<<1, 1, 0, (cudaStream_t)hi[i]>>>(&h->flag[i][0], 1); }
  CUevent ev; CK(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING)); CK(cuEventRecord(ev, hi[10]));
  {
    Asked p("cuCtxPushCurrent, no context before", false, [] { cuCtxPushCurrent(ctx); CUcontext c; cuCtxPopCurrent(&c); }), a("cuEventQuery, context current", true, [&] { cuEventQuery(ev); }),
        b("cuStreamQuery of another stream, current", true, [] { cuStreamQuery(hi[11]); }), f("cuCtxPushCurrent, context current", true, [] { cuCtxPushCurrent(ctx); CUcontext x; cuCtxPopCurrent(&x); }),
        c("cuStreamWriteValue32, another stream, current", true, [] { cuStreamWriteValue32(hi[12], (CUdeviceptr)&h->flag[40][0], 7, 0); }),
        e("cuLaunchKernel, another stream, current", true, [] { say<<<1, 1, 0, (cudaStream_t)hi[13]>>>(&h->flag[42][0], 1); });
    spin<<<1, 1, 0, (cudaStream_t)lo[0]>>>(&h->stop, 15000000000ull); CK(cudaGetLastError());
    std::atomic<int> count{0}, done{0};
    std::thread launcher([&] { push(); for (int i = 0; i < most; i++) { if (one(i)) { SAY("  launch failed\n"); break; } count++; } done = 1; });
    int seen = -1; double since = now(), begin = now();
    while (!done && now() - begin < 2.5e6) { int k = count; if (k != seen) seen = k, since = now(); if (now() - since > 200000) break; usleep(500); }
    SAY("  launches that came back: %d of %d; the thread %s\n", count.load(), most, done ? "is through (nothing was full)" : "WAITS in a launch");
    p.ask(2e6); f.ask(100000), a.ask(100000), b.ask(100000), c.ask(100000), e.ask(100000);
    for (int i = 0; i < 3; i++) {
      double t = now(); h->word[i][0] = 1;
      while (h->flag[i][0] == 0 && now() - t < 300000) ;
      if (h->flag[i][0]) SAY("    host store -> parked kernel %d seen: %.1f us\n", i, now() - t); else SAY("    host store -> parked kernel %d: NOT STARTED within 300 ms\n", i);
    }
    SAY("  the launching thread: %s\n", done ? "is through" : "still waits");
    h->stop = 1; double t = now(); launcher.join(); SAY("  released: launcher back after %.1f ms, %d launches\n", (now() - t) / 1000, count.load());
  }
  CK(cudaDeviceSynchronize()); cuEventDestroy(ev);
}

// (6) a call while the GPU is: empty, has a kernel of one warp that stays 250 ms, has a kernel parked for 250 ms. What can others do meanwhile?
static void holds(const char *name, std::function<void()> call, std::function<void()> before = nullptr) {
  for (int kind = 0; kind < 3; kind++) {
    const char *kinds[] = {"GPU empty", "a kernel is there", "a kernel is parked"};
    if (before) before();
    CK(cudaDeviceSynchronize());
    h->stop = 0; h->word[0][0] = h->word[1][0] = 0;
    CUevent ev; CK(cuEventCreate(&ev, CU_EVENT_DISABLE_TIMING)); CK(cuEventRecord(ev, hi[10])); CK(cuEventSynchronize(ev));
    Asked a("cuEventQuery", true, [&] { cuEventQuery(ev); }), p("cuCtxPushCurrent", false, [] { cuCtxPushCurrent(ctx); CUcontext c; cuCtxPopCurrent(&c); }),
        g("cuCtxGetId, no context", false, [] { unsigned long long id; cuCtxGetId(ctx, &id); }),
        e("launch", true, [] { say<<<1, 1, 0, (cudaStream_t)hi[13]>>>(&h->flag[42][0], 1); }), c("the call", true, call);
    if (kind == 1) spin<<<1, 32, 0, (cudaStream_t)hi[0]>>>(&h->stop, 4000000000ull);
    if (kind == 2) { cuStreamWaitValue32(hi[0], (CUdeviceptr)&h->word[0][0], 1, CU_STREAM_WAIT_VALUE_GEQ); say<<<1, 1, 0, (cudaStream_t)hi[0]>>>(&h->flag[0][0], 1); }
    usleep(2000);
    double t0 = now();
    SAY("(6) %-34s %-18s: ", name, kinds[kind]);
    bool back = c.ask(30000, false);
    if (back) { SAY("%.2f ms\n", c.us / 1000); }
    else {
      bool q = a.ask(20000, false), r = p.ask(20000, false), i = g.ask(20000, false), s = e.ask(20000, false);
      const auto is = [](bool passes) { return passes ? "passes" : "BLOCKED"; };
      SAY("WAITS; meanwhile others' cuEventQuery %s, cuCtxPushCurrent %s, cuCtxGetId %s, launch %s; ", is(q), is(r), is(i), is(s));
      while (now() - t0 < 250000) usleep(500);
      double at = now(); h->stop = 1; h->word[0][0] = 1;
      while (c.state != 2 && now() - at < 3e6) usleep(50);
      SAY("%s %.2f ms after the release\n", c.state == 2 ? "back" : "NOT BACK", (now() - at) / 1000);
    }
    h->stop = 1; h->word[0][0] = 1;
    a.ask(1e6, false), p.ask(1e6, false), e.ask(1e6, false);
    while (c.state != 2 && now() - t0 < 8e6) usleep(1000);
    if (c.state != 2) { SAY("  gives up here\n"); releaseAll(); _exit(4); }
    CK(cudaDeviceSynchronize()); cuEventDestroy(ev);
  }
}

// (3) a chain in hi[0], without parking: unit k+1 stands directly behind k, which goes after `ns` only if its successor is enqueued (word 1 says its number).
__global__ void unit(volatile uint32_t *next, volatile uint32_t *begun, uint32_t number, unsigned long long ns, unsigned long long aloneNs) {
  if (threadIdx.x == 0) *begun = number;
  unsigned long long t = gt();
  for (;;) { unsigned long long d = gt() - t; if (d > aloneNs) { if (threadIdx.x == 0) begun[32]++; return; } if (d > ns && (int)(*next - number) > 0) return; __nanosleep(200); }
}
static void chain(const char *name, unsigned long long ns, unsigned long long aloneNs, std::function<void()> sync, double forUs) {
  SAY("(3) %-46s", name);
  h->word[1][0] = 0; h->word[2][0] = 0; h->word[3][0] = 0;
  std::atomic<int> end{0}, rounds{0}; std::atomic<double> worst{0};
  std::thread b([&] {
    push(); uint32_t k = 0;
    while (!end) {
      double t0 = now(); k++;
      unit<<<1, 32, 0, (cudaStream_t)hi[0]>>>(&h->word[1][0], &h->word[2][0], k, ns, aloneNs);
      double took = now() - t0; if (took > worst) worst = took;
      h->word[1][0] = k;
      while (h->word[2][0] != k && !end) usleep(20);
      rounds++;
    }
    h->word[1][0] = k + 1000;
  });
  usleep(20000);
  std::vector<double> us; double t0 = now(); push();
  while (now() - t0 < forUs && us.size() < 200) { double t = now(); sync(); us.push_back(now() - t); usleep(300 + rand() % 3000); }
  end = 1; b.join(); CK(cudaDeviceSynchronize());
  std::sort(us.begin(), us.end());
  SAY(" call median %.2f ms, worst %.2f of %zu; %d units, %u ended alone; longest launch %.2f ms\n", us[us.size() / 2] / 1000, us.back() / 1000, us.size(), rounds.load(), h->word[3][0], worst.load() / 1000);
}

static void others(const char *name, CUstream *s, int parkedCount) {
  SAY("(5) %s: ", name);
  for (int i = 0; i < 64; i++) h->word[i][0] = 0, h->flag[i][0] = 0;
  for (int i = 0; i < parkedCount; i++) { CK(cuStreamWaitValue32(hi[i], (CUdeviceptr)&h->word[i][0], 1, CU_STREAM_WAIT_VALUE_GEQ)); say<<<1, 1, 0, (cudaStream_t)hi[i]>>>(&h->flag[i][0], 1); }
  int waited = 0, wrong = 0;
  for (int i = 0; i < 16; i++) { say<<<1, 1, 0, (cudaStream_t)s[i]>>>(&h->flag[32 + i][0], 1); double t = now(); while (h->flag[32 + i][0] == 0 && now() - t < 20000) ; waited += h->flag[32 + i][0] == 0; }
  for (int i = parkedCount - 1; i >= 0; i--) { h->word[i][0] = 1; double t = now(); while (h->flag[i][0] == 0 && now() - t < 20000) ; wrong += h->flag[i][0] == 0; }
  CK(cudaDeviceSynchronize());
  SAY("of 16 streams %d waited for a parked one; of %d parked ones %d did not start on their own word alone\n", waited, parkedCount, wrong);
}

int main() {
  beat = now(); std::thread(dog).detach();
  CK(cudaSetDevice(0)); CK(cudaFree(nullptr)); CK(cuCtxGetCurrent(&ctx));
  CUdevice dev; CK(cuCtxGetDevice(&dev)); int dr = 0; CK(cuDriverGetVersion(&dr)); cudaDeviceProp prop; CK(cudaGetDeviceProperties(&prop, 0));
  SAY("%s, driver %d, CUDA_DEVICE_MAX_CONNECTIONS %s\n", prop.name, dr, getenv("CUDA_DEVICE_MAX_CONNECTIONS") ? getenv("CUDA_DEVICE_MAX_CONNECTIONS") : "unset");
  CK(cuMemHostAlloc((void **)&h, sizeof *h, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)); memset((void *)h, 0, sizeof *h);
  int least, greatest; CK(cuCtxGetStreamPriorityRange(&least, &greatest));
  for (int i = 0; i < NS; i++) { CK(cuStreamCreateWithPriority(&hi[i], CU_STREAM_NON_BLOCKING, greatest)); CK(cuStreamCreateWithPriority(&lo[i], CU_STREAM_NON_BLOCKING, least)); }
  h->stop = 1; spin<<<1, 1>>>(&h->stop, 1000); nop<<<1, 1>>>(nullptr); say<<<1, 1>>>(&h->flag[63][0], 1); stay<<<1, 32>>>(&h->flag[63][0], 1, 1000);
  h->word[1][0] = 9; unit<<<1, 32>>>(&h->word[1][0], &h->word[2][0], 1, 1000, 1000); CK(cudaDeviceSynchronize());
  for (int i = 0; i < NS; i++) { nop<<<1, 1, 0, (cudaStream_t)hi[i]>>>(nullptr); nop<<<1, 1, 0, (cudaStream_t)lo[i]>>>(nullptr); }
  CK(cudaDeviceSynchronize());
  cudaGraph_t g; cudaGraphExec_t x; cudaStream_t cap = (cudaStream_t)lo[0];
  CK(cudaStreamBeginCapture(cap, cudaStreamCaptureModeRelaxed)); for (int i = 0; i < 20; i++) nop<<<1, 1, 0, cap>>>(nullptr); CK(cudaStreamEndCapture(cap, &g)); CK(cudaGraphInstantiate(&x, g, 0));
  CK(cudaGraphLaunch(x, cap)); CK(cudaStreamSynchronize(cap));

  full("kernel launches into one stream behind a kernel that spins", [](int) { nop<<<1, 1, 0, (cudaStream_t)lo[0]>>>(nullptr); return (int)cudaGetLastError(); }, 4000);
  full("launches of a graph of 20 kernels", [&](int) { return (int)cudaGraphLaunch(x, cap); }, 4000);
  full("kernels into two streams by turns, the second empty", [&](int i) { nop<<<1, 1, 0, (cudaStream_t)lo[i % 2]>>>(nullptr); return (int)cudaGetLastError(); }, 6000);

  void *piece = nullptr, *spare = nullptr, *p1 = nullptr; char *plain = (char *)malloc(1 << 20); CK(cudaMalloc(&piece, 1 << 20));
  CUstream made = nullptr; CUevent evm = nullptr; cudaGraphExec_t x2 = nullptr;
  holds("cudaDeviceSynchronize", [] { cudaDeviceSynchronize(); });
  holds("cudaFree of 8 MiB", [&] { cudaFree(spare); }, [&] { CK(cudaMalloc(&spare, 8 << 20)); });
  holds("cudaFree of 4 KiB", [&] { cudaFree(spare); }, [&] { CK(cudaMalloc(&spare, 4096)); });
  holds("cudaMalloc of 256 MiB", [&] { cudaMalloc(&p1, 256 << 20); }, [&] { if (p1) cudaFree(p1); p1 = nullptr; }); 
  holds("cudaMallocHost of 16 MiB", [&] { void *q; cudaMallocHost(&q, 16 << 20); });
  holds("cudaStreamCreate, non-blocking", [&] { cudaStreamCreateWithFlags((cudaStream_t *)&made, cudaStreamNonBlocking); });
  holds("the same and a launch into it", [&] { cudaStreamCreateWithFlags((cudaStream_t *)&made, cudaStreamNonBlocking); nop<<<1, 1, 0, (cudaStream_t)made>>>(nullptr); });
  holds("cudaStreamDestroy of it", [&] { cudaStreamDestroy((cudaStream_t)made); }, [&] { CK(cudaStreamCreateWithFlags((cudaStream_t *)&made, cudaStreamNonBlocking)); });
  holds("cuEventCreate", [&] { cuEventCreate(&evm, 0); });
  holds("cudaMemcpy of 1 MiB pageable, legacy", [&] { cudaMemcpy(piece, plain, 1 << 20, cudaMemcpyHostToDevice); });
  holds("cudaMemset, legacy", [&] { cudaMemset(piece, 0, 1 << 20); });
  { static int n = 0; holds("first launch of a kernel (lazy)", [] { if (n == 0) never<<<1, 1, 0, (cudaStream_t)lo[5]>>>(nullptr); else if (n == 1) never2<<<1, 1, 0, (cudaStream_t)lo[5]>>>(nullptr); else stacky<<<1, 1, 0, (cudaStream_t)lo[5]>>>(nullptr, 5); n++; }); }
  { static size_t s = 4096; holds("cudaDeviceSetLimit(stack) and a launch", [] { cudaDeviceSetLimit(cudaLimitStackSize, s); nop<<<1, 1, 0, (cudaStream_t)lo[5]>>>(nullptr); s += 16384; }); }
  holds("cudaGraphInstantiate", [&] { cudaGraphInstantiate(&x2, g, 0); });
  holds("cudaGraphExecDestroy", [&] { cudaGraphExecDestroy(x2); }, [&] { CK(cudaGraphInstantiate(&x2, g, 0)); CK(cudaGraphLaunch(x2, cap)); });

  auto sync = [] { CK(cudaDeviceSynchronize()); };
  auto freeing = [] { void *p; CK(cudaMalloc(&p, 8 << 20)); CK(cudaFree(p)); };
  chain("chain of 1 ms, DeviceSynchronize", 1000000, 200000000, sync, 600000);
  chain("chain of 0.2 ms, DeviceSynchronize", 200000, 200000000, sync, 400000);
  chain("chain of 3 ms, DeviceSynchronize", 3000000, 200000000, sync, 600000);
  chain("chain of 1 ms, cudaMalloc+cudaFree", 1000000, 200000000, freeing, 1000000);
  chain("the same, alone for 20 ms", 1000000, 20000000, freeing, 1000000);

  others("parked 1, others of least priority", lo, 1);
  others("parked 1, others of greatest priority", hi + 20, 1);
  others("parked 8, others of least priority", lo, 8);
  others("parked 8, others of greatest priority", hi + 20, 8);
  releaseAll(); CK(cudaDeviceSynchronize());
  SAY("done\n");
  _exit(0);
}
