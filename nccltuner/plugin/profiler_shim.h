/* SPDX-License-Identifier: Apache-2.0
 *
 * What the profiler versions share word for word: members of the same name and meaning. Used by profiler_vN.c only.
 */
#ifndef DYN_PROFILER_SHIM_H
#define DYN_PROFILER_SHIM_H

#include "profiler.h"

#include <string.h>

#define DYN_EXPORT __attribute__((visibility("default")))
#define DYN_PROFILER_NAME "DynamICCL"

/* v2 on: names instead of numbers. */
#define DYN_FILL_COLL_NAMES(event, descr) \
  do { \
    (event).coll.func = (descr)->coll.func != NULL ? (descr)->coll.func : ""; \
    (event).coll.datatype = (descr)->coll.datatype != NULL ? (descr)->coll.datatype : ""; \
    (event).coll.algo = (descr)->coll.algo != NULL ? (descr)->coll.algo : ""; \
    (event).coll.proto = (descr)->coll.proto != NULL ? (descr)->coll.proto : ""; \
    (event).coll.count = (descr)->coll.count; \
    (event).coll.rank = (descr)->rank; \
  } while (0)

#define DYN_FILL_PROXY_OP(event, descr) \
  do { \
    (event).proxyOp.pid = (descr)->proxyOp.pid; \
    (event).proxyOp.isSend = (descr)->proxyOp.isSend; \
  } while (0)

/* v5 on. The parent of a Coll is its CollApi event, parentGroup the Group that was its parent before v5. */
#define DYN_FILL_V5(event, descr) \
  do { \
    switch ((descr)->type) { \
      case ncclProfileGroupApi: (event).api.captured = (descr)->groupApi.graphCaptured; break; \
      case ncclProfileCollApi: \
        (event).api.captured = (descr)->collApi.graphCaptured; \
        (event).api.broadcast = (descr)->collApi.func != NULL && strcmp((descr)->collApi.func, "Broadcast") == 0; \
        break; \
      case ncclProfileP2pApi: (event).api.captured = (descr)->p2pApi.graphCaptured; break; \
      case ncclProfileColl: \
        DYN_FILL_COLL_NAMES(event, descr); \
        (event).coll.group = (descr)->coll.parentGroup; \
        (event).coll.nChannels = (descr)->coll.nChannels; \
        break; \
      case ncclProfileKernelCh: \
        (event).kernelCh.channel = (descr)->kernelCh.channelId; \
        (event).kernelCh.timer = (descr)->kernelCh.pTimer; \
        break; \
      case ncclProfileProxyOp: DYN_FILL_PROXY_OP(event, descr); break; \
      default: break; \
    } \
  } while (0)

/* v4 on: the state of a kernel channel carries its stop time. */
static inline uint64_t dyn_kernel_timer(int state, const ncclProfilerEventStateArgs_v4_t *args) {
  return state == ncclProfilerKernelChStop && args != NULL ? args->kernelCh.pTimer : 0;
}

static inline int dyn_init_v5(int version, void **context, uint64_t commId, int *mask, const char *commName, int nNodes,
                              int nRanks, int rank, dyn_nccl_logger log) {
  struct dyn_profiler_init in = {version, 1, commId, commName, nNodes, nRanks, rank, log};
  return dyn_profiler_init(context, mask, &in);
}

/* A whole version from v5 on; they differ in what the union holds beside these members. */
#define DYN_PROFILER_FROM_V5(N) \
  static int init(DYN_INIT_V5) { \
    return dyn_init_v5(N, context, commId, eActivationMask, commName, nNodes, nranks, rank, logfn); \
  } \
  static int start(void *context, void **handle, ncclProfilerEventDescr_v##N##_t *descr) { \
    struct dyn_event event = {.type = descr->type, .parent = descr->parentObj}; \
    DYN_FILL_V5(event, descr); \
    return dyn_event_start(context, handle, &event, descr); \
  } \
  static int state(void *handle, int eState, ncclProfilerEventStateArgs_v##N##_t *args) { \
    return dyn_event_state(handle, eState, args, dyn_kernel_timer(eState, args)); \
  } \
  extern const ncclProfiler_v##N##_t ncclProfiler_v##N; \
  DYN_EXPORT const ncclProfiler_v##N##_t ncclProfiler_v##N = {DYN_PROFILER_NAME, init, start, dyn_event_stop, state, \
                                                              dyn_profiler_finalize}

#endif
