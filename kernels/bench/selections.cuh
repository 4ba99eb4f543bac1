/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of NCCL's algorithms a single call can be made to run, by ncclCollConfig_t from 2.31 on: what NCCL answers to each name,
 * on buffers as programs have them and on registered ones, what then runs, and how long it takes. The header has the field and
 * not its words: these are what libnccl.so.2 2.32.3 has beside its messages about them, and the missing of a pattern.
 */
#ifndef DYN_BENCH_SELECTIONS_CUH
#define DYN_BENCH_SELECTIONS_CUH

#include <climits>

#include "nccl.cuh"

/* ncclCollConfig_v23200, nccl.h 2.32.3 */
struct CollConfig {
  size_t size = sizeof(CollConfig);
  unsigned magic = 0xcafebeef, version = 23203;
  void *ext = nullptr;
  int minCTAs = INT_MIN, maxCTAs = INT_MIN, nvlsCTAs = INT_MIN, cgaClusterSize = INT_MIN;
  const char *algSelection = nullptr;
  int forceAlgSelection = 1, CTAPolicy = INT_MIN;
  uint64_t userProfilerTag = 0;
  cudaEvent_t launchCompletionEvent = nullptr;
};
static_assert(sizeof(CollConfig) == 72, "ncclCollConfig_t has no holes");

constexpr const char *kSelections[] = {"", "RING_LL", "RING_LL128", "RING_SIMPLE", "TREE_LL", "TREE_LL128", "TREE_SIMPLE", "PAT_SIMPLE", "SYMK_AGxLL_R",
                                       "SYMK_RSxTmaLD_AGxTmaST", "SYMK_RSxLD_AGxST", "SYMK_LL", "SYMK_TmaST", "SYMK_ST", "SYMK_TmaLD", "SYMK_LD",
                                       "RING_LL,SYMK_LL", "nonsense"};

using AllReduceConfig = ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t, const CollConfig *);
using AllGatherConfig = ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t, const CollConfig *);

/* Of AllReduce, ReduceScatter and AllGather. */
static ncclResult_t enqueueSelected(const Rank &k, const Place &p, Collective collective, size_t bytes, const CollConfig &config) {
  static const auto allReduce = (AllReduceConfig)dlsym(RTLD_DEFAULT, "ncclAllReduceConfig");
  static const auto reduceScatter = (AllReduceConfig)dlsym(RTLD_DEFAULT, "ncclReduceScatterConfig"); /* the same arguments */
  static const auto allGather = (AllGatherConfig)dlsym(RTLD_DEFAULT, "ncclAllGatherConfig");
  const size_t count = bytes / sizeof(__nv_bfloat16), part = count / numRanks;
  if (collective == kAllReduce) return allReduce(p.in, p.out, count, ncclBfloat16, ncclSum, p.comm, k.stream, &config);
  if (collective == kReduceScatter) return reduceScatter(p.in, p.out, part, ncclBfloat16, ncclSum, p.comm, k.stream, &config);
  return allGather(p.in, p.out, part, ncclBfloat16, p.comm, k.stream, &config);
}

static void trySelection(const Rank &k, const Place &p, Collective collective, size_t bytes, const char *name) {
  CollConfig config;
  std::string why, kernels;
  long wrong = 0;
  double us = 0;
  config.algSelection = name;
  /* A name that NCCL refuses it refuses on every rank, before anything runs. */
  const bool taken = everybody(succeeds(enqueueSelected(k, p, collective, bytes, config), "refused", &why));
  CUDA(cudaStreamSynchronize(k.stream));
  if (taken) {
    const auto enqueue = [&] { NCCL(enqueueSelected(k, p, collective, bytes, config)); };
    wrong = checkNccl(k, p, collective, bytes, enqueue);
    const cudaGraph_t graph = captured(k, enqueue);
    kernels = kernelsOf(graph);
    us = replayed(k, graph);
  }
  if (rank == 0)
    printf("{\"figure\":\"nccl selection\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"registered\":%s,\"selection\":\"%s\",\"taken\":%s,\"why\":\"%s\","
           "\"kernel\":\"%s\",\"wrong\":%ld,\"us\":%.2f}\n", numRanks, kCollectiveNames[collective], bytes, p.registered ? "true" : "false", name,
           taken ? "true" : "false", why.c_str(), kernels.c_str(), wrong, us);
}

static void trySelections(const Rank &k, const std::vector<size_t> &sizes, const Place &plain, const Place &windows) {
  if (dlsym(RTLD_DEFAULT, "ncclAllReduceConfig") == nullptr) {
    if (rank == 0) printf("{\"figure\":\"nccl selection\",\"ranks\":%d,\"taken\":false,\"why\":\"this NCCL has no ncclCollConfig_t: it came with 2.31\"}\n", numRanks);
    return;
  }
  warm(k);
  for (const Place *p : {&plain, &windows}) {
    if (p == &windows && !windows.registered) continue;
    for (Collective collective : {kAllReduce, kReduceScatter, kAllGather})
      for (size_t bytes : sizes) {
        large = bytes >= kLargeBytes;
        for (const char *name : kSelections) trySelection(k, *p, collective, bytes, name);
      }
  }
}

#endif
