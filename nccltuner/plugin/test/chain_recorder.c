/* SPDX-License-Identifier: Apache-2.0
 *
 * A profiler plugin that writes down all it is told: the other end of DYNAMICCL_CHAIN_PROFILER in
 * test_profiler_chain.c, which builds it with RECORDER_VERSION and RECORDER_NAME. Its handles are addresses of its
 * records, as those of a real plugin are.
 */
#include "../nccl_profiler_abi.h"
#include "chain_recorder.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PASTE(a, b) a##b
#define VERSIONED(name, v) PASTE(name, v)
#if RECORDER_VERSION == 4
typedef ncclProfilerEventDescr_v4_t descr_t;
typedef ncclProfiler_v4_t table_t;
#elif RECORDER_VERSION == 5
typedef ncclProfilerEventDescr_v5_t descr_t;
typedef ncclProfiler_v5_t table_t;
#elif RECORDER_VERSION == 6
typedef ncclProfilerEventDescr_v6_t descr_t;
typedef ncclProfiler_v6_t table_t;
#else
typedef ncclProfilerEventDescr_v7_t descr_t;
typedef ncclProfiler_v7_t table_t;
#endif

EXPORT struct recorder recorder = {.wantMask = -1};

static int start(void *context, void **handle, descr_t *d) {
  recorder.starts++;
  if (recorder.failing) return 3;
  struct record *r = &recorder.records[recorder.count++ % RECORDS];
  *r = (struct record){.type = d->type, .parent = d->parentObj, .context = context};
  if (d->type == ncclProfileColl) {
    strncpy(r->func, d->coll.func, sizeof r->func - 1);
    r->count = d->coll.count;
    r->channels = d->coll.nChannels;
#if RECORDER_VERSION >= 5
    r->group = d->coll.parentGroup;
#endif
  } else if (d->type == ncclProfileKernelCh) {
    r->channels = d->kernelCh.channelId;
    r->timer = d->kernelCh.pTimer;
  } else if (d->type == ncclProfileProxyOp) {
    r->channels = d->proxyOp.channelId;
    r->isSend = d->proxyOp.isSend;
  } else if (d->type == ncclProfileProxyStep) {
    r->count = (size_t)d->proxyStep.step;
  }
#if RECORDER_VERSION >= 6
  if (d->type == ncclProfileCeColl) r->count = d->ceColl.count;
#endif
  *handle = r;
  return 0;
}

static int stop(void *handle) {
  recorder.stops++;
  if (recorder.failing) return 3;
  ((struct record *)handle)->stops++;
  return 0;
}

static int state(void *handle, int s, ncclProfilerEventStateArgs_v4_t *args) {
  struct record *r = handle;
  r->state = s;
  if (s == ncclProfilerKernelChStop && args != NULL) r->timer = args->kernelCh.pTimer;
  return recorder.failing ? 3 : 0;
}

static int finalize(void *context) {
  recorder.finalized++;
  return context == &recorder ? 0 : 3;
}

static int begin(void **context, int *mask, uint64_t commId, int rank) {
  recorder.inits++;
  recorder.commId = commId;
  recorder.rank = rank;
  recorder.mask = mask;
  if (recorder.initFails) return 2;
  *context = &recorder;
  *mask = recorder.wantMask;
  return 0;
}

#if RECORDER_VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t commId, int nNodes, int nRanks, int rank,
                dyn_nccl_logger log) {
  (void)name, (void)nNodes, (void)nRanks, (void)log;
  return begin(context, mask, commId, rank);
}
#else
static int init(DYN_INIT_V5) {
  (void)commName, (void)nNodes, (void)nranks, (void)logfn;
  return begin(context, eActivationMask, commId, rank);
}
#endif

extern const table_t VERSIONED(ncclProfiler_v, RECORDER_VERSION);
EXPORT const table_t VERSIONED(ncclProfiler_v, RECORDER_VERSION) = {RECORDER_NAME, init, start, stop, state, finalize};
