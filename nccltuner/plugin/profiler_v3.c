/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v3, NCCL 2.26: kernel channels without GPU times, so that the host's clock at their events has to do.
 * Neither the communicator nor the number of ranks is known at init; Coll events tell commHash and rank. nMaxChannels
 * is a bound, not what ran.
 */
#include "profiler_shim.h"

static int init(void **context, int *mask) {
  struct dyn_profiler_init in = {.version = 3, .rank = -1};
  return dyn_profiler_init(context, mask, &in);
}

static int start(void *context, void **handle, ncclProfilerEventDescr_v3_t *descr) {
  struct dyn_event event = {.type = descr->type, .parent = descr->parentObj};
  switch (descr->type) {
    case ncclProfileColl:
      DYN_FILL_COLL_NAMES(event, descr);
      event.coll.group = descr->parentObj;
      event.coll.commHash = descr->coll.commHash;
      break;
    case ncclProfileKernelCh: event.kernelCh.channel = descr->kernelCh.channelId; break;
    case ncclProfileProxyOp: DYN_FILL_PROXY_OP(event, descr); break;
    default: break;
  }
  return dyn_event_start(context, handle, &event, descr);
}

static int state(void *handle, int eState, ncclProfilerEventStateArgs_v3_t *args) {
  return dyn_event_state(handle, eState, args, 0);
}

extern const ncclProfiler_v3_t ncclProfiler_v3;
DYN_EXPORT const ncclProfiler_v3_t ncclProfiler_v3 = {DYN_PROFILER_NAME, init,  start, dyn_event_stop, state,
                                                      dyn_profiler_finalize};
