/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the preload library times: which ones the plugin describes, and as what.
 */
#include "timed_rig.h"

#include "../../hosts/fence.h"

#include <sys/wait.h>

#include "timed_sampled.h"

static void described(void) {
  struct member_rig m = join(1, 1);
  struct dyn_process *process = m.profiler.process;
  CHECK(process->eventTimed && !dyn_times_refused() && dynamiccl_preload.ring == process->ring);
  CHECK((m.comm->self->flags & (DYN_RANK_NO_TIMES | DYN_RANK_EVENT_TIMED)) == DYN_RANK_EVENT_TIMED);
  CHECK(atomic_load(&dynamiccl_preload.timing) == 1 && dyn_mask_guards(rig_mask) == 0);
  CHECK((rig_mask & (ncclProfileColl | ncclProfileKernelCh | ncclProfileProxyOp)) == ncclProfileColl, "%x", rig_mask);
  all_reduce(&m, TIMED);
  struct dyn_sample *s = &timed.sample;
  CHECK(timed.asked == 1 && timed.lease == dynamiccl_preload.lease && timed.lease > 0);
  CHECK(s->commId == 1 && s->seq == 0 && s->bytes == BYTES && s->rank == 0 && s->nRanks == 1 && s->collective == ALLREDUCE);
  CHECK(s->action == 0 && s->planVersion == 0 && s->flags == DYN_SAMPLE_EVENT_TIMED);
  CHECK(s->algorithm == 1 && s->protocol == 1 && s->channels == 3, "Ring, LL128 and three channels ran");
  publish(1, 1);
  for (uint64_t i = 1; i < 40; i++) {
    all_reduce(&m, TIMED);
    CHECK(timed.asked == 1 && s->seq == i && s->action == (i < 16 ? 0 : CHOSEN) && s->planVersion == (i < 16 ? 0 : 1), "%lu", i);
  }
  all_reduce(&m, TIMED | NO_COLL);
  CHECK(timed.asked == 1 && s->algorithm == 255 && s->protocol == 255 && s->channels == 0, "nobody said what ran");
  all_reduce(&m, TIMED | OTHER_THREAD);
  CHECK(timed.asked == 1 && s->algorithm == 255, "a host callback of CUDA's has no probe");
  all_reduce(&m, TIMED | OTHERS);
  CHECK(timed.asked == 2, "two collectives in one call");
  all_reduce(&m, 0); /* no free probe */
  CHECK(timed.asked == 0 && nothing_in(process), "Coll events make no samples of their own");
  for (int number = 5; number < 300; number += number < 20 ? 1 : 100) { /* of NCCL's functions, about which it asks nobody, up to 2.32 */
    float costs[21] = {0};
    int channels = 0;
    uint64_t seq = m.comm->seq;
    timed = (struct dyn_timed){0};
    call = (struct dyn_preload_call){.depth = 1, .number = 1000 + (uint64_t)number, .looked = true, .timed = &timed};
    CHECK(ncclTunerPlugin_v6.getCollInfo(m.tuner, number, BYTES, 1, (float **)costs, 7, 3, 0, &channels) == 0);
    CHECK(m.comm->seq == seq + 1 && timed.asked == 0 && channels == 0, "%d counts, and is none that is known: %d of collective %d", number, timed.asked, timed.sample.collective);
    CHECK(m.comm->decisions[seq % DYN_NUM_DECISIONS].seq != seq || m.comm->decisions[seq % DYN_NUM_DECISIONS].collective == UINT8_MAX, "%d", number);
  }
  call = (struct dyn_preload_call){0};
  leave(&m);
  CHECK(rig_mask == 0 && dynamiccl_preload.ring == NULL && atomic_load(&dynamiccl_preload.timing) == 0);
}

/* What NCCL asks in a group that is only simulated: whether it is no call, nor an answer. */
static bool is_no_call(struct member_rig *m, int numPipeOps) {
  float costs[21];
  int channels = 0;
  bool untouched = true;
  uint64_t seq = m->comm->seq;
  uint32_t left = m->comm->callsLeft;
  for (int i = 0; i < 21; i++) costs[i] = 1;
  call = (struct dyn_preload_call){.simulates = true};
  CHECK(ncclTunerPlugin_v6.getCollInfo(m->tuner, ALLREDUCE, BYTES, numPipeOps, (float **)costs, 7, 3, 0, &channels) == 0);
  call = (struct dyn_preload_call){0};
  bool device = m->comm->self->flags & DYN_RANK_DEVICE_LL; /* of which a rank alone must not begin anything */
  for (int i = 0; i < 21; i++) untouched &= costs[i] == (device && i % 3 == 0 ? 1e30f : 1);
  return untouched && channels == 0 && m->comm->seq == seq && m->comm->callsLeft == left;
}

/* Asked by the plugin. One whose kernels for LL are all classic. */
int ncclGetVersion(int *version);
__attribute__((visibility("default"))) int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

/* One rank may simulate by itself, so it counts nowhere; but where a rank cannot tell it counts on all, as they may all do it. */
static void simulated(void) {
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1); /* where LL is a device kernel, the first question is the call */
  struct member_rig m = join(1, 1);
  publish(1, 1);
  for (int i = 0; i < 20; i++) all_reduce(&m, TIMED);
  CHECK(timed.sample.action == CHOSEN && m.comm->deviceLL);
  uint8_t index = m.comm->plan.index[ALLREDUCE][10];
  m.comm->plan.entries[index].base = ACTION(1, 0, 2);
  for (int i = 0; i < 40; i++) CHECK(is_no_call(&m, i & 1), "%d", i);
  m.comm->plan.entries[index].base = CHOSEN;
  for (int i = 0; i < 40; i++) CHECK(is_no_call(&m, i & 1), "%d", i);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && timed.sample.seq == 20 && timed.sample.action == CHOSEN);
  m.comm->self->flags &= ~(uint32_t)DYN_RANK_SIMULATES; /* as a rank without the library has it */
  CHECK(!is_no_call(&m, 1) && m.comm->seq == 22);
  struct dyn_fence fence = {0}; /* it was looked for on other hosts, before it was here */
  m.comm->fence = &fence;
  CHECK(!is_no_call(&m, 1) && m.comm->seq == 23);
  m.comm->record->joined = 0; /* as where it is on another host */
  CHECK(is_no_call(&m, 1) && m.comm->seq == 23);
  m.comm->record->joined = 1;
  m.comm->fence = NULL;
  leave(&m);
  struct member_rig ranks[] = {join_as(2, 1, 2, 0), join_as(2, 1, 2, 1)}; /* of one process: NCCL asks in threads of its own */
  CHECK(!is_no_call(&ranks[0], 1) && ranks[0].comm->seq == 1);
  leave(&ranks[0]);
  leave(&ranks[1]);
}

static int keys(void) { return atomic_load(&dynamiccl_preload.watched.used); }

/* Until a plan that samples nothing else is in force. */
static void into_behind(struct member_rig *m, uint32_t id, uint32_t skip, uint32_t numTrials) {
  publish_trials(1, 1024, id, skip, numTrials);
  while (m->comm->plan.entries[1].id != id || m->comm->sampling || m->comm->callsLeft) all_reduce(m, TIMED | TWO_KIB);
}

static void into(struct member_rig *m, uint32_t id, uint32_t numTrials) { into_behind(m, id, 0, numTrials); }

/* Where nothing is sampled trials are, one by one: all but the first, of which nobody knew. */
static void single_trials(void) {
  struct member_rig m = join(1, 1);
  struct dyn_sample *s = &timed.sample;
  into(&m, 1, 4);
  CHECK(atomic_load(&dynamiccl_preload.timing) == 0 && keys() == 0 && !(rig_mask & ncclProfileColl), "%x", rig_mask);
  uint16_t made = m.comm->places[ALLREDUCE][10].made;
  for (int i = 0; i < 4; i++) {
    all_reduce(&m, TIMED);
    CHECK(timed.asked == (i > 0), "trial %d", i);
    CHECK((keys() == 1) == (i < 3) && !(rig_mask & ncclProfileColl) == (i == 3), "%d keys after trial %d", keys(), i);
    if (i > 0) CHECK(s->action == trials[i] && s->entryCall == i + 1 && s->made == made + i + 1 && s->algorithm == 1);
    for (int n = 0; n < 20; n++) {
      all_reduce(&m, TIMED | TWO_KIB);
      CHECK(timed.asked == 0 && call.timed == NULL, "another size");
    }
  }
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 0 && m.comm->watched == 0);
  /* Another function of the same bucket and sizes that share it: seen or not, nothing stays. */
  into(&m, 2, 4);
  all_reduce(&m, TIMED);
  all_reduce(&m, TIMED | OTHER_KEY);
  CHECK(timed.asked == 0 && keys() == 2);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == trials[2] && s->entryCall == 3);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == trials[3] && keys() == 1, "one is left over");
  all_reduce(&m, TIMED | OTHER_KEY);
  CHECK(timed.asked == 0 && keys() == 0 && m.comm->watched == 0, "it costs one probe");
  /* The daemon changes its mind. */
  into(&m, 3, 4);
  all_reduce(&m, TIMED);
  CHECK(keys() == 1);
  into(&m, 4, 0);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 0 && keys() == 0);
  /* Captured calls use up none and are none. */
  into(&m, 5, 2);
  all_reduce(&m, TIMED);
  made = m.comm->places[ALLREDUCE][10].made;
  all_reduce(&m, CAPTURED);
  CHECK(m.comm->places[ALLREDUCE][10].made == made);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == trials[1] && s->entryCall == 2 && s->made == made + 1);
  /* In a window they are what they are elsewhere, the first one included. */
  publish_trials(1, 1, 6, 0, 2);
  while (!m.comm->sampling || m.comm->plan.entries[1].id != 6) all_reduce(&m, TIMED | TWO_KIB);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == trials[0] && s->entryCall == 1);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == trials[1] && s->entryCall == 2);
  for (int i = 0; i < 300; i++) all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && s->action == CHOSEN && s->entryCall == 255);
  into(&m, 7, 4);
  all_reduce(&m, TIMED);
  CHECK(keys() == 1);
  leave(&m);
  CHECK(keys() == 0, "the ring is gone");
}

/* Calls before the trials are not timed, and the last of them has the first trial timed. */
static void trials_behind_others(void) {
  struct member_rig m = join(1, 1);
  into_behind(&m, 1, 3, 4);
  for (int i = 1; i <= 9; i++) {
    bool trial = i > 3 && i <= 7;
    all_reduce(&m, TIMED);
    CHECK(timed.asked == trial && (keys() == 1) == (i >= 3 && i < 7), "call %d: %u asked, %d keys", i, timed.asked, keys());
    if (trial) CHECK(timed.sample.action == trials[i - 4] && timed.sample.entryCall == i);
  }
  into_behind(&m, 2, DYN_MAX_SKIP, 0);
  for (int i = 0; i < DYN_MAX_SKIP + 2; i++) {
    all_reduce(&m, TIMED);
    CHECK(timed.asked == 0 && keys() == 0, "nothing is tried");
  }
  leave(&m);
}

/* Trials run to their end without a daemon that wants their times. */
static void trials_of_nobody(void) {
  struct member_rig m = join(1, 1);
  into(&m, 1, 4);
  __atomic_store_n(&m.profiler.process->ring->wantMask, ncclProfileColl, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; i++) all_reduce(&m, TIMED);
  CHECK(keys() == 0 && timed.asked == 0, "nobody wants times");
  __atomic_store_n(&m.profiler.process->ring->wantMask, ncclProfileColl | ncclProfileKernelCh, __ATOMIC_RELAXED);
  all_reduce(&m, TIMED);
  CHECK(keys() == 1 && timed.asked == 0);
  for (int i = 0; i < 4097 * 16; i++) all_reduce(&m, TIMED | TWO_KIB | NO_COLL);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && timed.sample.action == trials[3], "it was promised");
  into(&m, 2, 4);
  for (int i = 0; i < 4; i++) all_reduce(&m, TIMED);
  CHECK(keys() == 0 && timed.asked == 0, "its heart has stopped");
  leave(&m);
}

static uint32_t chosen(const struct member_rig *m) { return m->comm->question.action; }

/* What is captured the preload library says. NCCL is asked only once that is not enough: for groups, and for what comes
 * behind a captured call. */
static void asked_of_nccl(void) {
  struct member_rig m = join(1, 1);
  into(&m, 1, 4);
  CHECK(rig_mask == 0, "%x", rig_mask);
  for (int i = 0; i < 20; i++) all_reduce(&m, TIMED | TWO_KIB);
  CHECK(rig_mask == 0, "%x", rig_mask);
  all_reduce(&m, TIMED | GROUP);
  CHECK(chosen(&m) == trials[0] && rig_mask & ncclProfileCollApi, "a group: from here on NCCL tells");
  all_reduce(&m, TIMED | GROUP | CAPTURED);
  CHECK(chosen(&m) == CHOSEN && m.comm->places[ALLREDUCE][10].calls == 1, "a captured group uses up no trial");
  all_reduce(&m, TIMED | GROUP);
  CHECK(chosen(&m) == trials[1], "and the next one is none");
  leave(&m);
  m = join(1, 1);
  into(&m, 1, 4);
  CHECK(rig_mask == 0, "%x", rig_mask);
  all_reduce(&m, TIMED | CAPTURED);
  CHECK(chosen(&m) == CHOSEN && m.comm->captured == 1 && rig_mask & ncclProfileCollApi);
  all_reduce(&m, TIMED);
  CHECK(chosen(&m) == trials[0] && m.comm->captured == 0);
  all_reduce(&m, TIMED | CAPTURED | GROUP);
  CHECK(chosen(&m) == CHOSEN);
  all_reduce(&m, TIMED);
  all_reduce(&m, TIMED | GROUP);
  CHECK(chosen(&m) == trials[2] && rig_mask & ncclProfileCollApi);
  for (int i = 0; i < 4 * DYN_EPOCH_CALLS; i++) all_reduce(&m, TIMED);
  CHECK(rig_mask & ncclProfileCollApi, "it stays");
  leave(&m);
  CHECK(rig_mask == 0);
}

/* Communicators and calls that the preload did not see have no times; the others of the process do. */
static void past(void) {
  struct member_rig m = join(1, 1), unseen = join(2, 0), later = join(3, 1);
  uint32_t timing = DYN_RANK_NO_TIMES | DYN_RANK_EVENT_TIMED;
  CHECK((m.comm->self->flags & timing) == DYN_RANK_EVENT_TIMED && (later.comm->self->flags & timing) == DYN_RANK_EVENT_TIMED);
  CHECK((unseen.comm->self->flags & timing) == DYN_RANK_NO_TIMES, "not announced");
  for (int i = 0; i < 17; i++) all_reduce(&later, PAST);
  CHECK((later.comm->self->flags & timing) == DYN_RANK_NO_TIMES, "its calls are other ones");
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 1 && (m.comm->self->flags & timing) == DYN_RANK_EVENT_TIMED);
  leave(&m);
  leave(&unseen);
  leave(&later);
}

/* Kernel events exclude event times; so do an old driver and an older preload library. */
static void excluded(void) {
  setenv("DYNAMICCL_KERNEL_EVENTS", "1", 1);
  struct member_rig m = join(1, 1);
  CHECK(!m.profiler.process->eventTimed && rig_mask & ncclProfileKernelCh && !atomic_load(&dynamiccl_preload.timing));
  CHECK((m.comm->self->flags & (DYN_RANK_NO_TIMES | DYN_RANK_EVENT_TIMED)) == 0);
  all_reduce(&m, TIMED);
  CHECK(timed.asked == 0);
  leave(&m);
  unsetenv("DYNAMICCL_KERNEL_EVENTS");
  able = false;
  m = join(1, 1);
  CHECK(!m.profiler.process->eventTimed && m.comm->self->flags & DYN_RANK_NO_TIMES);
  leave(&m);
  able = true;
  dynamiccl_preload.version = DYN_PRELOAD_VERSION - 1;
  m = join(1, 1);
  CHECK(!m.profiler.process->eventTimed && m.comm->self->flags & DYN_RANK_NO_TIMES);
  leave(&m);
}

/* The ring goes under the lock that the preload's thread holds while it writes to it. */
static atomic_int holding, closing, closed;
static void *writer(void *ring) {
  struct dyn_sample s = {.seq = 77};
  pthread_mutex_lock(&dynamiccl_preload.roundLock);
  atomic_store(&holding, 1);
  while (!atomic_load(&closing)) usleep(100);
  usleep(20000);
  CHECK(dynamiccl_preload.ring == ring && !atomic_load(&closed) && dyn_ring_put(dyn_process_get(NULL), &s));
  pthread_mutex_unlock(&dynamiccl_preload.roundLock);
  return NULL;
}
static void closes(void) {
  struct member_rig m = join(1, 1);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, writer, m.profiler.process->ring) == 0);
  while (!atomic_load(&holding)) usleep(100);
  atomic_store(&closing, 1);
  leave(&m);
  atomic_store(&closed, 1);
  CHECK(dynamiccl_preload.ring == NULL);
  pthread_join(thread, NULL);
  m = join(1, 1);
  CHECK(dynamiccl_preload.ring != NULL && dynamiccl_preload.lease == 2);
  pid_t child = fork();
  if (child == 0) _exit(dynamiccl_preload.ring == NULL && !atomic_load(&dynamiccl_preload.timing) ? 0 : 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && dynamiccl_preload.ring != NULL);
  leave(&m);
}

static void run(void (*test)(void), const char *name) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    test_directory();
    rig_daemon(1);
    test();
    test_remove_directory();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", name, status);
}

int main(void) {
  unsetenv("DYNAMICCL_NO_GRAPHS");
  run(described, "described");
  run(simulated, "simulated");
  run(windows, "windows");
  run(beside_an_idle_one, "beside an idle one");
  run(single_trials, "single trials");
  run(trials_behind_others, "trials behind others");
  run(trials_of_nobody, "trials of nobody");
  run(asked_of_nccl, "asked of NCCL");
  run(unheard, "unheard");
  run(unplanned, "unplanned");
  run(not_wanted, "not wanted");
  run(past, "past");
  run(excluded, "excluded");
  run(closes, "closes");
  return 0;
}
