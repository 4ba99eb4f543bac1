/* SPDX-License-Identifier: Apache-2.0
 *
 * The profiler half's contexts: init, finalize, what is wanted. Nothing here fails NCCL: init
 * that cannot make a context leaves none, and every event without a context is ignored.
 *
 * Why does KernelCh stay on from 2.32 on, sampling or not? A kernel leaves its times in slot (works of this channel so
 * far) % 64 and counts every work; the host looks where its own count points. Up to 2.30 the host counts every
 * work, too (incWorkCounter, src/proxy.cc). 2.32.3 counts only those that have KernelCh (profilerPostWorkInternal,
 * line 1263 of src/plugin/profiler.cc by its debug information). One work without, and all later times are those of
 * other collectives: on two H200, after 8 calls without it, kernels of 4 to 70 us read 0.2 to 320 ms. So from
 * DYN_HOLD_VERSION on the bit is set before a communicator's first work and stays, if a daemon lives at that time; else
 * it is never set and the communicator is not sampled. Where it was missing all the same (a captured call),
 * the communicator is not sampled again (capture.c); others and later ones are.
 *   A broadcast is not counted either, KernelCh or not, since it is a task of a kind of its own (ncclTaskBcast, from
 * 2.29 on, DYN_BROADCAST_VERSION; neither ncclScheduleBcastTasksToPlan of 2.30.7 nor ncclProfilerPostPlanWork of 2.32.3
 * counts it). Recorded on 2.32.3: after four broadcasts on channel 0, every time of channel 0 is that of an earlier
 * work, other channels are right. CollApi tells about broadcasts; that is why it is held as well.
 */
#include "profiler.h"

#include "../../kernels/host/host.h"
#include "chain.h"
#include "comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t initLock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int ownPid;
static int live;             /* contexts; under initLock */

pid_t dyn_own_pid(void) { return (pid_t)atomic_load_explicit(&ownPid, memory_order_relaxed); }

int dyn_profiler_init(void **out, int *mask, const struct dyn_profiler_init *in) {
  *out = NULL;
  pthread_mutex_lock(&initLock);
  atomic_store(&ownPid, getpid()); /* here, not at load: the process may have forked since */
  struct dyn_context *context = dyn_context_new();
  if (context != NULL) {
    context->version = in->version;
    dyn_process_ref(); /* first: the ring must not close between the two */
    context->process = dyn_process_get(in->log);
    /* One that is ours, for GIN alone (kernels/host/gin.c), is no business of anybody's. */
    bool own = in->commName != NULL && strcmp(in->commName, DYN_GIN_COMM_NAME) == 0;
    int past = own ? 0 : dyn_capture_open(context->process, mask, in->version, in->log);
    live++;
    /* CollApi says what is captured and what is a broadcast, and costs a call 0.1 us of the host's time (2 vCPU of an H200
     * machine, of 9). Where the preload library times calls it knows what is captured, and asks for CollApi where that
     * is not enough (capture.c). */
    bool kernels = !context->process->eventTimed;
    int held = in->version >= 5 && (kernels || past) ? ncclProfileCollApi : 0;
    if (in->version >= DYN_HOLD_VERSION && kernels) held |= ncclProfileP2pApi; /* whose KernelCh capture.c looks after */
    /* KernelCh costs small calls a tenth and more (4x H200: 1 KiB 6.6 to 7.4 us): without a daemon nothing may cost. */
    if (in->version >= DYN_HOLD_VERSION && dyn_daemon_lives(in->log)) held |= ncclProfileKernelCh;
    if (context->process->ring != NULL) held |= atomic_fetch_or(&context->process->heldMask, held);
    if (in->version >= DYN_HOLD_VERSION && !(held & ncclProfileKernelCh)) atomic_store(&context->miscounted, 1);
    if (in->hasId) context->comm = dyn_comm_open(in->commId, in->nRanks, in->nNodes, in->rank, in->log);
    if (context->comm != NULL) context->comm->past = past;
    if (context->comm != NULL) context->comm->own = own;
    context->chained = own ? 0 : dyn_chain_init(context, in);
    /* Not alive: sampling begins at the tuner half's next epoch, which knows whether the daemon lives. */
    dyn_mask_update(context->process, 0);
    *out = dyn_context_handle(context);
  } else if (in->log != NULL) {
    in->log(2, ~0ul, __FILE__, __LINE__,
            "DynamICCL: more than %d communicators in one process: this one is not profiled", DYN_MAX_CONTEXTS);
  }
  pthread_mutex_unlock(&initLock);
  return 0;
}

int dyn_profiler_finalize(void *handle) {
  pthread_mutex_lock(&initLock);
  struct dyn_context *context = dyn_context_get(handle);
  if (context != NULL) {
    dyn_coll_sweep(context, 0, 1);
    dyn_slot_reclaim((uintptr_t)handle, 0);
    if (context->chained) dyn_chain_finalize(context);
    if (context->comm != NULL) dyn_comm_release_profiler(context->comm);
    if (--live == 0) dyn_capture_close(context->process);
    dyn_context_free(context);
    dyn_process_unref();
  }
  pthread_mutex_unlock(&initLock);
  return 0;
}

void dyn_broadcast_note(struct dyn_context *context) {
  if (context->version < DYN_BROADCAST_VERSION || context->process->eventTimed) return;
  if (atomic_load_explicit(&context->miscounted, memory_order_relaxed)) return;
  const char *value = getenv("NCCL_ALLGATHERV_ENABLE"); /* 0: a broadcast is a collective like any other */
  if (value != NULL && strcmp(value, "0") == 0) return;
  if (atomic_exchange(&context->miscounted, 1) || context->comm == NULL) return;
  dyn_say_once(context->comm->log, DYN_LOG_WARN, "after a broadcast this NCCL reports other kernels' times: no "
               "samples from such communicators, their choices stay; set NCCL_ALLGATHERV_ENABLE=0 to avoid it");
}

int dyn_in_step(const struct dyn_context *context) {
  if (atomic_load_explicit(&context->miscounted, memory_order_relaxed)) return 0;
  /* Before 2.32 times go backwards only for a moment, when NCCL's thread was late by more than its 64 slots. */
  if (context->version < DYN_HOLD_VERSION) return 1;
  return atomic_load_explicit(&context->backward, memory_order_relaxed) < DYN_BACKWARD_LIMIT;
}

int dyn_wanted(const struct dyn_context *context) {
  const struct dyn_process *process = context->process;
  const struct dyn_ring *ring = process->ring;
  if (ring == NULL) return 0;
  /* A communicator samples in its own epochs, the same on every rank; those of another one's window are not samples. */
  int sampling = context->comm != NULL
                   ? __atomic_load_n(&context->comm->sampling, __ATOMIC_RELAXED)
                   : atomic_load_explicit(&process->samplingComms, memory_order_relaxed) > 0;
  if (!sampling) return 0;
  int want = (int)__atomic_load_n(&ring->wantMask, __ATOMIC_RELAXED) &
             ~atomic_load_explicit(&process->refused, memory_order_relaxed);
  /* What ran is told truly where times are another kernel's, too: Coll alone asks for no times. */
  return want & (ncclProfileKernelCh | ncclProfileProxyOp) && !dyn_in_step(context) ? 0 : want;
}
