/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of gin.cu: how it comes to GIN, and what it says when it does not. Every step has an alarm: NCCL waits for other
 * ranks without end, and so does a put into a full queue.
 */
#ifndef DYN_BENCH_GIN_RANK_CUH
#define DYN_BENCH_GIN_RANK_CUH

#include <cuda.h>

#include "../gin/life.cuh"
#include "timed.cuh"

/* Exit statuses besides 1 (wrong elements, CUDA) and 2 (usage). */
constexpr int kNoGin = 3, kLate = 4;

static int numNodes = 1, mostContexts = kGinMaxContexts;
static size_t ginSlotBytes = 1 << 20, ginCellBytes = 32 << 10;
static ncclComm_t comm, plain; /* plain: for NCCL's own collectives */
static const char **stepOf; /* of each rank, shared: names are constants, which lie at one address before and behind a fork */
static GinLife *lifeOfRank; /* for the alarm */

static std::string quoted(std::string text) {
  for (char &c : text)
    if (c == '"' || c == '\\' || (unsigned char)c < ' ') c = ' ';
  return '"' + text + '"';
}
/* A variable of the environment. */
static std::string variable(const char *name) { return getenv(name) == nullptr ? "null" : quoted(getenv(name)); }

static void late(int) {
  for (int r = 0; lifeOfRank != nullptr && lifeOfRank->gin.fault != nullptr && r < numRanks; r++)
    if (const uint64_t fault = ((volatile uint64_t *)lifeOfRank->gin.fault)[r]; fault != 0)
      dprintf(STDOUT_FILENO, "{\"figure\":\"gin fault\",\"rank\":%d,\"peer\":%d,\"waited_for\":%d,\"call\":%u}\n", rank, r, (int)(fault >> 32), (uint32_t)fault);
  dprintf(STDOUT_FILENO, "{\"figure\":\"gin failed\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"step\":\"%s\",\"why\":\"not done in its time\"}\n", numRanks, numNodes, rank, stepOf[rank]);
  _exit(kLate);
}
static unsigned stepFactor = 1; /* how much longer a step may take */
static void step(const char *name, unsigned seconds) {
  stepOf[rank] = name;
  signal(SIGALRM, late);
  alarm(stepFactor * seconds);
}

/* What 2.28.9 asks for before there is GIN, in the order in which it asks: all GPUs of a node reach each other, windows and
 * cuMem are on (init.cc: symmetricSupport); the net plugin that the communicator got brings GIN of version 11, or NCCL's own IB
 * does (net.cc); NCCL_GIN_ENABLE, a device, and its type where NCCL_GIN_TYPE names one: 2 proxy, 3 GDAKI (gin_host.cc). From
 * 2.30.5 on it is an RMA plugin that brings a proxy (rma.cc), and all GPUs must say that NICs reach their cuMem (init.cc). */
static void printConditions() {
  int driver = 0, cuMem = 0, rdma = 0, dmaBuf = 0, reached = 0, version = 0;
  const int perNode = numRanks / numNodes, first = rank / perNode * perNode;
  cudaDriverGetVersion(&driver);
  ncclGetVersion(&version);
  for (int r = first; r < first + perNode; r++) {
    int can = 0;
    if (r != rank && cudaDeviceCanAccessPeer(&can, rank % numGpus, r % numGpus) == cudaSuccess) reached += can;
  }
  void *entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &entry, 12000, cudaEnableDefault, &found) == cudaSuccess && entry != nullptr) {
    const auto attributeOf = (decltype(&cuDeviceGetAttribute))entry;
    attributeOf(&cuMem, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, rank % numGpus);
    attributeOf(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, rank % numGpus);
    attributeOf(&dmaBuf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, rank % numGpus);
  }
  std::string set;
  for (const char *name : {"NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE", "NCCL_NET_PLUGIN", "NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN", "NCCL_NET", "NCCL_GIN_ENABLE", "NCCL_GIN_TYPE",
                           "NCCL_GIN_NCONTEXTS", "NCCL_GIN_NCONNECTIONS", "NCCL_GIN_PROXY_NTHREADS", "NCCL_GIN_SIGNAL_POOL_SIZE", "NCCL_GIN_COUNTER_POOL_SIZE", "NCCL_GIN_PROXY_QUEUE_SIZE", "NCCL_HOSTID", "DYNAMICCL_CARRIER"})
    set += std::string(set.empty() ? "" : ",") + '"' + name + "\":" + variable(name);
  printf("{\"figure\":\"gin conditions\",\"rank\":%d,\"nccl\":%d,\"compiled_with\":%d,\"cuda_driver\":%d,\"peers_of_node\":%d,\"peers_reached\":%d,\"cumem\":%d,"
         "\"rdma_with_cumem\":%d,\"dma_buf\":%d,\"environment\":{%s}}\n", rank, version, NCCL_VERSION_CODE, driver, perNode - 1, reached, cuMem, rdma, dmaBuf, set.c_str());
}

static void printFailed(const std::string &why) {
  printf("{\"figure\":\"gin failed\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"step\":\"%s\",\"why\":%s}\n", numRanks, numNodes, rank, stepOf[rank], quoted(why).c_str());
  printConditions();
  fflush(stdout);
}
static void needNccl(ncclResult_t result, const char *what) {
  if (result == ncclSuccess) return;
  printFailed(std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
  _exit(kNoGin);
}
/* All ranks go on, or none. Who fails says so first: others may hang in NCCL, and never come here. */
static void needAll(const GinLife &life, bool fine) {
  if (!fine) printFailed(life.why);
  if (!everybody(fine)) _exit(kNoGin);
}
/* Behind kernels. */
static void needHealthy(GinLife &life) { needAll(life, !ginFaulty(life)); }

static ncclComm_t joinOver(const char *network) { /* nullptr: of NCCL's choice */
  ncclUniqueId id;
  static_assert(sizeof id == sizeof Shared::id, "NCCL's id has another size");
  if (rank == 0) {
    needNccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    memcpy(shared->id, &id, sizeof id);
  }
  barrier();
  memcpy(&id, shared->id, sizeof id);
  barrier();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.netName = network;
  ncclComm_t joined;
  needNccl(ncclCommInitRankConfig(&joined, numRanks, id, rank, &config), "ncclCommInitRankConfig");
  return joined;
}

static void joinNodes() {
  /* NCCL takes ranks of different names for ranks of different hosts, once and for all when it is first asked for anything. */
  if (numNodes > 1) setenv("NCCL_HOSTID", ("dynamiccl-node-" + std::to_string(rank / (numRanks / numNodes))).c_str(), 1);
  setenv("NCCL_GIN_NCONTEXTS", std::to_string(mostContexts).c_str(), 0);
  comm = joinOver(nullptr);
  /* The carrier brings GIN and no network besides: between nodes NCCL's own collectives then need another communicator. */
  plain = numNodes > 1 && getenv("DYNAMICCL_CARRIER") != nullptr ? joinOver("Socket") : comm;
}

/* What a GPU's clock can tell apart. */
static __global__ void timerStep(uint64_t *least) {
  uint64_t before = globalNs();
  *least = ~0ull;
  for (int i = 0; i < 10000; i++) {
    const uint64_t now = globalNs();
    if (now != before && now - before < *least) *least = now - before;
    before = now;
  }
}

static void printGranted(const GinLife &life, unsigned long long timerStepNs) {
  const ncclDevComm &d = life.device;
  std::string types;
  for (int c = 0; c < (int)d.ginContextCount; c++) types += std::string(c == 0 ? "" : " ") + ginTypeName(ginTypeOf(d, c));
  printf("{\"figure\":\"gin granted\",\"gpus\":%d,\"ranks\":%d,\"nodes\":%d,\"nccl\":%d,\"type\":\"%s\",\"contexts_wanted\":%d,\"contexts\":%d,\"signals\":%d,\"signal_base\":%u,"
         "\"counters\":%d,\"counter_base\":%u,\"queue_depth\":%llu,\"lsa_ranks\":%d,\"timer_step_ns\":%llu}\n", std::min(numGpus, numRanks), numRanks, numNodes, NCCL_VERSION_CODE, types.c_str(), mostContexts,
         (int)d.ginContextCount, d.ginSignalCount, ginSignalBase(d), d.ginCounterCount, ginCounterBase(d), (unsigned long long)ginDepthOf(life), d.lsaSize, timerStepNs);
}

/* A tool has got into this rank (sanitize_gin.sh): what it found, or did not, is of the ranks that say so. */
static void printFollowed() {
  char line[4096];
  bool followed = false;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps != nullptr && !followed && fgets(line, sizeof line, maps) != nullptr) followed = strstr(line, "libsanitizer-collection") != nullptr;
  if (maps != nullptr) fclose(maps);
  if (followed) printf("{\"figure\":\"gin followed\",\"rank\":%d}\n", rank);
}

static void printProbe(const GinLife &life) {
  const int contexts = life.device.ginContextCount;
  for (int r = 0; r < numRanks; r++) {
    if (r == rank) continue;
    const GinPeer p = ginPeerOf(life, r);
    printf("{\"figure\":\"gin probe\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"peer\":%d,\"contexts\":%d,\"signals\":%d,\"counters\":%d,\"right\":%d,\"counter_us\":%.2f,"
           "\"ok\":%s}\n", numRanks, numNodes, rank, r, contexts, p.signals, p.counters, p.right, p.counterNs / 1e3,
           p.signals == contexts && p.counters == contexts && p.right == contexts ? "true" : "false");
  }
}

/* To an active life, or the end. */
static Rank startGin(GinLife &life) {
  Rank k = {};
  lifeOfRank = &life;
  step("cuda", 60);
  CUDA(cudaSetDevice(rank % numGpus)); /* NCCL refuses two ranks of one node on a GPU, but not those of two nodes */
  CUDA(cudaStreamCreateWithFlags(&k.stream, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&k.in, bufferBytes + 64));
  CUDA(cudaMalloc(&k.out, bufferBytes + 64));
  CUDA(cudaMallocManaged(&k.wrong, sizeof *k.wrong));
  CUDA(cudaHostAlloc(&k.fault, sizeof *k.fault, cudaHostAllocMapped)); /* timed.cuh looks at it; here life has them */
  *k.wrong = 0, *k.fault = 0;
  step("communicator", 60);
  joinNodes();
  step("device communicator", 60);
  needAll(life, ginCreate(life, comm, {mostContexts, ginSlotBytes, waitNs, ginCellBytes}));
  uint64_t *least;
  CUDA(cudaMallocManaged(&least, sizeof *least));
  timerStep<<<1, 1, 0, k.stream>>>(least);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  printFollowed();
  if (rank == 0) printGranted(life, *least);
  step("probe", 10 + 4 * (unsigned)(waitNs / 1000000000));
  barrier();
  const bool fine = ginProve(life, k.stream);
  printProbe(life);
  needAll(life, fine);
  return k;
}

#endif
