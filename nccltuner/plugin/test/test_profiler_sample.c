/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective's events become one sample, in every ABI version, whatever the order, loss or nonsense.
 */
#include "profiler_rig.h"

#define RING_LL128 (1u | 1u << 4 | 1u << 8)

static struct dyn_sample only(struct rig *r) {
  struct dyn_sample s, more;
  CHECK(rig_pop(r->process, &s), "v%d: no sample", r->version);
  CHECK(!rig_pop(r->process, &more), "v%d: more than one sample", r->version);
  return s;
}
static void none(struct rig *r) {
  struct dyn_sample s;
  CHECK(!rig_pop(r->process, &s), "v%d: a sample of %lu bytes", r->version, (unsigned long)s.bytes);
}
static void quiet(void) { usleep(DYN_LAZY_QUIET_NS / 1000 + 1000); }

/* v4 on: 4 channels, GPU times. */
static void gpu_timed(int version) {
  struct rig r = rig_open(version, 0xabc, 8, 3);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 4), 4, 1024, RING_LL128);
  void *k[4];
  for (int i = 0; i < 4; i++) k[i] = rig_kernel(&r, c.coll, i, 1000 + 10 * (uint64_t)i);
  for (int i = 3; i >= 0; i--) {
    none(&r);
    rig_kernel_stop(&r, k[i], 6000 + 100 * (uint64_t)i);
  }
  struct dyn_sample s = only(&r);
  CHECK(s.commId == 0xabc && s.rank == 3 && s.nRanks == 8 && s.bytes == 1024 && s.collective == 4);
  CHECK(s.algorithm == 1 && s.protocol == 1 && s.channels == 4, "%d %d %d", s.algorithm, s.protocol, s.channels);
  CHECK(s.signalNs == 5300 && s.counterNs == 5300, "%u %u", s.signalNs, s.counterNs);
  CHECK(s.seq == 0 && s.action == RING_LL128 && s.planVersion == 7 && s.flags == 0, "flags %x", s.flags);
  CHECK(s.startNs == r.gpuBase + 1000, "%lu", (unsigned long)s.startNs);
  rig_close(&r);
  CHECK(dyn_slots_used() == 0, "v%d: %u slots left", version, dyn_slots_used());
}

/* The host's clock less the GPU's: never too small, and the better of what the start and the end told. */
static void clocks(int version) {
  struct rig r = rig_open(version, 0xabc, 8, 3);
  for (int lateStart = 0; lateStart < 2; lateStart++) {
    struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, RING_LL128);
    /* A GPU clock that reads gpuBase + 1000 now. */
    uint64_t begin = dyn_now_ns(), apart = begin - r.gpuBase - 1000;
    if (lateStart) usleep(2000);
    void *k = rig_kernel(&r, c.coll, 0, 1000);
    uint64_t told = dyn_now_ns();
    if (!lateStart) usleep(2000);
    uint64_t stop = lateStart ? told - apart - r.gpuBase : 1000;
    rig_kernel_stop(&r, k, stop);
    uint64_t end = dyn_now_ns(), lag = only(&r).clockNs - apart;
    uint64_t most = lateStart ? end - told : told - begin; /* of the event that was told at once */
    CHECK(lag <= most, "v%d: %lu ns, want %lu at most", version, (unsigned long)lag, (unsigned long)most);
  }
  rig_close(&r);
}

/* Coll events alone: what ran, and no times. */
static void untimed(int version) {
  struct rig r = rig_open(version, 0xabc, 8, 3);
  __atomic_store_n(&r.process->ring->wantMask, (uint32_t)ncclProfileColl, __ATOMIC_RELAXED);
  rig_enqueue(&r, rig_all_reduce(256, 4), 4, 1024, RING_LL128);
  struct dyn_sample s = only(&r);
  CHECK(s.flags == DYN_SAMPLE_UNTIMED && s.signalNs == 0 && s.counterNs == 0 && s.startNs == 0, "flags %x", s.flags);
  CHECK(s.seq == 0 && s.action == RING_LL128 && s.algorithm == 1 && s.protocol == 1 && s.channels == 4, "%d", s.channels);
  rig_close(&r);
  CHECK(dyn_slots_used() == 0, "v%d: %u slots left", version, dyn_slots_used());
}

/* Channels start and stop before the Coll itself stops, and one is told twice. */
static void out_of_order(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  void *api = rig_api(&r, 0);
  rig_decide(&r, 4, 1024, RING_LL128, 7);
  struct rig_event e = rig_all_reduce(256, 2);
  e.parent = api;
  void *coll = rig_start(&r, &e);
  void *a = rig_kernel(&r, coll, 0, 100), *twice = rig_kernel(&r, coll, 0, 90), *b = rig_kernel(&r, coll, 1, 120);
  rig_kernel_stop(&r, b, 300);
  rig_kernel_stop(&r, a, 200);
  rig_kernel_stop(&r, twice, 999);
  none(&r);
  rig_stop(coll);
  struct dyn_sample s = only(&r);
  CHECK(s.signalNs == 200 && s.channels == 2, "%u", s.signalNs);
  rig_stop(api);
  rig_stop(api); /* NCCL does this */
  /* Handles that are stale while their objects are somebody else's. */
  struct rig_call next = rig_enqueue(&r, rig_all_reduce(256, 2), 4, 1024, 0);
  void *c = rig_kernel(&r, next.coll, 0, 1000);
  CHECK(rig_kernel(&r, coll, 1, 1) == NULL && rig_proxy(&r, coll, 1, 1, getpid()) == NULL, "a child of a stale event");
  rig_stop(coll);
  rig_kernel_stop(&r, a, 5000);
  rig_kernel_stop(&r, b, 5000);
  none(&r);
  rig_kernel_stop(&r, c, 1500);
  rig_kernel_stop(&r, rig_kernel(&r, next.coll, 1, 1000), 1600);
  s = only(&r);
  CHECK(s.signalNs == 600, "%u", s.signalNs);
  rig_close(&r);
}

/* An event that never comes: nothing is emitted, and finalize takes the objects back and counts the loss. */
static void lost(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  uint64_t before = rig_dropped(&r);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 2), 4, 1024, 0);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 100), 200);
  void *open = rig_kernel(&r, c.coll, 1, 100);
  rig_close(&r);
  none(&r);
  CHECK(rig_dropped(&r) == before + 1);
  CHECK(dyn_slots_used() == 0);
  rig_kernel_stop(&r, open, 300); /* after its communicator is gone */
  none(&r);
}

static void bad_times(int version) {
  static const uint64_t bad[][2] = {{0, 100}, {100, 0}, {200, 100}, {1, 2 + DYN_MAX_DURATION_NS}, {~0ull, 1}};
  struct rig r = rig_open(version, 1, 2, 0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t before = rig_dropped(&r);
    struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 2), 4, 1024, 0);
    rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 100), 200);
    rig_kernel_stop(&r, rig_kernel(&r, c.coll, 1, bad[i][0]), bad[i][1]);
    none(&r);
    CHECK(rig_dropped(&r) == before + 1, "case %zu", i);
  }
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 1 + 10000000000ull); /* ten seconds: saturates */
  CHECK(only(&r).signalNs == UINT32_MAX);
  rig_close(&r);
}

static void sizes_and_names(int version) {
  struct rig r = rig_open(version, 1, 8, 0);
  struct rig_event e = rig_all_reduce(0, 1);
  uint64_t empty = rig_dropped(&r);
  struct rig_call c = rig_enqueue(&r, e, 4, 0, 0); /* an empty collective is none, and no loss */
  CHECK(c.coll == NULL && rig_dropped(&r) == empty);
  e = rig_all_reduce(100, 1);
  e.func = "AllGather"; /* NCCL says bytes and ncclInt8 here; getCollInfo saw the whole buffer */
  e.datatype = "ncclInt8";
  c = rig_enqueue(&r, e, 2, 800, RING_LL128);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 11);
  struct dyn_sample s = only(&r);
  CHECK(s.bytes == 800 && s.collective == 2 && s.action == RING_LL128 && s.flags == 0);
  e.func = "ReduceScatter";
  e.datatype = "ncclBfloat16";
  c = rig_enqueue(&r, e, 3, 1600, RING_LL128);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 11);
  CHECK(only(&r).bytes == 1600);
  e.func = "Broadcast";
  e.algo = "AGxLL_R"; /* a symmetric kernel */
  e.proto = "";
  c = rig_enqueue(&r, e, 0, 200, RING_LL128);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 11);
  s = only(&r);
  CHECK(s.bytes == 200 && s.algorithm == DYN_UNKNOWN && s.protocol == DYN_UNKNOWN);
  e.algo = e.proto = NULL;
  c = rig_enqueue(&r, e, 0, 200, 0);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 11);
  CHECK(only(&r).algorithm == DYN_UNKNOWN);
  e.func = "AlltoAll"; /* not a collective that is tuned */
  CHECK(rig_enqueue(&r, e, 0, 200, 0).coll == NULL);
  e.func = NULL;
  CHECK(rig_enqueue(&r, e, 0, 200, 0).coll == NULL);
  uint64_t before = rig_dropped(&r);
  e.func = "AllReduce";
  e.datatype = "Unknown";
  CHECK(rig_enqueue(&r, e, 4, 200, 0).coll == NULL && rig_dropped(&r) == before + 1);
  e.datatype = "ncclFloat64";
  e.count = SIZE_MAX / 4; /* more bytes than there are */
  CHECK(rig_enqueue(&r, e, 4, 200, 0).coll == NULL && rig_dropped(&r) == before + 2);
  none(&r);
  rig_close(&r);
}

static void network(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0);
  void *send = rig_proxy(&r, c.coll, 0, 1, getpid()), *recv = rig_proxy(&r, c.coll, 0, 0, getpid());
  usleep(20000); /* the stream is busy: this is not the collective's time */
  uint64_t begin = dyn_now_ns();
  void *k = rig_kernel(&r, c.coll, 0, 1000);
  usleep(3000);
  rig_stop(recv);
  rig_kernel_stop(&r, k, 1000 + 5000000);
  none(&r); /* the send is still open */
  rig_stop(send);
  uint64_t took = dyn_now_ns() - begin;
  struct dyn_sample s = only(&r);
  CHECK(s.signalNs == 5000000 && s.counterNs >= 3000000 && s.counterNs <= took, "%u", s.counterNs);
  /* PXN: an operation of another process, whose parent looks like a handle of ours. */
  c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 0);
  CHECK(rig_proxy(&r, c.coll, 0, 1, getpid() + 1) == NULL);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 3);
  s = only(&r);
  CHECK(s.signalNs == 2 && s.counterNs == 2, "a foreign operation was waited for");
  rig_close(&r);
}

/* v1 and v2: network operations only. */
static void host_timed_network(int version) {
  struct rig r = rig_open(version, 0xfeed, 8, 5);
  struct rig_event e = rig_all_reduce(100, 16);
  e.func = "AllGather";
  e.funcNumber = 2;
  e.traffic = 3200;
  struct rig_call c = rig_enqueue(&r, e, 2, 3200, 0);
  void *send = rig_proxy(&r, c.coll, 0, 1, getpid()), *recv = rig_proxy(&r, c.coll, 0, 0, getpid());
  usleep(2000);
  rig_stop(send);
  usleep(2000);
  rig_stop(recv);
  quiet();
  rig_enqueue(&r, rig_all_reduce(1, 1), 4, 4, 0);
  struct dyn_sample s = only(&r);
  CHECK(s.commId == 0xfeed && s.rank == 5 && s.collective == 2 && s.bytes == 3200, "%lu", (unsigned long)s.bytes);
  CHECK(s.flags == (DYN_SAMPLE_UNJOINED | DYN_SAMPLE_HOST_TIMED) && s.algorithm == 1 && s.protocol == 1);
  CHECK(s.counterNs >= 2000000 && s.signalNs >= s.counterNs + 2000000, "%u %u", s.counterNs, s.signalNs);
  rig_close(&r);
}

/* v3: kernel events by the host's clock, number of channels not told. */
static void host_timed_kernel(void) {
  struct rig r = rig_open(3, 0xfeed, 8, 5);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 32), 4, 1024, 0);
  void *a = rig_kernel(&r, c.coll, 0, 0), *b = rig_kernel(&r, c.coll, 1, 0);
  usleep(2000);
  rig_stop(a);
  rig_stop(b);
  none(&r);
  quiet();
  rig_enqueue(&r, rig_all_reduce(1, 1), 4, 4, 0);
  struct dyn_sample s = only(&r);
  CHECK(s.channels == 2 && s.signalNs >= 2000000 && s.bytes == 1024 && s.rank == 5 && s.commId == 0xfeed);
  CHECK(s.flags == (DYN_SAMPLE_UNJOINED | DYN_SAMPLE_HOST_TIMED));
  uint64_t before = rig_dropped(&r);
  struct rig_event e = rig_all_reduce(256, 1);
  e.func = "AllGather"; /* without the number of ranks its size is not known */
  CHECK(rig_enqueue(&r, e, 2, 0, 0).coll == NULL && rig_dropped(&r) == before + 1);
  rig_close(&r);
}

/* v4 on, symmetric and CollNet kernels: nChannels 0. Finalize completes what has been measured. */
static void unknown_channels(int version) {
  struct rig r = rig_open(version, 1, 2, 0);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 0), 4, 1024, 0);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 10), 20);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 1, 10), 30);
  none(&r);
  rig_close(&r);
  struct dyn_sample s = only(&r);
  CHECK(s.channels == 2 && s.signalNs == 20);
}

int main(void) {
  rig_begin();
  for (int version = 4; version <= 7; version++) {
    gpu_timed(version);
    clocks(version);
    untimed(version);
    out_of_order(version);
    lost(version);
    bad_times(version);
    sizes_and_names(version);
    network(version);
    unknown_channels(version);
  }
  host_timed_network(1);
  host_timed_network(2);
  host_timed_kernel();
  CHECK(dyn_slots_used() == 0, "%u slots left", dyn_slots_used());
  rig_end();
  return 0;
}
