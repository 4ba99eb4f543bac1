/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 that knows which streams are captured, and events that fire when the GPU's clock, which the test moves,
 * has come to where their stream was.
 */
#include "fake.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define NOT_READY 600

struct event { uintptr_t context; atomic_uint_fast64_t at; };

EXPORT struct fake_gpu fake_gpu;
static __thread uintptr_t current, pushed;
static __thread int relaxed;

static void alive(void) {
  if (atomic_load(&fake_gpu.gone)) abort();
  atomic_fetch_add(&fake_gpu.calls, 1);
}

static int fails(int what) {
  int fail = atomic_load(&fake_gpu.failing) == what;
  if (fail) atomic_fetch_add(&fake_gpu.failed, 1);
  return fail;
}

EXPORT int cuStreamIsCapturing(uintptr_t stream, int *status);
EXPORT int cuStreamIsCapturing(uintptr_t stream, int *status) {
  alive();
  if (stream == FAKE_UNKNOWN) return 906;
  *status = stream == FAKE_CAPTURED || (stream != 0 && stream == atomic_load(&fake_gpu.capturing)) ? 1 : stream == FAKE_INVALIDATED ? 2 : 0;
  return 0;
}

EXPORT int cuStreamGetCtx(uintptr_t stream, uintptr_t *context);
EXPORT int cuStreamGetCtx(uintptr_t stream, uintptr_t *context) {
  alive();
  *context = stream - FAKE_STREAM(0) < FAKE_STREAMS ? atomic_load(&fake_gpu.context[stream - FAKE_STREAM(0)]) : current;
  return *context == 0 ? 201 : 0;
}
EXPORT int cuCtxSetCurrent(uintptr_t context);
EXPORT int cuCtxSetCurrent(uintptr_t context) {
  return alive(), current = context, fails(FAKE_FAIL_CONTEXT) ? 709 : 0;
}
EXPORT int cuCtxPushCurrent_v2(uintptr_t context);
EXPORT int cuCtxPushCurrent_v2(uintptr_t context) { return alive(), pushed = current, current = context, 0; }
EXPORT int cuCtxPopCurrent_v2(uintptr_t *context);
EXPORT int cuCtxPopCurrent_v2(uintptr_t *context) { return alive(), *context = current, current = pushed, 0; }
EXPORT int cuCtxGetId(uintptr_t context, unsigned long long *id);
EXPORT int cuCtxGetId(uintptr_t context, unsigned long long *id) {
  return alive(), (void)context, *id = atomic_load(&fake_gpu.contextId), 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  int before = relaxed;
  alive();
  relaxed = *mode;
  *mode = before;
  atomic_fetch_add(&fake_gpu.modes, 1);
  return 0;
}

EXPORT int cuEventCreate(struct event **event, unsigned flags);
EXPORT int cuEventCreate(struct event **event, unsigned flags) {
  alive();
  if (flags != 0 || current == 0 || relaxed != 2 || fails(FAKE_FAIL_CREATE)) return 1;
  *event = calloc(1, sizeof **event);
  (*event)->context = current;
  atomic_fetch_add(&fake_gpu.made, 1);
  return 0;
}
EXPORT int cuEventRecord(struct event *event, uintptr_t stream);
EXPORT int cuEventRecord(struct event *event, uintptr_t stream) {
  uintptr_t context;
  alive();
  if (fails(FAKE_FAIL_RECORD) || cuStreamGetCtx(stream, &context) != 0 || context != event->context) return 400;
  unsigned i = (unsigned)(stream - FAKE_STREAM(0));
  atomic_store(&event->at, i < FAKE_STREAMS ? atomic_load(&fake_gpu.ends[i]) : 1);
  atomic_fetch_add(&fake_gpu.records, 1);
  return 0;
}
EXPORT int cuEventQuery(struct event *event);
EXPORT int cuEventQuery(struct event *event) {
  alive();
  atomic_fetch_add(&fake_gpu.queries, 1);
  if (fails(FAKE_FAIL_QUERY) || relaxed != 2 || event->context != current) return 700;
  return atomic_load(&event->at) <= atomic_load(&fake_gpu.now) ? 0 : NOT_READY;
}
EXPORT int cuEventElapsedTime(float *milliseconds, struct event *start, struct event *end);
EXPORT int cuEventElapsedTime(float *milliseconds, struct event *start, struct event *end) {
  alive();
  if (fails(FAKE_FAIL_ELAPSED) || start->context != end->context) return 400;
  *milliseconds = (float)((double)(int64_t)(atomic_load(&end->at) - atomic_load(&start->at)) * 1e-6);
  return 0;
}
