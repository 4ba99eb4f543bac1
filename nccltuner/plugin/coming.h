/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plan in force says of a bucket's next call: of its trials and its base, by whether it goes into a CUDA graph. Of tuner.c alone.
 */
#ifndef DYN_COMING_H
#define DYN_COMING_H

#include <stdbool.h>
#include <stdint.h>

#include "../../kernels/host/host.h"
#include "comm.h"
#include "everywhere.h"

static inline uint32_t uncaptured_action(const struct dyn_comm *comm, const struct dyn_entry *entry, int collective, int bucket) {
  const struct dyn_place *place = &comm->places[collective][bucket];
  uint32_t j = place->entryId == entry->id ? place->calls : 0;
  return j - entry->skip < entry->numTrials ? entry->trials[j - entry->skip] : entry->base; /* one that is skipped wraps */
}

/* A program may capture a call anew and update the graph that it has (cudaGraphExecUpdate), which CUDA refuses where the nodes are others than they
 * were: ours wait in the program's stream, and NCCL's for nothing of it. So a call that was captured with NCCL's kernels stays with them, unless
 * the program has said that it updates none. The other way round it goes to NCCL's as the plan says: who has fewer places by now, or whose
 * steps are longer with ours, is not to have more graphs of them. */
static inline uint32_t captured_action(const struct dyn_comm *comm, uint32_t base, int collective, int bucket) {
  bool stays = comm->capturedNccls[collective][bucket] && dyn_is_ours(base) && !comm->forced && !dyn_everywhere(comm, DYN_RANK_NEW_GRAPHS);
  return stays ? 0 : base;
}

/* What the plan has for such calls of the bucket (passes: DYN_PLAN_DEFAULT_*, of theirs); 0: they pass through. */
static inline uint8_t entry_of(const struct dyn_comm *comm, uint32_t passes, int collective, int bucket) {
  return DYN_RARELY(comm->plan.defaults & passes) ? 0 : comm->plan.index[collective][bucket];
}

/* For the call being made. */
static inline uint8_t coming_entry(const struct dyn_comm *comm, int collective, int bucket) {
  return entry_of(comm, comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS, collective, bucket);
}

/* The action of the bucket's next call. The count belongs to the entry's id and not to the plan: a new plan that keeps
 * the id goes on with the trials. What goes into a graph stays there: no trial, and none is used up. NCCL's guide (Using
 * NCCL with CUDA Graphs) wants a call captured on all ranks or on none, so all ranks still choose alike. */
static inline uint32_t coming_action(const struct dyn_comm *comm, int collective, int bucket) {
  uint8_t index = coming_entry(comm, collective, bucket);
  if (DYN_RARELY(comm->inGraph)) return captured_action(comm, index == 0 ? 0 : comm->plan.entries[index].base, collective, bucket);
  return index == 0 ? 0 : uncaptured_action(comm, &comm->plan.entries[index], collective, bucket);
}

/* The same, and the call counts. Trials are timed one by one, whatever is sampled besides: all but an entry's first call,
 * of which nobody knew before. */
static inline DYN_HOT uint32_t next_action(struct dyn_comm *comm, int collective, int bucket) {
  uint8_t index = coming_entry(comm, collective, bucket);
  uint32_t action = coming_action(comm, collective, bucket);
  struct dyn_place *place = &comm->places[collective][bucket];
  if (comm->inGraph) return action;
  place->made++;
  if (index == 0) return action;
  const struct dyn_entry *entry = &comm->plan.entries[index];
  uint32_t calls = place->entryId == entry->id ? place->calls : 0;
  if (calls != UINT32_MAX) calls++;
  place->entryId = entry->id;
  place->calls = comm->entryCall = calls;
  comm->trial = calls > 1 && calls - 1 - entry->skip < entry->numTrials;
  comm->coming = calls - entry->skip < entry->numTrials;
  return action;
}

/* Captured or not: a call that a group holds back is asked about before that is known. */
static inline bool may_be_ours(const struct dyn_comm *comm, int collective, int bucket) {
  uint8_t graphs = entry_of(comm, DYN_PLAN_DEFAULT_GRAPHS, collective, bucket), calls = entry_of(comm, DYN_PLAN_DEFAULT_CALLS, collective, bucket);
  return (graphs != 0 && dyn_is_ours(comm->plan.entries[graphs].base)) ||
         (calls != 0 && dyn_is_ours(uncaptured_action(comm, &comm->plan.entries[calls], collective, bucket)));
}

#endif
