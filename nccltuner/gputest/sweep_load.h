/* SPDX-License-Identifier: Apache-2.0
 *
 * What else a machine does while the sweep measures: kernels that hold most SMs, copies between GPUs, TCP over loopback.
 * GPU loads run in the rank's own process, because kernels of two processes take turns on a GPU and never share it.
 * They run only while replays are timed: setting up a graph may wait for the device, and that would take for ever.
 */
#ifndef DYN_SWEEP_LOAD_H
#define DYN_SWEEP_LOAD_H

#include <arpa/inet.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

static const size_t kLoadBytes = 64u << 20;  // larger than the L2 of an H200 (60 MB), so that a pass meets memory
static const int kLoadShared = 200 << 10;    // shared memory a block: no NCCL block fits beside it on an SM (228 KiB)
static const int kLoadFreeSMs = 20;          // what a compute kernel leaves, as PyTorch programs leave some for NCCL
static const uint64_t kLoadKernelNs = 500000;

__global__ void busyKernel(const float4 *data, size_t n, uint64_t ns, float *sink) {
  extern __shared__ float kept[];
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  float acc = threadIdx.x;
  size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  do {
    float4 v = data[i % n];
    i += gridDim.x * blockDim.x;
#pragma unroll 16
    for (int j = 0; j < 256; j++) acc = fmaf(acc, v.x + 1.0001f, v.y);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
  kept[threadIdx.x] = acc;
  if (acc == 12345.0f) *sink = kept[0];
}

struct GpuLoad {
  char kind = 'n';  // n none, c compute, p peer copies
  int device = 0, peer = 0, sms = 0;
  int on = 0;
  uint64_t launched = 0;
  cudaStream_t stream;
  float4 *data;
  void *far;
  float *sink;

  void launch() {
    if (kind == 'c')
      busyKernel<<<sms - kLoadFreeSMs, 1024, kLoadShared, stream>>>(data, kLoadBytes / sizeof(float4), kLoadKernelNs, sink);
    else
      cudaMemcpyPeerAsync(far, peer, data, device, kLoadBytes, stream);
  }
  // Three pieces of work stay queued: the load never pauses, and stops within a few milliseconds.
  static void *main(void *self) {
    GpuLoad *l = (GpuLoad *)self;
    cudaSetDevice(l->device);
    cudaEvent_t ring[3];
    for (auto &e : ring) cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    for (uint64_t i = 0;; i++) {
      int on;
      while ((on = __atomic_load_n(&l->on, __ATOMIC_ACQUIRE)) == 0) usleep(50);
      if (on < 0) return nullptr;
      cudaEventSynchronize(ring[i % 3]);
      l->launch();
      cudaEventRecord(ring[i % 3], l->stream);
      __atomic_fetch_add(&l->launched, 1, __ATOMIC_RELEASE);
    }
  }
  bool start(char what, int rank, int ranks) {
    kind = what, device = rank, peer = (rank + 1) % ranks;
    if (kind == 'n') return true;
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, device) != cudaSuccess) return false;
    sms = prop.multiProcessorCount;
    if (kind == 'p') {
      if (cudaSetDevice(peer) != cudaSuccess || cudaMalloc(&far, kLoadBytes) != cudaSuccess) return false;
      if (cudaSetDevice(device) != cudaSuccess) return false;
      if (cudaDeviceEnablePeerAccess(peer, 0) != cudaSuccess) return false;
    }
    if (cudaMalloc(&data, kLoadBytes) != cudaSuccess || cudaMalloc(&sink, sizeof *sink) != cudaSuccess) return false;
    cudaMemset(data, 0, kLoadBytes);
    cudaFuncSetAttribute(busyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLoadShared);
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return false;
    launch();  // loads the kernel and the peer mapping before anything is timed
    if (cudaStreamSynchronize(stream) != cudaSuccess) return false;
    pthread_t thread;
    return pthread_create(&thread, nullptr, main, this) == 0;
  }
  void end() { __atomic_store_n(&on, -1, __ATOMIC_RELEASE); }
  void turn(bool wanted) {
    if (kind == 'n') return;
    uint64_t before = __atomic_load_n(&launched, __ATOMIC_ACQUIRE);
    __atomic_store_n(&on, wanted ? 1 : 0, __ATOMIC_RELEASE);
    while (wanted && __atomic_load_n(&launched, __ATOMIC_ACQUIRE) < before + 3) usleep(20);
    if (!wanted) usleep(200), cudaStreamSynchronize(stream);
  }
};

// TCP connections over loopback, each with a process that writes and one that reads until they are killed.
static std::vector<pid_t> startTcpLoad(int connections) {
  std::vector<pid_t> pids;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in addr = {};
  addr.sin_family = AF_INET, addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof addr;
  if (listener < 0 || bind(listener, (sockaddr *)&addr, len) || listen(listener, connections)) return pids;
  getsockname(listener, (sockaddr *)&addr, &len);
  for (int c = 0; c < connections; c++) {
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (out < 0 || connect(out, (sockaddr *)&addr, len)) return pids;
    int in = accept(listener, nullptr, nullptr);
    for (int side = 0; side < 2; side++) {
      pid_t pid = fork();
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(side ? in : out);
        static char buffer[256 << 10];
        while ((side ? write(out, buffer, sizeof buffer) : read(in, buffer, sizeof buffer)) > 0) {
        }
        _exit(0);
      }
      if (pid > 0) pids.push_back(pid);
    }
    close(in), close(out);
  }
  close(listener);
  return pids;
}

static void stopAll(const std::vector<pid_t> &pids) {
  for (pid_t p : pids) kill(p, SIGKILL);
  for (pid_t p : pids) waitpid(p, nullptr, 0);
}

#endif
