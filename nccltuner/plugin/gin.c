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
 *
 * On several hosts no record has all ranks: there the process decides that made the communicator's id (hosts/hub.c), and each rank asks for its
 * word. A rank that hears it too late leaves the others to the deadlines of NCCL's steps, and does not count what they count: so with each promise
 * of a plan a rank says which calls it counts, and none comes into force where they differ, or where a rank's own GIN is not active.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../kernels/host/host.h"
#include "../hosts/hosts.h"
#include "comm.h"

#define WAIT_MS 2000 /* ranks come out of NCCL within milliseconds of each other */
#define HOSTS_WAIT_MS 5000 /* and are met LOOK_MS of hosts.c later; where one has not our library they wait so long in vain */

static bool switched(const char *to) {
  const char *word = getenv("DYNAMICCL_GIN");
  return word != NULL && strcmp(word, to) == 0;
}

/* DYNAMICCL_GIN: 0 never, 1 also on one node, and between hosts. Else on nodes that NCCL_HOSTID makes out of one host. */
static bool asked_for(const struct dyn_comm *comm) {
  const char *host = getenv("NCCL_HOSTID");
  if (switched("0")) return false;
  return switched("1") || (comm->nNodes > 1 && host != NULL && *host != '\0');
}

bool dyn_gin_between_hosts(const struct dyn_comm *comm) { return comm->gin && switched("1"); }

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

/* Not all ranks are here, nor come: what those of all hosts have decided. *ours: they are here. */
static bool hosts_want(const struct dyn_comm *comm, const struct dyn_device_calls *device, uint8_t id[128], bool *ours) {
  uint64_t until = dyn_host_ns() + DYN_NS_PER_MS * (dyn_gin_between_hosts(comm) ? HOSTS_WAIT_MS : WAIT_MS);
  uint32_t word = DYN_ALL_UNDECIDED;
  while (!(*ours = __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE) == comm->nRanks)) {
    if ((word = device->hosts->gin(comm->fence, id)) != DYN_ALL_UNDECIDED || dyn_host_ns() > until) break;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  if (*ours || word != DYN_ALL_UNDECIDED) return word == DYN_ALL_BEGIN;
  device->hosts->decline(comm->fence);
  if (dyn_gin_between_hosts(comm))
    dyn_say_once(comm->log, DYN_LOG_INFO, "not all ranks of a communicator over several hosts said within %d ms whether they want GIN: none for it; start all "
                 "with `dynamiccld run` and DYNAMICCL_GIN=1", HOSTS_WAIT_MS);
  return false;
}

/* As dyn_device_offers, of those on this host, without memory: the others' are 0. */
static void offers_here(const struct dyn_comm *comm, struct dyn_offer *offers) {
  uint32_t joined = __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE);
  memset(offers, 0, comm->nRanks * sizeof *offers);
  for (uint32_t i = 0; i < joined && i < comm->nRanks; i++) {
    const struct dyn_rank *rank = &dyn_ranks_of(comm->record)[i];
    if (rank->rank < 0 || (uint32_t)rank->rank >= comm->nRanks) continue;
    offers[rank->rank] = (struct dyn_offer){.pid = rank->pid, .startTime = rank->startTime, .multiprocessors = rank->multiprocessors, .mostCtas = dyn_device_ctas(rank), .contexts = dyn_device_contexts(rank)};
    memcpy(offers[rank->rank].gpu, rank->gpu, sizeof rank->gpu);
  }
}

/* Where it fails this rank's calls are NCCL's, and it promises no plan that has GIN. */
static void begin_between_hosts(struct dyn_comm *comm, const struct dyn_device_calls *device, const uint8_t id[128]) {
  struct dyn_offer offers[DYN_MAX_RANKS];
  comm->bound = 1;
  comm->allBind = dyn_hosts_exchanges(comm, true);
  offers_here(comm, offers);
  if (device->gin->make(comm->lsa, offers, id, comm->self)) dyn_device_room(comm, device);
  else if (__atomic_load_n(&comm->self->gin, __ATOMIC_RELAXED) == DYN_GIN_WANTED) set_state(comm, DYN_GIN_FAILED);
}

void dyn_gin_begin(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  const struct dyn_device_calls *device = dyn_device_of(member);
  struct dyn_offer offers[DYN_MAX_RANKS];
  uint8_t id[128];
  bool ours = true, between = comm->fence != NULL && hosts_want(comm, device, id, &ours);
  comm->gin = false;
  if (between) {
    begin_between_hosts(comm, device, id);
    return;
  }
  dyn_hosts_exchanges(comm, false);
  if (!decide(comm, ours && all_want(comm))) {
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
