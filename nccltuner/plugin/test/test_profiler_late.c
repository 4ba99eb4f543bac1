/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel times that are another collective's: NCCL's profiler thread comes late, or NCCL 2.32 has lost count. Played
 * here is what NCCL does with its memory: a channel's times are kept in slot (count of works) % 64, the GPU counts
 * every work, and the host's count is every work, or (2.32.3) every work that had KernelCh.
 */
#include "profiler_rig.h"

#include <time.h>

#define SLOTS 64       /* MAX_PROFILER_EVENTS_PER_CHANNEL, src/include/plugin/nccl_profiler.h */
#define GAP_NS 20000ull /* from one kernel's start to the next */
#define GPU_CLOCK 1795255111000000000ull /* ns since 1970, as on H200 */

struct gpu {
  uint64_t works, count[SLOTS], start[SLOTS], stop[SLOTS]; /* one channel */
};
#define CALLS 1000

/* Time stands still but where a story moves it on: how prompt the thread is does not hang on this machine. */
static uint64_t nowNs = 1000000000;
int clock_gettime(clockid_t id, struct timespec *t) {
  (void)id;
  *t = (struct timespec){.tv_sec = (time_t)(nowNs / 1000000000), .tv_nsec = (long)(nowNs % 1000000000)};
  return 0;
}

static uint64_t duration_of(uint64_t work) { return 3000 + work % 7 * 100; }

/* The kernel of the next work; it leaves its times only when it is profiled. */
static uint64_t gpu_run(struct gpu *g, int profiled) {
  uint64_t work = ++g->works, at = work % SLOTS;
  if (profiled) {
    g->count[at] = work;
    g->start[at] = GPU_CLOCK + work * GAP_NS;
    g->stop[at] = g->start[at] + duration_of(work);
  }
  return work;
}

/* As rig_kernel and rig_kernel_stop, in absolute time: these stories go on over many collectives. */
static void *told_start(struct rig *r, void *coll, uint64_t timer) {
  return rig_start(r, &(struct rig_event){.type = ncclProfileKernelCh, .parent = coll, .timer = timer});
}
static void told_stop(struct rig *r, void *kernel, uint64_t timer) {
  r->gpuBase = 0;
  rig_kernel_stop(r, kernel, timer);
}

static void *enqueue(struct rig *r) {
  void *coll = rig_enqueue(r, rig_all_reduce(256, 1), 4, 1024, 5).coll;
  return coll;
}

static unsigned samples(struct rig *r, uint32_t *last) {
  struct dyn_sample s;
  unsigned n = 0;
  for (; rig_pop(r->process, &s); n++) *last = s.signalNs;
  return n;
}

/* The GPU is a hundred collectives behind the program, and the thread tells all in time: every sample is good. */
static void far_ahead(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  struct gpu g = {0};
  uint32_t last = 0;
  void *coll[200];
  for (int i = 0; i < 200; i++) coll[i] = enqueue(&r);
  for (int i = 0; i < 200; i++) {
    uint64_t work = gpu_run(&g, 1), most = duration_of(work) + DYN_NEAR_NS;
    void *kernel = told_start(&r, coll[i], g.start[work % SLOTS]);
    /* A thread that comes later than this may be telling of a kernel 64 works later, while so many follow. */
    int stalled = i % 50 == 7;
    if (stalled) nowNs += most + 1;
    if (i % 50 == 8) nowNs += most;
    told_stop(&r, kernel, g.stop[work % SLOTS]);
    int believed = !stalled || 200 - 1 - i < DYN_LATE_WORKS;
    unsigned n = samples(&r, &last);
    CHECK(n == (unsigned)believed && (n == 0 || last == duration_of(work)), "collective %d: %u samples, %u ns", i, n, last);
    g.works += 10; /* idle for longer than 64 kernels take, so that no time is near the one before */
  }
  /* From a time that is believed on they follow each other closely: all good, however far ahead the program is. */
  for (int i = 0; i < 200; i++) coll[i] = enqueue(&r);
  for (int i = 0; i < 200; i++) {
    uint64_t work = gpu_run(&g, 1);
    void *kernel = told_start(&r, coll[i], g.start[work % SLOTS]);
    told_stop(&r, kernel, g.stop[work % SLOTS]);
    CHECK(samples(&r, &last) == 1 && last == duration_of(work), "collective %d", i);
  }
  rig_close(&r);
}

/* The thread sees the start of a kernel, sleeps while 64 others run, and finds the stop of the last of them: 1.3 ms for
 * a kernel of 3 us. That is one wrong sample, which the daemon tells by the other ranks', and no yardstick: those that
 * follow are good. */
static void overrun(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  struct gpu g = {0};
  uint32_t last = 0;
  void *coll[SLOTS + 1];
  for (int i = 0; i <= SLOTS; i++) coll[i] = enqueue(&r);
  uint64_t first = gpu_run(&g, 1);
  void *kernel = told_start(&r, coll[0], g.start[first % SLOTS]);
  for (int i = 0; i < SLOTS; i++) gpu_run(&g, 1);
  CHECK(g.count[first % SLOTS] == first + SLOTS);
  told_stop(&r, kernel, g.stop[first % SLOTS]);
  CHECK(samples(&r, &last) == 1 && last == SLOTS * GAP_NS + duration_of(first + SLOTS), "a kernel of %u ns", last);
  for (int i = 1; i <= SLOTS; i++) { /* the others were not overwritten */
    uint64_t work = first + (uint64_t)i;
    told_stop(&r, told_start(&r, coll[i], g.start[work % SLOTS]), g.stop[work % SLOTS]);
    CHECK(samples(&r, &last) == 1 && last == duration_of(work), "%d: %u ns", i, last);
  }
  CHECK(enqueue(&r) != NULL);
  rig_close(&r);
}

/* What 2.32.3 does when KernelCh goes off and on: the host's count stays behind, a slot holds an older work's times or
 * is not filled before a later work comes to it. Holding the bit keeps us out of this. If it happens all the same,
 * times that go backwards give it away, and then nothing of this communicator is believed any more. */
static void lost_count(int version) {
  struct rig r = rig_open(version, 1, 2, 0), other = rig_open(version, 2, 2, 0);
  struct gpu g = {0};
  struct { void *coll; uint64_t count, work; } waiting[CALLS];
  uint64_t host = 0;
  unsigned wrong = 0, head = 0;
  uint32_t last = 0;
  for (int i = 0; i < CALLS; i++) {
    int profiled = i / 8 * 7 % 11 % 3 != 0; /* windows of no regular length */
    void *coll = profiled ? enqueue(&r) : NULL;
    uint64_t work = gpu_run(&g, profiled);
    if (profiled) host++;
    if (coll != NULL) waiting[head].coll = coll, waiting[head].count = host, waiting[head++].work = work;
    for (unsigned w = 0; w < head; w++) { /* each on its own: a later one does not wait for an earlier one */
      uint64_t at = waiting[w].count % SLOTS;
      if (waiting[w].coll == NULL || g.count[at] < waiting[w].count) continue;
      told_stop(&r, told_start(&r, waiting[w].coll, g.start[at]), g.stop[at]);
      if (samples(&r, &last) == 1) wrong += g.count[at] != waiting[w].work;
      waiting[w].coll = NULL;
    }
  }
  CHECK(enqueue(&r) == NULL, "still believed after %u times that went backwards",
        atomic_load(&dyn_context_get(r.context)->backward));
  CHECK(wrong < 2 * SLOTS, "%u samples of other collectives", wrong);
  CHECK(enqueue(&other) != NULL, "another communicator counts for itself");
  rig_close(&other);
  rig_close(&r);
}

/* 2.32.3 on two H200: after four broadcasts all times of channel 0 are those of the fourth work before. */
static void broadcast(int version) {
  struct rig r = rig_open(version, 1, 2, 0), other = rig_open(version, 2, 2, 0);
  struct rig_event e = {.type = ncclProfileCollApi, .func = "Broadcast"};
  CHECK(enqueue(&r) != NULL);
  setenv("NCCL_ALLGATHERV_ENABLE", "0", 1); /* then it is counted */
  if (version >= 5) rig_stop(rig_start(&r, &e));
  CHECK(enqueue(&r) != NULL);
  unsetenv("NCCL_ALLGATHERV_ENABLE");
  if (version >= 5) rig_stop(rig_start(&r, &e));
  CHECK((enqueue(&r) != NULL) == (version < DYN_BROADCAST_VERSION));
  CHECK(enqueue(&other) != NULL, "another communicator counts for itself");
  rig_close(&other);
  rig_close(&r);
}

/* Where times cannot be had, what ran still is. */
static void untimed_after_broadcast(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  struct rig_event e = {.type = ncclProfileCollApi, .func = "Broadcast"};
  uint32_t want = r.process->ring->wantMask;
  rig_stop(rig_start(&r, &e));
  CHECK(enqueue(&r) == NULL, "v%d: times of a miscounted communicator", version);
  __atomic_store_n(&r.process->ring->wantMask, (uint32_t)ncclProfileColl, __ATOMIC_RELAXED);
  struct dyn_sample s;
  CHECK(enqueue(&r) != NULL && rig_pop(r.process, &s), "v%d: nobody tells what ran", version);
  CHECK(s.flags & DYN_SAMPLE_UNTIMED && s.signalNs == 0, "v%d: flags %x", version, s.flags);
  __atomic_store_n(&r.process->ring->wantMask, want, __ATOMIC_RELAXED);
  rig_close(&r);
}

/* Nothing of ours is wanted, but a work without KernelCh would be one that 2.32 does not count, and of a broadcast we
 * must hear. */
static void held(int version) {
  int held = rig_held(version);
  void *context;
  int mask = 0;
  struct dyn_process *process = dyn_process_get(NULL);
  uint32_t want = process->ring->wantMask;
  __atomic_store_n(&process->ring->wantMask, 0, __ATOMIC_RELAXED);
  atomic_store(&process->samplingComms, 0);
  const struct dyn_context *c;
  if (version == 7) CHECK(ncclProfiler_v7.init(&context, 1, &mask, "test", 1, 2, 0, NULL) == 0);
  if (version == 6) CHECK(ncclProfiler_v6.init(&context, 1, &mask, "test", 1, 2, 0, NULL) == 0);
  CHECK((c = dyn_context_get(context)) != NULL && mask == held, "%x before the first work", mask);
  dyn_mask_update(process, 0);
  CHECK(mask == held, "%x without a daemon", mask);
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileCollApi};
  void *handle = &d;
  CHECK(ncclProfiler_v7.startEvent(context, &handle, &d) == 0 && handle == NULL, "an event that nobody wants");
  d = (ncclProfilerEventDescr_v7_t){.type = ncclProfileKernelCh, .kernelCh = {0, 5}};
  handle = &d;
  CHECK(ncclProfiler_v7.startEvent(context, &handle, &d) == 0 && handle == NULL && dyn_slots_used() == 0);
  CHECK(ncclProfiler_v7.finalize(context) == 0);
  __atomic_store_n(&process->ring->wantMask, want, __ATOMIC_RELAXED);
}

/* Before 2.32 a thread of NCCL's that was late by a lap tells wrong times for a moment: those samples are dropped, and
 * the communicator goes on being sampled, or its whole group would never be measured again. */
static void late_for_a_moment(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  uint32_t last = 0;
  uint64_t now = 1000000;
  for (int i = 0; i < 3 * DYN_BACKWARD_LIMIT; i++) {
    void *coll = enqueue(&r);
    uint64_t at = i % 2 ? now - 500000 : now; /* every second one tells the time of a kernel long before */
    told_stop(&r, told_start(&r, coll, at), at + 5000);
    CHECK(samples(&r, &last) == (i % 2 ? 0 : 1), "call %d", i);
    now += 20000;
  }
  CHECK(enqueue(&r) != NULL, "a moment's lateness ended sampling");
  rig_close(&r);
}

/* Without a daemon nothing may cost: KernelCh is not held, and this communicator's times would be another's. */
static void no_daemon(void) {
  void *context;
  int mask = 0;
  struct dyn_process *process = dyn_process_get(NULL);
  rig_daemon(0);
  CHECK(ncclProfiler_v7.init(&context, 1, &mask, "test", 1, 2, 0, NULL) == 0);
  rig_daemon(1);
  CHECK(!(mask & ncclProfileKernelCh), "%x: KernelCh is held for nobody", mask);
  CHECK(!dyn_in_step(dyn_context_get(context)), "its works are not counted from the first on");
  atomic_store(&process->samplingComms, 0);
  CHECK(ncclProfiler_v7.finalize(context) == 0);
}

int main(void) {
  rig_begin();
  for (int version = 4; version <= 7; version++) {
    far_ahead(version);
    overrun(version);
    if (version >= DYN_HOLD_VERSION) lost_count(version); /* before, NCCL does not lose count */
    broadcast(version);
    if (version >= DYN_BROADCAST_VERSION) untimed_after_broadcast(version);
    if (version < DYN_HOLD_VERSION) late_for_a_moment(version);
    if (version >= 6) held(version);
  }
  no_daemon();
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
  rig_end();
  return 0;
}
