/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on GIN: launching them, what they can run, and the exchange of a word between all ranks.
 */
#include "gin_life.h"

#include <stdio.h>
#include <string.h>

#include "../../nccltuner/plugin/datatype.h"

#define FAREWELL_RISE_NS UINT64_C(5000000000) /* of the carrier, which who frees memory may keep away; who parts waits no longer for it than a few seconds */
#define MOST_BYTES ((uint64_t)1 << 30) /* of what goes in rounds */

int dyn_gin_launch(const struct dyn_gin_life *life, int lane, const struct dyn_gin_grid *grid, void *stream, struct dyn_gin_call *call, const struct dyn_parts *parts) {
  void *arguments[] = {(void *)&life->device, call, (void *)parts};
  const struct dyn_launch config = {.gridX = grid->blocks, .gridY = 1, .gridZ = 1, .blockX = grid->threads, .blockY = 1, .blockZ = 1, .stream = stream};
  uint32_t contexts = call->gin.contexts, closely = call->gin.closely;
  uint64_t about = call->gin.about;
  call->gin = life->lanes[lane];
  call->gin.about = about;
  call->gin.closely = lane == LANE_CALLS && closely; /* what a graph holds it runs for ever */
  if (contexts > 0 && contexts < call->gin.contexts) call->gin.contexts = contexts;
  call->slots = life->window;
  const uint64_t announcedNs = lane == LANE_CALLS ? dyn_gin_announce(life) : 0;
  if (life->rises && dyn_gin_lapsed(life)) return DYN_CUDA_NOT_READY;
  int error = dyn_host_driver()->cuLaunchKernelEx(&config, grid->function, arguments, NULL);
  if (lane == LANE_CALLS && error == 0) dyn_gin_launched(life, announcedNs);
  return error;
}

void dyn_gin_join(const struct dyn_lsa *lsa, struct dyn_gin_life *life) {
  struct dyn_lanes *all = dyn_lanes_of(lsa);
  _Static_assert(DYN_LANES == NUM_LANES * (1 + DYN_GIN_LIVES), "each lane has a place");
  for (int l = 0; l < NUM_LANES; l++) {
    all->gaveUp[NUM_LANES * (1 + (life - lsa->gin->each)) + l] = life->lanes[l].calls + DYN_GIN_CALLS;
    life->lanes[l].lanes = all;
  }
}

/* ---- a word from and to every peer ---- */

const char *dyn_gin_step_name(uint64_t step) {
  static const char *const names[DYN_GIN_STEPS] = {"nothing", "its beginning", "its signal", "the counter of a put to it", "room in its buffers"};
  return names[step % DYN_GIN_STEPS];
}

/* A kernel has given up on a peer; NULL: none has. */
static const char *fault_of(const struct dyn_lsa *lsa, const struct dyn_gin_words *words, char why[512]) {
  for (uint32_t r = 0; r < lsa->nRanks; r++) {
    uint64_t fault = __atomic_load_n(&words->faults[r], __ATOMIC_RELAXED);
    if (fault == 0) continue;
    snprintf(why, 512, "rank %u was waited for in vain: %s did not come", r, dyn_gin_step_name(fault >> 32));
    return why;
  }
  return NULL;
}

static const char *missing(const struct dyn_lsa *lsa, const struct dyn_gin_life *life, char why[512]) {
  const struct dyn_gin_words *words = life->words;
  if (fault_of(lsa, words, why) != NULL) return why;
  for (uint32_t r = 0; r < lsa->nRanks; r++)
    for (uint32_t c = 0; r != lsa->rank && c < life->state.contexts; c++) {
      const struct dyn_gin_stamp *s = &words->stamps[c * lsa->nRanks + r];
      if (s->right == 1 && s->counterNs != 0) continue;
      snprintf(why, 512, "context %u to rank %u: %s", c, r, s->signalNs == 0 ? "its signal did not come" : s->right != 1 ? "the signal was here before its data" : "no counter came");
      return why;
    }
  return NULL;
}

/* The kernel gives up by itself; a put into a full queue alone would not, nor one that has found no place on the GPU yet. Of one that is
 * stopped nothing comes, and all that it has stays. */
static const char *await_exchange(struct dyn_lsa *lsa, const struct dyn_gin_life *life, uint64_t until, char why[512]) {
  int result;
  while ((result = dyn_host_driver()->cuEventQuery(lsa->scratch->done[LANE_CALLS])) == DYN_CUDA_NOT_READY && dyn_host_ns() < until && !dyn_lsa_stopped(lsa))
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  if (dyn_lsa_stopped(lsa)) return snprintf(why, 512, "a rank is gone"), why;
  if (result == 0) return missing(lsa, life, why);
  snprintf(why, 512, result == DYN_CUDA_NOT_READY ? "the kernel that exchanges words does not end" : "CUDA error %d of the kernel that exchanges words", result);
  return why;
}

const char *dyn_gin_exchange(struct dyn_lsa *lsa, struct dyn_gin_life *life, uint64_t waitNs, char why[512]) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_call call = {.gin.about = dyn_about(DYN_ABOUT_OTHER, 0), .stamps = life->words->stamps};
  const struct dyn_gin_grid grid = {life->module->probe, life->state.contexts, 32};
  const char *said = NULL;
  void *stream;
  memset(life->words->stamps, 0, sizeof life->words->stamps);
  if (driver->cuStreamCreate(&stream, DYN_STREAM_NON_BLOCKING) != 0) return snprintf(why, 512, "CUDA refuses a stream"), why;
  uint64_t before = life->lanes[LANE_CALLS].waitNs;
  uint64_t from = dyn_host_ns(), least = FAREWELL_RISE_NS < waitNs ? FAREWELL_RISE_NS : waitNs;
  bool parting = atomic_load(&lsa->gin->parting);
  life->lanes[LANE_CALLS].waitNs = waitNs, life->riseNs = parting ? least : waitNs, life->rises = parting;
  int error = dyn_gin_launch(life, LANE_CALLS, &grid, stream, &call, NULL);
  if (error == 0) error = driver->cuEventRecord(lsa->scratch->done[LANE_CALLS], stream);
  life->lanes[LANE_CALLS].waitNs = before, life->riseNs = 0, life->rises = false;
  uint64_t until = parting ? from + 2 * waitNs : dyn_host_ns() + 4 * waitNs;
  if (error == DYN_CUDA_NOT_READY) snprintf(why, 512, "nobody is there to move a last word"), said = why;
  else if (error != 0) snprintf(why, 512, "CUDA error %d of a launch", error), said = why;
  else said = await_exchange(lsa, life, until, why);
  if (said != NULL) dyn_gin_tell_card(life, why, 512);
  driver->cuStreamDestroy_v2(stream); /* what is on it goes on */
  return said;
}

/* ---- calls ---- */

static uint32_t room(const struct dyn_gin_life *life, int collective, uint64_t bytes) {
  if (!dyn_gin_usable(&life->state)) return 0;
  bool has = collective == DYN_ALL_REDUCE || collective == DYN_ALL_TO_ALL || collective == DYN_ALL_GATHER || collective == DYN_REDUCE_SCATTER;
  uint64_t most = has ? MOST_BYTES : 0;
  return bytes > most ? 0 : DYN_ABLE_GIN(life->state.backend) | (life->state.contexts > 1 ? DYN_ABLE_CONTEXTS : 0);
}

/* An action asks for a number of contexts where any backend has several: on one that has fewer it gets those. */
uint32_t dyn_gin_room(const struct dyn_lsa *lsa, int collective, uint64_t bytes) {
  const struct dyn_gin_lives *gin = lsa->gin;
  uint32_t able = 0;
  for (int i = 0; gin != NULL && !gin->narrow && i < DYN_GIN_LIVES; i++) able |= room(&gin->each[i], collective, bytes);
  return able;
}

static size_t bytes_of(const struct dyn_work *work) { return work->count * dyn_datatype_number_bytes(work->datatype); }

bool dyn_gin_adds(const struct dyn_work *work) {
  return work->collective != DYN_ALL_REDUCE || bytes_of(work) <= DYN_GIN_SLOT_BYTES || dyn_is_norm_type(work->datatype);
}

static void *flat(const struct dyn_gin_module *m, const struct dyn_work *work) {
  switch (work->collective) {
    case DYN_ALL_REDUCE: return (bytes_of(work) > DYN_GIN_SLOT_BYTES ? m->allReduceInRounds : m->allReduce)[work->datatype];
    case DYN_REDUCE_SCATTER: return m->reduceScatter[work->datatype];
    default: return work->collective == DYN_ALL_GATHER ? m->allGather : m->allToAll;
  }
}

static bool several_each(const struct dyn_gin_life *life) { return dyn_gin_hierarchical(life->lanes[0].nRanks, life->lanes[0].localRanks); }

/* Where nodes have several ranks, what crosses the network goes from a rank to that of its rail, once, and on over NVLink:
 * whatever has a hierarchical kernel runs in it, unless the plan wants the flat one. NULL: it has none. A question of type and collective alone, and of NCCL's LSA
 * teams, of which there is one size on all ranks. */
static void *hierarchical(const struct dyn_gin_life *life, const struct dyn_work *work) {
  if (!several_each(life)) return NULL;
  switch (work->collective) {
    case DYN_ALL_GATHER:
    case DYN_ALL_TO_ALL: return life->module->move;
    case DYN_ALL_REDUCE:
      if (bytes_of(work) < DYN_GIN_SLOT_BYTES) return NULL; /* falls through */
    case DYN_REDUCE_SCATTER: return life->module->moveSums[work->datatype];
    default: return NULL;
  }
}

/* Of one on another host nothing is known, nor what shares its GPU. */
static bool some_elsewhere(const struct dyn_lsa *lsa) {
  for (uint32_t r = 0; r < lsa->nRanks; r++)
    if (lsa->peers[r].pid == 0) return true;
  return false;
}

void dyn_gin_bound(const struct dyn_lsa *lsa, struct dyn_gin_lives *gin) {
  bool hosts = some_elsewhere(lsa);
  gin->narrow = lsa->mostCtas < DYN_GIN_CALLS && hosts;
  gin->contexts = hosts ? DYN_GIN_MAX_CONTEXTS : dyn_gin_least_contexts(lsa->peers, lsa->nRanks);
  if (hosts && dyn_gin_own_contexts() > 0 && gin->nccl != NULL && gin->nccl->version != 22809)
    dyn_host_say("rank %u of %u: NCCL_GIN_NCONTEXTS, which ranks on other hosts do not know, is passed over: %d contexts", lsa->rank, lsa->nRanks, gin->contexts);
}

/* CTAs of a hierarchical kernel wait for each other, so all of them are to find a place: as many channels as have, or, where there is none for
 * one, the flat kernel, whose CTAs wait for their likes alone (docs/design.md, decision 2.4). */
static struct dyn_gin_choice within(void *onRails, void *flat, unsigned mostFlat, unsigned mostCtas) {
  unsigned channels = mostCtas / DYN_GIN_ROLES;
  if (onRails != NULL && channels > 0) return (struct dyn_gin_choice){.function = onRails, .roles = DYN_GIN_ROLES, .most = channels < DYN_GIN_CHANNELS ? channels : DYN_GIN_CHANNELS};
  return (struct dyn_gin_choice){.function = flat, .roles = 1, .most = mostFlat < mostCtas ? mostFlat : mostCtas};
}

struct dyn_gin_choice dyn_gin_choose(const struct dyn_gin_life *life, const struct dyn_work *work, bool asFlat, unsigned mostCtas, struct dyn_gin_call *call) {
  bool adds = work->collective == DYN_ALL_REDUCE || work->collective == DYN_REDUCE_SCATTER;
  struct dyn_gin_choice choice = within(asFlat ? NULL : hierarchical(life, work), flat(life->module, work), DYN_GIN_MAX_BLOCKS, mostCtas);
  choice.bytes = bytes_of(work);
  call->count = adds ? work->count : choice.bytes;
  call->same = work->collective == DYN_ALL_GATHER;
  if (work->collective == DYN_ALL_REDUCE && choice.bytes > DYN_GIN_SLOT_BYTES) choice.bytes /= (size_t)life->lanes[0].nRanks; /* a rank's part */
  return choice;
}

unsigned dyn_gin_kernels(const struct dyn_gin_life *life, const struct dyn_work *work, const struct dyn_gin_choice *choice) {
  if (work->collective != DYN_ALL_REDUCE || choice->roles == 1) return 1;
  return work->count % (size_t)life->lanes[0].nRanks == 0 ? 2 : 3;
}

/* Of AllReduce: sums to the ranks' parts of the result; these to all; what does not divide among the ranks, by itself. */
void dyn_gin_kernel(const struct dyn_gin_life *life, const struct dyn_work *work, unsigned k, struct dyn_gin_grid *grid, struct dyn_gin_call *call) {
  size_t size = dyn_datatype_number_bytes(work->datatype), nRanks = (size_t)life->lanes[0].nRanks, part = work->count / nRanks, whole = part * nRanks;
  char *own = (char *)work->recv + (size_t)life->lanes[0].rank * part * size;
  *call = (struct dyn_gin_call){.gin = call->gin, .send = work->send, .recv = own, .count = part, .op = work->op};
  if (k == 1) {
    grid->function = life->module->move;
    call->send = own, call->recv = work->recv, call->count = part * size, call->same = true;
  } else if (k == 2) {
    *grid = (struct dyn_gin_grid){life->module->allReduce[work->datatype], 1, grid->threads};
    call->send = (const char *)work->send + whole * size, call->recv = (char *)work->recv + whole * size, call->count = work->count - whole;
  }
}

struct dyn_gin_choice dyn_gin_choose_parts(const struct dyn_gin_life *life, unsigned mostCtas) {
  return within(several_each(life) ? life->module->moveParts : NULL, life->module->allToAllV, DYN_GIN_PARTS_CTAS, mostCtas);
}

void dyn_gin_stop(struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++) {
    struct dyn_gin_words *words = gin->each[i].words;
    if (words == NULL) continue;
    dyn_gin_move(&gin->each[i].state, DYN_GIN_FAILED); /* before a kernel ends by it, which the program may see */
    bool gaveUp = __atomic_fetch_or(&words->stop, 1, __ATOMIC_ACQ_REL) != 0; /* by its own clock, and nobody has looked since (dyn_gin_check) */
    if (gaveUp && atomic_load(&gin->each[i].proven) && !atomic_load(&gin->parting)) atomic_store(&lsa->missed, true);
  }
}

bool dyn_gin_in_flight(const struct dyn_lsa *lsa) {
  const struct dyn_gin_lives *gin = lsa->gin;
  bool any = false;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++) any |= atomic_load(&gin->each[i].state.now) == DYN_GIN_IN_FLIGHT;
  return any;
}

void dyn_gin_look(struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++)
    if (atomic_load(&gin->each[i].state.now) == DYN_GIN_IN_FLIGHT && dyn_lsa_settle(lsa, 0)) dyn_gin_move(&gin->each[i].state, DYN_GIN_COMPLETE);
}

bool dyn_gin_missed(const struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  for (int i = 0; gin != NULL && !atomic_load(&gin->parting) && i < DYN_GIN_LIVES; i++) {
    const struct dyn_gin_words *words = gin->each[i].words;
    if (words != NULL && atomic_load(&gin->each[i].proven) && __atomic_load_n(&words->stop, __ATOMIC_ACQUIRE) & DYN_STOP_MISSED) return true;
  }
  return false;
}

/* Its word comes before the kernel's end, which the program may see. */
bool dyn_gin_check(struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  if (gin == NULL || dyn_lsa_stopped(lsa) || atomic_load(&gin->parting)) return false;
  for (int i = 0; i < DYN_GIN_LIVES; i++) {
    const struct dyn_gin_life *life = &gin->each[i];
    if (!dyn_gin_usable(&life->state) || __atomic_load_n(&life->words->stop, __ATOMIC_ACQUIRE) == 0) continue;
    char text[512], *why = fault_of(lsa, life->words, text) == NULL ? NULL : strdup(text); /* kept for who asks later */
    dyn_lsa_stop(lsa, why == NULL ? "a rank was waited for in vain" : why);
    return true;
  }
  return false;
}
