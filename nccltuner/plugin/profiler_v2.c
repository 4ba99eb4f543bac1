/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v2, NCCL 2.24 and 2.25: no kernel events; only network operations can be timed.
 */
#include "profiler_shim.h"

static int init(void **context, int *mask) {
  struct dyn_profiler_init in = {.version = 2, .rank = -1};
  return dyn_profiler_init(context, mask, &in);
}

static int start(void *context, void **handle, ncclProfilerEventDescr_v2_t *descr) {
  struct dyn_event event = {.type = descr->type, .parent = descr->parentObj};
  switch (descr->type) {
    case ncclProfileColl:
      DYN_FILL_COLL_NAMES(event, descr);
      event.coll.group = descr->parentObj;
      event.coll.commHash = descr->coll.commHash;
      event.coll.trafficBytes = descr->coll.trafficBytes;
      break;
    case ncclProfileProxyOp: DYN_FILL_PROXY_OP(event, descr); break;
    default: break;
  }
  return dyn_event_start(context, handle, &event, descr);
}

static int state(void *handle, int eState, ncclProfilerEventStateArgs_v2_t *args) {
  return dyn_event_state(handle, eState, args, 0);
}

extern const ncclProfiler_v2_t ncclProfiler_v2;
DYN_EXPORT const ncclProfiler_v2_t ncclProfiler_v2 = {DYN_PROFILER_NAME, init,  start, dyn_event_stop, state,
                                                      dyn_profiler_finalize};
