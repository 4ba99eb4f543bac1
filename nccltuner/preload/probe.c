/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing calls of NCCL by CUDA events, since its own kernel times cannot be had (plugin/capture.c): one event before the
 * call and one behind it, on the call's stream. The first fires when the stream reaches the call, which is this rank's
 * arrival, the second when the collective is done here. What a call is, the plugin writes into the probe from inside of
 * the call, in its thread, so nothing has to be searched or guessed later.
 *
 * Nothing of this changes what the program sees: an event that the driver refuses ends timing in that CUDA context, a
 * call that finds no free probe is not timed, and captured streams never get here (preload.c). The locks here are taken
 * around a few words, never around a call of the driver, and not in getCollInfo.
 *
 * A call on the legacy stream is timed on the one of the thread's current device, which is the communicator's in every
 * program that uses one device a thread; in others the stream is another device's and the times contradict those of the
 * other ranks. A communicator that is used on several streams by turns waits for itself between them, inside of the
 * events: that time is counted.
 */
#include "probe.h"

#include <stdlib.h>

_Atomic(struct dyn_gpu *) dyn_gpus[DYN_MAX_GPUS];
atomic_bool dyn_probes_ended;
atomic_uint dyn_probes_missed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t handedOver = PTHREAD_COND_INITIALIZER;
static bool waits;     /* under lock: the poller */
static unsigned inAir; /* under lock: probes with the poller */
static int started;    /* under lock: 1: the poller runs, -1: it cannot be had */
static unsigned forks; /* that this process is away from the one that loaded the library */
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* In the child nothing is left: its parent's events are of no use there, and the thread has stayed behind. */
static void fork_child(void) {
  for (int i = 0; i < DYN_MAX_GPUS; i++) atomic_store(&dyn_gpus[i], NULL);
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  handedOver = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  dynamiccl_preload.roundLock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  waits = false;
  inAir = 0;
  started = 0;
  forks++;
}

/* Registered by the first timed call, hence after the driver's own handlers, and run before them: the driver must not be
 * called once it has begun to take itself down. */
static void at_exit(void) {
  const struct timespec nap = {.tv_nsec = 1000 * 1000};
  atomic_store(&dyn_probes_ended, true);
  /* Behind the round that may be running none begins. A driver that keeps the round for longer than naps last keeps nobody from
   * ending, nor does a clock that is set back: pthread_mutex_timedlock goes by that. */
  for (int naps = 0; naps < 200; naps++) {
    if (pthread_mutex_trylock(&dynamiccl_preload.roundLock) == 0) {
      pthread_mutex_unlock(&dynamiccl_preload.roundLock);
      return;
    }
    nanosleep(&nap, NULL);
  }
}

static void watch(void) {
  pthread_atfork(NULL, NULL, fork_child);
  atexit(at_exit);
}

/* ---- contexts ---- */

static struct dyn_gpu *new_gpu(dyn_context context, unsigned long long id) {
  struct dyn_gpu *gpu = calloc(1, sizeof *gpu);
  if (gpu == NULL) return NULL;
  gpu->context = context;
  gpu->id = id;
  gpu->forks = forks;
  gpu->flyingLast = &gpu->flying;
  gpu->last = &gpu->issued;
  for (int i = DYN_MAX_PROBES; i-- > 0;) {
    gpu->probes[i].gpu = gpu;
    gpu->probes[i].next = gpu->free;
    gpu->free = &gpu->probes[i];
  }
  return gpu;
}

/* Under lock. In the place of one that is dead, and of which nobody has a probe any more: what the poller has of it, it has of its
 * probes. Its events went with its context. NULL: there is none. */
static struct dyn_gpu *renew_gpu(dyn_context context, unsigned long long id) {
  for (int i = 0; i < DYN_MAX_GPUS; i++) {
    struct dyn_gpu *gpu = atomic_load_explicit(&dyn_gpus[i], memory_order_relaxed);
    if (!atomic_load(&gpu->dead) || gpu->out > 0) continue;
    for (int p = 0; p < DYN_MAX_PROBES; p++) gpu->probes[p].start = gpu->probes[p].end = NULL;
    gpu->anchor = NULL;
    gpu->numStreams = 0;
    gpu->context = context;
    gpu->id = id;
    atomic_store(&gpu->dead, false);
    return gpu;
  }
  return NULL;
}

/* Under lock. NULL: it is dead, or there are too many. */
static struct dyn_gpu *gpu_of(dyn_context context, unsigned long long id) {
  int i = 0;
  for (; i < DYN_MAX_GPUS; i++) {
    struct dyn_gpu *gpu = atomic_load_explicit(&dyn_gpus[i], memory_order_relaxed);
    if (gpu == NULL) break;
    if (gpu->context == context && gpu->id == id) return atomic_load(&gpu->dead) ? NULL : gpu;
    if (gpu->context == context) atomic_store(&gpu->dead, true); /* gone: this is another one at its address */
  }
  if (i == DYN_MAX_GPUS) return renew_gpu(context, id);
  struct dyn_gpu *gpu = new_gpu(context, id);
  if (gpu != NULL) atomic_store(&dyn_gpus[i], gpu);
  return gpu;
}

/* Under lock. The first call of a stream that could be timed is not. With an event before it streams of PyTorch's came to stand on other
 * sides of the GPU's front end (kernels/host/turns.c), and a training step was 2% longer; with later calls timed alone they did not. Of streams
 * behind the last place here all calls are timed. */
static bool is_new(struct dyn_gpu *gpu, const void *stream) {
  unsigned i = 0;
  while (i < gpu->numStreams && gpu->streams[i] != stream) i++;
  if (i < gpu->numStreams || i == DYN_KNOWN_STREAMS) return false;
  gpu->streams[gpu->numStreams++] = stream;
  return true;
}

/* Made where they are first used; the thread may have another context current, and another thread may capture. */
static bool make_events(const struct dyn_driver *driver, struct dyn_probe *probe) {
  dyn_context before;
  int mode = DYN_RELAXED_CAPTURE;
  if (probe->start != NULL && probe->end != NULL) return true;
  if (driver->cuCtxPushCurrent_v2(probe->gpu->context) != 0) return false;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  bool made = (probe->start != NULL || driver->cuEventCreate(&probe->start, 0) == 0) &&
              (probe->end != NULL || driver->cuEventCreate(&probe->end, 0) == 0);
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  driver->cuCtxPopCurrent_v2(&before);
  return made;
}

/* ---- one call ---- */

/* Under lock. */
static void give_back(struct dyn_gpu *gpu, struct dyn_probe *probe) {
  probe->next = gpu->free;
  gpu->free = probe;
  gpu->out--;
}

struct dyn_probe *dyn_probe_begin(void *stream) {
  const struct dyn_driver *driver = dyn_driver();
  dyn_context context;
  unsigned long long id = 0;
  if (driver == NULL || atomic_load_explicit(&dyn_probes_ended, memory_order_relaxed)) return NULL;
  if (driver->cuStreamGetCtx(stream, &context) != 0 || context == NULL) return NULL;
  if (driver->cuCtxGetId(context, &id) != 0) return NULL;
  pthread_once(&watched, watch);
  pthread_mutex_lock(&lock);
  struct dyn_gpu *gpu = gpu_of(context, id);
  bool first = gpu != NULL && is_new(gpu, stream);
  struct dyn_probe *probe = gpu == NULL || first ? NULL : gpu->free;
  if (probe != NULL) gpu->free = probe->next, gpu->out++;
  pthread_mutex_unlock(&lock);
  if (first) return NULL;
  if (probe == NULL) {
    atomic_fetch_add_explicit(&dyn_probes_missed, 1, memory_order_relaxed);
    return NULL;
  }
  probe->timed.asked = 0;
  probe->timed.timing.at = NULL;
  probe->stream = stream;
  probe->beganNs = dyn_host_ns();
  if (make_events(driver, probe) && driver->cuEventRecord(probe->start, stream) == 0) return probe;
  atomic_store(&gpu->dead, true);
  pthread_mutex_lock(&lock);
  give_back(gpu, probe);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* Under lock: whether a thread takes over what is handed to it. */
static bool have_poller(void) {
  if (started == 0) started = dyn_poller_start() ? 1 : -1;
  return started > 0;
}

void dyn_probe_end(struct dyn_probe *probe, bool ok, uint64_t issuedNs) {
  struct dyn_gpu *gpu = probe->gpu;
  if (gpu->forks != forks) return; /* a fork in the middle of the call: the child forgets it */
  /* A stream that has nothing to do waits between the events for the host. What all calls of a program need, it needs with
   * any choice; but the connections that a choice makes the first time are no cost of its calls. That a call was slow is told:
   * of a choice that mostly is the fast calls alone would be heard of. */
  bool slow = dyn_host_ns() - probe->beganNs > DYN_HOST_LIMIT_NS, told = ok && probe->timed.asked == 1;
  probe->timed.sample.recvNs = issuedNs;
  probe->slow = told && slow;
  probe->lost = !told || slow;
  if (!probe->lost && dyn_driver()->cuEventRecord(probe->end, probe->stream) != 0) atomic_store(&gpu->dead, true);
  pthread_mutex_lock(&lock);
  if (!have_poller()) atomic_store(&gpu->dead, true);
  probe->next = NULL;
  *gpu->last = probe;
  gpu->last = &probe->next;
  inAir++;
  if (waits) pthread_cond_signal(&handedOver);
  pthread_mutex_unlock(&lock);
}

/* A program may destroy a context once its communicator is gone, and with it events that are asked after. NCCL has waited
 * for its work by then, so one round is enough; other contexts' calls can take longer, and are not waited for. */
void dyn_probes_settle(void) {
  uint64_t began = dyn_host_ns();
  for (bool any = true; any && dyn_host_ns() - began < DYN_SETTLE_NS;) {
    pthread_mutex_lock(&lock);
    any = inAir > 0;
    pthread_mutex_unlock(&lock);
    if (any) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
}

/* ---- for the poller ---- */

bool dyn_probes_take(bool linger) {
  pthread_mutex_lock(&lock);
  while (inAir == 0 && !linger && !atomic_load(&dyn_probes_ended)) {
    waits = true;
    pthread_cond_wait(&handedOver, &lock);
    waits = false;
  }
  for (int i = 0; i < DYN_MAX_GPUS; i++) {
    struct dyn_gpu *gpu = atomic_load_explicit(&dyn_gpus[i], memory_order_relaxed);
    if (gpu == NULL) break;
    if (gpu->issued == NULL) continue;
    *gpu->flyingLast = gpu->issued;
    gpu->flyingLast = gpu->last;
    gpu->issued = NULL;
    gpu->last = &gpu->issued;
  }
  pthread_mutex_unlock(&lock);
  return !atomic_load(&dyn_probes_ended);
}

void dyn_probes_give(struct dyn_gpu *gpu, struct dyn_probe *list) {
  pthread_mutex_lock(&lock);
  while (list != NULL) {
    struct dyn_probe *next = list->next;
    give_back(gpu, list);
    list = next;
    inAir--;
  }
  pthread_mutex_unlock(&lock);
}
