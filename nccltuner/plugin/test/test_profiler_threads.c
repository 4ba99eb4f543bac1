/* SPDX-License-Identifier: Apache-2.0
 *
 * Events from many threads, a pool that is too small, and handles that nobody ever made.
 */
#include "profiler_rig.h"

#include <pthread.h>
#include <sched.h>

#define CALLS 50000 /* a thread; 4 threads, 2 channels: over 1e6 events */
#define THREADS 4

static struct rig rigs[THREADS];
static atomic_int running;
static atomic_uint_fast64_t made, popped;  /* samples */
static uint64_t seen[THREADS][2]; /* samples, sum of their durations */

#define AHEAD 1024 /* of the daemon's side, in all: far less than the ring holds, however busy the machine is */

/* The daemon's side, so that the ring never fills. */
static void *consume(void *unused) {
  struct dyn_sample s;
  for (;;) {
    int last = atomic_load(&running) == 0;
    while (rig_pop(rigs[0].process, &s)) {
      CHECK(s.commId >= 100 && s.commId < 100 + THREADS && s.bytes == 1024 && s.channels == 2 && s.flags == 0);
      CHECK(s.rank == (int32_t)s.commId - 100, "a sample of two communicators");
      seen[s.commId - 100][0]++;
      seen[s.commId - 100][1] += s.signalNs;
      atomic_fetch_add(&popped, 1);
    }
    if (last) return unused;
    sched_yield();
  }
}

static void *user(void *arg) {
  struct rig *r = arg;
  for (uint64_t i = 0; i < CALLS; i++) {
    while (atomic_load(&made) - atomic_load(&popped) > AHEAD) sched_yield();
    atomic_fetch_add(&made, 1);
    struct rig_call c = rig_enqueue(r, rig_all_reduce(256, 2), 4, 1024, 5);
    CHECK(c.coll != NULL);
    void *a = rig_kernel(r, c.coll, 0, 1000), *b = rig_kernel(r, c.coll, 1, 1000);
    rig_kernel_stop(r, b, 1001 + i % 7);
    rig_kernel_stop(r, a, 1001);
  }
  atomic_fetch_sub(&running, 1);
  return NULL;
}

static void hammer(void) {
  pthread_t threads[THREADS], consumer;
  uint64_t want = 0;
  for (uint64_t i = 0; i < CALLS; i++) want += 1 + i % 7;
  for (int i = 0; i < THREADS; i++) rigs[i] = rig_open(6, 100 + (uint64_t)i, 2, i);
  uint64_t dropped = rig_dropped(&rigs[0]);
  atomic_store(&running, THREADS);
  CHECK(pthread_create(&consumer, NULL, consume, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, user, &rigs[i]) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pthread_join(consumer, NULL);
  uint64_t lost = rig_dropped(&rigs[0]) - dropped;
  CHECK(popped == (uint64_t)CALLS * THREADS && lost == 0, "%lu + %lu lost", (unsigned long)popped, (unsigned long)lost);
  for (int i = 0; i < THREADS; i++) CHECK(seen[i][0] == CALLS && seen[i][1] == want, "thread %d", i);
  for (int i = 0; i < THREADS; i++) rig_close(&rigs[i]);
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
}

/* One collective in two threads: kernel channels in one, network operations in the other, Coll in a third. */
static struct rig shared;
static void *volatile sharedColl;
static pthread_barrier_t barrier;
static void *kernels(void *unused) {
  for (int i = 0; i < 2000; i++) {
    pthread_barrier_wait(&barrier);
    for (int c = 0; c < 8; c++) rig_kernel_stop(&shared, rig_kernel(&shared, sharedColl, c, 100), 200);
    pthread_barrier_wait(&barrier);
  }
  return unused;
}
static void *proxies(void *unused) {
  for (int i = 0; i < 2000; i++) {
    pthread_barrier_wait(&barrier);
    for (int c = 0; c < 8; c++) rig_stop(rig_proxy(&shared, sharedColl, c, c & 1, getpid()));
    pthread_barrier_wait(&barrier);
  }
  return unused;
}
static void two_threads(void) {
  pthread_t a, b;
  struct dyn_sample s;
  shared = rig_open(7, 1, 2, 0);
  pthread_barrier_init(&barrier, NULL, 3);
  CHECK(pthread_create(&a, NULL, kernels, NULL) == 0 && pthread_create(&b, NULL, proxies, NULL) == 0);
  for (int i = 0; i < 2000; i++) {
    rig_decide(&shared, 4, 1024, 1, 1);
    struct rig_event e = rig_all_reduce(256, 8);
    void *api = rig_api(&shared, 0);
    shared.comm->seq--; /* the choice is of this call */
    rig_stop(api);
    e.parent = rig_api(&shared, 0);
    rig_stop(e.parent);
    shared.comm->seq++;
    sharedColl = rig_start(&shared, &e);
    CHECK(sharedColl != NULL);
    pthread_barrier_wait(&barrier);
    rig_stop(sharedColl);
    pthread_barrier_wait(&barrier);
    CHECK(rig_pop(shared.process, &s) && s.signalNs == 100 && s.channels == 8 && s.flags == 0, "round %d", i);
    CHECK(!rig_pop(shared.process, &s));
  }
  pthread_join(a, NULL);
  pthread_join(b, NULL);
  rig_close(&shared);
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
}

static void exhaustion(void) {
  struct rig r = rig_open(6, 1, 2, 0);
  struct dyn_sample s;
  uint64_t before = rig_dropped(&r);
  /* The GPU is far behind: collectives pile up until there is no object left. */
  int made = 0;
  for (int i = 0; i < DYN_POOL_SLOTS; i++) made += rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0).coll != NULL;
  CHECK(rig_dropped(&r) > before, "nothing was dropped");
  CHECK(made > DYN_POOL_SLOTS / 2 && dyn_slots_used() <= DYN_POOL_SLOTS, "%d", made);
  /* Old ones are given up for new ones, so that sampling goes on. */
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0);
  CHECK(c.coll != NULL);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 5);
  CHECK(rig_pop(r.process, &s) && s.signalNs == 4);
  rig_close(&r);
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
}

static void foreign_handles(void) {
  struct rig r = rig_open(6, 1, 2, 0);
  uint64_t rng = 88172645463325252ull;
  int local;
  void *not[] = {NULL, &local, (void *)-1, (void *)1, (void *)(uintptr_t)(DYN_HANDLE_TAG << 48),
                 (void *)(uintptr_t)(DYN_HANDLE_TAG << 48 | 0xffff), (void *)(uintptr_t)(DYN_CONTEXT_TAG << 48)};
  for (int i = 0; i < 100000; i++) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    void *h = (void *)(uintptr_t)(i & 1 ? rng : (rng >> 16) | DYN_HANDLE_TAG << 48);
    if ((size_t)i < sizeof not / sizeof *not) h = not[i];
    struct rig_event e = rig_all_reduce(256, 1);
    e.parent = e.group = h;
    CHECK(rig_start(&r, &e) == NULL, "a collective below %p", h);
    CHECK(rig_kernel(&r, h, 0, 1) == NULL && rig_proxy(&r, h, 0, 1, getpid()) == NULL);
    rig_kernel_stop(&r, h, 7);
    struct rig other = {.version = 6, .context = h, .rank = 0};
    if (h != r.context) CHECK(rig_start(&other, &e) == NULL);
  }
  CHECK(dyn_slots_used() == 0);
  rig_close(&r);
  CHECK(ncclProfiler_v6.finalize(r.context) == 0 && ncclProfiler_v6.finalize(NULL) == 0);
}

/* Communicators come and go for hours: nothing is left behind. */
static void churn(void) {
  for (int i = 0; i < 20000; i++) {
    struct rig r = rig_open(4 + i % 4, (uint64_t)i + 1, 2, 0);
    if (i % 100 == 0) rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0); /* never completes */
    rig_close(&r);
  }
  CHECK(dyn_slots_used() == 0);
  static struct rig many[DYN_MAX_CONTEXTS];
  for (int i = 0; i < DYN_MAX_CONTEXTS; i++) many[i] = rig_open(5, (uint64_t)i + 1, 2, 0);
  void *context;
  int mask = 0;
  CHECK(ncclProfiler_v5.init(&context, 1, &mask, "", 1, 2, 0, NULL) == 0 && context == NULL, "one too many");
  ncclProfilerEventDescr_v5_t d = {.type = ncclProfileGroup};
  void *handle = &d;
  CHECK(ncclProfiler_v5.startEvent(context, &handle, &d) == 0 && handle == NULL);
  for (int i = 0; i < DYN_MAX_CONTEXTS; i++) rig_close(&many[i]);
}

int main(void) {
  rig_begin();
  hammer();
  two_threads();
  exhaustion();
  foreign_handles();
  churn();
  rig_end();
  return 0;
}
