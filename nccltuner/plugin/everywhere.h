/* SPDX-License-Identifier: Apache-2.0
 *
 * What all ranks of a record say, where a choice depends on it: words that each has written before it joined, so that all who look
 * behind that see the same.
 */
#ifndef DYN_EVERYWHERE_H
#define DYN_EVERYWHERE_H

#include "comm.h"

/* PAT does not scale, so up to 2.30 NCCL takes it out of the table of a ReduceScatter that averages (updateCollCostTable, src/enqueue.cc).
 * 2.32.3 leaves it in, takes it by itself, and gives the sum (docs/design/choices.md). A tuner does not hear which operator it is. */
#define DYN_PAT_SUMS 23100 /* NCCL_VERSION code; releases before 2.32.3 have not been asked */

/* Whether every rank has said so: that its NCCL may run device kernels on ordinary buffers, say. A plan is in force only once all ranks
 * have joined, so all of them see the same flags; if one rank's environment differs, none is offered such a kernel. */
static inline int dyn_everywhere(const struct dyn_comm *comm, uint32_t flag) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  for (uint32_t i = 0; i < comm->nRanks; i++)
    if (!(__atomic_load_n(&ranks[i].flags, __ATOMIC_RELAXED) & flag)) return 0;
  return 1;
}

static inline bool dyn_anywhere(const struct dyn_comm *comm, uint32_t flag) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  for (uint32_t i = 0; i < comm->nRanks; i++)
    if (__atomic_load_n(&ranks[i].flags, __ATOMIC_RELAXED) & flag) return true;
  return false;
}

static inline bool dyn_sums_anywhere(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  for (uint32_t i = 0; i < comm->nRanks; i++)
    if (ranks[i].ncclVersion == 0 || ranks[i].ncclVersion >= DYN_PAT_SUMS) return true;
  return false;
}

/* From 2.29 on broadcasts of one group with several roots are one kernel, about which NCCL asks as about an AllGather, and whose number of channels
 * it takes at a tuner's word: of one that the communicator has not it reads what nobody has written (ncclScheduleBcastTasksToPlan,
 * src/scheduler/allgatherv_sched.cc; for all else a number is cut to what there is). A tuner does not hear what it is asked about, so where the
 * preload library does not know it either (preload/gathers.h) AllGather keeps NCCL's own number. */
#define DYN_GROUPED_BROADCASTS 22900
/* The newest of which it is known of what else it asks so: up to 2.30.7 by its source; 2.32.3 was asked on two GPUs (docs/figures,
 * gpu-asked-2gpus-h100-2026-11-26-cf340b36), and calls what asks in the same places by its symbols, as 2.31.2 does. */
#define DYN_GATHERS_ASKED 23203
static inline bool dyn_alone_gathers(uint32_t ncclVersion) { return ncclVersion > 0 && ncclVersion < DYN_GROUPED_BROADCASTS; }
/* Not as it was asked where NCCL_ENQUEUE_REARCH_ENABLE has 2.31 and later choose in another place (capture.c). */
static inline bool dyn_tells_gathers(uint32_t ncclVersion, bool elsewhere) { return ncclVersion > 0 && ncclVersion <= DYN_GATHERS_ASKED && !(elsewhere && ncclVersion >= 23100); }

/* NCCL asks in threads of its own then, of which nobody knows what they simulate. */
static inline bool dyn_shares_process(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  for (uint32_t i = 0; i < comm->nRanks; i++)
    for (uint32_t j = 0; j < i; j++)
      if (ranks[i].pid != 0 && ranks[i].pid == ranks[j].pid) return true;
  return false;
}

/* Ranks that share a process with others make calls in groups, in which nobody can tell questions apart. */
static inline bool dyn_alike_in_processes(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  uint32_t first = 0;
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    uint32_t beside = 0;
    for (uint32_t j = 0; j < comm->nRanks; j++) beside += ranks[j].pid == ranks[i].pid;
    if (i == 0) first = beside;
    if (beside != first) return false;
  }
  return true;
}

/* Whether ranks have NCCL's device kernels for LL on ordinary buffers: with DYN_RANK_DEVICE_LL, and where each has a process of its own.
 * DYN_DEVICE_SOME: LL is nobody's, by a plan or by NCCL's own choice. That is where ranks' environments differ, and for three reasons more:
 * - NCCL runs the classic kernel on a rank whose process has another one of the communicator (isOneThreadMultiGpus,
 *   src/scheduler/symmetric_sched.cc, 2.29.2 to 2.30.7), and looks no further than that process: where some ranks share one and others
 *   have their own, an LL is two different kernels, which wait for each other for ever.
 * - Before 2.30.3 its kernels read the last bytes of 8 wrongly from an address that is no multiple of 4 (loadPack, src/device/op128.h), and
 *   a tuner hears of no address.
 * - It takes an AllReduce that averages for one of its kernels', which have none (symkRedOp, ncclSymkImplemented and generate.py of 2.30.7), and
 *   the call fails; so does 2.32.3 (docs/figures, gpu-device-types-2gpus-nccl2.32.3-2026-11-27-f582762d). So no AllReduce of a communicator has them from the
 *   first that averages on, nor where a rank cannot tell (DYN_DEVICE_BUT_ALL_REDUCE).
 *
 * DYN_DEVICE_WINDOWS: there are none on ordinary buffers, but where one buffer of a call lies in a window and the other one does not NCCL up to 2.30
 * asks about the call as about any other, and runs the device kernel where the answer is LL, in any process and whatever the variable says
 * (ncclMakeSymmetricTaskList, src/scheduler/symmetric_sched.cc; 2.29.2 and 2.29.3 also where both do). All that is said above of reads, averages
 * and ranks that run two kernels in one call holds there, where NCCL by itself takes LL for small calls alone. So no plan's LL is in force once
 * the program has registered a window. DYN_DEVICE_UNSEEN: nor at any time, for a rank does not hear of windows. */
enum { DYN_DEVICE_ALL = 1, DYN_DEVICE_BUT_ALL_REDUCE = 2, DYN_DEVICE_NONE = -1, DYN_DEVICE_SOME = -2, DYN_DEVICE_WINDOWS = -3, DYN_DEVICE_UNSEEN = -4 };
#define DYN_READS_NOWIN 22902 /* NCCL_VERSION code of the first that may run them */
#define DYN_DEVICE_LOADS 23003 /* of the first that loads what it is to */
#define DYN_ASKS_APART 23100   /* of the first whose question about a device kernel is told from others (tuner_v6.c) */

/* NCCL may take what is answered about a call for an answer about its device kernel; also one that does not say which it is. */
static inline bool dyn_asks_of_windows(const struct dyn_comm *comm, uint32_t ncclVersion) {
  return comm->nNodes == 1 && (ncclVersion == 0 || (ncclVersion >= DYN_READS_NOWIN && ncclVersion < DYN_ASKS_APART));
}

/* Before NCCL first looks at its variable, which is behind the making of a process's first communicator: where its device kernels are wrong, or
 * nobody could keep calls from them, they are let alone, and LL is the classic kernel, as without us. */
void dyn_device_settle(const struct dyn_comm *comm);
const char *dyn_user_decides(void); /* record.c: by which of NCCL's variables; NULL: not */

int8_t dyn_device_of_ranks(const struct dyn_comm *comm); /* once all have joined */

/* All ranks of a host have joined before NCCL asks any of them (initTransportsRank has them join before its last barrier), so all know
 * the same at the first question. Of several hosts it is never known, and there are none. */
static inline int dyn_device_ranks(struct dyn_comm *comm) {
  if (comm->deviceRanks == 0 && __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE) == comm->nRanks) comm->deviceRanks = dyn_device_of_ranks(comm);
  return comm->deviceRanks;
}

#endif
