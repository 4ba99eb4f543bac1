/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v1, NCCL 2.23: as v2, with numbers where v2 has names.
 */
#include "profiler_shim.h"

#define NUM_ALGORITHMS 7 /* NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS: src/include/nccl_tuner.h v2.23.4 */
#define NUM_PROTOCOLS 3

static int init(void **context, int *mask) {
  struct dyn_profiler_init in = {.version = 1, .rank = -1};
  return dyn_profiler_init(context, mask, &in);
}

static int start(void *context, void **handle, ncclProfilerEventDescr_v1_t *descr) {
  struct dyn_event event = {.type = descr->type, .parent = descr->parentObj};
  switch (descr->type) {
    case ncclProfileColl:
      event.coll.funcNumber = descr->coll.func;
      event.coll.datatypeNumber = descr->coll.datatype;
      event.coll.algoNumber = descr->coll.algo < NUM_ALGORITHMS ? descr->coll.algo : DYN_UNKNOWN;
      event.coll.protoNumber = descr->coll.proto < NUM_PROTOCOLS ? descr->coll.proto : DYN_UNKNOWN;
      event.coll.count = descr->coll.count;
      event.coll.rank = descr->rank;
      event.coll.group = descr->parentObj;
      event.coll.commHash = descr->coll.commHash;
      event.coll.trafficBytes = descr->coll.trafficBytes;
      break;
    case ncclProfileProxyOp: DYN_FILL_PROXY_OP(event, descr); break;
    default: break;
  }
  return dyn_event_start(context, handle, &event, descr);
}

static int state(void *handle, int eState, ncclProfilerEventStateArgs_v1_t *args) {
  return dyn_event_state(handle, eState, args, 0);
}

extern const ncclProfiler_v1_t ncclProfiler_v1;
DYN_EXPORT const ncclProfiler_v1_t ncclProfiler_v1 = {DYN_PROFILER_NAME, init,  start, dyn_event_stop, state,
                                                      dyn_profiler_finalize};
