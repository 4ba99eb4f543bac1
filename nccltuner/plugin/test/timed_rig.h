/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays the preload library to the plugin: the same symbol, the same steps around a call that is timed. Header only; one test
 * program includes it once.
 */
#ifndef DYN_TIMED_RIG_H
#define DYN_TIMED_RIG_H

#include "profiler_rig.h"
#include "support.h"

#define ALLREDUCE 4
#define BYTES 1024
#define CHOSEN (uint32_t)ACTION(1, 1, 4)

static struct dyn_timed timed;
static unsigned probed; /* calls so far with events around them */
static __thread struct dyn_preload_call call;
static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}
static bool able = true;
static bool can_time(void) { return able; }
extern struct dyn_preload dynamiccl_preload;
__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {
    .version = DYN_PRELOAD_VERSION, .call = this_call, .about = about, .can_time = can_time, .roundLock = PTHREAD_MUTEX_INITIALIZER};

/* Both halves of one rank. */
struct member_rig {
  struct rig profiler;
  void *tuner;
  struct dyn_comm *comm;
};

static struct member_rig join_as(uint64_t commId, int announced, int nRanks, int rank) {
  struct member_rig m;
  if (announced) atomic_fetch_add(&dynamiccl_preload.announced, 1);
  m.profiler = rig_open(6, commId, nRanks, rank);
  m.profiler.comm->sampling = 0; /* as NCCL left it */
  atomic_store(&m.profiler.process->samplingComms, 0);
  CHECK(ncclTunerPlugin_v6.init(&m.tuner, commId, (size_t)nRanks, 1, test_log, NULL, NULL) == 0 && m.tuner == m.profiler.comm);
  m.comm = m.tuner;
  CHECK(m.comm->record != NULL, "not joined: %s", test_last_message());
  return m;
}

static struct member_rig join(uint64_t commId, int announced) { return join_as(commId, announced, 1, 0); }

static void leave(struct member_rig *m) {
  ncclTunerPlugin_v6.finalize(m->tuner);
  rig_close(&m->profiler);
}

enum { TIMED = 1, PAST = 2, NO_COLL = 4, OTHER_THREAD = 8, TWICE = 16, TWO_KIB = 32, OTHER_KEY = 64, CAPTURED = 128, GROUP = 256, OTHERS = 512 };

struct coll_call { struct rig *rig; struct rig_event event; };
static void *coll(void *argument) {
  struct coll_call *c = argument;
  void *handle = rig_start(c->rig, &c->event);
  if (handle != NULL) rig_stop(handle);
  return NULL;
}

/* One AllReduce of BYTES as NCCL makes it: CollApi, getCollInfo, Coll, in one thread or not. From 2.31 on it asks with
 * numPipeOps 0 as well; TWICE: as 2.29.7 to 2.30 do. */
static void all_reduce(struct member_rig *m, int how) {
  float costs[21];
  int channels = 0;
  for (int i = 0; i < 21; i++) costs[i] = 1;
  timed = (struct dyn_timed){0};
  size_t bytes = how & TWO_KIB ? 2 * BYTES : BYTES;
  struct dyn_mask_words words = dyn_process_words(m->profiler.process);
  static unsigned calls;
  call = (struct dyn_preload_call){.depth = how & PAST ? 0 : 1, .number = ++calls, .looked = !(how & PAST), .inGraph = how & CAPTURED && !(how & PAST)};
  if (!(how & PAST)) call.comm = m->comm;
  if (!(how & (PAST | CAPTURED))) call.key = dyn_watch_key(m->comm, how & OTHER_KEY ? 2 : 1, bytes, 1);
  /* As the preload decides: before anything of this call is known. */
  if (how & TIMED && !(how & PAST) && dyn_call_wanted(&dynamiccl_preload, m->comm, call.key)) call.timed = &timed, probed++;
  if (call.inGraph) dyn_guard_enter(&words);
  void *api = NULL; /* only where NCCL finds the bit */
  if (rig_mask & (ncclProfileCollApi | ncclProfileColl)) rig_stop(api = rig_api(&m->profiler, how & CAPTURED ? 1 : 0));
  if (call.inGraph) dyn_guard_leave(&words);
  if (how & GROUP) call = (struct dyn_preload_call){0}; /* it runs at the group's end */
  for (int pipeOps = 0; pipeOps < (how & (TWICE | OTHERS) ? 3 : 2); pipeOps++)
    CHECK(ncclTunerPlugin_v6.getCollInfo(m->tuner, ALLREDUCE, how & OTHERS && pipeOps == 2 ? 4 * bytes : bytes, pipeOps, (float **)costs, 7, 3, 0, &channels) == 0);
  if (!(how & NO_COLL)) {
    struct coll_call c = {&m->profiler, rig_all_reduce(bytes / 4, 3)};
    pthread_t thread;
    c.event.parent = api;
    if (how & OTHER_THREAD) {
      CHECK(pthread_create(&thread, NULL, coll, &c) == 0 && pthread_join(thread, NULL) == 0);
    } else {
      coll(&c);
    }
  }
  call = (struct dyn_preload_call){0};
}

static const uint32_t trials[] = {CHOSEN, ACTION(1, 0, 2), ACTION(1, 1, 8), 0};

static void publish_trials(uint64_t commId, uint32_t sampleEvery, uint32_t id, uint32_t skip, uint32_t numTrials) {
  struct publisher daemon_;
  struct dyn_plan plan;
  plan_clear(&plan);
  plan.numEntries = 2;
  plan.sampleEvery = sampleEvery;
  plan.index[ALLREDUCE][10] = 1;
  plan.entries[1] = (struct dyn_entry){.id = id, .base = CHOSEN, .numTrials = numTrials, .skip = skip};
  memcpy(plan.entries[1].trials, trials, sizeof trials);
  CHECK(publisher_open(&daemon_, commId) && publisher_publish(&daemon_, &plan));
  publisher_close(&daemon_);
}

static void publish(uint64_t commId, uint32_t sampleEvery) { publish_trials(commId, sampleEvery, 1, 0, 0); }

static int nothing_in(struct dyn_process *process) {
  struct dyn_sample s;
  return !rig_pop(process, &s);
}

#endif
