/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of GIN on one communicator, on the host. Every step is made by all ranks, in one order.
 *
 *   uninitialised -- ginCreate --> initialising -- ginProve --> active -- ginDestroy --> destroyed
 *                        |               |                        | ginFaulty
 *                        `---------------+------> failed <--------'
 *
 * initialising: NCCL has granted a device communicator, which says what kind of GIN it is and not that it works. Windows are
 *   made here, and the probe is the only kernel that may run.
 * active: every signal and counter of the probe has come, on every context, with its data.
 * failed: a call of NCCL's did not succeed, a peer was waited for in vain, or another rank says so of itself. Nothing is given
 *   back: puts may be on their way, and NCCL's own ends wait for them. The process should use another path, or end.
 * destroyed: all is given back. Signals keep what they counted to; ginLook is why that does no harm.
 */
#ifndef DYN_GIN_LIFE_CUH
#define DYN_GIN_LIFE_CUH

#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "net.cuh"
#include "pipes.h"
#include "probe.cuh"

namespace dyn {

constexpr int kGinMaxContexts = 4; /* 2.28 has no more */
#ifdef NCCL_GIN_MAX_CONTEXTS
static_assert(kGinMaxContexts == NCCL_GIN_MAX_CONTEXTS);
#endif

enum class GinState { uninitialised, initialising, active, failed, destroyed };

struct GinWanted {
  int contexts; /* kGinMaxContexts at most. A hint: 2.28 makes as many as NCCL_GIN_NCONTEXTS says (4), whatever is asked for */
  size_t slotBytes; /* of a call of AllReduce, a multiple of 128 */
  uint64_t waitNs;
  size_t cellBytes; /* of hierarchical kernels, a multiple of 128 */
};

struct GinWindow {
  char *memory;
  ncclWindow_t window;
};

struct GinLife {
  GinState state = GinState::uninitialised;
  std::string why; /* of failed */
  ncclComm_t comm;
  ncclDevComm device; /* what was granted */
  Gin gin;
  GinWindow slots;
  std::vector<GinWindow> windows; /* all of them */
  dyn_gin_stamp *stamps; /* of the probe, host memory: [contexts][nRanks] */
};

static __global__ void ginLookKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, dyn_gin_stamp *stamps) {
  for (unsigned context = 0; context < g.contexts; context++) ginLook(GinNet(comm, context), g, stamps);
}
static __global__ void ginProbeKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, ncclWindow_t slots, dyn_gin_stamp *stamps) {
  ginProbe(GinNet(comm, g), g, slots, stamps);
}

inline bool ginFailed(GinLife &life, const std::string &why) {
  if (life.state != GinState::failed) life.why = why;
  life.state = GinState::failed;
  return false;
}
inline bool ginGood(GinLife &life, ncclResult_t result, const char *what) {
  if (result == ncclSuccess) return true;
  return ginFailed(life, std::string(what) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}
inline bool ginGood(GinLife &life, cudaError_t result, const char *what) {
  return result == cudaSuccess || ginFailed(life, std::string(what) + ": " + cudaGetErrorString(result));
}

/* Memory that all ranks reach. NCCL waits for all of them here. */
inline bool ginWindow(GinLife &life, size_t bytes, GinWindow *w) {
  *w = {};
  if (!ginGood(life, ncclMemAlloc((void **)&w->memory, bytes), "ncclMemAlloc") || !ginGood(life, cudaMemset(w->memory, 0, bytes), "cudaMemset")) return false;
  if (!ginGood(life, ncclCommWindowRegister(life.comm, w->memory, bytes, &w->window, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister")) return false;
  if (w->window == nullptr) return ginFailed(life, "ncclCommWindowRegister gives no window");
  life.windows.push_back(*w);
  return true;
}

inline bool ginMemory(GinLife &life, int rank, int nRanks, const GinWanted &wanted) {
  Gin &g = life.gin;
  g = {};
  g.rank = rank, g.nRanks = nRanks, g.slotBytes = wanted.slotBytes, g.waitNs = wanted.waitNs;
  g.contexts = (uint32_t)life.device.ginContextCount;
  g.localRanks = life.device.lsaSize, g.pipesAt = DYN_GIN_SLOTS * (size_t)nRanks * wanted.slotBytes, g.cellBytes = wanted.cellBytes;
  const size_t calls = (DYN_GIN_COUNTERS + DYN_GIN_FLAG_WORDS) * sizeof *g.calls, seen = g.contexts * ginSeen(nRanks) * sizeof *g.seen, faults = nRanks * sizeof *g.fault;
  const size_t stamps = kGinMaxContexts * nRanks * sizeof *life.stamps;
  if (!ginGood(life, cudaMalloc(&g.calls, calls), "cudaMalloc") || !ginGood(life, cudaMemset(g.calls, 0, calls), "cudaMemset")) return false;
  g.items = g.calls + DYN_GIN_COUNTERS;
  if (!ginGood(life, cudaMalloc(&g.seen, seen), "cudaMalloc") || !ginGood(life, cudaMemset(g.seen, 0, seen), "cudaMemset")) return false;
  if (!ginGood(life, cudaHostAlloc(&g.stop, sizeof *g.stop, cudaHostAllocMapped), "cudaHostAlloc")) return false;
  if (!ginGood(life, cudaHostAlloc(&g.fault, faults, cudaHostAllocMapped), "cudaHostAlloc")) return false;
  if (!ginGood(life, cudaHostAlloc(&life.stamps, stamps, cudaHostAllocMapped), "cudaHostAlloc")) return false;
  *g.stop = 0;
  memset(g.fault, 0, faults);
  memset(life.stamps, 0, stamps);
  return true;
}

/* GIN, and nothing else yet. */
inline ncclDevCommRequirements ginRequirements() {
#if NCCL_VERSION_CODE >= 23000
  ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  wants.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
#else
  ncclDevCommRequirements wants = {};
  wants.ginForceEnable = true;
#endif
  return wants;
}

/* What was granted, where versions have it in different places. */
#if NCCL_VERSION_CODE >= 23000 /* a connection has several contexts, and signals of its own for each device communicator */
inline int ginTypeOf(const ncclDevComm &d, int context) { return d.ginNetDeviceTypes[context % d.ginConnectionCount]; }
inline unsigned ginSignalBase(const ncclDevComm &) { return 0; }
inline unsigned ginCounterBase(const ncclDevComm &) { return 0; }
#else
inline int ginTypeOf(const ncclDevComm &d, int context) { return d.ginTypes[context]; }
inline unsigned ginSignalBase(const ncclDevComm &d) { return d.ginSignalBase; }
inline unsigned ginCounterBase(const ncclDevComm &d) { return d.ginCounterBase; }
#endif

/* The caller has all ranks wait for each other behind it, before anybody puts: from here on signals are counted. */
inline bool ginCreate(GinLife &life, ncclComm_t comm, const GinWanted &wanted) {
  int rank = 0, nRanks = 0, version = 0;
  life.comm = comm;
  if (life.state != GinState::uninitialised) return ginFailed(life, "created twice");
  life.state = GinState::initialising;
  /* A device communicator is NCCL's own structure, of which kernels know the layout that they were compiled with. */
  if (!ginGood(life, ncclGetVersion(&version), "ncclGetVersion")) return false;
  if (version != NCCL_VERSION_CODE)
    return ginFailed(life, "compiled with NCCL " + std::to_string(NCCL_VERSION_CODE) + ", and the library is " + std::to_string(version));
  if (!ginGood(life, ncclCommUserRank(comm, &rank), "ncclCommUserRank") || !ginGood(life, ncclCommCount(comm, &nRanks), "ncclCommCount")) return false;
  /* Not by a list of requirements: 2.28.9 forgets the signals that stand in one (deepCopyDevCommRequirements). Signals are
   * also what makes NCCL connect GIN where all ranks are of one node. */
  ncclDevCommRequirements wants = ginRequirements();
  wants.ginContextCount = wanted.contexts;
  wants.ginSignalCount = (int)ginSignals(nRanks), wants.ginCounterCount = (int)ginCounters(nRanks);
  if (!ginGood(life, ncclDevCommCreate(comm, &wants, &life.device), "ncclDevCommCreate")) return false;
  if (life.device.ginContextCount < 1 || life.device.ginContextCount > kGinMaxContexts) return ginFailed(life, "no GIN context was granted");
  if (life.device.ginSignalCount < wants.ginSignalCount || life.device.ginCounterCount < wants.ginCounterCount)
    return ginFailed(life, "fewer signals or counters were granted than were asked for");
  if (!ginMemory(life, rank, nRanks, wanted)) return false;
  ginLookKernel<<<DYN_GIN_MAX_BLOCKS, 32>>>(life.device, life.gin, life.stamps);
  if (!ginGood(life, cudaGetLastError(), "ginLook") || !ginGood(life, cudaDeviceSynchronize(), "ginLook")) return false;
  return ginWindow(life, life.gin.pipesAt + dyn_gin_pipe_bytes(nRanks, life.gin.localRanks, wanted.cellBytes), &life.slots);
}

inline const char *ginTypeName(int type) { return type == NCCL_NET_DEVICE_GIN_PROXY ? "proxy" : type == NCCL_NET_DEVICE_GIN_GDAKI ? "gdaki" : "unknown"; }

/* Entries of the shortest queue to a peer. */
inline uint64_t ginDepthOf(const GinLife &life) {
  uint64_t depth = UINT64_MAX;
  for (int c = 0; c < (int)life.gin.contexts; c++)
    for (int r = 0; r < life.gin.nRanks; r++)
      if (r != life.gin.rank && life.stamps[c * life.gin.nRanks + r].depth < depth) depth = life.stamps[c * life.gin.nRanks + r].depth;
  return depth;
}

/* A kernel gave up on a peer, or NCCL has an error of its own. */
inline bool ginFaulty(GinLife &life) {
  constexpr const char *kWhat[DYN_GIN_STEPS] = {"nothing", "its beginning", "its data", "the counter of a put to it", "room in its buffers"};
  std::string all;
  for (int r = 0; r < life.gin.nRanks; r++) {
    const uint64_t fault = ((volatile uint64_t *)life.gin.fault)[r];
    if (fault == 0) continue;
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(r) + ": call " + std::to_string((uint32_t)fault) + " waited too long for " + kWhat[(fault >> 32) % DYN_GIN_STEPS];
  }
  ncclResult_t error = ncclSuccess;
  if (ncclCommGetAsyncError(life.comm, &error) == ncclSuccess && error != ncclSuccess && error != ncclInProgress)
    all += std::string(all.empty() ? "" : "; ") + "NCCL: " + ncclGetErrorString(error) + ": " + ncclGetLastError(nullptr);
  if (!all.empty()) ginFailed(life, all);
  return !all.empty();
}

/* Of what came, on all contexts. */
struct GinPeer {
  int signals, counters, right;
  uint64_t counterNs; /* the longest */
};
inline GinPeer ginPeerOf(const GinLife &life, int peer) {
  GinPeer p = {};
  for (int c = 0; c < (int)life.device.ginContextCount; c++) {
    const volatile dyn_gin_stamp &s = life.stamps[c * life.gin.nRanks + peer];
    p.signals += s.signalNs != 0, p.right += s.right != 0, p.counters += s.counterNs != 0;
    if (s.counterNs != 0 && s.counterNs - s.issuedNs > p.counterNs) p.counterNs = s.counterNs - s.issuedNs;
  }
  return p;
}

/* Before the first collective: has everything come, of every peer? It ends at the latest after three times waitNs. The caller
 * asks all ranks: one that has failed is one too many. */
inline bool ginProve(GinLife &life, cudaStream_t stream) {
  if (life.state != GinState::initialising) return ginFailed(life, "proved in another state than initialising");
  const int contexts = life.device.ginContextCount;
  ginProbeKernel<<<contexts, 32, 0, stream>>>(life.device, life.gin, life.slots.window, life.stamps);
  if (!ginGood(life, cudaGetLastError(), "ginProbe") || !ginGood(life, cudaStreamSynchronize(stream), "ginProbe")) return false;
  if (ginFaulty(life)) return false;
  for (int r = 0; r < life.gin.nRanks; r++)
    if (r != life.gin.rank && ginPeerOf(life, r).right != contexts) return ginFailed(life, "rank " + std::to_string(r) + "'s signal was here before its data");
  life.state = GinState::active;
  return true;
}

inline bool ginDestroy(GinLife &life) {
  if (life.state != GinState::active) return false;
  bool fine = ginGood(life, cudaDeviceSynchronize(), "cudaDeviceSynchronize") && ginGood(life, ncclDevCommDestroy(life.comm, &life.device), "ncclDevCommDestroy");
  for (const GinWindow &w : life.windows)
    fine = fine && ginGood(life, ncclCommWindowDeregister(life.comm, w.window), "ncclCommWindowDeregister") && ginGood(life, ncclMemFree(w.memory), "ncclMemFree");
  if (!fine) return false;
  for (void *memory : {(void *)life.gin.calls, (void *)life.gin.seen}) cudaFree(memory);
  for (void *memory : {(void *)life.gin.stop, (void *)life.gin.fault, (void *)life.stamps}) cudaFreeHost(memory);
  life.windows.clear();
  life.state = GinState::destroyed;
  return true;
}

}  // namespace dyn

#endif
