/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading and calling the profiler: src/plugin/profiler.cc and src/plugin/profiler/profiler_vN.cc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nccl.h"
#include "tuning.h"

enum { LOAD_FAILED = -1, LOAD_READY, LOAD_SUCCESS };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int status = LOAD_READY, references, newestAbi = 6, abi;
static void *library, *table; /* table: ncclProfiler_vN_t of version abi */
static atomic_ulong events;
atomic_int nccl_event_mask;

void profiler_abi_limit(int newest) { newestAbi = newest; }

int profiler_load(void) {
  pthread_mutex_lock(&mutex);
  if (status == LOAD_SUCCESS) references++;
  if (status == LOAD_READY) {
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    if (name != NULL)
      nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_ENV, __FILE__, __LINE__, "NCCL_PROFILER_PLUGIN set by environment to %s",
               name);
    if (name == NULL || strcasecmp(name, "none") != 0) library = plugin_open(PLUGIN_PROFILER, name);
    table = NULL;
    for (abi = newestAbi; library != NULL && abi >= 1; abi--) {
      char symbol[32];
      snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", abi);
      table = dlsym(library, symbol);
      if (table != NULL) break;
    }
    if (table != NULL) {
      status = LOAD_SUCCESS;
      references++;
      nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT, __FILE__, __LINE__, "PROFILER/Plugin: Loaded %s (v%d)", profiler_name(),
               abi);
    } else {
      if (library != NULL)
        nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT, __FILE__, __LINE__, "External profiler plugin %s is unsupported",
                 plugin_path(PLUGIN_PROFILER));
      plugin_close(PLUGIN_PROFILER, library);
      library = NULL;
      abi = 0;
      status = LOAD_FAILED;
    }
  }
  int success = status == LOAD_SUCCESS;
  pthread_mutex_unlock(&mutex);
  return success;
}

void profiler_unload(void) {
  pthread_mutex_lock(&mutex);
  if (status == LOAD_SUCCESS && --references == 0) {
    nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT, __FILE__, __LINE__, "PROFILER/Plugin: Closing profiler plugin %s",
             profiler_name());
    plugin_close(PLUGIN_PROFILER, library);
    library = table = NULL;
    status = LOAD_READY;
  }
  pthread_mutex_unlock(&mutex);
}

int profiler_abi(void) { return table == NULL ? 0 : abi; }
const char *profiler_name(void) { return table == NULL ? "none" : *(const char **)table; }
unsigned long profiler_events(void) { return atomic_load(&events); }

#define V(N) ((ncclProfiler_v##N##_t *)table)

int profiler_init(void **context, uint64_t commId, const char *commName, int nNodes, int nRanks, int rank) {
  int *mask = (int *)&nccl_event_mask; /* NCCL's is a plain int that both sides access by atomic builtins */
  switch (abi) {
    case 7: return V(7)->init(context, commId, mask, commName, nNodes, nRanks, rank, nccl_log);
    case 6: return V(6)->init(context, commId, mask, commName, nNodes, nRanks, rank, nccl_log);
    case 5: return V(5)->init(context, commId, mask, commName, nNodes, nRanks, rank, nccl_log);
    case 4: return V(4)->init(context, mask, commName, commId, nNodes, nRanks, rank, nccl_log);
    case 3: return V(3)->init(context, mask);
    case 2: return V(2)->init(context, mask);
    default: return V(1)->init(context, mask);
  }
}

static int index_of(const char *name, const char *(*name_of)(int), int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(name, name_of(i)) == 0) return i;
  return n - 1;
}

static int func_of(const char *name) {
  static const char *const names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  for (int i = 0; i < NUM_FUNCS; i++)
    if (strcmp(name, names[i]) == 0) return i;
  return 6; /* ncclFuncSend: what profiler_v1.cc answers for others */
}

static int datatype_of(const char *name) { return strcmp(name, "ncclInt8") == 0 ? 0 : 7; /* ncclFloat32 */ }

/* Members of a Coll event that v1 to v3 share; the parent is the Group there, and name and commHash are gone. */
#define COPY_COLL(old, d) \
  (old).parentObj = (d)->coll.parentGroup; \
  (old).coll.seqNumber = (d)->coll.seqNumber; \
  (old).coll.sendBuff = (d)->coll.sendBuff; \
  (old).coll.recvBuff = (d)->coll.recvBuff; \
  (old).coll.count = (d)->coll.count; \
  (old).coll.root = (d)->coll.root; \
  (old).coll.nWarps = (d)->coll.nWarps
#define COPY_PROXY_OP(old, d) \
  (old).proxyOp.pid = (d)->proxyOp.pid; \
  (old).proxyOp.channelId = (d)->proxyOp.channelId; \
  (old).proxyOp.peer = (d)->proxyOp.peer; \
  (old).proxyOp.nSteps = (d)->proxyOp.nSteps; \
  (old).proxyOp.chunkSize = (d)->proxyOp.chunkSize; \
  (old).proxyOp.isSend = (d)->proxyOp.isSend
#define COPY_NAMES(old, d) \
  (old).coll.func = (d)->coll.func; \
  (old).coll.datatype = (d)->coll.datatype; \
  (old).coll.algo = (d)->coll.algo; \
  (old).coll.proto = (d)->coll.proto

static int start_v1(void *context, void **handle, ncclProfilerEventDescr_v7_t *d) {
  ncclProfilerEventDescr_v1_t old = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  *handle = NULL;
  if (d->type == ncclProfileColl) {
    COPY_COLL(old, d);
    old.coll.func = (uint8_t)func_of(d->coll.func);
    old.coll.datatype = (uint8_t)datatype_of(d->coll.datatype);
    old.coll.algo = (uint8_t)index_of(d->coll.algo, tuning_algo_name, NUM_ALGOS);
    old.coll.proto = (uint8_t)index_of(d->coll.proto, tuning_proto_name, NUM_PROTOS);
    old.coll.nMaxChannels = d->coll.nChannels;
  } else if (d->type == ncclProfileProxyOp) {
    COPY_PROXY_OP(old, d);
  } else if (d->type == ncclProfileProxyStep) {
    old.proxyStep.step = d->proxyStep.step;
  } else if (d->type != ncclProfileGroup && d->type != ncclProfileProxyCtrl) {
    return 0; /* an event that v1 does not know */
  }
  return V(1)->startEvent(context, handle, &old);
}

static int start_v2(void *context, void **handle, ncclProfilerEventDescr_v7_t *d) {
  ncclProfilerEventDescr_v2_t old = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  *handle = NULL;
  if (d->type == ncclProfileColl) {
    COPY_COLL(old, d);
    COPY_NAMES(old, d);
    old.coll.nMaxChannels = d->coll.nChannels;
  } else if (d->type == ncclProfileProxyOp) {
    COPY_PROXY_OP(old, d);
  } else if (d->type == ncclProfileProxyStep) {
    old.proxyStep.step = d->proxyStep.step;
  } else if (d->type != ncclProfileGroup && d->type != ncclProfileProxyCtrl) {
    return 0;
  }
  return V(2)->startEvent(context, handle, &old);
}

static int start_v3(void *context, void **handle, ncclProfilerEventDescr_v7_t *d) {
  ncclProfilerEventDescr_v3_t old = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  *handle = NULL;
  if (d->type == ncclProfileColl) {
    COPY_COLL(old, d);
    COPY_NAMES(old, d);
    old.coll.nMaxChannels = d->coll.nChannels;
  } else if (d->type == ncclProfileProxyOp) {
    COPY_PROXY_OP(old, d);
  } else if (d->type == ncclProfileProxyStep) {
    old.proxyStep.step = d->proxyStep.step;
  } else if (d->type == ncclProfileKernelCh) {
    old.kernelCh.channelId = d->kernelCh.channelId;
  } else if (d->type != ncclProfileGroup && d->type != ncclProfileProxyCtrl) {
    return 0;
  }
  return V(3)->startEvent(context, handle, &old);
}

/* Unlike the older shims, profiler_v4.cc leaves the handle as it is for events that v4 does not know. */
static int start_v4(void *context, void **handle, ncclProfilerEventDescr_v7_t *d) {
  ncclProfilerEventDescr_v4_t old = {.type = (uint8_t)d->type, .parentObj = d->parentObj, .rank = d->rank};
  if (d->type == ncclProfileColl) {
    COPY_COLL(old, d);
    COPY_NAMES(old, d);
    old.coll.nChannels = d->coll.nChannels;
  } else if (d->type == ncclProfileProxyOp) {
    COPY_PROXY_OP(old, d);
  } else if (d->type == ncclProfileProxyStep) {
    old.proxyStep.step = d->proxyStep.step;
  } else if (d->type == ncclProfileKernelCh) {
    old.kernelCh.channelId = d->kernelCh.channelId;
    old.kernelCh.pTimer = d->kernelCh.pTimer;
  } else if (d->type != ncclProfileGroup && d->type != ncclProfileProxyCtrl) {
    return 0;
  }
  return V(4)->startEvent(context, handle, &old);
}

int profiler_start(void *context, void **handle, ncclProfilerEventDescr_v7_t *d) {
  atomic_fetch_add_explicit(&events, 1, memory_order_relaxed);
  switch (abi) {
    case 7: return V(7)->startEvent(context, handle, d);
    case 6: return V(6)->startEvent(context, handle, (ncclProfilerEventDescr_v6_t *)d);
    case 5: return V(5)->startEvent(context, handle, (ncclProfilerEventDescr_v5_t *)d);
    case 4: return start_v4(context, handle, d);
    case 3: return start_v3(context, handle, d);
    case 2: return start_v2(context, handle, d);
    default: return start_v1(context, handle, d);
  }
}

int profiler_stop(void *handle) { return V(7)->stopEvent(handle); /* the same member in all versions */ }

int profiler_record(void *handle, int state, ncclProfilerEventStateArgs_v7_t *args) {
  if (abi >= 5) return V(7)->recordEventState(handle, state, args);
  if (abi == 4) {
    if (state == ncclProfilerGroupStartApiStop || state == ncclProfilerGroupEndApiStart) return 0;
    return V(4)->recordEventState(handle, state, args);
  }
  return 0; /* v1 to v3: none of the states that occur here is handed on */
}

int profiler_finalize(void *context) { return V(7)->finalize(context); }
