/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v4, NCCL 2.27: the first that tells communicator and rank at init, and GPU times of kernel channels.
 */
#include "profiler_shim.h"

static int init(void **context, int *mask, const char *commName, uint64_t commHash, int nNodes, int nRanks, int rank,
                dyn_nccl_logger log) {
  struct dyn_profiler_init in = {4, 1, commHash, commName, nNodes, nRanks, rank, log};
  return dyn_profiler_init(context, mask, &in);
}

static int start(void *context, void **handle, ncclProfilerEventDescr_v4_t *descr) {
  struct dyn_event event = {.type = descr->type, .parent = descr->parentObj};
  switch (descr->type) {
    case ncclProfileColl:
      DYN_FILL_COLL_NAMES(event, descr);
      event.coll.group = descr->parentObj;
      event.coll.nChannels = descr->coll.nChannels;
      break;
    case ncclProfileKernelCh:
      event.kernelCh.channel = descr->kernelCh.channelId;
      event.kernelCh.timer = descr->kernelCh.pTimer;
      break;
    case ncclProfileProxyOp: DYN_FILL_PROXY_OP(event, descr); break;
    default: break;
  }
  return dyn_event_start(context, handle, &event, descr);
}

static int state(void *handle, int eState, ncclProfilerEventStateArgs_v4_t *args) {
  return dyn_event_state(handle, eState, args, dyn_kernel_timer(eState, args));
}

extern const ncclProfiler_v4_t ncclProfiler_v4;
DYN_EXPORT const ncclProfiler_v4_t ncclProfiler_v4 = {DYN_PROFILER_NAME, init,  start, dyn_event_stop, state,
                                                      dyn_profiler_finalize};
