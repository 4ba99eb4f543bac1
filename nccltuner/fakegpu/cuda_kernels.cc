/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels under the names of kernels.cuh, and of gin/kernels.cuh, for which a net is here that is none. What a GPU has for them machine.h has for threads of a CPU.
 */
#define DYN_KERNEL_MUTATE 0
#include "../../kernels/kernels.cuh"

#include <cstdlib>
#include <cstring>

#include "cuda_grid.h"
#include "cuda_kernels.h"

thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static thread_local float *shared;

/* Who has had to wait finds again what is its own. */
static void whileOthersRun(void (*wait)(void)) {
  const Index thread = threadIdx, block = blockIdx;
  float *const ofBlock = shared;
  uint64_t *const times = dyn::ownTimes(), begin = times[0], counter = times[1];
  wait();
  threadIdx = thread, blockIdx = block;
  shared = ofBlock;
  times[0] = begin, times[1] = counter;
}

void __syncthreads() { whileOthersRun(grid_wait_block); }
void letOthersRun() { whileOthersRun(grid_wait); }
void tells() { grid_moves(); }
void *blockMemory() { return shared; }
float *blockShared() { return shared + kBlockBytes / sizeof *shared; }

/* A kernel knows the layout of one version; these know both, by what only the newer one begins with. */
struct ncclDevComm {
  int rank, lsaRank;
  fake_gin *gin;
};
static ncclDevComm viewOf(const dyn_nccl_dev_comm &comm) {
  const dyn_nccl_dev_comm_22809 &old = comm.v22809;
  const dyn_nccl_dev_comm_23203 &now = comm.v23203;
  if (now.magic == DYN_NCCL_MAGIC) return {now.rank, now.lsaRank, (fake_gin *)now.ginHandles[0]};
  return {old.rank, old.lsaRank, (fake_gin *)old.ginHandles[0]};
}
#include "../../kernels/gin/calls.cuh"

namespace dyn {

struct GinNet {
  using Window = const fake_window *;
  const ncclDevComm &comm;
  fake_gin *gin;
  unsigned context;

  GinNet(const ncclDevComm &comm, unsigned context) : comm(comm), gin(comm.gin), context(context) {}
  GinNet(const ncclDevComm &comm, const Gin &g, unsigned block) : GinNet(comm, block % g.contexts) {}
  GinNet(const ncclDevComm &comm, const Gin &g) : GinNet(comm, g, blockIdx.x) {}
  static void add(uint64_t *words, uint32_t i, uint32_t by = 1) {
    tells();
    ((std::atomic<uint64_t> *)&words[i])->fetch_add(by, std::memory_order_acq_rel);
  }
  static uint64_t load(const uint64_t *words, uint32_t i) { return ((const std::atomic<uint64_t> *)&words[i])->load(std::memory_order_acquire); }
  void raise(int peer, uint32_t signal, uint32_t by = 1) const {
    if (!gin->silent) add(gin->signals[peer] + context * FAKE_GIN_SIGNALS, signal, by);
  }
  void put(int peer, Window to, size_t toAt, Window from, size_t fromAt, size_t bytes, uint32_t signal) const {
    memcpy(to->at[peer] + toAt, from->at[comm.rank] + fromAt, bytes);
    raise(peer, signal);
  }
  void putCounted(int peer, Window to, size_t toAt, Window from, size_t fromAt, size_t bytes, uint32_t signal, uint32_t counter) const {
    put(peer, to, toAt, from, fromAt, bytes, signal);
    add(gin->counters[context], counter);
  }
  uint64_t signalValue(uint32_t signal) const { return load(gin->signals[comm.rank] + context * FAKE_GIN_SIGNALS, signal); }
  uint64_t counterValue(uint32_t counter) const { return load(gin->counters[context], counter); }
  uint64_t depth(int peer) const { return gin->depths[context][peer]; }
  void flush() const { __syncthreads(); }
  char *local(Window window, size_t at) const { return window->at[comm.rank] + at; }
  char *near(Window window, size_t at, int peer) const { return window->at[comm.rank - comm.lsaRank + peer] + at; }
  bool all(bool fine) const { return blockSum(fine ? 0 : 1) == 0; }
};

}  // namespace dyn
#include "../../kernels/gin/kernels.cuh"

#define ONE(NAME, BYTES) {#NAME, BYTES, 0, [](const kernel_arguments *a) { NAME(a->call); }, 0, 0},
#define GIN(NAME, BYTES) {#NAME, BYTES, sizeof(dyn_gin_call), [](const kernel_arguments *a) { NAME(viewOf(a->comm), a->gin); }, 1, 0},
#define GIN_ROLES(NAME, BYTES) {#NAME, BYTES, sizeof(dyn_gin_call), [](const kernel_arguments *a) { NAME(viewOf(a->comm), a->gin); }, DYN_GIN_ROLES, 0},
#define GIN_SUMS(NAME, TYPE) GIN_ROLES(ginMoveSums_##NAME, sizeof(TYPE)) GIN(ginAllReduceInRounds_##NAME, sizeof(TYPE))
#define GIN_LAYOUT(VERSION) {DYN_GIN_LAYOUT_PREFIX #VERSION, 1, 0, [](const kernel_arguments *) {}, 0, 0},
#define GIN_TYPED(NAME, TYPE) GIN(ginAllReduce_##NAME, sizeof(TYPE)) GIN(ginReduceScatter_##NAME, sizeof(TYPE))
#define TYPED(NAME, TYPE) \
  ONE(oneShot_##NAME, sizeof(TYPE)) \
  ONE(twoShot_##NAME, sizeof(TYPE)) \
  {"bulk_" #NAME, sizeof(TYPE), sizeof(dyn_bulk), [](const kernel_arguments *a) { bulk_##NAME(a->call, a->second.bulk); }, 0, 0}, \
  ONE(reduceScatter_##NAME, sizeof(TYPE)) \
  {"reduceScatterBulk_" #NAME, sizeof(TYPE), sizeof(dyn_bulk), \
   [](const kernel_arguments *a) { reduceScatterBulk_##NAME(a->call, a->second.bulk); }, 0, 0},

#define NORM(NAME, TYPE) \
  {"allReduceAddRmsNorm_" #NAME, sizeof(TYPE), sizeof(dyn_rms_norm), \
   [](const kernel_arguments *a) { allReduceAddRmsNorm_##NAME(a->call, a->second.norm); }, 0, 0},

static const kernel kernels[] = {
    DYN_TYPES(TYPED)
    DYN_NORM_TYPES(NORM)
    ONE(allGather, 1)
    {"allGatherBulk", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { allGatherBulk(a->call, a->second.bulk); }, 0, 0},
    ONE(allToAll, 1)
    {DYN_KERNEL_LAYOUT_NAME, 1, 0, [](const kernel_arguments *) { DYN_KERNEL_LAYOUT(); }, 0, 0},
    DYN_TYPES(GIN_TYPED)
    GIN(ginAllToAll, 1)
    GIN(ginAllGather, 1)
    GIN_ROLES(ginMove, 1)
    DYN_NORM_TYPES(GIN_SUMS)
    GIN(ginProbe, 0)
    GIN(ginLook, 0)
    DYN_GIN_NCCL_VERSIONS(GIN_LAYOUT)
    {"allToAllBulk", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { allToAllBulk(a->call, a->second.bulk); }, 0, 0},
    {"allToAllV", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { allToAllV(a->call, a->second.bulk, a->parts); }, 0, 1},
    {"ginAllToAllV", 1, sizeof(dyn_gin_call), [](const kernel_arguments *a) { ginAllToAllV(viewOf(a->comm), a->gin, a->parts); }, 1, 1},
    {"ginMoveParts", 1, sizeof(dyn_gin_call), [](const kernel_arguments *a) { ginMoveParts(viewOf(a->comm), a->gin, a->parts); }, DYN_GIN_ROLES, 1},
    {"broadcastBulk", 1, sizeof(dyn_bulk), [](const kernel_arguments *a) { broadcastBulk(a->call, a->second.bulk); }, 0, 0},
    {"broadcast", 1, sizeof(int), [](const kernel_arguments *a) { broadcast(a->call, a->second.root); }, 0, 0},
};

/* FAKEGPU_GIN_KERNELS: the only version of NCCL that the kernels on GIN are for. */
static bool lacks(const char *name) {
  const char *only = getenv("FAKEGPU_GIN_KERNELS"), *prefix = DYN_GIN_LAYOUT_PREFIX;
  return only != nullptr && strncmp(name, prefix, strlen(prefix)) == 0 && strcmp(name + strlen(prefix), only) != 0;
}

const kernel *kernel_find(const char *name) {
  if (lacks(name)) return nullptr;
  for (const kernel &k : kernels)
    if (strcmp(k.name, name) == 0) return &k;
  return nullptr;
}

void kernel_thread(const kernel_launch *launch, unsigned block, unsigned thread, float *ofBlock) {
  gridDim.x = launch->blocks, blockDim.x = launch->threads;
  blockIdx.x = block, threadIdx.x = thread;
  shared = ofBlock;
  launch->kernel->run(&launch->arguments);
}
