/* SPDX-License-Identifier: Apache-2.0
 *
 * Which communicators' calls are sampled, and when. Part of test_profiler_timed.c.
 */
#ifndef DYN_TIMED_SAMPLED_H
#define DYN_TIMED_SAMPLED_H

#include "timed_rig.h"

static bool in_window(uint64_t epoch) { return epoch == 0 || dyn_epoch_sampled(epoch, 4); } /* the first has no plan */

/* Windows: the same calls of each, whatever other communicators do, and none that began before its window. */
static void windows(void) {
  struct member_rig m = join(1, 1), other = join(2, 1);
  atomic_store(&m.profiler.process->samplingComms, m.comm->sampling + other.comm->sampling); /* the second's rig forgot the first */
  publish(1, 4);
  publish(2, 2);
  for (uint64_t i = 0; i < 16 * 16; i++) {
    uint64_t epoch = i / 16;
    bool window = in_window(epoch), begins = epoch > 0 && !in_window(epoch - 1) && i % 16 == 0;
    all_reduce(&m, TIMED);
    CHECK(timed.asked == (window && !begins), "call %lu: %u", i, timed.asked);
    all_reduce(&other, TIMED);
  }
  leave(&m);
  leave(&other);
}

/* One that makes no more calls is in its window for ever. Others of the process are timed in theirs alone, and it is when it goes on. */
static void beside_an_idle_one(void) {
  struct member_rig m = join(1, 1), idle = join(2, 1);
  atomic_store(&m.profiler.process->samplingComms, m.comm->sampling + idle.comm->sampling); /* the second's rig forgot the first */
  publish(1, 64);
  for (int i = 0; i < 2; i++) all_reduce(&idle, TIMED);
  CHECK(timed.asked == 1);
  for (int how = TIMED; how <= (TIMED | GROUP); how += GROUP) { /* a group's end does not say which it is */
    unsigned sampled = 0, asked = 0;
    for (int i = 0; i < 2 * DYN_EPOCH_CALLS; i++) all_reduce(&m, TIMED); /* into the plan */
    probed = 0;
    for (int i = 0; i < 256 * DYN_EPOCH_CALLS; i++) {
      int before = m.comm->sampling;
      all_reduce(&m, m.comm->callsLeft == 0 ? how : TIMED);
      sampled += before, asked += timed.asked == 1;
      CHECK(atomic_load(&dynamiccl_preload.timing) == 1);
    }
    CHECK(sampled == 4 * DYN_EPOCH_CALLS && asked == 4 * (DYN_EPOCH_CALLS - 1) && probed <= sampled + 4, "%u calls of %u sampled ones had events, and %u were described", probed, sampled, asked);
  }
  all_reduce(&idle, TIMED);
  CHECK(timed.asked == 1);
  leave(&m);
  leave(&idle);
}

/* No daemon has come yet: behind the first epoch nothing is sampled, until one has. */
static void unheard(void) {
  struct member_rig m = join(1, 1);
  uint32_t want = m.profiler.process->ring->wantMask;
  __atomic_store_n(&m.profiler.process->ring->wantMask, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 3 * DYN_EPOCH_CALLS; i++) {
    all_reduce(&m, TIMED);
    CHECK(m.comm->sampling == (i < DYN_EPOCH_CALLS), "call %d", i);
  }
  __atomic_store_n(&m.profiler.process->ring->wantMask, want, __ATOMIC_RELAXED);
  for (int i = 0; i < DYN_EPOCH_CALLS + 1; i++) all_reduce(&m, TIMED);
  CHECK(m.comm->sampling, "every epoch, until there is a plan");
  leave(&m);
}

/* No plan ever comes into force, so a daemon makes nothing of samples: the user has decided, or ranks are elsewhere and have not met. */
static void unplanned(void) {
  setenv("NCCL_ALGO", "Ring", 1);
  struct member_rig vetoed = join(1, 1);
  unsetenv("NCCL_ALGO");
  struct member_rig apart = join_as(2, 1, 2, 0);
  atomic_store(&apart.profiler.process->samplingComms, 2); /* the second's rig forgot the first */
  for (int i = 0; i < 3 * DYN_EPOCH_CALLS; i++) {
    all_reduce(&vetoed, TIMED);
    all_reduce(&apart, TIMED);
    CHECK(vetoed.comm->sampling == (i < DYN_EPOCH_CALLS) && apart.comm->sampling == (i < DYN_EPOCH_CALLS), "call %d", i);
  }
  CHECK(atomic_load(&apart.profiler.process->samplingComms) == 0 && atomic_load(&dynamiccl_preload.timing) == 0);
  apart.comm->record->hosts = DYN_HOSTS_MET;
  for (int i = 0; i < DYN_EPOCH_CALLS + 1; i++) all_reduce(&apart, TIMED);
  CHECK(apart.comm->sampling);
  leave(&vetoed);
  leave(&apart);
}

/* Nobody wants times, or lives. */
static void not_wanted(void) {
  struct member_rig m = join(1, 1);
  __atomic_store_n(&m.profiler.process->ring->wantMask, ncclProfileColl, __ATOMIC_RELAXED);
  for (int i = 0; i < 17; i++) all_reduce(&m, TIMED);
  CHECK(atomic_load(&dynamiccl_preload.timing) == 0, "what runs alone is wanted");
  struct dyn_sample s;
  CHECK(rig_pop(m.profiler.process, &s) && s.flags == DYN_SAMPLE_UNTIMED && s.algorithm == 1, "and is told");
  __atomic_store_n(&m.profiler.process->ring->wantMask, ncclProfileColl | ncclProfileKernelCh, __ATOMIC_RELAXED);
  for (int i = 0; i < 16; i++) all_reduce(&m, TIMED);
  CHECK(atomic_load(&dynamiccl_preload.timing) == 1);
  for (int i = 0; i < 4097 * 16; i++) all_reduce(&m, TIMED | NO_COLL);
  CHECK(atomic_load(&dynamiccl_preload.timing) == 0, "its heart has stopped");
  leave(&m);
}

#endif
