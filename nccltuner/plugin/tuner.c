/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice: a pure function of (plan in force, collective, size bucket, calls since), docs/design.md, decision 2.
 * Nothing here locks, allocates, waits or enters the kernel. Most calls touch this communicator's private memory,
 * NCCL's table and one word of marks; once an epoch the shared record is asked which plan is in force.
 */
#include <string.h>

#include "../../kernels/host/host.h"
#include "../preload/gathers.h"
#include "coming.h"
#include "comm.h"
#include "datatype.h"
#include "epoch.h"
#include "everywhere.h"
#include "marks.h"
#include "named.h"
#include "plan.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define DYN_MARKS_DEVICE_LL (1u << 30)
#define DYN_MARKS_LL 01111111u /* LL of each */
#define DYN_MARKS_ADDED (DYN_MARKS_DEVICE_LL | DYN_MARKS_GIN | DYN_MARKS_KERNELS) /* whenever */

#define DYN_PROTO_LL 0 /* NCCL_PROTO_LL */

/* ---- epochs ---- */

static void adopt(struct dyn_comm *comm, uint8_t slot) {
  comm->slot = slot;
  bool fit = false;
  if (slot) {
    memcpy(&comm->plan, &comm->record->plans[slot - 1], sizeof comm->plan);
    fit = dyn_plan_valid(&comm->plan);
  }
  if (slot && !fit)
    __atomic_fetch_or(&comm->self->flags, DYN_RANK_PLAN_UNFIT, __ATOMIC_RELAXED);
  else if (__atomic_load_n(&comm->self->flags, __ATOMIC_RELAXED) & DYN_RANK_PLAN_UNFIT)
    __atomic_fetch_and(&comm->self->flags, ~DYN_RANK_PLAN_UNFIT, __ATOMIC_RELAXED);
  comm->deviceLL = fit && dyn_device_ranks(comm) > 0;
  comm->patSums = fit && dyn_sums_anywhere(comm);
  comm->ownGathers = fit && !dyn_everywhere(comm, DYN_RANK_ALONE_GATHERS);
  comm->seesGathers = fit && dyn_everywhere(comm, DYN_RANK_SEES_GATHERS);
  /* No plan is a plan that passes everything through: the choice needs no second case. */
  if (!fit) memset(&comm->plan, 0, offsetof(struct dyn_plan, entries));
  comm->closeLeft = comm->plan.closeEpochs;
}

static __attribute__((noinline)) void enter_epoch(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  struct dyn_epoch_memory memory = dyn_epoch_memory_of(comm->record, comm->nRanks);
  uint8_t slot;
  comm->callsLeft = member->epochCalls;
  dyn_pass_close(comm);
  if (DYN_RARELY(comm->fence != NULL)) dyn_hosts_pass(comm); /* whatever the record says: it has promised to */
  if (member->broken) return;
  comm->epoch++;
  if (!dyn_epoch_enter(&memory, comm->epoch, &slot) || slot > DYN_NUM_PLANS) {
    member->broken = true;
    slot = 0;
  }
  if (slot != comm->slot) adopt(comm, slot);
  /* After the copy: from here on the daemon may take the former buffer. */
  __atomic_store_n(&comm->self->position, dyn_epoch_position(comm->epoch, slot), __ATOMIC_RELEASE);
  __atomic_store_n(&comm->self->calls, comm->seq, __ATOMIC_RELAXED);
  if (member->comm.process) dyn_sampling_update(member);
  if (comm->epoch == 1) dyn_tell_ranks(comm);
}

/* ---- one call ---- */

/* Bit 3 * algorithm + protocol of every entry that NCCL would take. It takes what is not negative (topoGetAlgoInfo,
 * src/enqueue.cc); not being a number counts as marked, too. */
static DYN_HOT uint32_t usable_entries(const float *costs, int numAlgo, int numProto) {
  uint32_t usable = 0;
#ifdef __SSE2__
  if (numProto == DYN_MARKS_PROTOCOLS && numAlgo == 7) { /* every NCCL from 2.22 to 2.32: 21 floats in a row */
    const __m128 zero = _mm_setzero_ps();
#pragma GCC unroll 5
    for (int i = 0; i < 20; i += 4)
      usable |= (uint32_t)_mm_movemask_ps(_mm_cmpge_ps(_mm_loadu_ps(costs + i), zero)) << i;
    return usable | (uint32_t)(costs[20] >= 0.0f) << 20;
  }
#endif
  for (int a = 0; a < numAlgo && a < DYN_MARKS_ALGORITHMS; a++)
    for (int p = 0; p < numProto && p < DYN_MARKS_PROTOCOLS; p++)
      usable |= (uint32_t)(costs[a * numProto + p] >= 0.0f) << (DYN_MARKS_PROTOCOLS * a + p);
  return usable;
}

static uint32_t kernel_marks(const struct dyn_place *place) { return (uint32_t)place->kernels << DYN_MARKS_HALF; }

static DYN_HOT void tell_marks(struct dyn_comm *comm, int collective, int bucket, uint32_t marks) {
  struct dyn_place *place = &comm->places[collective][bucket];
  if (marks == place->marks) return;
  place->marks = marks;
  __atomic_store_n(&comm->self->marks[collective][bucket], marks, __ATOMIC_RELAXED);
}

/* On registered memory NCCL's table of costs does not decide, names do. None: there it has none, or refuses it here. */
static uint32_t names_of(const struct dyn_comm *comm, int collective, int bucket) {
  return comm->names ? dyn_named_marks(dyn_nccls(collective)) & ~comm->refused[collective - DYN_FIRST_REGISTERED][bucket] : 0;
}

static void publish_names(struct dyn_comm *comm, int collective, int bucket) {
  uint32_t now = DYN_MARKS_SEEN | names_of(comm, collective, bucket) | (kernel_marks(&comm->places[collective][bucket]) & ~DYN_MARKS_GIN);
  tell_marks(comm, collective, bucket, now);
}

static DYN_HOT void publish_marks(struct dyn_comm *comm, int collective, int bucket, uint32_t usable) {
  const struct dyn_place *place = &comm->places[collective][bucket];
  uint32_t old = place->marks, kernels = comm->bound > 0 ? kernel_marks(place) : 0;
  uint32_t now = DYN_MARKS_SEEN | (old & DYN_MARKS_SEEN ? old & (usable | DYN_MARKS_ADDED) : old | usable) | kernels;
  tell_marks(comm, collective, bucket, now);
}

/* NCCL asks about a device kernel where it has one: on NVLink alone, for some operators. That it asks in a process with several ranks says
 * nothing, for there it runs none. The daemon then knows that all of LL's choices are one (docs/design.md, decision 2). */
static void publish_device(struct dyn_comm *comm, int collective, int bucket, uint32_t usable) {
  uint32_t old = comm->places[collective][bucket].marks;
  if (old & DYN_MARKS_DEVICE_LL || !(usable & DYN_MARKS_LL)) return;
  if (dyn_device_ranks(comm) >= 0 && __atomic_load_n(&comm->self->flags, __ATOMIC_RELAXED) & DYN_RANK_DEVICE_LL)
    tell_marks(comm, collective, bucket, old | DYN_MARKS_DEVICE_LL);
}

/* NCCL up to 2.30 begins with 3.6e9 us and takes what is less (topoGetAlgoInfo, src/enqueue.cc). 2.31 and later take the least of what was
 * not negative before a tuner was asked (ncclTuningCompute of 2.32.3): -1 there is the best. */
#define NEVER_US 1e30f

static inline bool has_device_kernels(int collective) {
  return collective == DYN_ALL_REDUCE || collective == DYN_ALL_GATHER || collective == DYN_REDUCE_SCATTER;
}

/* What NCCL asks about is not to be LL. */
static inline bool is_without_ll(struct dyn_comm *comm, int collective) {
  int ranks = comm->record ? dyn_device_ranks(comm) : 0;
  if (collective != DYN_ALL_REDUCE || ranks < 0) return ranks == DYN_DEVICE_SOME;
  return ranks == DYN_DEVICE_BUT_ALL_REDUCE || (comm->averages && dyn_gathers_averages(comm->averages));
}

/* What NCCL asks about may be LL by its own choice alone (DYN_DEVICE_WINDOWS). */
static inline bool is_nccls_ll(struct dyn_comm *comm) {
  int ranks = comm->record ? dyn_device_ranks(comm) : 0;
  return ranks == DYN_DEVICE_UNSEEN || (ranks == DYN_DEVICE_WINDOWS && comm->registers && dyn_gathers_windows(comm->registers));
}

/* Where nobody may run LL it costs more than anything else, for NCCL's own choice. Where there is nothing else it stays: the user wants it. */
static __attribute__((noinline)) uint32_t without_ll(uint32_t usable, float *costs, int numAlgo, int numProto) {
  if (!(usable & ~DYN_MARKS_LL)) return usable;
  for (int a = 0; a < numAlgo && a < DYN_MARKS_ALGORITHMS; a++)
    if (usable >> DYN_MARKS_PROTOCOLS * a & 1) costs[a * numProto + DYN_PROTO_LL] = NEVER_US;
  return usable & ~DYN_MARKS_LL;
}

static inline uint32_t entries_of(struct dyn_comm *comm, int collective, float *costs, int numAlgo, int numProto) {
  uint32_t usable = usable_entries(costs, numAlgo, numProto);
  if (!has_device_kernels(collective)) return usable;
  if (DYN_RARELY(is_nccls_ll(comm))) return usable & ~DYN_MARKS_LL;
  return DYN_RARELY(is_without_ll(comm, collective)) ? without_ll(usable, costs, numAlgo, numProto) : usable;
}

/* True: NCCL will run it. */
static bool apply(uint32_t action, uint32_t usable, float *costs, int numProto, int *nChannels) {
  uint32_t algo = action >> DYN_ACTION_ALGO_SHIFT & 15, proto = action >> DYN_ACTION_PROTO_SHIFT & 15;
  uint32_t channels = action >> DYN_ACTION_CHANNELS_SHIFT & 255;
  if ((action & 15) != DYN_PATH_COLLECTIVE || algo >= DYN_MARKS_ALGORITHMS || proto >= DYN_MARKS_PROTOCOLS ||
      channels > DYN_MAX_CHANNELS || !(usable >> (DYN_MARKS_PROTOCOLS * algo + proto) & 1))
    return false;
  costs[algo * (uint32_t)numProto + proto] = 0.0f;
  if (channels && nChannels) *nChannels = (int)channels;
  return true;
}

/* What this rank is asked about is an AllGather, as far as it can tell. Of calls that go past the preload library on all ranks all say alike that they are none. */
static inline bool is_gather(const struct dyn_comm *comm, const struct dyn_preload_call *library) {
  if (comm->ownGathers) return false;
  if (!comm->gathers) return true;
  bool seen = !comm->seesGathers || !library || library->depth > 0 || dyn_gathers_grouped(comm->gathers);
  return seen && !dyn_gathers_broadcasts(comm->gathers);
}

/* Where a number of channels may be answered; NULL: nowhere. */
static inline int *number_of(const struct dyn_comm *comm, const struct dyn_preload_call *library, int collective, int *nChannels) {
  return collective != DYN_ALL_GATHER || is_gather(comm, library) ? nChannels : NULL;
}

/* A rank without the preload library counts both, so all do; of several hosts those that promise anything have it. */
static bool all_tell_apart(struct dyn_comm *comm) {
  if (comm->tellApart == 0 && __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE) == comm->nRanks)
    comm->tellApart = dyn_everywhere(comm, DYN_RANK_TELLS_APART) && dyn_alike_in_processes(comm) ? 1 : -1;
  return comm->tellApart >= 0;
}

/* NCCL 2.29.2 to 2.30 ask as if before a call whether to run a device kernel, and ask again, in the same call of the program's, unless the answer is
 * LL: what was answered holds, and counts once. Whoever asks twice has a device kernel. At a group's end likewise, for whether a call stands in one
 * is no other rank's business; where a communicator has several calls in it all ranks have, and are asked alike. An older one asks once, there also
 * about calls that are alike: each counts. */
static bool asks_again(struct dyn_comm *comm, const struct dyn_preload_call *call, int collective, size_t bytes) {
  if (!call || (call->depth == 0 && !call->ends)) return comm->question.in = NULL, false;
  bool again = comm->question.in == call && comm->question.number == call->number &&
               comm->question.collective == collective && comm->question.bytes == bytes && (call->depth > 0 || comm->self->ncclVersion >= DYN_READS_NOWIN) && all_tell_apart(comm);
  comm->question.in = call;
  comm->question.number = call->number;
  comm->question.collective = collective;
  comm->question.bytes = bytes;
  return again;
}

/* In a group that is only simulated, which one rank may do by itself: PyTorch's compiler keeps what it hears, and asks again on ranks that have not
 * kept it. Nothing of it runs, so it does not count, and NCCL tells what its own choice takes. All ranks must do so alike: of several hosts
 * those that promise anything have this library. */
static inline bool is_simulated(const struct dyn_comm *comm, const struct dyn_preload_call *call) {
  if (!call || !DYN_RARELY(call->simulates) || !comm->record) return false;
  bool apart = comm->fence && __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE) != comm->nRanks; /* else all are here, though they came late */
  return (apart || dyn_everywhere(comm, DYN_RANK_SIMULATES)) && !dyn_shares_process(comm);
}

/* For one rank alone NCCL would make the memory of its device kernels, which all have to. */
static __attribute__((noinline)) void no_device(const struct dyn_comm *comm, float *costs, int numAlgo, int numProto) {
  bool may = __atomic_load_n(&comm->self->flags, __ATOMIC_RELAXED) & DYN_RANK_DEVICE_LL;
  if (may && costs) without_ll(usable_entries(costs, numAlgo, numProto), costs, numAlgo, numProto);
}

static uint32_t choose(struct dyn_comm *comm, const struct dyn_preload_call *library, int collective, size_t bytes, uint32_t usable, float *costs, int numProto,
                       int *nChannels) {
  int bucket = dyn_bucket_of(bytes);
  if (DYN_RARELY(collective == DYN_REDUCE_SCATTER && comm->patSums)) usable &= ~DYN_MARKS_PAT;
  if (DYN_RARELY(comm->lsa && comm->bound == 0)) dyn_device_bind(comm);
  publish_marks(comm, collective, bucket, usable);
  uint32_t action = next_action(comm, collective, bucket);
  if (action == 0 || apply(action, usable, costs, numProto, number_of(comm, library, collective, nChannels))) return action;
  __atomic_store_n(&comm->self->ignored, comm->self->ignored + 1, __ATOMIC_RELAXED);
  return 0;
}

/* Those who ask for it later find it. */
static __attribute__((noinline)) void tell(struct dyn_comm *comm, int collective, size_t bytes, uint32_t action) {
  uint64_t seq = comm->seq;
  if ((comm->sampling || comm->coming || comm->watched) && dyn_timed_by_events(comm)) dyn_watch_call(comm, seq, collective, bytes, action);
  if (dyn_is_ours(action) || dyn_nccls(collective) == DYN_ALL_TO_ALL) dyn_tell_kernel(comm, seq, collective, bytes, action);
  /* Where events time calls, none of NCCL's is looked at but while the communicator is sampled (dyn_wanted). */
  if (comm->hasProfiler && (comm->sampling || !dyn_timed_by_events(comm))) dyn_decision_note(comm, seq, collective, bytes, action);
  if (!comm->inGraph || !bytes || (unsigned)collective >= DYN_NUM_COLLECTIVES) return;
  if (!dyn_is_ours(action)) comm->capturedNccls[collective][dyn_bucket_of(bytes)] = true;
  dyn_tell_captured(comm, seq, collective, bytes, action);
}

/* A call is decided, and it counts; of most nobody asks. */
static inline void decided(struct dyn_comm *comm, int collective, size_t bytes, uint32_t action) {
  bool asked = comm->sampling || comm->coming || comm->watched || comm->inGraph || (comm->hasProfiler && !dyn_timed_by_events(comm));
  if (DYN_RARELY(asked || dyn_is_ours(action) || dyn_nccls(collective) == DYN_ALL_TO_ALL)) tell(comm, collective, bytes, action);
  comm->entryCall = 0;
  comm->trial = comm->coming = false;
  __atomic_store_n(&comm->seq, comm->seq + 1, __ATOMIC_RELEASE);
}

DYN_HOT void dyn_choose(struct dyn_comm *comm, int collective, size_t bytes, float *costs, int numAlgo, int numProto,
                int *nChannels) {
  uint32_t action = 0;
  if (DYN_RARELY((unsigned)collective >= DYN_NUM_ASKED)) collective = -1; /* NCCL's other numbers mean other things to us (datatype.h) */
  bool asked = costs && bytes && (unsigned)collective < DYN_NUM_ASKED, tunable = comm->record && asked;
  if (DYN_RARELY(comm->ahead)) { /* of names that stand for several NCCL takes its pick here */
    if (tunable && comm->aheadAction) apply(comm->aheadAction, usable_entries(costs, numAlgo, numProto), costs, numProto, nChannels);
    return;
  }
  const struct dyn_preload_call *library = dyn_library_call(comm), *call = dyn_timed_by_events(comm) ? library : NULL;
  if (is_simulated(comm, library)) return no_device(comm, costs, numAlgo, numProto);
  uint32_t usable = tunable || (asked && comm->averages) ? entries_of(comm, collective, costs, numAlgo, numProto) : 0;
  if (tunable && DYN_RARELY(asks_again(comm, call, collective, bytes))) {
    publish_device(comm, collective, dyn_bucket_of(bytes), usable);
    if (comm->question.action) apply(comm->question.action, usable, costs, numProto, number_of(comm, library, collective, nChannels));
    return;
  }
  comm->inGraph = dyn_in_graph(comm, call);
  if (comm->record) {
    struct dyn_member *member = dyn_member_of(comm);
    if (DYN_RARELY(comm->callsLeft == 0)) enter_epoch(member);
    comm->callsLeft--;
    if (tunable) comm->question.action = action = choose(comm, library, collective, bytes, usable, costs, numProto, nChannels);
  }
  decided(comm, collective, bytes, action);
}

void dyn_choose_device(struct dyn_comm *comm, int collective, size_t bytes, float *costs, int numAlgo, int numProto) {
  if ((!comm->record && !comm->averages) || !costs || !bytes || (unsigned)collective >= DYN_NUM_ASKED || comm->ahead) return;
  if (is_simulated(comm, dyn_library_call(comm))) return no_device(comm, costs, numAlgo, numProto);
  uint32_t usable = entries_of(comm, collective, costs, numAlgo, numProto);
  if (!usable || !comm->record) return;
  if (comm->callsLeft == 0) enter_epoch(dyn_member_of(comm));
  if (collective == DYN_ALL_GATHER || collective == DYN_REDUCE_SCATTER) bytes *= comm->nRanks;
  int bucket = dyn_bucket_of(bytes);
  publish_device(comm, collective, bucket, usable);
  if (!comm->deviceLL) return;
  comm->inGraph = dyn_in_graph(comm, dyn_thread_call(comm));
  uint32_t action = coming_action(comm, collective, bucket);
  if ((action >> DYN_ACTION_PROTO_SHIFT & 15) != DYN_PROTO_LL || !apply(action, usable, costs, numProto, NULL)) return;
  next_action(comm, collective, bucket);
  comm->callsLeft--;
  decided(comm, collective, bytes, action);
}

/* able: as for dyn_choose_kernel. */
static bool runs_here(uint32_t action, uint32_t able) {
  uint32_t kernel = action >> DYN_ACTION_ALGO_SHIFT & 15, backend = action >> DYN_ACTION_BACKEND_SHIFT & 15;
  return ((action & 15) == DYN_PATH_LSA && able >> kernel & 1) ||
         ((action & 15) == DYN_PATH_GIN && kernel == 0 && able & DYN_ABLE_GIN(backend));
}

/* This rank has had registered buffers in a call of the bucket. Once all ranks have, the daemon may put lsa/direct into a plan;
 * which buffers a call has is no matter for its choice: the kernel sees to it (kernels/device/meet.cuh). */
static void mark_windows(struct dyn_comm *comm, int collective, int bucket) {
  struct dyn_place *place = &comm->places[collective][bucket];
  uint32_t has = kernel_marks(place), direct = 1u << (DYN_MARKS_KERNELS_SHIFT + DYN_KERNEL_DIRECT);
  if (!(has & 1u << (DYN_MARKS_KERNELS_SHIFT + DYN_KERNEL_BULK)) || has & direct) return;
  place->kernels |= direct >> DYN_MARKS_HALF;
  if (place->marks) tell_marks(comm, collective, bucket, place->marks | direct);
}

/* NCCL refuses a name on every rank, in the same call: what is in force still says it, until the daemon has seen the marks. */
static void refuse(struct dyn_comm *comm, int collective, uint64_t bytes) {
  int bucket = dyn_bucket_of(bytes);
  comm->refused[collective - DYN_FIRST_REGISTERED][bucket] |= dyn_named_mark(comm->aheadAction);
  comm->aheadAction = 0;
  publish_names(comm, collective, bucket);
  if (comm->hasProfiler) dyn_decision_note(comm, comm->seq - 1, collective, bytes, 0); /* before NCCL says what runs instead */
}

/* A call on registered memory, which counts as such whoever runs it. What all of the ranks decide by is the same: the plan, the
 * count, and which names NCCL has refused before. */
static uint32_t choose_registered(struct dyn_comm *comm, int collective, uint64_t bytes, uint32_t able) {
  int bucket = dyn_bucket_of(bytes);
  comm->inGraph = dyn_in_graph(comm, dyn_thread_call(comm));
  if (able & DYN_ABLE_WINDOWS) mark_windows(comm, collective, bucket);
  publish_names(comm, collective, bucket);
  uint32_t action = next_action(comm, collective, bucket), mark = dyn_named_mark(action);
  bool ours = runs_here(action, able);
  bool named = dyn_name_of(action) && mark & names_of(comm, collective, bucket);
  if (action && !ours && !named) {
    __atomic_store_n(&comm->self->ignored, comm->self->ignored + 1, __ATOMIC_RELAXED);
    action = 0;
  }
  comm->callsLeft--;
  decided(comm, collective, bytes, action);
  comm->ahead = !ours;
  comm->aheadAction = action;
  return action ? action : DYN_CHOSEN_NCCL;
}

/* The plan in force decides about the call. NCCL asks about it, if it runs it; but for an AllToAll. */
static inline bool is_decided(struct dyn_comm *comm, int collective, uint64_t bytes) {
  if (!comm->record || !bytes || (unsigned)collective >= DYN_NUM_COLLECTIVES) return false;
  if (comm->bound == 0) dyn_device_bind(comm);
  if (comm->bound < 0 || (collective == DYN_ALL_TO_ALL && !comm->allBind)) return false;
  if (comm->callsLeft == 0) enter_epoch(dyn_member_of(comm));
  return !comm->lost; /* NCCL asks about the call, and it fails; but of an AllToAll */
}

static __attribute__((noinline)) uint32_t choose_kernel(struct dyn_comm *comm, int collective, uint64_t bytes, uint32_t able) {
  bool asked = collective != DYN_ALL_TO_ALL;
  if (able & DYN_ABLE_REFUSED) refuse(comm, dyn_on_registered(collective), bytes);
  if (able & DYN_ABLE_OVER) comm->ahead = false;
  if (able & (DYN_ABLE_REFUSED | DYN_ABLE_OVER)) return 0;
  if (!is_decided(comm, collective, bytes)) return comm->lost && !asked && comm->allBind ? DYN_CHOSEN_LOST : 0;
  if (able & DYN_ABLE_REGISTERED && comm->windows) return choose_registered(comm, dyn_on_registered(collective), bytes, able);
  comm->inGraph = dyn_in_graph(comm, dyn_thread_call(comm));
  int bucket = dyn_bucket_of(bytes);
  if (able & DYN_ABLE_WINDOWS) mark_windows(comm, collective, bucket);
  if (!asked) publish_marks(comm, collective, bucket, 0);
  uint32_t action = coming_action(comm, collective, bucket);
  bool ours = runs_here(action, able);
  if (!ours && asked) return 0;
  next_action(comm, collective, bucket);
  if (!ours) action = 0;
  else if (DYN_RARELY(comm->places[collective][bucket].marks == 0)) /* of what a store has NCCL may never be asked: the daemon is to hear of the size all the same */
    tell_marks(comm, collective, bucket, kernel_marks(&comm->places[collective][bucket]));
  comm->callsLeft--;
  decided(comm, collective, bytes, action);
  return action;
}

/* A peer of a put that is timed closely has to answer it, so all ranks go by the plan and how many epochs it has been in force, and by nothing
 * that only some of them know, as whether others are elsewhere (comm->fence). */
uint32_t dyn_choose_kernel(void *chooser, int collective, uint64_t bytes, uint32_t able) {
  const struct dyn_comm *comm = chooser;
  if (able == DYN_ABLE_LOOK) return is_decided(chooser, collective, bytes) && may_be_ours(chooser, collective, dyn_bucket_of(bytes));
  uint32_t action = choose_kernel(chooser, collective, bytes, able);
  bool closely = (action & 15) == DYN_PATH_GIN && comm->closeLeft > 0;
  return closely ? action | DYN_GIN_CLOSELY << DYN_ACTION_ALGO_SHIFT : action;
}
