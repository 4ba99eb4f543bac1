/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of a context, which CUDA's driver has: calls that wait for the GPU may keep it from other threads meanwhile. Here one does,
 * cuMemFree, which waits for all kernels; launches and copies of others wait for it, as on GPUs, and who makes the context its own,
 * as cuda-gdb had seen behind a graph's launch.
 */
#include "cuda_stream.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;

static void take(CUcontext context, int keeps) {
  pthread_mutex_lock(&lock);
  while (context->keeps > 0 && !pthread_equal(context->keeper, pthread_self())) pthread_cond_wait(&given, &lock);
  context->keeps += keeps;
  context->keeper = pthread_self();
  pthread_mutex_unlock(&lock);
}

void lock_pass(CUcontext context) {
  if (context != NULL) take(context, 0);
}

void lock_keep(CUcontext context) {
  if (context != NULL) take(context, 1);
}

void lock_give(CUcontext context) {
  if (context == NULL) return;
  pthread_mutex_lock(&lock);
  context->keeps--;
  pthread_cond_broadcast(&given);
  pthread_mutex_unlock(&lock);
}

/* A kernel that waits until the word is not 0, as one does for another rank. */
FAKEGPU_API CUresult fakegpu_hold(CUstream stream, const uint32_t *word);
FAKEGPU_API CUresult fakegpu_hold(CUstream stream, const uint32_t *word) {
  struct CUstream_st *s = stream_of(stream);
  queue_add(s, &(struct job){.kind = JOB_HOLD, .hold = word});
  queue_is_done(s, queue_added(s)); /* begins it */
  return 0;
}
