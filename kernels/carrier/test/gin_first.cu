/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's real GIN device kernels between processes of one host, each with a GPU, over the carrier:
 *   gin_first RANKS [ROUNDS] [BYTES] [puts]
 * Each round is one kernel: a put with a signal and a counter to every rank (itself too), then a signal alone that adds, then a
 * flush; every byte that a signal stands for is compared in the kernel that waited for it. Two buffers by turns: a rank that
 * has everything of this round may be one ahead, never two. With NCCL 2.30.5 and later a second kernel follows, unless `puts` asks
 * for none: a get of what every rank has sent here, a flush, a value put with a signal, a signal in a window.
 *
 * Build and start, NCCL 2.28.9 to 2.30.4 (what differs: decision 29 of docs/design.md):
 *   make -C kernels/carrier gin ARCH=sm_90 NCCL_LIB=FOLDER_OF_LIBNCCL
 *   export DYNAMICCL_CARRIER=1 CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER LD_LIBRARY_PATH=$PWD/lib:FOLDER_OF_LIBNCCL
 *   NCCL_NET_PLUGIN=dynamiccl-carrier NCCL_GIN_NCONTEXTS=1 .cache/carrier/gin_first 2 10
 * NCCL 2.30.5 and later (nccl: the folder of a wheel, with include and lib), after the same export:
 *   make -C kernels/carrier gin ARCH=sm_90 NCCL_HOME=.../nvidia/nccl
 *   NCCL_RMA_PLUGIN=libnccl-net-dynamiccl-carrier.so NCCL_GIN_TYPE=2 .cache/carrier/gin_first 2 10
 *   NCCL_GIN_PLUGIN=libnccl-net-dynamiccl-carrier.so NCCL_GIN_TYPE=3 .cache/carrier/gin_first 2 10   (GDAKI)
 * A library takes only what was compiled with headers of its version: the structure of a device communicator differs.
 */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

#define CUDA(call) \
  do { \
    cudaError_t e = (call); \
    if (e != cudaSuccess) fail(#call, cudaGetErrorString(e)); \
  } while (0)
#define NCCL(call) \
  do { \
    ncclResult_t r = (call); \
    if (r != ncclSuccess) fail(#call, ncclGetErrorString(r)); \
  } while (0)

static int rank = -1, numRanks;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
  _exit(1);
}

struct Shared {
  ncclUniqueId id;
  std::atomic<int> ready;
};
static Shared *shared;

struct Job {
  ncclWindow_t send, receive;
  uint32_t *sent, *received; /* the same memory */
  ncclWindow_t fetch;        /* with the newer calls */
  uint32_t *fetched;
  size_t words;              /* from each rank to each, in a round */
  unsigned turn;             /* from 0 */
  unsigned long long *wrong, *compared;
};

enum { PUTS = 0, ADDS = 1, VALUES = 2, SIGNALS, COUNTER = 0 };

#if NCCL_VERSION_CODE >= 23005
using SignalInc = ncclGin_StrongSignalInc;
using SignalAdd = ncclGin_StrongSignalAdd;
using CounterInc = ncclGin_WeakCounterInc;
#else
using SignalInc = ncclGin_SignalInc;
using SignalAdd = ncclGin_SignalAdd;
using CounterInc = ncclGin_CounterInc;
#endif

__device__ uint32_t word(unsigned from, unsigned to, unsigned round, size_t i) {
  return (uint32_t)(i * 2654435761u + from * 40503u + to * 69621u + round * 16807u + 1);
}

/* One block: the rest of the GPU is free for what adds to signals. */
__global__ void everyToEvery(ncclDevComm comm, Job job) {
  ncclGin gin{comm, 0};
  const unsigned ranks = (unsigned)comm.nRanks, self = (unsigned)comm.rank;
  const size_t half = job.turn % 2 * ranks * job.words;
  for (unsigned to = 0; to < ranks; to++)
    for (size_t i = threadIdx.x; i < job.words; i += blockDim.x) job.sent[half + to * job.words + i] = word(self, to, job.turn, i);
  __syncthreads();
  for (unsigned to = threadIdx.x; to < ranks; to += blockDim.x)
    gin.put(ncclTeamWorld(comm), (int)to, job.receive, (half + self * job.words) * 4, job.send, (half + to * job.words) * 4, job.words * 4,
            SignalInc{PUTS}, CounterInc{COUNTER});
  gin.waitSignal(ncclCoopCta(), PUTS, (uint64_t)(job.turn + 1) * ranks);
  unsigned long long wrong = 0;
  for (unsigned from = 0; from < ranks; from++)
    for (size_t i = threadIdx.x; i < job.words; i += blockDim.x)
      wrong += ((volatile uint32_t *)job.received)[half + from * job.words + i] != word(from, self, job.turn, i);
  if (wrong != 0) atomicAdd(job.wrong, wrong);
  if (threadIdx.x == 0) atomicAdd(job.compared, (unsigned long long)(ranks * job.words));
  for (unsigned to = threadIdx.x; to < ranks; to += blockDim.x) gin.signal(ncclTeamWorld(comm), (int)to, SignalAdd{ADDS, self + 1});
  gin.waitSignal(ncclCoopCta(), ADDS, (uint64_t)(job.turn + 1) * ranks * (ranks + 1) / 2);
  gin.flush(ncclCoopCta());
  gin.waitCounter(ncclCoopCta(), COUNTER, (uint64_t)(job.turn + 1) * ranks);
}

#if NCCL_VERSION_CODE >= 23005
/* Behind all buffers of the window of what was received: values by turns, then the word that a signal adds to. */
__device__ size_t valueAt(const ncclDevComm &comm, const Job &job, unsigned from) {
  return 2 * (size_t)comm.nRanks * job.words * 4 + (job.turn % 2 * (unsigned)comm.nRanks + from) * 8;
}
__global__ void newerCalls(ncclDevComm comm, Job job) {
  ncclGin gin{comm, 0};
  const unsigned ranks = (unsigned)comm.nRanks, self = (unsigned)comm.rank;
  const size_t half = job.turn % 2 * ranks * job.words, word8 = 2 * (size_t)ranks * job.words * 4 + 2 * ranks * 8;
  unsigned long long wrong = 0;
  for (unsigned from = threadIdx.x; from < ranks; from += blockDim.x)
    gin.get(ncclTeamWorld(comm), (int)from, job.send, (half + self * job.words) * 4, job.fetch, (half + from * job.words) * 4, job.words * 4);
  __syncthreads();
  gin.flush(ncclCoopCta());
  for (unsigned from = 0; from < ranks; from++)
    for (size_t i = threadIdx.x; i < job.words; i += blockDim.x)
      wrong += ((volatile uint32_t *)job.fetched)[half + from * job.words + i] != word(from, self, job.turn, i);
  for (unsigned to = threadIdx.x; to < ranks; to += blockDim.x)
    gin.putValue(ncclTeamWorld(comm), (int)to, job.receive, valueAt(comm, job, self), (uint64_t)word(self, to, job.turn, 77) << 20, SignalInc{VALUES});
  gin.waitSignal(ncclCoopCta(), VALUES, (uint64_t)(job.turn + 1) * ranks);
  for (unsigned from = threadIdx.x; from < ranks; from += blockDim.x)
    wrong += ((volatile uint64_t *)job.received)[valueAt(comm, job, from) / 8] != (uint64_t)word(from, self, job.turn, 77) << 20;
  for (unsigned to = threadIdx.x; to < ranks; to += blockDim.x)
    gin.signal(ncclTeamWorld(comm), (int)to, ncclGin_StrongVASignalAdd{job.receive, word8, self + 1});
  gin.waitSignal(ncclCoopCta(), job.receive, word8, (uint64_t)(job.turn + 1) * ranks * (ranks + 1) / 2);
  gin.flush(ncclCoopCta());
  if (wrong != 0) atomicAdd(job.wrong, wrong);
  if (threadIdx.x == 0) atomicAdd(job.compared, (unsigned long long)(ranks * job.words + ranks));
}
#endif

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A kernel that waits for ever is an answer, too. */
static void wait_for(cudaStream_t stream, ncclComm_t comm, unsigned round) {
  for (double from = now(); now() - from < 20;) {
    cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) fail("kernel", cudaGetErrorString(state));
    usleep(50);
  }
  ncclResult_t async = ncclSuccess;
  ncclCommGetAsyncError(comm, &async);
  fprintf(stderr, "rank %d: round %u does not end within 20 s; NCCL's asynchronous error: %s\n", rank, round, ncclGetErrorString(async));
  _exit(3);
}

static void run(unsigned rounds, size_t bytes, bool newer) {
  ncclComm_t comm;
  ncclDevComm device;
  Job job = {};
  cudaStream_t stream;
  unsigned long long *counts, seen[2];
  CUDA(cudaSetDevice(rank));
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&shared->id));
    shared->ready = 1;
  }
  while (shared->ready == 0) usleep(1000);
  NCCL(ncclCommInitRank(&comm, numRanks, shared->id, rank));
  job.words = bytes / 4;
  size_t whole = 2 * (size_t)numRanks * bytes + 4096;
  const struct { uint32_t **memory; ncclWindow_t *window; } all[] = {{&job.sent, &job.send}, {&job.received, &job.receive}, {&job.fetched, &job.fetch}};
  for (auto &one : all) {
    NCCL(ncclMemAlloc((void **)one.memory, whole));
    CUDA(cudaMemset(*one.memory, 0, whole));
    CUDA(cudaDeviceSynchronize());
    NCCL(ncclCommWindowRegister(comm, *one.memory, whole, one.window, NCCL_WIN_COLL_SYMMETRIC));
  }
  if (job.send == nullptr || job.receive == nullptr || job.fetch == nullptr) fail("ncclCommWindowRegister", "no symmetric windows here");
#if NCCL_VERSION_CODE >= 23000
  ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  wants.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  wants.ginContextCount = 1;
#else
  ncclDevCommRequirements wants;
  memset(&wants, 0, sizeof wants);
  wants.ginForceEnable = true;
#endif
  wants.ginSignalCount = SIGNALS;
  wants.ginCounterCount = 1;
  NCCL(ncclDevCommCreate(comm, &wants, &device));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&counts, sizeof seen));
  CUDA(cudaMemset(counts, 0, sizeof seen));
  CUDA(cudaDeviceSynchronize());
  job.wrong = counts;
  job.compared = counts + 1;
  double from = now();
  for (job.turn = 0; job.turn < rounds; job.turn++) {
    everyToEvery<<<1, 256, 0, stream>>>(device, job);
#if NCCL_VERSION_CODE >= 23005
    if (newer) newerCalls<<<1, 256, 0, stream>>>(device, job);
#endif
    CUDA(cudaGetLastError());
    wait_for(stream, comm, job.turn);
  }
  double us = (now() - from) * 1e6 / rounds;
  CUDA(cudaMemcpy(seen, counts, sizeof seen, cudaMemcpyDeviceToHost));
  int version = 0;
  ncclGetVersion(&version);
  printf("rank %d: NCCL %d%s: %u rounds, %llu words compared, %llu wrong, %.0f us a round\n", rank, version,
         newer && NCCL_VERSION_CODE >= 23005 ? ", newer calls too" : "", rounds, seen[1], seen[0], us);
  fflush(stdout);
  NCCL(ncclDevCommDestroy(comm, &device));
  for (auto &one : all) NCCL(ncclCommWindowDeregister(comm, *one.window));
  NCCL(ncclCommDestroy(comm));
  _exit(seen[0] == 0 ? 0 : 1);
}

int main(int count, char **arguments) {
  numRanks = count > 1 ? atoi(arguments[1]) : 2;
  unsigned rounds = count > 2 ? (unsigned)atoi(arguments[2]) : 100;
  size_t bytes = count > 3 ? strtoul(arguments[3], nullptr, 0) / 16 * 16 : 4096;
  const bool newer = count <= 4 || strcmp(arguments[4], "puts") != 0;
  if (numRanks < 1 || numRanks > 8 || rounds < 1 || bytes < 16) {
    fprintf(stderr, "gin_first RANKS [ROUNDS] [BYTES] [puts]: 1 to 8 ranks, 16 bytes or more\n");
    return 2;
  }
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t children[8];
  for (int r = 0; r < numRanks; r++)
    if ((children[r] = fork()) == 0) {
      rank = r;
      alarm(300);
      run(rounds, bytes, newer);
    }
  int failures = 0;
  for (int left = numRanks; left > 0; left--) {
    int status;
    pid_t ended = wait(&status);
    for (int r = 0; r < numRanks; r++)
      if (children[r] == ended) children[r] = 0;
    if (status == 0 || failures++ > 0) continue;
    sleep(25); /* the others say where they wait */
    for (int r = 0; r < numRanks; r++)
      if (children[r] > 0) kill(children[r], SIGKILL);
  }
  printf(failures == 0 ? "all %d ranks: right\n" : "of %d ranks not all are right\n", numRanks);
  return failures == 0 ? 0 : 1;
}
