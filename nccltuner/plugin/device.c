/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels over load and store: how the ranks of a communicator come to use them together (docs/design.md, decision 27).
 *
 * NCCL calls the tuner's init on every rank of a communicator, and behind it all ranks of a node wait for each other
 * (bootstrapIntraNodeBarrier at the end of initTransportsRank, src/init.cc). So each rank offers its scratch memory there,
 * in the record, waits until all have, opens theirs and says whether it could. Behind NCCL's barrier these words are final:
 * when the first call comes all ranks know alike whether all can. A rank that cannot says so at once, and nobody waits for
 * it; one without this library says nothing, and is waited for, once.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../kernels/carrier/places.h"
#include "../../kernels/host/host.h"
#include "comm.h"
#include "nccl_env.h"
#include "transport.h"

#define OPEN_WAIT_MS 5000    /* ranks come within milliseconds of each other; one that loads libraries from far away may not */
#define NO_WAIT_MS 100       /* where one did not come before */

static uint32_t state_of(const struct dyn_rank *rank) { return __atomic_load_n(&rank->memoryState, __ATOMIC_ACQUIRE); }

static void say_state(struct dyn_comm *comm, uint32_t state) { __atomic_store_n(&comm->self->memoryState, state, __ATOMIC_RELEASE); }

const struct dyn_device_calls *dyn_device_of(const struct dyn_member *member) {
  const struct dyn_process *process = member->comm.process;
  return process && process->preload ? process->preload->device : NULL;
}

/* Who keeps GPUs from reaching each other's memory in NCCL means us, too. */
static bool peers_forbidden(void) {
  const char *level = getenv("NCCL_P2P_LEVEL");
  return nccl_is_on("NCCL_P2P_DISABLE") || (level && (strcmp(level, "LOC") == 0 || strcmp(level, "0") == 0));
}

/* Lines arrive whole over NVLink (kernels/device/line.cuh), and no other link promises that: NCCL has LL128 there alone. */
static bool lines_may_tear(const struct dyn_comm *comm) {
  bool may = dyn_transport_apart(&dyn_this_machine);
  if (may) dyn_say_once(comm->log, DYN_LOG_INFO, "not all GPUs of this host are joined by NVLink: no kernels of ours over load and store");
  return may;
}

/* All on one node, so all are in the record; not where the user has decided. */
static bool wanted(const struct dyn_member *member) {
  const struct dyn_comm *comm = &member->comm;
  return dyn_device_of(member) && comm->nNodes == 1 && comm->nRanks >= 2 && comm->rank >= 0 && dyn_event_timed() && !peers_forbidden() &&
         !dyn_switched_on("DYNAMICCL_NO_KERNELS") && !__atomic_load_n(&comm->record->veto, __ATOMIC_RELAXED) && !lines_may_tear(comm);
}

/* Ranks that have not decided; counts those that refused. */
static uint32_t undecided(const struct dyn_comm *comm, uint32_t *refused) {
  uint32_t joined = __atomic_load_n(&comm->record->joined, __ATOMIC_ACQUIRE), none = comm->nRanks - joined;
  *refused = 0;
  for (uint32_t i = 0; i < joined && i < comm->nRanks; i++) {
    uint32_t state = state_of(&dyn_ranks_of(comm->record)[i]);
    none += state == DYN_MEMORY_NONE;
    *refused += state == DYN_MEMORY_REFUSED;
  }
  return none;
}

static bool all_offer(const struct dyn_comm *comm) {
  static atomic_bool missed;
  uint64_t until = dyn_host_ns() + DYN_NS_PER_MS * (atomic_load(&missed) ? NO_WAIT_MS : OPEN_WAIT_MS);
  uint32_t refused, none;
  while ((none = undecided(comm, &refused)) > 0 && refused == 0 && dyn_host_ns() < until)
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  if (none > 0 && refused == 0) {
    atomic_store(&missed, true);
    dyn_say_once(comm->log, DYN_LOG_INFO, "%u ranks of a communicator did not come within %d ms: no kernels of ours for it; "
                 "start all ranks with `dynamiccld run`", none, OPEN_WAIT_MS);
  }
  return none == 0 && refused == 0;
}

static long long number_in(const char *variable) { return variable ? strtoll(variable, NULL, 0) : 0; }

/* A user who has NCCL do without CTAs where it can, by copy engines, keeps the GPU's multiprocessors for something else: kernels of ours would run
 * in the place of just those calls. As NCCL reads it (v2.30.7-1, src/init.cc): NCCL_CTA_POLICY, a digit or words, goes before the program's config. */
static bool no_ctas(const struct dyn_comm *comm, const struct dyn_device_calls *device) {
  const char *policy = getenv("NCCL_CTA_POLICY");
  if (policy && *policy >= '0' && *policy <= '9') return *policy == '2';
  if (policy && strcasestr(policy, "zero")) return true;
  if (policy && (strcasestr(policy, "default") || strcasestr(policy, "efficiency"))) return false;
  return device && device->ctas && comm->rank >= 0 && device->ctas(comm->nRanks, (uint32_t)comm->rank) & DYN_NO_CTAS;
}

/* A user who bounds the CTAs of NCCL's kernels means ours, which run in their place, too (docs/design.md, decision 2.4). As NCCL reads
 * it (v2.28.9-1, src/init.cc, src/graph/connect.cc): NCCL_MAX_CTAS goes before the program's config, and NCCL_MAX_NCHANNELS, or
 * NCCL_MAX_NRINGS, which is older, bounds either, from 1 on. */
static uint32_t allowed_ctas(const struct dyn_comm *comm, const struct dyn_device_calls *device) {
  const char *channels = getenv("NCCL_MAX_NCHANNELS");
  long long ctas = number_in(getenv("NCCL_MAX_CTAS"));
  if (!channels || !*channels) channels = getenv("NCCL_MAX_NRINGS");
  if (ctas <= 0) ctas = device->ctas ? device->ctas(comm->nRanks, (uint32_t)comm->rank) & ~DYN_NO_CTAS : 0;
  if (channels && *channels) {
    long long most = number_in(channels);
    if (most < 1) most = 1;
    if (ctas == 0 || most < ctas) ctas = most;
  }
  if (dyn_carrier_takes() > 0 && (ctas == 0 || ctas > DYN_CARRIER_BESIDE)) ctas = DYN_CARRIER_BESIDE;
  return ctas < UINT8_MAX ? (uint32_t)ctas : UINT8_MAX;
}

uint32_t dyn_device_ctas(const struct dyn_rank *rank) { return __atomic_load_n(&rank->flags, __ATOMIC_RELAXED) >> DYN_RANK_CTAS_SHIFT; }
uint32_t dyn_device_contexts(const struct dyn_rank *rank) { return __atomic_load_n(&rank->flags, __ATOMIC_RELAXED) >> DYN_RANK_CONTEXTS_SHIFT & 15; }

/* Offers by rank. False: a rank is not told, or told twice. */
bool dyn_device_offers(const struct dyn_comm *comm, struct dyn_offer *offers) {
  memset(offers, 0, comm->nRanks * sizeof *offers);
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    const struct dyn_rank *rank = &dyn_ranks_of(comm->record)[i];
    if (rank->rank < 0 || (uint32_t)rank->rank >= comm->nRanks || offers[rank->rank].pid != 0) return false;
    struct dyn_offer *offer = &offers[rank->rank];
    *offer = (struct dyn_offer){rank->pid, rank->startTime, rank->memoryAt, rank->memoryBytes, {0}, {0}, rank->multiprocessors, dyn_device_ctas(rank), dyn_device_contexts(rank)};
    memcpy(offer->handle, rank->memory, sizeof offer->handle);
    memcpy(offer->gpu, rank->gpu, sizeof offer->gpu);
  }
  return true;
}

static uint16_t half_of_marks(uint32_t able) {
  uint32_t marks = able << DYN_MARKS_KERNELS_SHIFT & DYN_MARKS_KERNELS;
  for (uint32_t backend = DYN_BACKEND_GDAKI; backend <= DYN_BACKEND_PROXY; backend++)
    if (able & DYN_ABLE_GIN(backend)) marks |= 1u << (DYN_MARKS_GIN_SHIFT + backend);
  if (able & DYN_ABLE_CONTEXTS) marks |= DYN_MARKS_CONTEXTS;
  return (uint16_t)(marks >> DYN_MARKS_HALF);
}

void dyn_device_room(struct dyn_comm *comm, const struct dyn_device_calls *device) {
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++)
      comm->places[c][b].kernels = half_of_marks(device->room(comm->lsa, dyn_nccls(c), (UINT64_C(2) << b) - 1));
}

void dyn_device_bind(struct dyn_comm *comm) {
  comm->allBind = comm->windows = comm->names = true;
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    const struct dyn_rank *rank = &dyn_ranks_of(comm->record)[i];
    if (state_of(rank) < DYN_MEMORY_OPEN) comm->bound = -1; /* the memory goes with the communicator */
    uint32_t flags = __atomic_load_n(&rank->flags, __ATOMIC_RELAXED);
    comm->allBind &= (flags & DYN_RANK_BINDS) != 0;
    comm->windows &= (flags & DYN_RANK_WINDOWS) != 0;
    comm->names &= (flags & DYN_RANK_NAMES) != 0;
  }
  comm->windows &= comm->allBind;
  comm->names &= comm->windows;
  if (comm->bound < 0) return;
  if (!comm->binds && !dyn_device_of(dyn_member_of(comm))->bind(comm->lsa, comm, dyn_choose_kernel)) return;
  comm->bound = 1;
  say_state(comm, DYN_MEMORY_BOUND);
}

/* NCCL has made the communicator, and the program does not have it yet. */
static void bind_now(void *chooser) {
  struct dyn_comm *comm = chooser;
  if (state_of(comm->self) >= DYN_MEMORY_OPEN) dyn_device_bind(comm);
  if (comm->gin) dyn_gin_begin(dyn_member_of(comm));
  dyn_answer_wait(comm);
}

/* Over load and store. False: not all can. */
static bool join_near(struct dyn_comm *comm, const struct dyn_device_calls *device, const struct dyn_offer *own) {
  struct dyn_offer offers[DYN_MAX_RANKS];
  comm->self->memoryAt = own->at;
  comm->self->memoryBytes = own->bytes;
  memcpy(comm->self->memory, own->handle, sizeof own->handle);
  say_state(comm, DYN_MEMORY_OFFERED);
  if (!all_offer(comm) || !dyn_device_offers(comm, offers) || !device->open(comm->lsa, offers)) return false;
  dyn_device_room(comm, device);
  return true;
}

void dyn_device_join(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  const struct dyn_device_calls *device = dyn_device_of(member);
  struct dyn_offer own;
  bool none = no_ctas(comm, device), near = !none && wanted(member), gin = !none && dyn_gin_wanted(member);
  if (device) device->gpu(comm->self->gpu, &comm->self->multiprocessors);
  if (near || gin) __atomic_fetch_or(&comm->self->flags, allowed_ctas(comm, device) << DYN_RANK_CTAS_SHIFT, __ATOMIC_RELAXED);
  if (near) comm->lsa = device->offer(comm->commId, comm->nRanks, (uint32_t)comm->rank, &own);
  else if (gin) comm->lsa = device->gin->offer(comm->commId, comm->nRanks, (uint32_t)comm->rank, &own);
  if (comm->lsa) __atomic_fetch_or(&comm->self->flags, own.contexts << DYN_RANK_CONTEXTS_SHIFT, __ATOMIC_RELAXED);
  bool open = near && comm->lsa && join_near(comm, device, &own);
  if (comm->lsa && (open || !near)) comm->binds = device->expect(comm->lsa, comm, dyn_choose_kernel, bind_now);
  comm->gin = gin && comm->binds && device->alone(comm->lsa);
  if (gin && comm->binds && !comm->gin)
    dyn_say_once(comm->log, DYN_LOG_INFO, "one thread makes several communicators at once: no kernels over GIN for them");
  if (comm->lsa && !open && !comm->gin) dyn_device_leave(member);
  if (!comm->lsa) comm->binds = false;
  uint32_t flags = comm->binds ? DYN_RANK_BINDS : 0;
  if (comm->binds && open && device->windows && device->windows(comm->lsa)) flags |= DYN_RANK_WINDOWS | (device->names() ? DYN_RANK_NAMES : 0);
  __atomic_fetch_or(&comm->self->flags, flags, __ATOMIC_RELAXED);
  dyn_gin_say(comm, comm->gin ? DYN_GIN_WANTED : DYN_GIN_REFUSED);
  say_state(comm, open ? DYN_MEMORY_OPEN : DYN_MEMORY_REFUSED);
}

void dyn_device_leave(struct dyn_member *member) {
  struct dyn_comm *comm = &member->comm;
  if (comm->lsa) dyn_device_of(member)->close(comm->lsa);
  comm->lsa = NULL;
  comm->bound = 0;
  comm->windows = comm->names = comm->ahead = false;
  comm->gin = false;
}
