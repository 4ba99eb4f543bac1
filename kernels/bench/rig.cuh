/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of the programs that check and time kernels on GPUs: a process with scratch memory that all ranks have opened, as
 * kernels/host does it. Without NCCL, which nccl.cuh has.
 */
#ifndef DYN_BENCH_RIG_CUH
#define DYN_BENCH_RIG_CUH

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

#include "../../nccltuner/plugin/nccl_env.h"
#include "../device/all_reduce_rms_norm.cuh"
#include "../types.h"

using namespace dyn;
using Bulk = ::dyn_bulk;
using Byte = uint8_t;

#define CUDA(call)                                                                                          \
  do {                                                                                                      \
    cudaError_t e = (call);                                                                                 \
    if (e != cudaSuccess) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)), _exit(1); \
  } while (0)

/* The kernels as they are shipped, of the file that --kernels names. */
static cudaLibrary_t library;
[[maybe_unused]] static cudaKernel_t kernelOf(const std::string &name) {
  cudaKernel_t kernel;
  CUDA(cudaLibraryGetKernel(&kernel, library, name.c_str()));
  return kernel;
}

/* Those of a type. */
template <typename T>
struct Kernels;
#define KERNELS_OF(NAME, TYPE) \
  template <> \
  struct Kernels<TYPE> { \
    static constexpr const char *name = #NAME; \
    const cudaKernel_t oneShot = of("oneShot"), twoShot = of("twoShot"), reduceScatter = of("reduceScatter"); \
    const cudaKernel_t bulk = of("bulk"), reduceScatterBulk = of("reduceScatterBulk"); \
    static cudaKernel_t of(const char *kernel) { return kernelOf(std::string(kernel) + "_" #NAME); } \
  };
DYN_TYPES(KERNELS_OF)

static size_t slotLines = 1 << 17;
static size_t bufferBytes = 256 << 20;
static size_t roundPacks; /* of a part of what goes in bulk */
static uint64_t waitNs = 5000000000; /* a kernel gives up on a peer */
static bool launchEarly = true, launchAlone = false;

/* What the processes share. */
struct Shared {
  char id[128]; /* ncclUniqueId */
  cudaIpcMemHandle_t handles[kMaxRanks], buffers[2][kMaxRanks];
  std::atomic<int> arrived, generation;
  double us[kMaxRanks];
  bool named[kMaxRanks]; /* this rank has named who was killed */
  std::atomic<long> wrong, compared;
};
static Shared *shared;
static int numRanks = 0, rank, numGpus;

/* Where ranks share GPUs, rank by rank in turn: of one process each, which run beside each other under CUDA's multi-process service. */
static bool gpusShared() { return numRanks > numGpus; }
/* What lines of such runs say behind the number of ranks. */
[[maybe_unused]] static const char *sharing() { return gpusShared() ? ",\"gpus_shared\":true" : ""; }

[[maybe_unused]] static int countGpus() { /* asked in a process of its own: CUDA must not be started before the fork */
  const pid_t child = fork();
  if (child == 0) {
    int n = 0;
    _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

/* Of n kernels on a GPU that wait for each other all but one, whichever, have to leave a multiprocessor free: (n - 1) N < 108
 * (docs/design.md, decision 2). The same on all ranks. */
constexpr int kLeastMultiprocessors = 108;
static int mostBlocks = kMaxBlocks;
static int blocksWhereShared(int ranksOfGpu) { return ranksOfGpu < 2 ? kMaxBlocks : std::min(kMaxBlocks, (kLeastMultiprocessors - 1) / (ranksOfGpu - 1)); }

static void barrier() {
  int generation = shared->generation;
  if (++shared->arrived == numRanks) {
    shared->arrived = 0;
    shared->generation++;
  }
  while (shared->generation == generation) usleep(20);
}

/* True if it is on all ranks. */
[[maybe_unused]] static bool everybody(bool fine) {
  shared->us[rank] = fine;
  barrier();
  const bool all = *std::min_element(shared->us, shared->us + numRanks) > 0;
  barrier();
  return all;
}

/* Small whole numbers, exact in every type in whatever order; ones and twos where they are multiplied. */
template <typename T>
__device__ T valueOf(int r, size_t i, Op op, unsigned seed) {
  unsigned x = (unsigned)i * 2654435761u + r * 40503u + seed;
  x ^= x >> 15;
  return Number<T>::down((typename Number<T>::Wide)(op == Op::prod ? 1 + (x >> 3 & 1) * (r < 3) : x >> 5 & 3));
}
template <typename T>
__global__ void fill(T *at, size_t count, int r, Op op, unsigned seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) at[i] = valueOf<T>(r, i, op, seed);
}
template <typename T>
__device__ void compare(T want, T got, unsigned long long *wrong) {
  for (int b = 0; b < (int)sizeof(T); b++)
    if (((const char *)&want)[b] != ((const char *)&got)[b]) {
      atomicAdd(wrong, 1ull);
      return;
    }
}
/* Sums of elements from skip on of every rank's input. */
template <typename T>
__global__ void verify(const T *at, size_t count, size_t skip, int nRanks, Op op, unsigned seed, unsigned long long *wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    double sum = (double)Number<T>::up(valueOf<T>(0, skip + i, op, seed));
    for (int r = 1; r < nRanks; r++) sum = combine(op, sum, (double)Number<T>::up(valueOf<T>(r, skip + i, op, seed)));
    if (op == Op::avg) sum = std::is_integral<T>::value ? (double)(long long)(sum / nRanks) : sum / nRanks;
    compare(Number<T>::down((typename Number<T>::Wide)sum), at[i], wrong);
  }
}
/* Part r is what rank r has from skip on. */
__global__ void verifyMoved(const Byte *at, size_t part, int parts, int first, size_t skip, unsigned seed, unsigned long long *wrong) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < part * parts; i += (size_t)gridDim.x * blockDim.x)
    compare(valueOf<Byte>(first + (int)(i / part), skip + i % part, Op::sum, seed), at[i], wrong);
}

struct Rank {
  cudaStream_t stream;
  Domain domain;
  Bulk bulk;
  char *in, *out;
  size_t inBytes;
  char *ins[kMaxRanks], *outs[kMaxRanks]; /* of every rank: as if all had registered them, in windows 1 and 2 */
  dyn_stamp *stamps;
  unsigned long long *wrong;
  uint64_t *fault;
};

/* All ranks map each other's buffers, as NCCL does with windows. */
static void openBuffers(Rank &k) {
  char *const own[] = {k.in, k.out};
  for (int b = 0; b < 2; b++) CUDA(cudaIpcGetMemHandle(&shared->buffers[b][rank], own[b]));
  barrier();
  for (int b = 0; b < 2; b++)
    for (int r = 0; r < numRanks; r++) {
      char *&at = (b == 0 ? k.ins : k.outs)[r];
      at = own[b];
      if (r != rank) CUDA(cudaIpcOpenMemHandle((void **)&at, shared->buffers[b][r], cudaIpcMemLazyEnablePeerAccess));
    }
}

/* Behind the last call on them, before they are freed. */
[[maybe_unused]] static void closeBuffers(const Rank &k) {
  barrier();
  for (int r = 0; r < numRanks; r++)
    if (r != rank) {
      CUDA(cudaIpcCloseMemHandle(k.ins[r]));
      CUDA(cudaIpcCloseMemHandle(k.outs[r]));
    }
  barrier();
}

/* Where a buffer lies, of in and out. */
static dyn_windowed windowOf(const Rank &k, const void *at) {
  dyn_windowed in = {};
  const bool first = (const char *)at >= k.in && (const char *)at < k.in + k.inBytes;
  for (int r = 0; r < numRanks; r++) in.base[r] = first ? k.ins[r] : k.outs[r];
  in.word = dyn_window_word(first ? 1 : 2, (uint64_t)((const char *)at - in.base[rank]));
  in.most = bufferBytes;
  return in;
}

/* What ranks tell of a call's buffers. sends: also where it reads from. */
[[maybe_unused]] static Bulk withWindows(const Rank &k, const Call &c, bool sends = true) {
  Bulk b = k.bulk;
  if (sends) b.send = windowOf(k, c.send);
  b.recv = windowOf(k, c.recv);
  return b;
}

[[maybe_unused]] static Rank start(const char *kernels) {
  Rank k = {};
  CUDA(cudaGetDeviceCount(&numGpus));
  CUDA(cudaSetDevice(rank % numGpus));
  mostBlocks = blocksWhereShared((numRanks + numGpus - 1) / numGpus);
  CUDA(cudaLibraryLoadFromFile(&library, kernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUDA(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
  size_t lineBytes = 2 * numRanks * slotLines * kLineBytes, bulkBytes = dyn_bulk_bytes(roundPacks, numRanks), flagBytes = kMaxBlocks * kMaxRanks * sizeof(uint32_t), meetingBytes = DYN_MEETINGS * sizeof(dyn_meeting);
  size_t bytes = (lineBytes + bulkBytes + flagBytes + meetingBytes + 4095) / 4096 * 4096;
  char *scratch, *pointers[kMaxRanks]; /* of every rank's, as kernels/host has them */
  CUDA(cudaMalloc(&scratch, bytes));
  CUDA(cudaMemset(scratch, 0, bytes));
  CUDA(cudaIpcGetMemHandle(&shared->handles[rank], scratch));
  barrier();
  for (int r = 0; r < numRanks; r++) {
    pointers[r] = scratch;
    if (r != rank) CUDA(cudaIpcOpenMemHandle((void **)&pointers[r], shared->handles[r], cudaIpcMemLazyEnablePeerAccess));
  }
  Domain &d = k.domain;
  d.rank = rank, d.nRanks = numRanks, d.lines = slotLines, d.waitNs = waitNs;
  for (int r = 0; r < numRanks; r++) {
    d.scratch[r] = pointers[r];
    k.bulk.memory[r] = pointers[r] + lineBytes;
    k.bulk.flags[r] = (uint32_t *)(pointers[r] + lineBytes + bulkBytes);
    k.bulk.meetings[r] = (dyn_meeting *)(pointers[r] + lineBytes + bulkBytes + flagBytes);
  }
  k.bulk.packs = roundPacks;
  CUDA(cudaMalloc(&k.bulk.passed, kMaxBlocks * sizeof(uint32_t)));
  CUDA(cudaMemset(k.bulk.passed, 0, kMaxBlocks * sizeof(uint32_t)));
  CUDA(cudaMalloc(&d.calls, DYN_KERNEL_COUNTERS * sizeof *d.calls));
  CUDA(cudaMemset(d.calls, 0, DYN_KERNEL_COUNTERS * sizeof *d.calls));
  uint32_t *stop;
  CUDA(cudaHostAlloc(&stop, sizeof *stop, cudaHostAllocMapped));
  CUDA(cudaHostAlloc(&k.fault, sizeof *k.fault, cudaHostAllocMapped));
  CUDA(cudaHostAlloc(&k.stamps, DYN_STAMPS * sizeof *k.stamps, cudaHostAllocMapped));
  memset(k.stamps, 0, DYN_STAMPS * sizeof *k.stamps);
  *stop = 0, *k.fault = 0;
  d.stop = stop, d.fault = k.fault;
  k.inBytes = bufferBytes + 64;
  CUDA(cudaMalloc(&k.in, k.inBytes));
  CUDA(cudaMalloc(&k.out, bufferBytes + 64));
  openBuffers(k);
  CUDA(cudaMallocManaged(&k.wrong, sizeof *k.wrong));
  *k.wrong = 0;
  CUDA(cudaDeviceSynchronize());
  barrier();
  return k;
}

/* If early: before the stream's last kernel has ended, since ours wait for that themselves, as kernels/host does, and in NCCL's domain of
 * memory operations, as it does with long calls (module.h), or with NCCL_MEM_SYNC_DOMAIN=0 in the one of kernels that compute, as with short
 * ones: by itself a call takes the same in either. No more blocks than may be: what a check or a time asks for beyond that would wait for
 * ever. If alone, nothing is launched behind it before it has ended: a launch may wait for that inside compute-sanitizer, with CUDA's lock,
 * which the carrier needs to bring what the kernel waits for. */
template <typename... Arguments>
static void launchOn(const Rank &k, cudaKernel_t kernel, int blocks, int threads, Arguments... arguments) {
  static const bool together = nccl_is_off("NCCL_MEM_SYNC_DOMAIN");
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  void *pointers[] = {&arguments...};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization, attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeMemSyncDomain;
  attributes[1].val.memSyncDomain = together ? cudaLaunchMemSyncDomainDefault : cudaLaunchMemSyncDomainRemote;
  config.gridDim = dim3((unsigned)std::min(blocks, mostBlocks)), config.blockDim = dim3((unsigned)threads), config.stream = k.stream;
  config.attrs = attributes, config.numAttrs = launchEarly ? 2 : 0;
  CUDA(cudaLaunchKernelExC(&config, (const void *)kernel, pointers));
  if (launchAlone) CUDA(cudaStreamSynchronize(k.stream));
}

static void healthy(const Rank &k) {
  uint64_t fault = *(volatile uint64_t *)k.fault;
  if (fault == 0) return;
  fprintf(stderr, "rank %d: call %u waited too long for rank %d\n", rank, (unsigned)fault, (int)(fault >> kFaultPeer) - 1);
  _exit(1);
}

#endif
