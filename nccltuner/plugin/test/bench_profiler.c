/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples a second through one ring, with a consumer that takes every one; and what one sampled collective costs in
 * events. One JSON line each.
 */
#include "profiler_rig.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define SAMPLES 20000000ull
#define CALLS 200000ull

static struct dyn_process *process;
static uint64_t each;
static atomic_int producers;
static uint64_t taken, checksum;

static void *produce(void *arg) {
  struct dyn_sample s = {.commId = (uintptr_t)arg, .bytes = 1024};
  for (uint64_t i = 0; i < each; i++) {
    s.seq = i;
    while (!dyn_ring_put(process, &s)) sched_yield(); /* a full ring drops: here every sample shall arrive */
  }
  atomic_fetch_sub(&producers, 1);
  return NULL;
}

static void *consume(void *unused) {
  struct dyn_sample s;
  for (;;) {
    int last = atomic_load(&producers) == 0;
    while (rig_pop(process, &s)) {
      taken++;
      checksum += s.seq;
    }
    if (last) return unused;
    sched_yield();
  }
}

static void ring(int threads) {
  pthread_t p[8], c;
  each = SAMPLES / (uint64_t)threads;
  taken = checksum = 0;
  atomic_store(&producers, threads);
  uint64_t start = dyn_now_ns();
  CHECK(pthread_create(&c, NULL, consume, NULL) == 0);
  for (int i = 0; i < threads; i++) CHECK(pthread_create(&p[i], NULL, produce, (void *)(uintptr_t)(i + 1)) == 0);
  for (int i = 0; i < threads; i++) pthread_join(p[i], NULL);
  pthread_join(c, NULL);
  double seconds = (double)(dyn_now_ns() - start) * 1e-9;
  uint64_t n = (uint64_t)threads;
  CHECK(taken == each * n && checksum == n * (each * (each - 1) / 2), "samples were lost");
  printf("{\"bench\":\"ring\",\"producers\":%d,\"samples\":%lu,\"samples_per_s\":%.0f}\n", threads,
         (unsigned long)taken, (double)taken / seconds);
}

/* Of this thread, so that a busy machine does not count. */
static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void collective(int channels) {
  struct rig r = rig_open(6, 1, 8, 0);
  struct dyn_sample s;
  uint64_t start = cpu_ns();
  for (uint64_t i = 0; i < CALLS; i++) {
    struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, channels), 4, 1024, 5);
    for (int k = 0; k < channels; k++) rig_kernel_stop(&r, rig_kernel(&r, c.coll, k, 1000), 2000);
    CHECK(rig_pop(r.process, &s) && s.flags == 0);
  }
  double ns = (double)(cpu_ns() - start) / (double)CALLS;
  rig_close(&r);
  printf("{\"bench\":\"sampled_collective\",\"channels\":%d,\"ns\":%.0f}\n", channels, ns);
}

int main(void) {
  rig_begin();
  process = dyn_process_get(NULL);
  CHECK(process->ring != NULL);
  ring(1);
  ring(2);
  collective(1);
  collective(24);
  rig_end();
  return 0;
}
