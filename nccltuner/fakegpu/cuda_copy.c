/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and additions that a stream does in its order, in its own thread: what the carrier (kernels/carrier) asks of a GPU.
 * Half of a copy arrives before the other.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_stream.h"

void copy_run(const struct job *job) {
  char *to = job->copy.to;
  const char *from = job->copy.owned != NULL ? job->copy.owned : job->copy.from;
  size_t half = job->copy.bytes / 2;
  memcpy(to, from, half);
  sched_yield();
  memcpy(to + half, from + half, job->copy.bytes - half);
  free(job->copy.owned);
}

void add_run(const struct job *job) { __atomic_fetch_add(job->add.at, job->add.value, __ATOMIC_RELEASE); }

static CUresult enqueue(CUstream stream, const struct job *job) {
  struct CUstream_st *s = stream_of(stream);
  if (fakegpu_current() == NULL || s->context != fakegpu_current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (capture_refuses(s)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  lock_pass(s->context);
  stream_look(stream);
  queue_add(s, job);
  queue_is_done(s, queue_added(s)); /* begins it: nobody may ever ask after an addition */
  return 0;
}

FAKEGPU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (to == 0 || from == 0) return CUDA_ERROR_INVALID_VALUE;
  struct job job = {.kind = JOB_COPY, .copy = {.to = (void *)(uintptr_t)to, .from = (void *)(uintptr_t)from, .bytes = bytes}};
  return enqueue(stream, &job);
}

/* As of pageable memory: it is read before this returns. */
FAKEGPU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  if (to == 0 || from == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct job job = {.kind = JOB_COPY, .copy = {.to = (void *)(uintptr_t)to, .bytes = bytes, .owned = malloc(bytes + 1)}};
  if (job.copy.owned == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(job.copy.owned, from, bytes);
  CUresult result = enqueue(stream, &job);
  if (result != 0) free(job.copy.owned);
  return result;
}

/* As into page-locked memory: it is written when the copy's turn has come. */
FAKEGPU_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (to == NULL || from == 0) return CUDA_ERROR_INVALID_VALUE;
  struct job job = {.kind = JOB_COPY, .copy = {.to = to, .from = (void *)(uintptr_t)from, .bytes = bytes}};
  return enqueue(stream, &job);
}

int add_is(const void *function) {
  static const char name[] = "dynamicclCarrierAdd(";
  return strncmp(function, name, sizeof name - 1) == 0;
}

CUresult add_launch(CUstream stream, void **arguments) {
  struct job job = {.kind = JOB_ADD};
  CUdeviceptr at;
  memcpy(&at, arguments[0], sizeof at);
  memcpy(&job.add.value, arguments[1], sizeof job.add.value);
  job.add.at = (void *)(uintptr_t)at;
  return at % sizeof job.add.value != 0 ? CUDA_ERROR_INVALID_VALUE : enqueue(stream, &job);
}
