/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of timed calls share: the plugin's part, a clock, and calls. Header only; one program includes it once.
 */
#ifndef DYN_PROBE_RIG_H
#define DYN_PROBE_RIG_H

#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../preload.h"

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      _exit(1); \
    } \
  } while (0)

#define SUCCESS 0
#define IN_PROGRESS 7
#define POOL 512
#define FAR (UINT64_MAX / 4)

typedef int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static struct dyn_preload *preload;
static atomic_int mask;
static struct fake_gpu *gpu;
static struct fake_call *(*last)(void);
static struct dyn_ring *ring;

static void *program; /* opened once: the thread sanitizer reads all libraries again each time */

static function find(const char *name) {
  function f = (function)dlsym(program, name); /* in the order of a program that is linked with NCCL */
  CHECK(f != NULL, "%s", name);
  return f;
}

/* The library takes its time from here as well. A call takes none by it, however busy the machine is, unless the test says
 * so: slow ones are not timed. */
static __thread uint64_t frozenNs;
static time_t setBackS; /* the host's clock, once it has been looked at */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *out) {
  if (frozenNs == 0 || id != CLOCK_MONOTONIC) {
    int result = (int)syscall(SYS_clock_gettime, id, out);
    if (id == CLOCK_REALTIME) out->tv_sec += setBackS;
    return result;
  }
  *out = (struct timespec){.tv_sec = (time_t)(frozenNs / 1000000000u), .tv_nsec = (long)(frozenNs % 1000000000u)};
  return 0;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_us(long us) { nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL); }

/* ---- the plugin: its ring, and what it does in a call ---- */

static void open_ring(void) {
  size_t bytes = sizeof *ring + DYN_RING_CELLS * sizeof(struct dyn_sample);
  struct dyn_ring *fresh = calloc(1, bytes);
  struct dyn_sample *cells = (struct dyn_sample *)(fresh + 1);
  for (uint64_t i = 0; i < DYN_RING_CELLS; i++) cells[i].cell = i;
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = ring = fresh;
  preload->lease++;
  pthread_mutex_unlock(&preload->roundLock);
  atomic_store(&preload->timing, 1);
}

/* As when the last communicator goes; what is written to it from now on is found by a sanitizer, and by close_rings. */
static inline void close_ring(void) {
  atomic_store(&preload->timing, 0);
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = NULL;
  pthread_mutex_unlock(&preload->roundLock);
  free(ring);
  ring = NULL;
}

static int pop(struct dyn_sample *out) {
  struct dyn_sample *cell = (struct dyn_sample *)(ring + 1) + ring->tail % DYN_RING_CELLS;
  if (__atomic_load_n(&cell->cell, __ATOMIC_ACQUIRE) != ring->tail + 1) return 0;
  *out = *cell;
  __atomic_store_n(&cell->cell, ring->tail++ + DYN_RING_CELLS, __ATOMIC_RELEASE);
  return 1;
}

static inline uint64_t lost(void) { return __atomic_load_n(&ring->dropped, __ATOMIC_RELAXED); }

/* The next sample; it must come. */
static struct dyn_sample await(void) {
  struct dyn_sample s;
  for (int i = 0; i < 200000; i++, sleep_us(100))
    if (pop(&s)) return s;
  CHECK(0, "no sample in twenty seconds");
}
static void none(void) {
  struct dyn_sample s;
  sleep_us(2000);
  CHECK(!pop(&s), "a sample of call %lu", (unsigned long)s.seq);
}

static __thread struct plan { int stream, asks, result; uint64_t slowNs, waits, takes, seq; } plan;

/* What runs in the call: the tuner is asked, the work goes to its stream. */
static int inside(void) {
  struct dyn_timed *timed = preload->call()->timed;
  for (int i = 0; i < plan.asks && timed != NULL; i++) {
    timed->asked++;
    timed->lease = preload->lease;
    timed->sample = (struct dyn_sample){.seq = plan.seq, .flags = DYN_SAMPLE_EVENT_TIMED, .algorithm = 1};
  }
  atomic_fetch_add(&gpu->ends[plan.stream], plan.takes);
  frozenNs += plan.slowNs;
  return plan.result;
}

static int all_reduce_as(uintptr_t stream, int (*within)(void)) {
  last()->inside = within;
  function f = find("ncclAllReduce");
  frozenNs = now_ns();
  int result = f(1, 2, 3, 4, 5, 6, stream, 0, 0);
  frozenNs = 0;
  return result;
}
static int all_reduce(uintptr_t stream) { return all_reduce_as(stream, inside); }

/* No stream's first call is timed; the next ones are. */
static inline void meet(int stream) {
  plan = (struct plan){.stream = stream, .result = SUCCESS};
  CHECK(all_reduce(FAKE_STREAM((uintptr_t)stream)) == SUCCESS);
}
static inline void meet_all(void) {
  for (int i = 0; i < FAKE_STREAMS; i++) meet(i);
}

/* The stream does other things for waits, then the collective. */
static inline void call(uint64_t seq, int stream, uint64_t waits, uint64_t takes) {
  plan = (struct plan){.stream = stream, .asks = 1, .result = SUCCESS, .takes = takes, .seq = seq};
  atomic_fetch_add(&gpu->ends[stream], waits);
  CHECK(all_reduce(FAKE_STREAM((uintptr_t)stream)) == SUCCESS);
}

static void everything_is_over(void) { atomic_store(&gpu->now, FAR); }

static int status_of(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

/* The library that is preloaded, and the fakes that it stands before. */
static void open_fakes(const char *folder) {
  char path[4096];
  preload = dlsym(RTLD_DEFAULT, DYN_PRELOAD_SYMBOL);
  program = dlopen(NULL, RTLD_LAZY);
  CHECK(preload != NULL && preload->version == DYN_PRELOAD_VERSION, "not preloaded");
  snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
  void *nccl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
  void *cuda = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(nccl != NULL && cuda != NULL, "%s", dlerror());
  last = (struct fake_call *(*)(void))dlsym(nccl, "fake_last_call");
  gpu = dlsym(cuda, "fake_gpu");
  CHECK(last != NULL && gpu != NULL);
}

/* A test in a process of its own. */
static void run(const char *name, void (*test)(void)) {
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < FAKE_STREAMS; i++) atomic_store(&gpu->context[i], 0x77);
    atomic_store(&gpu->contextId, 1);
    atomic_store(&preload->mask, &mask);
    open_ring();
    if (strncmp(name, "exits", 5) != 0) meet_all(); /* these have the driver's handler registered before any call is timed */
    alarm(60);
    test();
    fflush(NULL);
    _exit(0);
  }
  int status = status_of(child);
  CHECK(status == 0, "%s: status %x", name, status);
  printf("{\"probe\":\"%s\"}\n", name);
  fflush(NULL);
}

#endif
