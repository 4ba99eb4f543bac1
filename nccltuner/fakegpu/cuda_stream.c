/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, and the work that is not NCCL's.
 */
#include "cuda_stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct CUevent_st {
  CUstream stream; /* last recorded on */
  int recorded, timed;
  double nowNs;
  uint64_t busyUntilNs;
};

static const double kernelNs = 25e6;          /* virtual: what warms a GPU is over soon */
static const uint64_t realKernelNs = 1000000; /* a thread that launches without end must not spin */
static struct CUstream_st legacy = {.nowNs = 1e9};
static void (*settle)(CUstream stream);
static void (*told)(double nowNs);
static atomic_int loadedStreams;

static uint64_t real_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct CUstream_st *stream_of(CUstream stream) { return stream == NULL ? &legacy : stream; }

double *fakegpu_now_ns(CUstream stream) { return &stream_of(stream)->nowNs; }
void fakegpu_on_query(void (*function)(double nowNs)) { told = function; }
void fakegpu_on_wait(void (*function)(CUstream stream)) { settle = function; }
/* Not by the clock: a load whose thread is kept waiting by a busy machine would come and go. */
int fakegpu_is_loaded(void) { return atomic_load(&loadedStreams) > 0; }

static void sleep_until(uint64_t untilNs) {
  uint64_t now = real_now_ns();
  if (now < untilNs) usleep((useconds_t)((untilNs - now + 999) / 1000));
}

CUresult stream_wait(CUstream stream) {
  if (stream_of(stream)->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (settle != NULL) settle(stream);
  sleep_until(stream_of(stream)->busyUntilNs);
  if (stream_of(stream)->loaded) atomic_fetch_sub(&loadedStreams, 1);
  stream_of(stream)->loaded = 0;
  return 0;
}

FAKEGPU_API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  if (*stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*stream)->context = fakegpu_current();
  (*stream)->nowNs = 1e9; /* as the harness: 0 would be no time */
  return 0;
}

FAKEGPU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  *context = stream == NULL ? fakegpu_current() : stream->context;
  return *context == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuStreamSynchronize(CUstream stream) { return stream_wait(stream); }

/* Here no stream gets ahead of its program, so nothing is to be held back. */
FAKEGPU_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags) {
  (void)address, (void)value, (void)flags;
  return stream_of(stream)->capture != NULL ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0;
}

FAKEGPU_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  *event = calloc(1, sizeof **event);
  if (*event == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  return 0;
}

FAKEGPU_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (s->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a real one goes into the graph */
  event->stream = stream;
  event->recorded = 1;
  event->nowNs = s->nowNs;
  event->busyUntilNs = s->busyUntilNs;
  return 0;
}

FAKEGPU_API CUresult cuEventSynchronize(CUevent event) {
  if (!event->recorded) return 0; /* as CUDA: nothing to wait for */
  if (settle != NULL) settle(event->stream);
  sleep_until(event->busyUntilNs);
  return 0;
}

/* From any thread; what it waits for was recorded before. */
FAKEGPU_API CUresult cuEventQuery(CUevent event) {
  int ready = !event->recorded || real_now_ns() >= event->busyUntilNs;
  if (told != NULL) told(ready ? event->nowNs : 0);
  return ready ? 0 : CUDA_ERROR_NOT_READY;
}

FAKEGPU_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  if (!start->recorded || !end->recorded || !start->timed || !end->timed) return CUDA_ERROR_INVALID_VALUE;
  *milliseconds = (float)((end->nowNs - start->nowNs) * 1e-6);
  return 0;
}

FAKEGPU_API CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  if (stream_of(stream)->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (settle != NULL) settle(stream); /* what comes before it in the stream may write here */
  memset((void *)(uintptr_t)memory, value, bytes);
  return 0;
}

/* Work of other programs' kind: it takes time, and what it computes nobody looks at. */
static CUresult occupy(CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (s->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  uint64_t now = real_now_ns(), from = s->busyUntilNs > now ? s->busyUntilNs : now;
  s->busyUntilNs = from + realKernelNs;
  s->nowNs += kernelNs;
  if (!s->loaded) atomic_fetch_add(&loadedStreams, 1);
  s->loaded = 1;
  return 0;
}

FAKEGPU_API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext,
                                       size_t bytes, CUstream stream) {
  if (to == 0 || from == 0 || bytes == 0 || toContext == fromContext) return CUDA_ERROR_INVALID_VALUE;
  return occupy(stream);
}

FAKEGPU_API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  if (strstr(image, ".entry ") == NULL) return CUDA_ERROR_INVALID_VALUE; /* PTX text alone is known here */
  *module = (CUmodule)(uintptr_t)image;
  return 0;
}

FAKEGPU_API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)strstr((const char *)module, name);
  return *function == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  int known = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value <= 232448;
  return function != NULL && known ? 0 : CUDA_ERROR_INVALID_VALUE;
}

FAKEGPU_API CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                                    unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                                    CUstream stream, void **arguments, void **extra) {
  (void)extra;
  if (function == NULL || arguments == NULL || gridX * gridY * gridZ == 0 || blockX * blockY * blockZ > 1024 ||
      sharedBytes > 232448)
    return CUDA_ERROR_INVALID_VALUE;
  return occupy(stream);
}
