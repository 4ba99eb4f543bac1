/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of this folder beside NCCL, on the GPUs of one machine, a process a GPU:
 *   lsa [--ranks N] [--check] [--time] [--sizes B,B,...]
 * --check compares every element of calls of all types, operators, sizes and alignments; --time measures bfloat16 in CUDA
 * graphs of 20 calls: median of 30 replays, largest over ranks; bytes are nccl-tests'. Both without either. JSON lines.
 */
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
#include <nccl.h>

#include "../kernels.cuh"

using namespace dyn;

#define CUDA(call)                                                                                          \
  do {                                                                                                      \
    cudaError_t e = (call);                                                                                 \
    if (e != cudaSuccess) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)), _exit(1); \
  } while (0)
#define NCCL(call)                                                                                          \
  do {                                                                                                      \
    ncclResult_t e = (call);                                                                                \
    if (e != ncclSuccess) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(e)), _exit(1); \
  } while (0)

/* The kernels of a type. */
template <typename T>
struct Kernels;
#define KERNELS_OF(NAME, TYPE) \
  template <> \
  struct Kernels<TYPE> { \
    static constexpr const char *name = #NAME; \
    static constexpr auto oneShot = oneShot_##NAME, twoShot = twoShot_##NAME, reduceScatter = reduceScatter_##NAME; \
    static constexpr auto bulk = bulk_##NAME, reduceScatterBulk = reduceScatterBulk_##NAME; \
  };
DYN_TYPES(KERNELS_OF)

constexpr size_t kLines = 1 << 20;   /* of a slot */
constexpr size_t kBuffer = 64 << 20; /* bytes */
constexpr size_t kBulkPacks = 1 << 20;    /* of a part of what goes in bulk */
constexpr int kCalls = 20, kReplays = 30;

/* What the processes share. */
struct Shared {
  ncclUniqueId id;
  cudaIpcMemHandle_t handles[kMaxRanks];
  std::atomic<int> arrived, generation;
  double us[kMaxRanks];
  std::atomic<long> wrong, compared;
};
static Shared *shared;
static int numRanks = 0, rank;

static void barrier() {
  int generation = shared->generation;
  if (++shared->arrived == numRanks) {
    shared->arrived = 0;
    shared->generation++;
  }
  while (shared->generation == generation) usleep(20);
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
  ncclComm_t comm;
  cudaStream_t stream;
  Domain domain;
  Bulk bulk;
  char *in, *out;
  unsigned long long *wrong;
  uint64_t *fault;
};

static Rank start() {
  Rank k = {};
  CUDA(cudaSetDevice(rank));
  NCCL(ncclCommInitRank(&k.comm, numRanks, shared->id, rank));
  CUDA(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
  size_t lineBytes = 2 * numRanks * kLines * kLineBytes, bulkBytes = dyn_bulk_bytes(kBulkPacks, numRanks), flagBytes = kMaxBlocks * kMaxRanks * sizeof(uint32_t);
  size_t bytes = (lineBytes + bulkBytes + flagBytes + 4095) / 4096 * 4096;
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
  d.rank = rank, d.nRanks = numRanks, d.lines = kLines, d.waitNs = 5000000000ull;
  for (int r = 0; r < numRanks; r++) {
    d.scratch[r] = pointers[r];
    k.bulk.memory[r] = pointers[r] + lineBytes;
    k.bulk.flags[r] = (uint32_t *)(pointers[r] + lineBytes + bulkBytes);
  }
  k.bulk.packs = kBulkPacks;
  CUDA(cudaMalloc(&k.bulk.passed, kMaxBlocks * sizeof(uint32_t)));
  CUDA(cudaMemset(k.bulk.passed, 0, kMaxBlocks * sizeof(uint32_t)));
  CUDA(cudaMalloc(&d.calls, kMaxBlocks * sizeof *d.calls));
  CUDA(cudaMemset(d.calls, 0, kMaxBlocks * sizeof *d.calls));
  uint32_t *stop;
  CUDA(cudaHostAlloc(&stop, sizeof *stop, cudaHostAllocMapped));
  CUDA(cudaHostAlloc(&k.fault, sizeof *k.fault, cudaHostAllocMapped));
  *stop = 0, *k.fault = 0;
  d.stop = stop, d.fault = k.fault;
  CUDA(cudaMalloc(&k.in, kBuffer + 64));
  CUDA(cudaMalloc(&k.out, kBuffer + 64));
  CUDA(cudaMallocManaged(&k.wrong, sizeof *k.wrong));
  *k.wrong = 0;
  CUDA(cudaDeviceSynchronize());
  barrier();
  return k;
}

static void healthy(const Rank &k) {
  uint64_t fault = *(volatile uint64_t *)k.fault;
  if (fault == 0) return;
  fprintf(stderr, "rank %d: call %u waited too long for rank %d\n", rank, (unsigned)fault, (int)(fault >> kFaultPeer) - 1);
  _exit(1);
}

constexpr size_t kCounts[] = {1, 2, 3, 7, 8, 9, 63, 1000, 4097, 65536, 300001};

template <typename T>
static void checkOp(Rank &k, Op op) {
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 5; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        bool scatters = kind == 2 || kind == 4;
        int blocks = 1 + seed % 7 * 9;
        T *in = (T *)k.in + shift, *out = seed & 1 ? in + (scatters ? rank * count : 0) : (T *)k.out + shift;
        fill<T><<<32, 256, 0, k.stream>>>(in, scatters ? count * numRanks : count, rank, op, seed);
        Call c = {in, out, count, (int32_t)op, 0, k.domain};
        if (kind == 0) Kernels<T>::oneShot<<<blocks, kThreads, 0, k.stream>>>(c);
        else if (kind == 1) Kernels<T>::twoShot<<<blocks, kThreads, 0, k.stream>>>(c);
        else if (kind == 2) Kernels<T>::reduceScatter<<<blocks, kThreads, 0, k.stream>>>(c);
        else if (kind == 3) Kernels<T>::bulk<<<blocks, kThreads, 0, k.stream>>>(c, k.bulk);
        else Kernels<T>::reduceScatterBulk<<<blocks, kThreads, 0, k.stream>>>(c, k.bulk);
        verify<T><<<32, 256, 0, k.stream>>>(out, count, scatters ? rank * count : 0, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

static void checkMoves(Rank &k) {
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 4; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        int blocks = 1 + seed % 7 * 9, root = (int)(seed % (unsigned)numRanks);
        bool inPlace = seed & 1;
        Byte *out = (Byte *)k.out + shift, *in = inPlace ? out + (kind == 0 || kind == 3 ? rank * count : 0) : (Byte *)k.in + shift;
        fill<Byte><<<32, 256, 0, k.stream>>>(in, kind == 1 ? count * numRanks : count, rank, Op::sum, seed);
        Call c = {in, out, count, (int32_t)Op::sum, 0, k.domain};
        if (kind == 0) ::allGather<<<blocks, kThreads, 0, k.stream>>>(c);
        else if (kind == 1) ::allToAll<<<blocks, kThreads, 0, k.stream>>>(c);
        else if (kind == 2) ::broadcast<<<blocks, kThreads, 0, k.stream>>>(c, root);
        else ::allGatherBulk<<<blocks, kThreads, 0, k.stream>>>(c, k.bulk);
        verifyMoved<<<32, 256, 0, k.stream>>>(out, count, kind == 2 ? 1 : numRanks, kind == 2 ? root : 0, kind == 1 ? rank * count : 0, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

template <typename T>
static void checkType(Rank &k) {
  unsigned long long before = *k.wrong;
  for (Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::avg}) checkOp<T>(k, op);
  if (*k.wrong != before) printf("{\"figure\":\"lsa check\",\"type\":\"%s\",\"rank\":%d,\"wrong\":%llu}\n", Kernels<T>::name, rank, *k.wrong - before);
}

static void check(Rank &k) {
#define CHECK_TYPE(NAME, TYPE) checkType<TYPE>(k);
  DYN_TYPES(CHECK_TYPE)
  checkMoves(k);
  shared->wrong += (long)*k.wrong;
  barrier();
  if (rank == 0)
    printf("{\"figure\":\"lsa check\",\"ranks\":%d,\"elements\":%ld,\"wrong\":%ld}\n", numRanks, shared->compared.load(), shared->wrong.load());
}

/* Largest over ranks of the median of replays, us of one call. */
template <typename Enqueue>
static double timed(Rank &k, Enqueue enqueue) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  enqueue(); /* connections are made outside of the capture */
  CUDA(cudaStreamSynchronize(k.stream));
  CUDA(cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; i++) enqueue();
  CUDA(cudaStreamEndCapture(k.stream, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<double> us;
  for (int i = 0; i < 10; i++) CUDA(cudaGraphLaunch(exec, k.stream));
  for (int i = 0; i < kReplays; i++) {
    CUDA(cudaEventRecord(begin, k.stream));
    CUDA(cudaGraphLaunch(exec, k.stream));
    CUDA(cudaEventRecord(end, k.stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1e3 / kCalls);
  }
  std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
  shared->us[rank] = us[kReplays / 2];
  barrier();
  double largest = *std::max_element(shared->us, shared->us + numRanks);
  barrier();
  healthy(k);
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  return largest;
}

/* One path of one collective, with every number of blocks and threads that makes sense. */
template <typename Launch>
static void timePath(Rank &k, const char *collective, const char *path, size_t bytes, size_t packs, bool fits, Launch launch) {
  double best = 0;
  int with = 0, threads = 0;
  if (!fits) return;
  for (int blocks = 1; blocks <= kMaxBlocks; blocks *= 2)
    for (int t : {128, 256, 512}) {
      if ((size_t)blocks * t > 2 * packs && (blocks > 1 || t > 128)) break;
      if (packs > (size_t)blocks * t * 64) continue;
      double us = timed(k, [&] { launch(blocks, t); });
      if (with == 0 || us < best) best = us, with = blocks, threads = t;
    }
  if (rank == 0 && with > 0)
    printf("{\"figure\":\"lsa time\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"%s\",\"blocks\":%d,\"threads\":%d,\"us\":%.2f}\n", numRanks,
           collective, bytes, path, with, threads, best);
  fflush(stdout);
}
template <typename Enqueue>
static void timeNccl(Rank &k, const char *collective, size_t bytes, Enqueue enqueue) {
  double us = timed(k, enqueue);
  if (rank == 0) printf("{\"figure\":\"lsa time\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"nccl\",\"us\":%.2f}\n", numRanks, collective, bytes, us);
}

static void time(Rank &k, const std::vector<size_t> &sizes) {
  using T = __nv_bfloat16;
  for (size_t bytes : sizes) {
    size_t count = bytes / sizeof(T), part = count / numRanks, packs = dyn_packs(count * sizeof(T), kLineData), partPacks = dyn_packs(part * sizeof(T), kLineData);
    Call all = {k.in, k.out, count, (int32_t)Op::sum, 0, k.domain}, parts = all, moved = all;
    parts.count = part, moved.count = part * sizeof(T);
    timeNccl(k, "AllReduce", bytes, [&] { NCCL(ncclAllReduce(k.in, k.out, count, ncclBfloat16, ncclSum, k.comm, k.stream)); });
    timePath(k, "AllReduce", "one shot", bytes, packs, packs <= kLines, [&](int n, int t) { Kernels<T>::oneShot<<<n, t, 0, k.stream>>>(all); });
    timePath(k, "AllReduce", "two shots", bytes, packs / numRanks + 1, dyn_two_shot_lines(packs, numRanks) <= kLines,
             [&](int n, int t) { Kernels<T>::twoShot<<<n, t, 0, k.stream>>>(all); });
    size_t part16 = dyn_part(dyn_packs(count * sizeof(T), kBulkBytes), numRanks);
    bool fits16 = part16 <= kBulkPacks;
    timePath(k, "AllReduce", "bulk", bytes, part16, fits16, [&](int n, int t) { Kernels<T>::bulk<<<n, t, 0, k.stream>>>(all, k.bulk); });
    timeNccl(k, "ReduceScatter", bytes, [&] { NCCL(ncclReduceScatter(k.in, k.out, part, ncclBfloat16, ncclSum, k.comm, k.stream)); });
    timePath(k, "ReduceScatter", "flags", bytes, partPacks, partPacks <= kLines, [&](int n, int t) { Kernels<T>::reduceScatter<<<n, t, 0, k.stream>>>(parts); });
    timePath(k, "ReduceScatter", "bulk", bytes, part16, fits16, [&](int n, int t) { Kernels<T>::reduceScatterBulk<<<n, t, 0, k.stream>>>(parts, k.bulk); });
    timeNccl(k, "AllGather", bytes, [&] { NCCL(ncclAllGather(k.in, k.out, part, ncclBfloat16, k.comm, k.stream)); });
    timePath(k, "AllGather", "flags", bytes, partPacks, partPacks <= kLines, [&](int n, int t) { ::allGather<<<n, t, 0, k.stream>>>(moved); });
    timePath(k, "AllGather", "bulk", bytes, part16, fits16, [&](int n, int t) { ::allGatherBulk<<<n, t, 0, k.stream>>>(moved, k.bulk); });
    timeNccl(k, "AllToAll", bytes, [&] {
      NCCL(ncclGroupStart());
      for (int r = 0; r < numRanks; r++) {
        NCCL(ncclSend(k.in + r * part * sizeof(T), part, ncclBfloat16, r, k.comm, k.stream));
        NCCL(ncclRecv(k.out + r * part * sizeof(T), part, ncclBfloat16, r, k.comm, k.stream));
      }
      NCCL(ncclGroupEnd());
    });
    timePath(k, "AllToAll", "flags", bytes, partPacks, partPacks <= kLines, [&](int n, int t) { ::allToAll<<<n, t, 0, k.stream>>>(moved); });
  }
}

int main(int argc, char **argv) {
  bool checks = false, times = false;
  std::vector<size_t> sizes = {1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--ranks") && i + 1 < argc) numRanks = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--check")) checks = true;
    else if (!strcmp(argv[i], "--time")) times = true;
    else if (!strcmp(argv[i], "--sizes") && i + 1 < argc) {
      sizes.clear();
      for (char *at = strtok(argv[++i], ","); at != nullptr; at = strtok(nullptr, ",")) sizes.push_back(strtoull(at, nullptr, 10));
    } else {
      fprintf(stderr, "usage: lsa [--ranks N] [--check] [--time] [--sizes BYTES,...]\n");
      return 2;
    }
  }
  if (!checks && !times) checks = times = true;
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (numRanks == 0) { /* asked in a process of its own: CUDA must not be started before the fork */
    pid_t child = fork();
    if (child == 0) {
      int n = 0;
      _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    numRanks = WEXITSTATUS(status);
  }
  if (numRanks < 2 || numRanks > kMaxRanks) {
    fprintf(stderr, "lsa: %d GPUs: 2 to %d are needed\n", numRanks, kMaxRanks);
    return 2;
  }
  pid_t children[kMaxRanks];
  for (rank = 0; rank < numRanks; rank++)
    if ((children[rank] = fork()) == 0) break;
  if (rank < numRanks) {
    alarm(120);
    if (rank == 0) NCCL(ncclGetUniqueId(&shared->id));
    barrier();
    Rank k = start();
    int version = 0;
    NCCL(ncclGetVersion(&version));
    if (rank == 0) printf("{\"figure\":\"lsa\",\"ranks\":%d,\"nccl\":%d}\n", numRanks, version);
    if (checks) check(k);
    barrier();
    if (times) time(k, sizes);
    fflush(stdout);
    _exit(shared->wrong != 0);
  }
  int failed = 0;
  for (int r = 0; r < numRanks; r++) {
    int status;
    waitpid(children[r], &status, 0);
    if (status != 0) { /* the others would wait for it for ever */
      failed = 1;
      for (int other = 0; other < numRanks; other++) kill(children[other], SIGKILL);
    }
  }
  return failed;
}
