/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective's events -> one dyn_sample.
 *
 * signal: from the first kernel start to the last kernel stop over the channels, GPU time: when it ends, this rank has
 * received everything. counter: when the last network send is done, host time from the moment the operation could send
 * (its proxy operations start at enqueue, long before the stream reaches the kernel, hence the later of the first
 * operation and the first kernel start). Without network sends the kernel is one launch that completes locally when
 * it ends, so counter is the kernel time as well: 0 would say "not measured".
 */
#include "profiler.h"

#include <time.h>

uint64_t dyn_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t); /* vDSO, no system call */
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void dyn_atomic_min(atomic_uint_fast64_t *at, uint64_t value) {
  uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
  while ((old == 0 || value < old) &&
         !atomic_compare_exchange_weak_explicit(at, &old, value, memory_order_relaxed, memory_order_relaxed)) {
  }
}

void dyn_atomic_max(atomic_uint_fast64_t *at, uint64_t value) {
  uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
  while (value > old &&
         !atomic_compare_exchange_weak_explicit(at, &old, value, memory_order_relaxed, memory_order_relaxed)) {
  }
}

void dyn_count_dropped(struct dyn_process *process) {
  struct dyn_ring *ring = process == NULL ? NULL : process->ring;
  if (ring != NULL) __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
}

/* ---- which getCollInfo call chose it ---- */

enum { FRESH, JOINED_ALONE, JOINED_SHARED };

static int joined_before(struct dyn_context *context, uint64_t seq) {
  uint64_t v = atomic_load_explicit(&context->joined[seq % DYN_NUM_DECISIONS], memory_order_relaxed);
  if (v >> 1 != seq + 1) return FRESH;
  return v & 1 ? JOINED_SHARED : JOINED_ALONE;
}

static void mark_joined(struct dyn_context *context, uint64_t seq, int shared) {
  atomic_store_explicit(&context->joined[seq % DYN_NUM_DECISIONS], (seq + 1) << 1 | (uint64_t)shared,
                        memory_order_relaxed);
}

/* The call that made this collective made its getCollInfo call after its CollApi event, at minSeq or later. The oldest
 * such choice of the same size that nobody took is its own: NCCL starts Coll events in the order of its calls, but
 * sometimes from a CUDA host callback, when the user's thread is ahead already (hostStreamPlanCallback in enqueue.cc:
 * graphs alive in the process, or CUDA_LAUNCH_BLOCKING). Then the array may be written while it is read: the sequence
 * number is read before and after, and a torn entry is no match. No match of the size: the smallest larger one is the
 * sum over a group. */
static int join_after(struct dyn_context *context, int func, uint64_t bytes, uint64_t minSeq,
                      struct dyn_decision *out) {
  struct dyn_comm *comm = context->comm;
  uint64_t end = __atomic_load_n(&comm->seq, __ATOMIC_ACQUIRE);
  struct dyn_decision exact = {.seq = UINT64_MAX}, sum = {.bytes = UINT64_MAX};
  uint64_t begin = end > DYN_NUM_DECISIONS ? end - DYN_NUM_DECISIONS : 0;
  for (uint64_t seq = begin > minSeq ? begin : minSeq; seq < end; seq++) {
    const struct dyn_decision *at = &comm->decisions[seq % DYN_NUM_DECISIONS];
    uint64_t before = __atomic_load_n(&at->seq, __ATOMIC_ACQUIRE);
    struct dyn_decision d = *(const volatile struct dyn_decision *)at;
    atomic_thread_fence(memory_order_acquire);
    if (before != seq || __atomic_load_n(&at->seq, __ATOMIC_RELAXED) != seq || d.collective != func) continue;
    int state = joined_before(context, seq);
    if (d.bytes == bytes && state == FRESH && seq < exact.seq) exact = d;
    if (d.bytes > bytes && state != JOINED_ALONE && d.bytes < sum.bytes) sum = d;
  }
  *out = exact.seq != UINT64_MAX ? exact : sum;
  return exact.seq != UINT64_MAX ? JOINED_ALONE : sum.bytes != UINT64_MAX ? JOINED_SHARED : FRESH;
}

/* Before v5 nothing says when the API call began: the newest choice of the size, unless it has been taken. */
static int join_newest(struct dyn_context *context, int func, uint64_t bytes, struct dyn_decision *out) {
  if (dyn_decision_find(context->comm, func, bytes, out) && joined_before(context, out->seq) == FRESH)
    return JOINED_ALONE;
  if (dyn_decision_newest(context->comm, func, out) && out->bytes > bytes &&
      joined_before(context, out->seq) != JOINED_ALONE)
    return JOINED_SHARED;
  return FRESH;
}

static void join(struct dyn_context *context, int haveMin, uint64_t minSeq, struct dyn_sample *sample) {
  struct dyn_decision d;
  int how = FRESH;
  if (context->comm != NULL)
    how = haveMin ? join_after(context, sample->collective, sample->bytes, minSeq, &d)
                  : join_newest(context, sample->collective, sample->bytes, &d);
  if (how == FRESH) {
    sample->seq = atomic_fetch_add_explicit(&context->ownSeq, 1, memory_order_relaxed);
    sample->flags |= DYN_SAMPLE_UNJOINED;
    return;
  }
  mark_joined(context, d.seq, how == JOINED_SHARED);
  sample->seq = d.seq;
  sample->action = d.action;
  sample->planVersion = d.planVersion;
  sample->collective = d.counted;
  if ((d.action & 15) == DYN_PATH_SYMMETRIC && sample->algorithm == DYN_UNKNOWN) { /* as it was told by name */
    sample->flags |= DYN_SAMPLE_SYMMETRIC;
    sample->algorithm = d.action >> DYN_ACTION_ALGO_SHIFT & 15;
    sample->protocol = 0;
  }
  if (how == JOINED_SHARED) sample->flags |= DYN_SAMPLE_AGGREGATED;
}

/* ---- start, parts, end ---- */

/* Several collectives in one kernel plan run one after the other in the same kernel: none has a time of its own. */
static void note_group(const struct dyn_event *event, struct dyn_slot *slot) {
  struct dyn_slot *group = dyn_slot_pin(event->coll.group);
  if (group == NULL) return;
  if (group->kind == DYN_KIND_GROUP) {
    uint64_t none = 0;
    if (atomic_fetch_add(&group->group.count, 1) == 0) {
      atomic_compare_exchange_strong(&group->group.first, &none, (uintptr_t)dyn_slot_handle(slot));
    } else {
      struct dyn_slot *first = dyn_slot_pin((void *)(uintptr_t)atomic_load(&group->group.first));
      if (first != NULL) {
        atomic_store(&first->coll.aggregated, 1);
        dyn_slot_unpin(first, 0);
      }
      atomic_store(&slot->coll.aggregated, 1);
    }
  }
  dyn_slot_unpin(group, 0);
}

static void wait_for_quiet(struct dyn_context *context, struct dyn_slot *slot) {
  unsigned at = atomic_fetch_add(&context->lazyNext, 1) % DYN_NUM_LAZY;
  uint64_t old = atomic_exchange(&context->lazy[at], (uintptr_t)dyn_slot_handle(slot));
  struct dyn_slot *gone = dyn_slot_pin((void *)(uintptr_t)old);
  if (gone != NULL) dyn_slot_unpin(gone, 1);
}

/* Calls are timed by CUDA events: all that is left to say is what runs. The Coll event comes inside of the call that it is
 * part of, unless NCCL launches from a host callback: then it is not known. */
static void tell_what_runs(const struct dyn_context *context, const struct dyn_event *event) {
  const struct dyn_comm *comm = context->comm;
  if (comm == NULL || event->coll.func == NULL || event->coll.algo == NULL) return;
  int func = dyn_func_number(event->coll.func);
  struct dyn_timed *timed = context->process->preload->about(comm->nRanks, comm->rank, func).timed;
  struct dyn_sample *sample = timed == NULL || timed->asked != 1 ? NULL : &timed->sample;
  if (sample == NULL) return;
  if (sample->commId != comm->commId || sample->rank != comm->rank) return;
  if (func != dyn_nccls(sample->collective)) return;
  int channels = event->coll.nChannels;
  uint8_t algorithm = dyn_algorithm_number(event->coll.algo);
  if (sample->flags & DYN_SAMPLE_SYMMETRIC && algorithm == DYN_UNKNOWN) return; /* NCCL's events have other words than names */
  sample->flags &= (uint16_t)~DYN_SAMPLE_SYMMETRIC;
  sample->algorithm = algorithm;
  sample->protocol = dyn_protocol_number(event->coll.proto);
  sample->channels = channels > 0 && channels <= DYN_MAX_CHANNELS ? (uint8_t)channels : 0;
}

struct dyn_slot *dyn_coll_start(struct dyn_context *context, const struct dyn_event *event) {
  int want = dyn_wanted(context);
  const struct dyn_process *process = context->process;
  if (process->eventTimed) tell_what_runs(context, event);
  if (want && process->eventTimed && __atomic_load_n(&process->ring->wantMask, __ATOMIC_RELAXED) & ncclProfileKernelCh)
    return NULL; /* the call's own sample says it all */
  if (!(want & (ncclProfileColl | ncclProfileKernelCh | ncclProfileProxyOp)) || event->coll.count == 0) return NULL;
  int func = event->coll.func != NULL ? dyn_func_number(event->coll.func) : event->coll.funcNumber;
  if (func < 0 || func >= DYN_NUM_ASKED) return NULL;
  uint64_t minSeq = 0;
  /* A CollApi event that was captured into a CUDA graph, or that began before sampling did, has no handle of ours: its
   * collective, now or when the graph is replayed, is no sample. */
  if (context->version >= 5 ? !dyn_api_min(context, event->parent, &minSeq) : dyn_capture_now(context->process)) return NULL;
  atomic_fetch_add_explicit(&dyn_collectives_started, 1, memory_order_relaxed);
  dyn_coll_sweep(context, dyn_now_ns(), 0);
  const struct dyn_comm *comm = context->comm;
  unsigned nRanks = comm == NULL ? 0 : comm->nRanks;
  unsigned elementBytes = event->coll.datatype != NULL ? dyn_datatype_bytes(event->coll.datatype)
                                                       : dyn_datatype_number_bytes(event->coll.datatypeNumber);
  uint64_t bytes = dyn_collective_bytes(func, elementBytes, event->coll.count, event->coll.trafficBytes, nRanks);
  if (bytes == 0) {
    dyn_count_dropped(context->process);
    return NULL;
  }
  int timed = want & (ncclProfileKernelCh | ncclProfileProxyOp);
  int kernels = (want & ncclProfileKernelCh) && context->version >= 3;
  uint64_t expected = kernels && event->coll.nChannels > 0 && event->coll.nChannels <= DYN_MAX_CHANNELS
                        ? (uint64_t)event->coll.nChannels : 0;
  /* References: its own stop, and every channel, or the quiet after an unknown number of them. */
  unsigned parts = !timed ? 0 : expected != 0 ? (unsigned)expected : 1;
  struct dyn_slot *slot = dyn_slot_new(context->process, (uintptr_t)dyn_context_handle(context), DYN_KIND_COLL, 1 + parts);
  if (slot == NULL) return NULL;
  slot->coll.process = context->process;
  slot->coll.expected = expected;
  slot->coll.work = atomic_load_explicit(&context->works, memory_order_relaxed);
  slot->coll.hostTimed = context->version < 4;
  slot->coll.sample = (struct dyn_sample){
    .commId = comm != NULL ? comm->commId : event->coll.commHash,
    .rank = comm != NULL ? comm->rank : event->coll.rank,
    .bytes = bytes,
    .collective = (uint8_t)func,
    .algorithm = event->coll.algo != NULL ? dyn_algorithm_number(event->coll.algo) : (uint8_t)event->coll.algoNumber,
    .protocol = event->coll.proto != NULL ? dyn_protocol_number(event->coll.proto) : (uint8_t)event->coll.protoNumber,
    .channels = event->coll.nChannels > 0 && event->coll.nChannels <= DYN_MAX_CHANNELS ? (uint8_t)event->coll.nChannels : 0,
    .flags = timed ? 0 : DYN_SAMPLE_UNTIMED,
    .nRanks = nRanks > UINT16_MAX ? UINT16_MAX : (uint16_t)nRanks,
  };
  join(context, context->version >= 5, minSeq, &slot->coll.sample);
  note_group(event, slot);
  if (timed && expected == 0) wait_for_quiet(context, slot);
  return slot;
}

/* NCCL keeps the times of 64 works a channel and does not look whether a slot has been used again: a thread of its that
 * comes late reports a kernel that began here and ended 64 calls later, or another one altogether (progress functions
 * in src/transport/profiler.cc of 2.28 and 2.30, src/plugin/profiler.cc of 2.32.3). Times are believed when that cannot
 * have happened: fewer works followed, or they are so close to the last believed ones that 64 works do not fit between.
 * A program runs ahead of its GPU by hundreds of calls, though (4x H200: two thirds of such samples were lost), so they are
 * believed as well when the thread was prompt: between its news of start and stop was no more time than the kernel took
 * and 64 short ones would have. That leaves a thread that slept before the start, or through a stop: the daemon sees
 * that other ranks tell another time (group_cost.go), and such times are no yardstick for later ones.
 * A time before the last one of its channel is never this collective's: kernels of a communicator run one by one. */
static int own_times(struct dyn_slot *slot, unsigned channel, uint64_t start, uint64_t stop) {
  struct dyn_context *context = dyn_context_get((const void *)(uintptr_t)slot->owner);
  if (context == NULL) return 0;
  uint64_t before = atomic_load_explicit(&context->lastStops[channel], memory_order_relaxed);
  if (start < before && !atomic_load_explicit(&slot->coll.aggregated, memory_order_relaxed)) {
    atomic_fetch_add_explicit(&context->backward, 1, memory_order_relaxed);
    return 0;
  }
  uint64_t later = atomic_load_explicit(&context->works, memory_order_relaxed) - slot->coll.work;
  uint64_t last = atomic_load_explicit(&context->lastStop, memory_order_relaxed);
  if (later >= DYN_LATE_WORKS && (stop - start > DYN_NEAR_NS || start > last + DYN_NEAR_NS)) {
    uint64_t seen = atomic_load_explicit(&slot->coll.kernelSeen, memory_order_relaxed);
    return dyn_now_ns() - seen <= stop - start + DYN_NEAR_NS;
  }
  dyn_atomic_max(&context->lastStops[channel], stop);
  dyn_atomic_max(&context->lastStop, stop);
  return 1;
}

unsigned dyn_coll_kernel(struct dyn_slot *slot, unsigned channel, uint64_t start, uint64_t stop, uint64_t nowNs) {
  struct dyn_collective *c = &slot->coll;
  if (channel >= DYN_MAX_CHANNELS) return 0;
  uint64_t bit = UINT64_C(1) << channel, before = atomic_fetch_or(&c->channels, bit);
  if (before & bit) return 0; /* told twice */
  if (c->expected == 0) atomic_store_explicit(&c->touched, nowNs, memory_order_relaxed);
  if (start == 0 || stop < start || stop - start > DYN_MAX_DURATION_NS ||
      (!c->hostTimed && !own_times(slot, channel, start, stop))) {
    atomic_store(&c->bad, 1);
  } else {
    dyn_atomic_min(&c->firstStart, start);
    dyn_atomic_max(&c->lastStop, stop);
  }
  uint64_t told = (uint64_t)__builtin_popcountll(before | bit);
  if (told == c->expected && !c->hostTimed)
    atomic_store_explicit(&c->stopClock, dyn_now_ns() - stop, memory_order_relaxed);
  return c->expected != 0 && told <= c->expected;
}

/* Telling takes time, never less than none: the smaller difference is nearer to the clocks' own. */
static uint64_t clock_of(struct dyn_collective *c) {
  uint64_t start = atomic_load(&c->startClock), stop = atomic_load(&c->stopClock);
  return start == 0 || (stop != 0 && (int64_t)(stop - start) < 0) ? stop : start;
}

static uint32_t saturate(uint64_t ns) { return ns == 0 ? 1 : ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns; }

/* Fills in the times; 0: they cannot be used. */
static int measure(struct dyn_collective *c) {
  uint64_t firstOp = atomic_load(&c->firstOp), send = atomic_load(&c->lastSend), recv = atomic_load(&c->lastRecv);
  uint64_t channels = atomic_load(&c->channels), begin = firstOp, counter = 0, signal = 0;
  if (c->sample.flags & DYN_SAMPLE_UNTIMED) return 1;
  if (atomic_load(&c->bad)) return 0;
  if (channels != 0) {
    signal = counter = atomic_load(&c->lastStop) - atomic_load(&c->firstStart);
    if (atomic_load(&c->kernelSeen) > begin) begin = atomic_load(&c->kernelSeen);
    if (send > begin) counter = send - begin;
    c->sample.startNs = atomic_load(&c->firstStart);
    c->sample.clockNs = clock_of(c);
    if (c->hostTimed) c->sample.flags |= DYN_SAMPLE_HOST_TIMED;
  } else if (firstOp != 0) {
    /* v1 and v2 have no kernel events: the last receive bounds visibility. */
    if (recv > begin) signal = recv - begin;
    if (send > begin) counter = send - begin;
    if (signal == 0) signal = counter;
    if (signal == 0) return 0;
    c->sample.flags |= DYN_SAMPLE_HOST_TIMED;
  } else {
    return 0;
  }
  if (signal > DYN_MAX_DURATION_NS || counter > DYN_MAX_DURATION_NS) return 0;
  c->sample.recvNs = recv;
  c->sample.signalNs = saturate(signal);
  c->sample.counterNs = channels == 0 && counter == 0 ? 0 : saturate(counter);
  c->sample.channels = (uint8_t)__builtin_popcountll(channels);
  return 1;
}

void dyn_coll_finish(struct dyn_slot *slot) {
  struct dyn_collective *c = &slot->coll;
  if (!measure(c)) {
    dyn_count_dropped(c->process);
    return;
  }
  if (atomic_load(&c->aggregated)) c->sample.flags |= DYN_SAMPLE_AGGREGATED;
  struct dyn_ring *ring = c->process->ring;
  if (ring != NULL && (c->sample.flags & DYN_SAMPLE_UNJOINED)) __atomic_fetch_add(&ring->unjoined, 1, __ATOMIC_RELAXED);
  dyn_ring_put(c->process, &c->sample);
}

void dyn_coll_sweep(struct dyn_context *context, uint64_t nowNs, int force) {
  if (atomic_load_explicit(&context->lazyNext, memory_order_relaxed) == 0) return;
  for (unsigned i = 0; i < DYN_NUM_LAZY; i++) {
    uint64_t handle = atomic_load_explicit(&context->lazy[i], memory_order_relaxed);
    if (handle == 0) continue;
    struct dyn_slot *slot = dyn_slot_pin((void *)(uintptr_t)handle);
    int done = slot == NULL;
    if (slot != NULL) {
      struct dyn_collective *c = &slot->coll;
      uint64_t touched = atomic_load_explicit(&c->touched, memory_order_relaxed);
      /* Only the wait itself is left: its stop has come and no operation is open. */
      done = dyn_slot_refs(slot) == 1 && touched != 0 && (force || nowNs > touched + DYN_LAZY_QUIET_NS);
    }
    if (done && !atomic_compare_exchange_strong(&context->lazy[i], &handle, 0)) done = 0;
    if (slot != NULL) dyn_slot_unpin(slot, (unsigned)done);
  }
}
