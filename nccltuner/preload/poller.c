/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that waits for the events of timed calls and makes samples of them. It belongs to this library, which stays
 * while the plugin comes and goes: it calls nothing of the plugin's, and touches the plugin's ring and CUDA's driver only
 * in rounds under dynamiccl_preload.roundLock, in which the ring is there. The plugin takes the ring away under the same
 * lock when the last communicator goes, so from then on nothing is asked of CUDA contexts that the program may destroy;
 * what was in flight is dropped.
 *
 * GPU time is counted from an event, in milliseconds as a float: exact to 8 ns within a quarter of a second. Then another
 * event takes its place, and what lies between the two is added, so instants go on. After a pause of seconds the first
 * instant may be off by as many tenths of a microsecond, clockNs by the same, and the daemon forgets clocks that old.
 *
 * A daemon that holds GPU clocks against the host's wants to hear of some ends at once (tuner/rankclock.go takes the
 * soonest of 64 ms). A thread that sleeps between rounds is late by up to its sleep, so now and then it waits for an end
 * without sleeping: for a call that the stream has reached, at most CATCH_NS in CATCH_EVERY_NS.
 */
#include "probe.h"

#include <sys/prctl.h>

#include "../../kernels/host/thread.h"
#include "../plugin/ring.h"

#define ROUND_NS 20000       /* between rounds: an end is told that late */
#define SLOW_ROUND_NS 80000  /* where nothing has ended for QUIET_ROUNDS */
#define QUIET_ROUNDS 50
#define LINGER_ROUNDS 50     /* nothing in flight for so many: sleep until there is; waking costs a caller microseconds */
#define CATCH_NS 200000
#define CATCH_EVERY_NS 16000000
#define CATCH_TRIES 400      /* of CATCH_NS, should the clock stand still */
#define ANCHOR_NS 250000000
#define FIRST_INSTANT_NS 1000000000 /* 0 means not known */
#define MAX_STREAMS 8        /* of a context that are told apart in a round */

static bool elapsed(dyn_event from, dyn_event to, int64_t *ns) {
  float ms;
  if (dyn_driver()->cuEventElapsedTime(&ms, from, to) != 0) return false;
  double exact = (double)ms * 1e6;
  *ns = (int64_t)(exact < 0 ? exact - 0.5 : exact + 0.5);
  return true;
}

/* The first event of a context is where its time begins. */
static void drop_anchor(struct dyn_gpu *gpu, dyn_event *event, uint64_t atNs) {
  dyn_event old = gpu->anchor;
  gpu->anchor = *event;
  gpu->anchorNs = atNs;
  *event = old; /* NULL: made anew when it is used */
}

/* When the send buffer may be used again: of NCCL's calls when all is over, for events tell no more; our kernels say by how much sooner
 * they had sent all. The memory that it is read from is there as long as the context, which has just answered. What contradicts the
 * events is not believed. */
static uint32_t counter_of(const struct dyn_timed *timed) {
  uint32_t tail, signal = timed->sample.signalNs;
  return dyn_timing_tail(&timed->timing, &tail) && tail < signal ? signal - tail : signal;
}

/* Fills in the times; false: the driver does not tell. told: the host's clock, read after the end was seen. */
static bool measure(struct dyn_gpu *gpu, struct dyn_probe *probe, uint64_t told) {
  struct dyn_sample *sample = &probe->timed.sample;
  int64_t took, since = 0;
  if (!elapsed(probe->start, probe->end, &took) || took < 0) return false;
  if (gpu->anchor != NULL && !elapsed(gpu->anchor, probe->start, &since)) return false;
  sample->startNs = (gpu->anchor == NULL ? FIRST_INSTANT_NS : gpu->anchorNs) + (uint64_t)since;
  sample->signalNs = took == 0 ? 1 : took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
  sample->counterNs = counter_of(&probe->timed);
  sample->clockNs = told - (sample->startNs + (uint64_t)took);
  if (sample->clockNs == 0) sample->clockNs = 1; /* 0 means not known */
  int64_t age;
  if (gpu->anchor == NULL) {
    drop_anchor(gpu, &probe->start, sample->startNs);
  } else if (elapsed(gpu->anchor, probe->end, &age) && age > ANCHOR_NS) {
    drop_anchor(gpu, &probe->end, gpu->anchorNs + (uint64_t)age);
  }
  return true;
}

static void finish(struct dyn_gpu *gpu, struct dyn_probe *probe, uint64_t told) {
  if ((probe->lost && !probe->slow) || probe->timed.lease != dynamiccl_preload.lease) return;
  if (probe->slow) {
    probe->timed.sample.flags |= DYN_SAMPLE_UNTIMED;
  } else if (!measure(gpu, probe, told)) {
    atomic_store(&gpu->dead, true);
    return;
  }
  dyn_ring_store(dynamiccl_preload.ring, &probe->timed.sample);
}

/* Waits without sleep for the end of a call that the stream has reached. */
static int catch_end(struct dyn_gpu *gpu, struct dyn_probe *probe) {
  uint64_t began = dyn_host_ns();
  int result = DYN_CUDA_NOT_READY;
  if (probe->lost || began - gpu->caughtNs < CATCH_EVERY_NS || dyn_driver()->cuEventQuery(probe->start) != 0) return result;
  for (int i = 0; i < CATCH_TRIES && result == DYN_CUDA_NOT_READY && dyn_host_ns() - began < CATCH_NS; i++)
    result = dyn_driver()->cuEventQuery(probe->end);
  gpu->caughtNs = dyn_host_ns();
  return result;
}

/* Streams whose oldest call is not over: their later ones are not either. */
struct streams { void *stream[MAX_STREAMS]; int n; };

static bool holds(const struct streams *busy, void *stream) {
  for (int i = 0; i < busy->n; i++)
    if (busy->stream[i] == stream) return true;
  return false;
}

/* Asks after the calls of a context; those that are over go. How many. */
static unsigned look_at(struct dyn_gpu *gpu) {
  struct streams busy = {.n = 0};
  struct dyn_probe *over = NULL, **at = &gpu->flying;
  unsigned n = 0;
  if (gpu->flying == NULL) return 0;
  if (dynamiccl_preload.ring != NULL && !atomic_load(&gpu->dead) && dyn_driver()->cuCtxSetCurrent(gpu->context) != 0)
    atomic_store(&gpu->dead, true);
  while (*at != NULL) {
    struct dyn_probe *probe = *at;
    bool asks = dynamiccl_preload.ring != NULL && !atomic_load(&gpu->dead);
    int result = 0;
    if (asks && holds(&busy, probe->stream)) result = DYN_CUDA_NOT_READY;
    else if (asks) result = dyn_driver()->cuEventQuery(probe->lost ? probe->start : probe->end);
    if (result == DYN_CUDA_NOT_READY && busy.n == 0) result = catch_end(gpu, probe);
    if (result == DYN_CUDA_NOT_READY) {
      if (busy.n < MAX_STREAMS && !holds(&busy, probe->stream)) busy.stream[busy.n++] = probe->stream;
      at = &probe->next;
      continue;
    }
    if (asks && result == 0) finish(gpu, probe, dyn_host_ns());
    if (result != 0) atomic_store(&gpu->dead, true);
    *at = probe->next;
    probe->next = over;
    over = probe;
    n++;
  }
  gpu->flyingLast = at;
  dyn_probes_give(gpu, over);
  return n;
}

/* False: the process ends. flying: something is left. */
static bool one_round(unsigned *ended, bool *flying) {
  static __thread bool lenient;
  pthread_mutex_lock(&dynamiccl_preload.roundLock);
  bool goesOn = !atomic_load(&dyn_probes_ended);
  int mode = DYN_RELAXED_CAPTURE;
  /* Asking after an event would break captures of other threads that forbid it to all. */
  if (goesOn && !lenient) lenient = dyn_driver()->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  *ended = 0;
  *flying = false;
  for (int i = 0; i < DYN_MAX_GPUS && goesOn; i++) {
    struct dyn_gpu *gpu = atomic_load(&dyn_gpus[i]);
    if (gpu == NULL) break;
    *ended += look_at(gpu);
    *flying |= gpu->flying != NULL;
  }
  if (goesOn && dynamiccl_preload.ring != NULL) {
    unsigned missed = atomic_exchange(&dyn_probes_missed, 0);
    if (missed > 0) __atomic_fetch_add(&dynamiccl_preload.ring->dropped, missed, __ATOMIC_RELAXED);
    dyn_traffic_tell(&dynamiccl_preload.traffic, dynamiccl_preload.ring);
  }
  pthread_mutex_unlock(&dynamiccl_preload.roundLock);
  return goesOn;
}

static void *run(void *nothing) {
  unsigned quiet = 0, ended;
  bool flying = false;
  (void)nothing;
  prctl(PR_SET_NAME, "dynamiccl-time");
  prctl(PR_SET_TIMERSLACK, 1000ul);
  while (dyn_probes_take(flying || quiet < LINGER_ROUNDS) && one_round(&ended, &flying)) {
    quiet = ended > 0 ? 0 : quiet + 1;
    struct timespec pause = {.tv_nsec = flying && quiet > QUIET_ROUNDS ? SLOW_ROUND_NS : ROUND_NS};
    nanosleep(&pause, NULL);
  }
  return nothing;
}

bool dyn_poller_start(void) { return dyn_thread_start(run, NULL); }
