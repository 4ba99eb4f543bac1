/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's GIN: how the ranks of a communicator come to it together (docs/design.md, decision 30).
 *
 * What NCCL makes for it is made by all ranks at once, so none may begin unless all do. Each rank says while NCCL makes the
 * communicator whether it can. When it is made, before the program has it, each waits until all ranks have said so; whoever
 * comes to an end of that first, by their word or by the clock, decides for all, in one word of the record. Behind NCCL's own
 * barrier that would not be needed, but that one is among the ranks of a node alone.
 *
 * From that word on all ranks take part, and count calls of which NCCL asks nobody, whatever becomes of GIN itself: each rank
 * marks the sizes that it can run, and plans have GIN in them where all did.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../kernels/host/host.h"
#include "comm.h"

#define WAIT_MS 2000 /* ranks come out of NCCL within milliseconds of each other */

/* DYNAMICCL_GIN: 0 never, 1 also on one node. Of several nodes all ranks must be on this host, for only then they see one
 * record: nodes that NCCL_HOSTID makes out of one. */
static bool asked_for(const struct dyn_comm *comm) {
  const char *word = getenv("DYNAMICCL_GIN"), *host = getenv("NCCL_HOSTID");
  if (word != NULL && strcmp(word, "0") == 0) return false;
  return comm->nNodes > 1 ? host != NULL && *host != '\0' : word != NULL && strcmp(word, "1") == 0;
}

bool dyn_gin_wanted(const struct dyn_member *member) {
  const struct dyn_comm *comm = &member->comm;
  const struct dyn_device_calls *device = dyn_device_of(member);
  return device && device->gin && asked_for(comm) && comm->nRanks >= 2 && comm->rank >= 0 && dyn_event_timed() &&
         !dyn_switched_on("DYNAMICCL_NO_KERNELS") && !__atomic_load_n(&comm->record->veto, __ATOMIC_RELAXED) && device->gin->can();
}

static void set_state(struct dyn_comm *comm, uint32_t state) { __atomic_store_n(&comm->self->gin, state, __ATOMIC_RELEASE); }

/* The first rank has the id of GIN's own communicator, for all. */
void dyn_gin_say(struct dyn_comm *comm, uint32_t state) {
  if (state == DYN_GIN_WANTED && comm->rank == 0) comm->gin = dyn_device_of(dyn_member_of(comm))->gin->id(comm->record->ginId);
  set_state(comm, comm->gin ? state : DYN_GIN_REFUSED);
}

/* How many ranks have said nothing yet; 0 and *refused: one will not. */
static uint32_t silent(const struct dyn_comm *comm, bool *refused) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  uint32_t joined = __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE), none = comm->nRanks - joined;
  *refused = joined > comm->nRanks;
  for (uint32_t i = 0; i < joined && i < comm->nRanks; i++) {
    uint32_t state = __atomic_load_n(&ranks[i].gin, __ATOMIC_ACQUIRE) & 255;
    none += state == DYN_GIN_UNINITIALISED;
    *refused |= state == DYN_GIN_REFUSED;
  }
  return none;
}

static bool all_want(const struct dyn_comm *comm) {
  uint64_t until = dyn_host_ns() + DYN_NS_PER_MS * WAIT_MS;
  bool refused;
  uint32_t none;
  while ((none = silent(comm, &refused)) > 0 && !refused && dyn_host_ns() < until &&
         __atomic_load_n(&comm->record->gin, __ATOMIC_ACQUIRE) == DYN_ALL_UNDECIDED)
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  if (none > 0 && !refused)
    dyn_say_once(comm->log, DYN_LOG_INFO, "%u ranks of a communicator said nothing of GIN within %d ms: none for it; start all ranks with "
                 "`dynamiccld run`", none, WAIT_MS);
  return none == 0 && !refused;
}

/* What the first rank found holds for all. */
static bool decide(const struct dyn_comm *comm, bool all) {
  uint32_t undecided = DYN_ALL_UNDECIDED, word = all ? DYN_ALL_BEGIN : DYN_ALL_DECLINE;
  if (!__atomic_compare_exchange_n(&comm->record->gin, &undecided, word, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) word = undecided;
  return word == DYN_ALL_BEGIN;
}

void dyn_gin_begin(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  const struct dyn_device_calls *device = dyn_device_of(member);
  struct dyn_offer offers[DYN_MAX_RANKS];
  comm->gin = false;
  if (!decide(comm, all_want(comm))) {
    set_state(comm, DYN_GIN_REFUSED);
    if (comm->bound == 0) dyn_device_leave(member); /* there is no scratch memory either */
    return;
  }
  comm->allBind = true; /* on every rank: each is here */
  bool near = comm->bound > 0;
  for (int c = 0; c < DYN_NUM_COLLECTIVES && !near; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) comm->places[c][b].kernels = 0;
  comm->bound = 1;
  if (!dyn_device_offers(comm, offers) || !device->gin->make(comm->lsa, offers, comm->record->ginId, comm->self)) {
    if (__atomic_load_n(&comm->self->gin, __ATOMIC_RELAXED) == DYN_GIN_WANTED) set_state(comm, DYN_GIN_FAILED);
    return;
  }
  dyn_device_room(comm, device);
  for (int c = 0; c < DYN_NUM_COLLECTIVES && !near; c++) /* not all ranks have opened the others' memory */
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) comm->places[c][b].kernels &= (uint16_t) ~(DYN_MARKS_KERNELS >> DYN_MARKS_HALF);
}
