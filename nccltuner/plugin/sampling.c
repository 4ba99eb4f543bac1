/* SPDX-License-Identifier: Apache-2.0
 *
 * Which calls are timed, and what this half says of a call: docs/design.md, decision 9. Called from the choice, so nothing
 * here locks, allocates, waits or enters the kernel either, and nothing of it reaches back into the choice.
 */
#include "comm.h"
#include "nccl_profiler_abi.h"
#include "plan.h"

/* ---- epochs ---- */

void dyn_sampling_set(struct dyn_member *member, int sampling) {
  struct dyn_process *process = member->comm.process;
  if (!process) return;
  if (sampling != member->comm.sampling) {
    atomic_fetch_add_explicit(&process->samplingComms, sampling ? 1 : -1, memory_order_relaxed);
    __atomic_store_n(&member->comm.sampling, sampling, __ATOMIC_RELAXED);
  }
  dyn_mask_update(process, dyn_daemon_beats(member));
}

void dyn_heartbeat_start(struct dyn_member *member) {
  struct dyn_ring *ring = member->comm.process->ring;
  member->comm.heartbeatEpoch = member->comm.epoch;
  member->comm.seenHeartbeat = ring ? __atomic_load_n(&ring->header.heartbeat, __ATOMIC_RELAXED) : 0;
}

uint32_t dyn_timing_flags(const struct dyn_comm *comm) {
  if (dyn_times_refused() || __atomic_load_n(&comm->past, __ATOMIC_RELAXED)) return DYN_RANK_NO_TIMES;
  return dyn_event_timed() ? DYN_RANK_EVENT_TIMED : 0;
}

/* Where a rank's user decides, or ranks are elsewhere and have not met, none ever comes into force (epoch.h, hosts.c), and a daemon makes nothing of
 * samples: all calls would be timed for nothing, and those of the process's other communicators with them. */
static bool may_be_planned(const struct dyn_record *record) {
  if (__atomic_load_n(&record->veto, __ATOMIC_RELAXED) != 0) return false;
  return __atomic_load_n(&record->joined, __ATOMIC_RELAXED) == record->nRanks || __atomic_load_n(&record->hosts, __ATOMIC_RELAXED) == DYN_HOSTS_MET;
}

/* Of so many epochs one is sampled before there is a plan: before a daemon has asked for anything nobody would hear of it. */
static uint32_t unplanned_every(const struct dyn_comm *comm, const struct dyn_ring *ring) {
  return __atomic_load_n(&ring->wantMask, __ATOMIC_RELAXED) != 0 && may_be_planned(comm->record);
}

/* Which one it is to the program its calls say, and not what a group's end asks. */
static void tell_rest(struct dyn_comm *comm) {
  const struct dyn_preload_call *call = dyn_thread_call(comm);
  if (!call) return;
  struct dyn_rest_list *list = &comm->process->preload->resting;
  if (call->depth > 0 && call->comm) comm->handle = call->comm;
  if (comm->sampling) dyn_rest_remove(list, comm->handle);
  else if (comm->handle) dyn_rest_add(list, comm->handle);
}

void dyn_sampling_update(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  struct dyn_ring *ring = member->comm.process->ring;
  uint32_t timing = DYN_RANK_NO_TIMES | DYN_RANK_EVENT_TIMED, flags = dyn_timing_flags(comm);
  uint32_t told = __atomic_load_n(&comm->self->flags, __ATOMIC_RELAXED);
  if ((told & timing) != flags) /* found out since it joined; no other thread writes this rank's flags */
    __atomic_store_n(&comm->self->flags, (told & ~timing) | flags, __ATOMIC_RELAXED);
  if (!ring) return;
  uint64_t heartbeat = __atomic_load_n(&ring->header.heartbeat, __ATOMIC_RELAXED);
  if (heartbeat != comm->seenHeartbeat) dyn_heartbeat_start(member);
  uint32_t every = comm->plan.version ? comm->plan.sampleEvery : unplanned_every(comm, ring);
  int before = comm->sampling;
  dyn_sampling_set(member, dyn_epoch_sampled(comm->epoch, every) && !member->broken);
  if (!before) comm->windowSeq = comm->seq;
  tell_rest(comm);
}

/* ---- one call ---- */

/* What this half knows of a call: neither its times nor what will run. */
static struct dyn_sample sample_of(const struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes,
                                   uint32_t action, uint16_t flags) {
  return (struct dyn_sample){
      .commId = comm->commId,
      .seq = seq,
      .bytes = bytes,
      .planVersion = (uint32_t)comm->plan.version,
      .action = action,
      .rank = comm->rank,
      .collective = (uint8_t)collective,
      .algorithm = UINT8_MAX,
      .protocol = UINT8_MAX,
      .flags = flags,
      .nRanks = comm->nRanks > UINT16_MAX ? UINT16_MAX : (uint16_t)comm->nRanks,
  };
}

/* One of our kernels runs it: that is known here, and NCCL has no event for it. */
static void add_kernel(struct dyn_sample *sample) {
  bool gin = (sample->action & 15) == DYN_PATH_GIN;
  sample->flags |= gin ? DYN_SAMPLE_GIN : DYN_SAMPLE_LSA;
  sample->algorithm = sample->action >> (gin ? DYN_ACTION_BACKEND_SHIFT : DYN_ACTION_ALGO_SHIFT) & 15;
  sample->protocol = gin ? sample->action >> DYN_ACTION_CONTEXTS_SHIFT & 15 : 0;
  sample->channels = (uint8_t)(sample->action >> DYN_ACTION_CHANNELS_SHIFT);
}

/* A name that NCCL takes is what runs; where it refuses one the call is not timed (preload/device.c). */
static void add_symmetric(struct dyn_sample *sample) {
  sample->flags |= DYN_SAMPLE_SYMMETRIC;
  sample->algorithm = sample->action >> DYN_ACTION_ALGO_SHIFT & 15;
  sample->protocol = 0;
}

/* NCCL has no event for what we run, nor one for AllToAll that says how it runs it. Where calls are not timed and what runs is
 * asked for, the sample is complete. */
void dyn_tell_kernel(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action) {
  struct dyn_process *process = comm->process;
  if (!comm->sampling || !process || !process->ring || comm->inGraph) return;
  uint32_t want = __atomic_load_n(&process->ring->wantMask, __ATOMIC_RELAXED);
  if (!(want & ncclProfileColl) || want & ncclProfileKernelCh) return;
  struct dyn_sample sample = sample_of(comm, seq, collective, bytes, action, DYN_SAMPLE_UNTIMED);
  if (dyn_is_ours(action)) add_kernel(&sample);
  dyn_ring_put(process, &sample);
}

/* What goes into a CUDA graph is never asked for again: the daemon is told at once what was chosen, sampling or not.
 * Dropped and counted when the ring is full. */
void dyn_tell_captured(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action) {
  struct dyn_member *member = dyn_member_of(comm);
  if (!comm->record || !member->comm.process || !dyn_daemon_beats(member)) return;
  struct dyn_sample sample = sample_of(comm, seq, collective, bytes, action, DYN_SAMPLE_UNTIMED | DYN_SAMPLE_CAPTURED);
  dyn_ring_put(member->comm.process, &sample);
}

/* The preload library times this call: says which one it is; a Coll event in it says what runs (profiler_sample.c). */
static void describe(struct dyn_comm *comm, struct dyn_timed *timed, uint64_t seq, int collective, size_t bytes,
                     uint32_t action) {
  timed->asked++;
  timed->lease = comm->process->lease;
  timed->sample = sample_of(comm, seq, collective, bytes, action, DYN_SAMPLE_EVENT_TIMED);
  if (dyn_is_ours(action)) add_kernel(&timed->sample);
  else if ((action & 15) == DYN_PATH_SYMMETRIC) add_symmetric(&timed->sample);
  timed->sample.made = comm->places[collective][dyn_bucket_of(bytes)].made;
  timed->sample.entryCall = comm->entryCall < UINT8_MAX ? (uint8_t)comm->entryCall : UINT8_MAX;
}

/* All ranks sample the same calls: those of a window but its first (windowSeq), since timing may have begun for another
 * communicator, and trials. The call's thread is this one, unless the communicator does not block; then there is no probe
 * here and nothing comes of it there. */
void dyn_watch_call(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action) {
  struct dyn_member *member = dyn_member_of(comm);
  struct dyn_watch_list *list = &member->comm.process->preload->watched;
  if (!bytes || (unsigned)collective >= DYN_NUM_COLLECTIVES) return;
  const struct dyn_about call = member->comm.process->preload->about(comm->nRanks, comm->rank, dyn_nccls(collective));
  if (call.timed && ((comm->sampling && seq != comm->windowSeq) || comm->trial))
    describe(comm, call.timed, seq, collective, bytes, action);
  bool any = atomic_load_explicit(&list->used, memory_order_relaxed) > 0;
  if (comm->coming && dyn_daemon_beats(member) && dyn_times_wanted(member->comm.process)) {
    comm->watched += dyn_watch_add(list, call.key);
  } else if (comm->watched) {
    comm->watched -= dyn_watch_remove(list, call.key);
  }
  if (any != (atomic_load_explicit(&list->used, memory_order_relaxed) > 0))
    dyn_mask_update(member->comm.process, dyn_daemon_beats(member));
}
