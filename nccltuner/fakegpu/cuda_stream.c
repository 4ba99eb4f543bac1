/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, waits for them, and the work that is not NCCL's.
 */
#include "cuda_stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double kernelNs = 25e6;          /* virtual: what warms a GPU is over soon */
static const uint64_t realKernelNs = 1000000; /* a thread that launches without end must not spin */
static struct CUstream_st homeless = {.nowNs = STREAM_BEGIN_NS}; /* legacy stream of threads without context */
static void (*looked)(CUstream stream);
static atomic_int loadedStreams;

uint64_t stream_real_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct CUstream_st *stream_of(CUstream stream) {
  if (stream != NULL) return stream;
  return fakegpu_current() == NULL ? &homeless : &fakegpu_current()->legacy;
}

double *fakegpu_now_ns(CUstream stream) { return &stream_of(stream)->nowNs; }
CUstream fakegpu_stream(CUstream stream) { return stream_of(stream); }
void fakegpu_on_look(void (*function)(CUstream stream)) { looked = function; }
/* Not by the clock: a load whose thread is kept waiting by a busy machine would come and go. */
int fakegpu_is_loaded(void) { return atomic_load(&loadedStreams) > 0; }

void stream_look(CUstream stream) {
  if (looked != NULL) looked(stream);
}

void stream_sleep_until(uint64_t untilNs) {
  uint64_t now = stream_real_now_ns();
  if (now < untilNs) usleep((useconds_t)((untilNs - now + 999) / 1000));
}

CUresult stream_wait(CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (capture_refuses(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_look(stream);
  if (stream == NULL) queue_wait_context(s->context);
  else queue_wait(s, queue_added(s));
  stream_sleep_until(s->busyUntilNs);
  if (s->loaded) atomic_fetch_sub(&loadedStreams, 1);
  s->loaded = 0;
  return 0;
}

FAKEGPU_API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  if (*stream == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*stream)->context = fakegpu_current();
  (*stream)->nowNs = STREAM_BEGIN_NS;
  return 0;
}

FAKEGPU_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = *greatest = 0;
  return 0;
}

FAKEGPU_API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  (void)priority;
  return cuStreamCreate(stream, flags);
}

/* What it still has to do is done first, and its memory stays. */
FAKEGPU_API CUresult cuStreamDestroy_v2(CUstream stream) { return stream == NULL ? CUDA_ERROR_INVALID_VALUE : stream_wait(stream); }

FAKEGPU_API CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  *id = (unsigned long long)(uintptr_t)stream_of(stream); /* no stream's memory is another's later */
  return capture_refuses(stream_of(stream)) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0; /* what is told with an error is nobody's business */
}

FAKEGPU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  *context = stream == NULL ? fakegpu_current() : stream->context;
  return *context == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuStreamSynchronize(CUstream stream) { return stream_wait(stream); }

/* Here no stream gets ahead of its program, so nothing is to be held back. */
FAKEGPU_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags) {
  (void)address, (void)value, (void)flags;
  return capture_refuses(stream_of(stream)) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0;
}

FAKEGPU_API CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (capture_refuses(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_place(s);
  stream_look(stream);
  struct job fill = {.kind = JOB_FILL, .fill = {(void *)(uintptr_t)memory, value, bytes}};
  if (!queue_is_idle(s)) queue_add(s, &fill);
  else memory_fill(fill.fill.at, value, bytes);
  return 0;
}

static atomic_int places;

void stream_place(struct CUstream_st *stream) {
  int none = 0;
  if (atomic_load(&stream->place) == 0) atomic_compare_exchange_strong(&stream->place, &none, atomic_fetch_add(&places, 1) + 1);
}

int fakegpu_place(CUstream stream) { return atomic_load(&stream_of(stream)->place); }
void fakegpu_take_place(void) { atomic_fetch_add(&places, 1); }

CUresult stream_occupy(CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (capture_refuses(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_place(s);
  uint64_t now = stream_real_now_ns(), from = s->busyUntilNs > now ? s->busyUntilNs : now;
  s->busyUntilNs = from + realKernelNs;
  s->nowNs += kernelNs;
  if (!s->loaded) atomic_fetch_add(&loadedStreams, 1);
  s->loaded = 1;
  return 0;
}

FAKEGPU_API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext,
                                       size_t bytes, CUstream stream) {
  if (to == 0 || from == 0 || bytes == 0 || toContext == fromContext) return CUDA_ERROR_INVALID_VALUE;
  return stream_occupy(stream);
}
