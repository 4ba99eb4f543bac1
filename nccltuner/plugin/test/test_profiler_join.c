/* SPDX-License-Identifier: Apache-2.0
 *
 * Which choice a collective is joined to, what a group is, and what happens while CUDA graphs are captured.
 */
#include "profiler_rig.h"

static struct dyn_sample next(struct rig *r) {
  struct dyn_sample s;
  CHECK(rig_pop(r->process, &s), "v%d: no sample", r->version);
  return s;
}
static void none(struct rig *r) {
  struct dyn_sample s;
  CHECK(!rig_pop(r->process, &s), "v%d: a sample", r->version);
}
static void run(struct rig *r, void *coll) { rig_kernel_stop(r, rig_kernel(r, coll, 0, 10), 20); }

static void *coll_in(struct rig *r, void *api, void *group, size_t count) {
  struct rig_event e = rig_all_reduce(count, 1);
  e.parent = api;
  e.group = group;
  return rig_start(r, &e);
}

static void two_comms(int version) {
  struct rig a = rig_open(version, 10, 2, 0), b = rig_open(version, 11, 4, 1);
  a.comm->seq = 5;
  struct rig_call ca = rig_enqueue(&a, rig_all_reduce(256, 1), 4, 1024, 0x111);
  struct rig_call cb = rig_enqueue(&b, rig_all_reduce(256, 1), 4, 1024, 0x121);
  run(&b, cb.coll);
  run(&a, ca.coll);
  struct dyn_sample s = next(&a);
  CHECK(s.commId == 11 && s.rank == 1 && s.seq == 0 && s.action == 0x121 && s.nRanks == 4);
  s = next(&a);
  CHECK(s.commId == 10 && s.rank == 0 && s.seq == 5 && s.action == 0x111 && s.nRanks == 2);
  b.comm->sampling = 0; /* the other communicator's window is not this one's */
  CHECK(rig_enqueue(&b, rig_all_reduce(256, 1), 4, 1024, 0).coll == NULL);
  rig_close(&a);
  ca = rig_enqueue(&a, rig_all_reduce(256, 1), 4, 1024, 0); /* a context that is gone */
  CHECK(ca.coll == NULL);
  b.comm->sampling = 1;
  run(&b, rig_enqueue(&b, rig_all_reduce(256, 1), 4, 1024, 0).coll);
  CHECK(next(&b).commId == 11);
  rig_close(&b);
}

/* Calls of one size in a row have their own choices; a choice is taken once. */
static void taken_once(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  uint64_t unjoined = r.process->ring->unjoined;
  for (int i = 0; i < 100; i++) { /* more than the choices that are kept */
    run(&r, rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0x100 + (uint32_t)i).coll);
    struct dyn_sample s = next(&r);
    CHECK(s.seq == (uint64_t)i && s.action == 0x100 + (uint32_t)i && s.flags == 0, "%d: %lu", i, (unsigned long)s.seq);
  }
  /* NCCL did not ask: registered buffers, symmetric kernel. */
  void *api = rig_api(&r, 0);
  void *coll = coll_in(&r, api, NULL, 256);
  rig_stop(coll);
  run(&r, coll);
  struct dyn_sample s = next(&r);
  CHECK(s.flags == DYN_SAMPLE_UNJOINED && s.action == 0 && s.planVersion == 0, "%x", s.flags);
  CHECK(r.process->ring->unjoined == unjoined + 1);
  rig_close(&r);
}

/* ncclGroup: three collectives share one getCollInfo call with the sum of their bytes. */
static void group(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  void *api[3], *coll[3];
  for (int i = 0; i < 3; i++) rig_stop(api[i] = rig_api(&r, 0));
  rig_decide(&r, 4, 3 * 1024, 0x222, 9);
  void *g = rig_start(&r, &(struct rig_event){.type = ncclProfileGroup});
  for (int i = 0; i < 3; i++) coll[i] = coll_in(&r, api[i], g, 256);
  for (int i = 0; i < 3; i++) rig_stop(coll[i]);
  rig_stop(g);
  for (int i = 0; i < 3; i++) {
    run(&r, coll[i]);
    struct dyn_sample s = next(&r);
    CHECK(s.flags == DYN_SAMPLE_AGGREGATED && s.seq == 0 && s.action == 0x222 && s.bytes == 1024, "%d %x", i, s.flags);
  }
  /* Two sizes, two choices, one kernel: each has its choice, none has a time of its own. */
  for (int i = 0; i < 2; i++) rig_stop(api[i] = rig_api(&r, 0));
  rig_decide(&r, 4, 1 << 20, 0x333, 9);
  rig_decide(&r, 4, 1024, 0x444, 9);
  g = rig_start(&r, &(struct rig_event){.type = ncclProfileGroup});
  coll[0] = coll_in(&r, api[0], g, 1 << 18);
  coll[1] = coll_in(&r, api[1], g, 256);
  for (int i = 0; i < 2; i++) rig_stop(coll[i]);
  rig_stop(g);
  run(&r, coll[0]);
  run(&r, coll[1]);
  struct dyn_sample s = next(&r);
  CHECK(s.flags == DYN_SAMPLE_AGGREGATED && s.action == 0x333 && s.seq == 1);
  s = next(&r);
  CHECK(s.flags == DYN_SAMPLE_AGGREGATED && s.action == 0x444 && s.seq == 2);
  rig_close(&r);
}

/* Coll events from a host callback, after the user's thread made further calls (v5 on). */
static void late(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  void *api[3];
  for (int i = 0; i < 3; i++) {
    rig_stop(api[i] = rig_api(&r, 0));
    rig_decide(&r, 4, 1024, 0x10u + (unsigned)i, 9);
  }
  for (int i = 0; i < 3; i++) {
    void *coll = coll_in(&r, api[i], NULL, 256);
    rig_stop(coll);
    run(&r, coll);
    struct dyn_sample s = next(&r);
    CHECK(s.seq == (uint64_t)i && s.action == 0x10u + (unsigned)i && s.flags == 0);
  }
  /* A choice made before the call began is not its own. */
  rig_decide(&r, 4, 2048, 0x77, 9);
  void *fresh = rig_api(&r, 0), *coll = coll_in(&r, fresh, NULL, 512);
  rig_stop(coll);
  run(&r, coll);
  CHECK(next(&r).flags == DYN_SAMPLE_UNJOINED);
  rig_close(&r);
}

/* A program that promised to capture no CUDA graphs and captures one: its kernels are timed no more. */
static void capture(int version) {
  struct rig r = rig_open(version, 1, 2, 0), other = rig_open(version, 2, 2, 0);
  int held = rig_held(version) & ~ncclProfileKernelCh; /* which a capture takes away all the same */
  CHECK(rig_mask == (ncclProfileColl | ncclProfileKernelCh | ncclProfileProxyOp | held), "%x", rig_mask);
  struct rig_event e = rig_all_reduce(256, 1);
  CHECK(!dyn_times_refused());
  void *groupApi = rig_start(&r, &(struct rig_event){.type = ncclProfileGroupApi, .captured = 1});
  CHECK((rig_mask & DYN_MASK_EVENTS) == held && dyn_times_refused(), "%x during a capture", rig_mask);
  e.captured = 1;
  struct rig_call c = rig_enqueue(&r, e, 4, 1024, 0);
  CHECK(c.coll == NULL && c.api == NULL, "a captured call is sampled");
  CHECK(r.comm->captured && !other.comm->captured);
  rig_stop(groupApi);
  for (int i = 0; i < 100; i++) {
    dyn_mask_update(r.process, 1); /* epoch boundaries */
    CHECK((rig_mask & DYN_MASK_EVENTS) == (ncclProfileColl | held), "%x after %d calls", rig_mask, i);
    rig_stop(rig_api(&other, 0));
  }
  struct rig fresh = rig_open(version, 3, 2, 0);
  CHECK(!(rig_mask & ncclProfileKernelCh), "a new communicator brings it back");
  rig_enqueue(&fresh, rig_all_reduce(256, 1), 4, 1024, 0x17); /* what runs is told still, without times */
  struct dyn_sample s = next(&fresh);
  CHECK(s.flags == DYN_SAMPLE_UNTIMED && s.action == 0x17 && s.channels == 1, "%x", s.flags);
  /* A replay: a Coll whose API call is long gone. */
  void *coll = coll_in(&r, c.api, NULL, 256), *stale = coll_in(&r, (void *)((uintptr_t)groupApi ^ 0x10000), NULL, 256);
  CHECK(coll == NULL && stale == NULL);
  none(&r);
  rig_close(&fresh);
  rig_close(&r);
  rig_close(&other);
  CHECK(rig_mask == 0, "%x is left", rig_mask);
}

/* The daemon's wish decides: nothing wanted, nothing made. */
static void not_wanted(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  __atomic_store_n(&r.process->ring->wantMask, 0, __ATOMIC_RELAXED);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0);
  CHECK(c.api == NULL && c.group == NULL && c.coll == NULL);
  CHECK(rig_kernel(&r, c.coll, 0, 1) == NULL && rig_proxy(&r, c.coll, 0, 1, getpid()) == NULL);
  __atomic_store_n(&r.process->ring->wantMask, ncclProfileColl | ncclProfileProxyOp, __ATOMIC_RELAXED);
  c = rig_enqueue(&r, rig_all_reduce(256, 4), 4, 1024, 0); /* network only: the kernel's channels are not waited for */
  rig_stop(rig_proxy(&r, c.coll, 0, 1, getpid()));
  rig_close(&r);
  CHECK(next(&r).flags == DYN_SAMPLE_HOST_TIMED);
}

int main(void) {
  rig_begin();
  for (int version = 4; version <= 7; version++) {
    two_comms(version);
    taken_once(version);
    group(version);
    not_wanted(version);
    if (version >= 5) {
      late(version);
      capture(version);
    }
  }
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
  rig_end();
  return 0;
}
