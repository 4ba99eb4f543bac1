/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of the calling thread around the program's API calls: GroupApi and CollApi, and the one place where NCCL polls
 * the activation mask. State machine of src/plugin/profiler.cc:207-303 and src/group.cc:655-755 (2.28.9; 2.30.7 is the
 * same), with its two oddities, because plugins meet them:
 * - an explicit group of several collectives stops its GroupApi event after the second one and starts another;
 * - a CollApi handle is never cleared: once a plugin returned one, every later collective of the thread stops it again
 *   while the mask is 0, whatever communicator it is on and whether or not the first one still exists.
 */
#include "api_events.h"

#include <stddef.h>

enum { STATE_RESET, STATE_STARTED, STATE_STOPPED };

static _Thread_local struct {
  int groupDepth;         /* ncclGroupDepth */
  int profilerGroupDepth; /* and the rest of ncclProfilerApiState */
  int mask, state;
  void *groupApi, *collApi;
} api;

/* ncclProfilerStartGroupApiEvent and ncclProfilerStartCollApiEvent; the CE bits are known from 2.29 on. */
static const int collEvents = ncclProfileColl | ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileKernelCh |
                              ncclProfileNetPlugin;
static int ce_events(void) {
  return nccl_version() >= 22900 ? ncclProfileCeColl | ncclProfileCeSync | ncclProfileCeBatch : 0;
}

static void record_group_api(int state) {
  int wanted = 0;
  if (state == ncclProfilerGroupStartApiStop && api.state == STATE_STARTED) {
    api.state = STATE_STOPPED;
    wanted = 1;
  } else if (state == ncclProfilerGroupEndApiStart && api.state == STATE_STOPPED) {
    api.state = STATE_RESET;
    wanted = 1;
  }
  if (wanted && profiler_abi() != 0 && api.groupApi != NULL) profiler_record(api.groupApi, state, NULL);
}

static void stop_group_api(void) {
  if (profiler_abi() == 0 || api.groupApi == NULL || api.profilerGroupDepth != 0) return;
  profiler_stop(api.groupApi);
  api.groupApi = NULL;
}

void api_group_start(void) { api.groupDepth++; }

int api_group_end(void) {
  if (api.profilerGroupDepth > 0) api.profilerGroupDepth--;
  if (api.profilerGroupDepth == 0) record_group_api(ncclProfilerGroupEndApiStart);
  return --api.groupDepth == 0;
}

void api_group_exit(void) { stop_group_api(); }

struct api_task api_coll_append(void *context, const char *func, size_t count, const char *datatype, int captured) {
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileGroupApi};
  api.mask = atomic_load_explicit(&nccl_event_mask, memory_order_relaxed);
  int groupEvents = ncclProfileGroupApi | ncclProfileP2pApi | ncclProfileCollApi | ncclProfileKernelLaunch |
                    ncclProfileGroup | ncclProfileP2p | collEvents | ce_events();
  int loaded = profiler_abi() != 0;
  if (loaded && (api.mask & groupEvents) && api.profilerGroupDepth == 0) {
    d.groupApi.groupDepth = api.groupDepth;
    d.groupApi.graphCaptured = captured != 0;
    profiler_start(context, &api.groupApi, &d);
    api.profilerGroupDepth = api.groupDepth;
    api.state = STATE_STARTED;
  }
  record_group_api(ncclProfilerGroupStartApiStop);
  if (loaded && (api.mask & (ncclProfileCollApi | collEvents | ce_events()))) {
    d = (ncclProfilerEventDescr_v7_t){.type = ncclProfileCollApi, .parentObj = api.groupApi};
    d.collApi.func = func;
    d.collApi.count = count;
    d.collApi.datatype = datatype;
    d.collApi.graphCaptured = captured != 0;
    profiler_start(context, &api.collApi, &d);
  }
  struct api_task task = {api.mask, api.groupApi, api.collApi};
  if (loaded && api.collApi != NULL) profiler_stop(api.collApi);
  return task;
}
