/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that writes down every call it gets, one line each, to the file $PROBE_OUT (%d is the process): what the
 * harness calls, with which arguments, in which order and thread. PROBE_MASK is the activation mask it asks for,
 * PROBE_CHOOSE "algorithm,protocol,channels" what it answers; with "-1" as third number the answer is an error.
 * TUNER and PROFILER are the versions that it exports.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../plugin/nccl_profiler_abi.h"
#include "../../plugin/nccl_tuner_abi.h"

#define JOIN(a, b) a##b
#define EXPAND(a, b) JOIN(a, b)

static FILE *out;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long nextHandle = 1;

static void note(const char *format, ...) {
  va_list args;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now); /* virtual inside of events */
  pthread_mutex_lock(&mutex);
  if (out == NULL) {
    char path[512];
    snprintf(path, sizeof path, getenv("PROBE_OUT"), getpid());
    out = fopen(path, "a");
    if (out == NULL) abort();
    setvbuf(out, NULL, _IOLBF, 4096);
  }
  fprintf(out, "%ld %lld ", syscall(SYS_gettid), (long long)now.tv_sec * 1000000000 + now.tv_nsec);
  va_start(args, format);
  vfprintf(out, format, args);
  va_end(args);
  fputc('\n', out);
  pthread_mutex_unlock(&mutex);
}

static void choice(int *algo, int *proto, int *channels) {
  const char *text = getenv("PROBE_CHOOSE");
  *algo = *proto = -1;
  *channels = 0;
  if (text != NULL && sscanf(text, "%d,%d,%d", algo, proto, channels) != 3) abort();
}

static int coll_info(int collective, size_t bytes, int numPipeOps, float **costs, int numAlgo, int numProto,
                     int regBuff,
                     int *nChannels) {
  float *table = (float *)costs;
  char text[1024] = "";
  int algo, proto, channels;
  for (int i = 0; table != NULL && i < numAlgo * numProto; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.3f", i == 0 ? "" : ",", (double)table[i]);
  note("getCollInfo coll=%d bytes=%zu ops=%d algos=%d protos=%d reg=%d channels=%d table=%s", collective, bytes,
       numPipeOps,
       numAlgo, numProto, regBuff, *nChannels, text);
  choice(&algo, &proto, &channels);
  if (channels < 0) return 3; /* ncclInternalError */
  if (algo < 0) return 0;
  if (table != NULL) table[algo * numProto + proto] = 0.0f;
  *nChannels = channels;
  return 0;
}

static int destroy(void *context) {
  note("tuner.finalize ctx=%p", context);
  return 0;
}

#if TUNER >= 5
static int tuner_init(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
                      struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants) {
  note("tuner.init id=%016llx ranks=%zu nodes=%zu given=%d", (unsigned long long)commId, nRanks, nNodes,
       log != NULL && domains != NULL && constants != NULL);
  *context = (void *)0x10;
  return 0;
}
#else
static int tuner_init(size_t nRanks, size_t nNodes, dyn_logger log, void **context) {
  note("tuner.init ranks=%zu nodes=%zu given=%d", nRanks, nNodes, log != NULL);
  *context = (void *)0x10;
  return 0;
}
#endif

#if TUNER == 2
static int get_coll_info(void *context, int collective, size_t nBytes, int collNetSupport, int nvlsSupport,
                         int numPipeOps,
                         int *algorithm, int *protocol, int *nChannels) {
  (void)context;
  coll_info(collective, nBytes, numPipeOps, NULL, 0, 0, 0, nChannels);
  note("v2 collnet=%d nvls=%d", collNetSupport, nvlsSupport);
  choice(algorithm, protocol, nChannels);
  return 0;
}
#elif TUNER == 3
static int get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int *nChannels) {
  (void)context;
  return coll_info(collective, nBytes, numPipeOps, costs, numAlgo, numProto, 0, nChannels);
}
#else
static int get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int regBuff, int *nChannels) {
  (void)context;
  return coll_info(collective, nBytes, numPipeOps, costs, numAlgo, numProto, regBuff, nChannels);
}
#endif

#if TUNER == 6
static int chunk_size(void *context, int collective, size_t nBytes, int algorithm, int protocol, int nChannels,
                      size_t *chunkSize) {
  (void)context;
  note("getChunkSize coll=%d bytes=%zu algo=%d proto=%d channels=%d chunk=%zu", collective, nBytes, algorithm, protocol,
       nChannels, *chunkSize);
  return 0;
}
#define MORE , chunk_size
#else
#define MORE
#endif

DYN_TUNER_EXPORT const struct EXPAND(dyn_nccl_tuner_v, TUNER) EXPAND(ncclTunerPlugin_v, TUNER) = {
  "Probe", tuner_init, get_coll_info, destroy MORE};

/* ---- profiler ---- */

#define DESCR EXPAND(EXPAND(ncclProfilerEventDescr_v, PROFILER), _t)
#define ARGS EXPAND(EXPAND(ncclProfilerEventStateArgs_v, PROFILER), _t)

static void ask(int *mask) { __atomic_store_n(mask, atoi(getenv("PROBE_MASK")), __ATOMIC_RELAXED); }

#if PROFILER >= 5
static int init(void **context, uint64_t commId, int *mask, const char *commName, int nNodes, int nranks, int rank,
                dyn_nccl_logger log) {
#elif PROFILER == 4
static int init(void **context, int *mask, const char *commName, uint64_t commId, int nNodes, int nranks, int rank,
                dyn_nccl_logger log) {
#else
static int init(void **context, int *mask) {
  const char *commName = NULL;
  unsigned long long commId = 0;
  int nNodes = 0, nranks = 0, rank = 0;
  void *log = mask;
#endif
  note("profiler.init id=%016llx name=%s nodes=%d ranks=%d rank=%d given=%d", (unsigned long long)commId,
       commName == NULL ? "-" : commName, nNodes, nranks, rank, log != NULL);
  ask(mask);
  *context = (void *)(0x100 + (long)rank);
  return 0;
}

static int start(void *context, void **handle, DESCR *d) {
  long h = __atomic_fetch_add(&nextHandle, 1, __ATOMIC_RELAXED);
  *handle = (void *)h;
  char text[512] = "";
  switch (d->type) {
    case ncclProfileColl:
#if PROFILER == 1
      snprintf(text, sizeof text, "seq=%llu func=%d count=%zu dtype=%d channels=%d warps=%d algo=%d proto=%d",
               (unsigned long long)d->coll.seqNumber, d->coll.func, d->coll.count, d->coll.datatype,
                   d->coll.nMaxChannels,
               d->coll.nWarps, d->coll.algo, d->coll.proto);
#elif PROFILER <= 3
      snprintf(text, sizeof text, "seq=%llu func=%s count=%zu dtype=%s channels=%d warps=%d algo=%s proto=%s",
               (unsigned long long)d->coll.seqNumber, d->coll.func, d->coll.count, d->coll.datatype,
                   d->coll.nMaxChannels,
               d->coll.nWarps, d->coll.algo, d->coll.proto);
#else
      snprintf(text, sizeof text, "seq=%llu func=%s count=%zu dtype=%s channels=%d warps=%d algo=%s proto=%s",
               (unsigned long long)d->coll.seqNumber, d->coll.func, d->coll.count, d->coll.datatype, d->coll.nChannels,
               d->coll.nWarps, d->coll.algo, d->coll.proto);
#endif
#if PROFILER >= 5
      snprintf(text + strlen(text), sizeof text - strlen(text), " group=%ld", (long)d->coll.parentGroup);
#endif
      break;
    case ncclProfileProxyOp:
      snprintf(text, sizeof text, "own=%d channel=%d peer=%d steps=%d chunk=%d send=%d", d->proxyOp.pid == getpid(),
               d->proxyOp.channelId, d->proxyOp.peer, d->proxyOp.nSteps, d->proxyOp.chunkSize, d->proxyOp.isSend);
      break;
#if PROFILER >= 3
    case ncclProfileKernelCh:
#if PROFILER >= 4
      snprintf(text, sizeof text, "channel=%d timer=%llu", d->kernelCh.channelId,
               (unsigned long long)d->kernelCh.pTimer);
#else
      snprintf(text, sizeof text, "channel=%d", d->kernelCh.channelId);
#endif
      break;
#endif
#if PROFILER >= 5
    case ncclProfileGroupApi: snprintf(text, sizeof text, "depth=%d", d->groupApi.groupDepth); break;
    case ncclProfileCollApi:
      snprintf(text, sizeof text, "func=%s count=%zu dtype=%s", d->collApi.func, d->collApi.count, d->collApi.datatype);
      break;
#endif
    default: break;
  }
  note("start handle=%ld type=%llu parent=%ld rank=%d ctx=%lx %s", h, (unsigned long long)d->type, (long)d->parentObj,
       d->rank, (unsigned long)context, text);
  return 0;
}

static int stop(void *handle) {
  note("stop handle=%ld", (long)handle);
  return 0;
}

static int state(void *handle, int eState, ARGS *args) {
#if PROFILER >= 4
  unsigned long long timer = eState == ncclProfilerKernelChStop ? (unsigned long long)args->kernelCh.pTimer : 0;
#else
  unsigned long long timer = 0;
#endif
  note("state handle=%ld state=%d given=%d timer=%llu", (long)handle, eState, args != NULL, timer);
  return 0;
}

static int finalize(void *context) {
  note("profiler.finalize ctx=%lx", (unsigned long)context);
  return 0;
}

DYN_TUNER_EXPORT const EXPAND(EXPAND(ncclProfiler_v, PROFILER), _t) EXPAND(ncclProfiler_v, PROFILER) = {
  "Probe", init, start, stop, state, finalize};
