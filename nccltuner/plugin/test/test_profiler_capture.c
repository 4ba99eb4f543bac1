/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may ask for KernelCh, and what a captured call does to whom. This program plays the preload library: the same
 * symbol, the same steps around a call.
 */
#include "../comm.h"
#include "profiler_rig.h"

#include <sys/wait.h>

static __thread struct dyn_preload_call call;
static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}
extern struct dyn_preload dynamiccl_preload;
__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {.call = this_call, .about = about};

static void play_preload(int version) {
  dynamiccl_preload.version = (uint32_t)version;
  unsetenv("DYNAMICCL_NO_GRAPHS");
}

static void enter(int captured) {
  struct dyn_mask_words words = dyn_process_words(dyn_process_get(NULL));
  call = (struct dyn_preload_call){.depth = 1, .captured = captured};
  if (words.mask == NULL) return;
  if (captured) dyn_guard_enter(&words);
  call.looked = true;
  call.before = dyn_mask_look(&words);
}
static void leave(void) {
  struct dyn_mask_words words = dyn_process_words(dyn_process_get(NULL));
  if (call.captured) dyn_guard_leave(&words);
  call = (struct dyn_preload_call){0};
}

static struct rig announced(int version, uint64_t commId) {
  atomic_fetch_add(&dynamiccl_preload.announced, 1);
  return rig_open(version, commId, 2, 0);
}

/* One call through the preload, with its kernel if it is profiled. The sample's flags, -1: none. */
static int one_call(struct rig *r, int captured) {
  struct rig_event e = rig_all_reduce(256, 1);
  struct dyn_sample s;
  enter(captured);
  int events = rig_mask & DYN_MASK_EVENTS;
  CHECK(!(captured && events & ncclProfileKernelCh), "v%d: KernelCh in a graph: %x", r->version, rig_mask);
  e.captured = captured;
  struct rig_call c = rig_enqueue(r, e, 4, 1024, 0x17);
  CHECK(!captured || c.coll == NULL, "v%d: a captured call is sampled", r->version);
  if (c.coll != NULL && events & ncclProfileKernelCh) rig_kernel_stop(r, rig_kernel(r, c.coll, 0, 10), 20);
  leave();
  return rig_pop(r->process, &s) ? s.flags : -1;
}

static int refused(void) {
  CHECK(!dyn_times_refused() || dyn_mask_guards(rig_mask) == 1, "%x", rig_mask);
  CHECK(!dyn_times_refused() || !(rig_mask & (ncclProfileKernelCh | ncclProfileProxyOp)), "%x", rig_mask);
  return dyn_times_refused();
}

/* Neither preload nor promise: no kernel times; from v1 and v2, which have none, nothing is taken. */
static void nothing(int version) {
  unsetenv("DYNAMICCL_NO_GRAPHS");
  struct rig r = rig_open(version, 1, 2, 0);
  CHECK(refused() == (version >= 3));
  if (version >= 4) CHECK(one_call(&r, 0) == DYN_SAMPLE_UNTIMED);
  rig_close(&r);
  CHECK(rig_mask == 0, "%x is left", rig_mask);
  setenv("DYNAMICCL_NO_GRAPHS", "1", 1); /* the next first communicator decides anew */
  r = rig_open(version, 1, 2, 0);
  CHECK(!refused() && rig_mask & ncclProfileKernelCh);
  rig_close(&r);
}

/* Not asked for: no kernel times, whatever is promised. */
static void not_asked_for(int version) {
  dynamiccl_preload.version = 0;
  setenv("DYNAMICCL_NO_GRAPHS", "1", 1);
  unsetenv("DYNAMICCL_KERNEL_EVENTS");
  struct rig r = announced(version, 1);
  CHECK(refused());
  CHECK(one_call(&r, 0) == DYN_SAMPLE_UNTIMED);
  rig_close(&r);
}

static void another_version(int version) {
  play_preload(DYN_PRELOAD_VERSION + 1);
  struct rig r = announced(version, 1);
  CHECK(refused() && atomic_load(&dynamiccl_preload.mask) == NULL);
  rig_close(&r);
}

static void guarded(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1), other = announced(version, 2);
  int hold = version >= DYN_HOLD_VERSION;
  CHECK(!refused() && atomic_load(&dynamiccl_preload.announced) == 0);
  CHECK(one_call(&r, 0) == 0 && one_call(&other, 0) == 0);
  CHECK(one_call(&r, 1) == -1 && r.comm->captured && !other.comm->captured);
  CHECK(rig_mask & ncclProfileKernelCh, "the guard gives it back: %x", rig_mask);
  CHECK(one_call(&other, 0) == 0, "v%d: another communicator is sampled on", version);
  CHECK(one_call(&r, 0) == (hold ? -1 : 0), "v%d: 2.32 lost count of the captured one", version);
  struct rig fresh = announced(version, 3);
  CHECK(one_call(&fresh, 0) == 0);
  /* A point-to-point call into a graph makes 2.32 lose count as well. */
  enter(1);
  rig_start(&fresh, &(struct rig_event){.type = ncclProfileGroupApi, .captured = 1});
  rig_start(&fresh, &(struct rig_event){.type = ncclProfileP2pApi, .captured = 1});
  leave();
  CHECK(one_call(&fresh, 0) == (hold ? -1 : 0));
  rig_close(&fresh);
  /* The driver did not say, so a guard was up although NCCL captures nothing: that call has no times. */
  enter(1);
  CHECK(rig_api(&other, 0) == NULL);
  leave();
  CHECK(one_call(&other, 0) == (hold ? -1 : 0));
  CHECK(!refused());
  rig_close(&r);
  rig_close(&other);
  CHECK(rig_mask == 0 && atomic_load(&dynamiccl_preload.mask) == NULL, "%x is left", rig_mask);
}

/* v4 says nothing about captures; the preload does. */
static void guarded_in_silence(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1);
  CHECK(!refused() && one_call(&r, 0) == 0 && one_call(&r, 1) == -1 && one_call(&r, 0) == 0);
  rig_close(&r);
}

/* A guard of another thread between NCCL's look at the mask and its event: nothing can be said of this call. */
static void overtaken(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1), other = announced(version, 2);
  struct dyn_mask_words words = dyn_process_words(r.process);
  enter(0);
  dyn_guard_enter(&words);
  dyn_guard_leave(&words);
  CHECK(rig_mask & ncclProfileKernelCh && rig_api(&r, 0) == NULL, "v%d: not proven", version);
  leave();
  CHECK(one_call(&r, 0) == (version >= DYN_HOLD_VERSION ? -1 : 0) && one_call(&other, 0) == 0);
  /* An epoch boundary under a guard: nobody brings KernelCh back before it has left. */
  enter(1);
  dyn_mask_update(r.process, 1);
  dyn_mask_update(r.process, 0);
  dyn_mask_update(r.process, 1);
  CHECK(!(rig_mask & ncclProfileKernelCh));
  leave();
  CHECK(rig_mask & ncclProfileKernelCh);
  rig_close(&r);
  rig_close(&other);
}

/* Communicators and calls that the preload did not see. */
static void gone_past(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1);
  CHECK(!refused());
  struct rig past = rig_open(version, 2, 2, 0);
  CHECK(refused(), "a communicator that was not announced");
  CHECK(one_call(&r, 0) == DYN_SAMPLE_UNTIMED && one_call(&past, 0) == DYN_SAMPLE_UNTIMED);
  dyn_mask_update(r.process, 1);
  CHECK(refused());
  rig_close(&past);
  rig_close(&r);
  if (version < 5) return; /* no events that would tell */
  atomic_store(&dynamiccl_preload.announced, 0);
  for (int type = 0; type < 3; type++) {
    r = announced(version, 1);
    CHECK(!refused());
    if (type == 0) rig_stop(rig_api(&r, 0));
    if (type == 1) rig_start(&r, &(struct rig_event){.type = ncclProfileP2pApi});
    if (type == 2) { /* the preload says no, NCCL says yes */
      enter(0);
      rig_api(&r, 1);
      leave();
    }
    CHECK(refused(), "v%d: a call of type %d", version, type);
    rig_close(&r);
  }
}

static void promised(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  setenv("DYNAMICCL_NO_GRAPHS", "1", 1);
  struct rig r = rig_open(version, 1, 2, 0); /* past the preload, which does not matter then */
  CHECK(!refused());
  rig_stop(rig_api(&r, 0));
  CHECK(!refused() && one_call(&r, 0) == 0 && one_call(&r, 1) == -1);
  CHECK(!refused(), "a promise that the preload makes good");
  rig_close(&r);
}

static void moved_readers(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  setenv("NCCL_ENQUEUE_REARCH_ENABLE", "1", 1);
  struct rig r = announced(version, 1);
  CHECK(refused() == (version >= DYN_HOLD_VERSION));
  rig_close(&r);
}

/* In the child of a fork no other thread is left to leave its guard. */
static void forked(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1);
  struct dyn_mask_words words = dyn_process_words(r.process);
  dyn_guard_enter(&words);
  pid_t child = fork();
  if (child == 0) _exit(dyn_mask_guards(rig_mask) == 0 ? 0 : 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0 && dyn_mask_guards(rig_mask) == 1);
  dyn_guard_leave(&words);
  rig_close(&r);
}

/* What the preload library has done for sockets is told when the process ends, once, and by the process that did it. */
static void traffic(int version) {
  play_preload(DYN_PRELOAD_VERSION);
  struct rig r = announced(version, 1);
  struct dyn_traffic *told = &dynamiccl_preload.traffic;
  atomic_store(&told->longBytes, 900);
  atomic_store(&told->movedBytes, 800);
  atomic_store(&told->together, 7);
  pid_t child = fork();
  if (child == 0) _exit(atomic_load(&told->longBytes) + atomic_load(&told->movedBytes) + atomic_load(&told->together) == 0 ? 0 : 1);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "a child has its parent's: %x", status);
  dyn_process_exit();
  dyn_process_exit();
  const struct dyn_ring *ring = r.process->ring;
  CHECK(ring->longBytes == 900 && ring->movedBytes == 800 && ring->together == 7 && atomic_load(&told->together) == 0);
  rig_close(&r);
}

static void run(void (*test)(int), int version, const char *name) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    rig_begin();
    test(version);
    CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
    rig_end();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0, "%s, v%d: status %x", name, version, status);
}

int main(void) {
  for (int version = 1; version <= 7; version++) {
    run(nothing, version, "nothing");
    if (version < 4) continue;
    run(not_asked_for, version, "not asked for");
    run(another_version, version, "another version");
    run(gone_past, version, "gone past");
    run(moved_readers, version, "moved readers");
    run(forked, version, "forked");
    if (version == 4) run(guarded_in_silence, version, "guarded in silence");
    if (version < 5) continue;
    run(guarded, version, "guarded");
    run(overtaken, version, "overtaken");
    run(promised, version, "promised");
    run(traffic, version, "traffic");
  }
  return 0;
}
