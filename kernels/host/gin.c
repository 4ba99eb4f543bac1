/* SPDX-License-Identifier: Apache-2.0
 *
 * How GIN comes to a communicator, and how it goes: the steps between the states of gin_state.c. NCCL's own steps wait for all ranks, and a
 * rank for which one fails leaves the others waiting there. So GIN has a communicator of its own, of the same ranks: one that does not block,
 * so that each step has a deadline, and that can be aborted. The program's communicator is left alone, whatever happens here.
 *
 * Where NCCL has several backends on it each gets a life: one after the other, in the same order on all ranks. NCCL's steps must be made by
 * all ranks alike, so the first of them that fails is the last one that is made; lives that are active stay so.
 */
#include "gin_life.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STEP_S 30                       /* of NCCL's: the first communicator of a process takes seconds */
#define PROBE_S 5                       /* a wait of the probe, at most */
#define MOST_PEER_WAIT_S 604800         /* a week */
#define FAREWELL_S 10                   /* one of the last exchange: a rank may free memory meanwhile, which waits for other kernels */
#define CELL_BYTES ((size_t)32 << 10) /* of buffers of hierarchical kernels */

bool dyn_gin_can(void) {
  const struct dyn_gin_nccl *nccl = dyn_gin_nccl();
  return nccl != NULL && dyn_gin_module_there(nccl->version);
}

bool dyn_gin_id(uint8_t id[128]) {
  const struct dyn_gin_nccl *nccl = dyn_gin_nccl();
  struct dyn_nccl_id made;
  if (nccl == NULL || nccl->ncclGetUniqueId(&made) != DYN_NCCL_SUCCESS) return false;
  memcpy(id, &made, sizeof made);
  return true;
}

uint32_t dyn_gin_now(const struct dyn_lsa *lsa) { return lsa->gin == NULL ? DYN_GIN_UNINITIALISED : atomic_load(&lsa->gin->each[0].state.now); }

struct dyn_gin_life *dyn_gin_of(const struct dyn_lsa *lsa, uint32_t backend) {
  struct dyn_gin_lives *gin = lsa->gin;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++)
    if (dyn_gin_usable(&gin->each[i].state) && gin->each[i].state.backend == backend) return &gin->each[i];
  return NULL;
}

__attribute__((format(printf, 2, 3))) static bool fail(struct dyn_gin_lives *gin, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(gin->why, sizeof gin->why, format, arguments);
  va_end(arguments);
  return false;
}

/* otherwise: not set, or nothing that can be meant. */
static unsigned seconds_of(const char *name, unsigned most, unsigned otherwise) {
  const char *text = getenv(name);
  char *end = NULL;
  unsigned long seconds = text != NULL && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
  return seconds >= 1 && seconds <= most && *end == '\0' ? (unsigned)seconds : otherwise;
}

static unsigned step_seconds(void) { return seconds_of("DYNAMICCL_GIN_WAIT_S", 3600, STEP_S); }

/* Of a kernel of a call, for one peer. A rank may be late by hours, so there is no end unless somebody wants it. Who is dead is found by watch.c. */
static uint64_t call_wait_ns(void) {
  unsigned seconds = seconds_of("DYNAMICCL_GIN_PEER_WAIT_S", MOST_PEER_WAIT_S, 0);
  return seconds == 0 ? UINT64_MAX : seconds * UINT64_C(1000000000);
}

static unsigned at_most(unsigned seconds) { return step_seconds() < seconds ? step_seconds() : seconds; }

/* ---- NCCL ---- */

/* A call of NCCL's that gave this has come to its end. On a communicator that does not block ncclDevCommCreate and
 * ncclCommWindowRegister of 2.28.9 give ncclSuccess while a thread is at it: only the communicator tells. */
static bool ended(struct dyn_lsa *lsa, int result, const char *what) {
  struct dyn_gin_lives *gin = lsa->gin;
  unsigned seconds = step_seconds() + gin->lateS;
  uint64_t until = dyn_host_ns() + seconds * UINT64_C(1000000000);
  for (;; nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL)) {
    if (result == DYN_NCCL_SUCCESS || result == DYN_NCCL_IN_PROGRESS) {
      int failed = gin->nccl->ncclCommGetAsyncError(gin->comm, &result);
      if (failed != DYN_NCCL_SUCCESS) result = failed;
    }
    if (result == DYN_NCCL_SUCCESS) return true;
    if (result != DYN_NCCL_IN_PROGRESS) return fail(gin, "%s: %s: %s", what, gin->nccl->ncclGetErrorString(result), gin->nccl->ncclGetLastError(gin->comm));
    if (dyn_lsa_stopped(lsa)) return fail(gin, "%s: a rank is gone", what);
    if (dyn_host_ns() > until) return fail(gin, "%s: not done within %u s: a rank did not come so far", what, seconds);
  }
}

static bool make_comm(struct dyn_lsa *lsa, const uint8_t id[128]) {
  const char *net = getenv("DYNAMICCL_GIN_NET");
  struct dyn_nccl_config config = {.size = sizeof config, .magic = DYN_NCCL_MAGIC, .version = DYN_NCCL_CONFIG_VERSION, .blocking = 0,
                                   .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN, .trafficClass = INT_MIN,
                                   .commName = DYN_GIN_COMM_NAME, .collnetEnable = INT_MIN, .CTAPolicy = INT_MIN, .shrinkShare = INT_MIN,
                                   .nvlsCTAs = INT_MIN, .nChannelsPerNetPeer = INT_MIN, .nvlinkCentricSched = INT_MIN};
  struct dyn_nccl_id own;
  memcpy(&own, id, sizeof own);
  config.netName = net != NULL && *net != '\0' ? net : NULL;
  return ended(lsa, lsa->gin->nccl->ncclCommInitRankConfig(&lsa->gin->comm, (int)lsa->nRanks, own, (int)lsa->rank, &config), "ncclCommInitRankConfig");
}

/* What was granted need not be what was asked for. */
static bool make_device(struct dyn_lsa *lsa, struct dyn_gin_life *life, int type) {
  struct dyn_gin_lives *gin = lsa->gin;
  const struct dyn_gin_wants wants = {.type = type, .contexts = gin->contexts, .signals = NUM_LANES * (int)dyn_gin_signals((int)lsa->nRanks),
                                      .counters = NUM_LANES * (int)dyn_gin_counters((int)lsa->nRanks)};
  if (!ended(lsa, dyn_gin_ask(gin->nccl, gin->comm, &wants, &life->device), "ncclDevCommCreate")) return false;
  life->granted = dyn_gin_granted(gin->nccl->version, &life->device);
  const struct dyn_gin_granted *g = &life->granted;
  if (g->rank != (int)lsa->rank || g->nRanks != (int)lsa->nRanks) return fail(gin, "the device communicator is of other ranks");
  if (g->contexts < 1) return fail(gin, "no context was granted");
  if (g->signals < wants.signals || g->counters < wants.counters) return fail(gin, "fewer signals or counters were granted than were asked for");
  if (g->lsaSize < 1 || g->nRanks % g->lsaSize != 0 || g->lsaRank != g->rank % g->lsaSize) return fail(gin, "an LSA team is not of ranks in a row");
  if (g->backend == DYN_GIN_NO_BACKEND) return fail(gin, "contexts of an unknown kind, or of several");
  if (type != DYN_NCCL_GIN_ANY && g->backend != dyn_gin_backend_of(type)) return fail(gin, "another type was granted than was asked for");
  life->state.backend = g->backend;
  life->state.contexts = g->contexts < DYN_GIN_MAX_CONTEXTS ? g->contexts : DYN_GIN_MAX_CONTEXTS;
  return true;
}

/* ---- memory ---- */

static size_t slot_bytes(const struct dyn_lsa *lsa) { return (size_t)DYN_GIN_SLOTS * lsa->nRanks * DYN_GIN_SLOT_BYTES; }
static size_t window_bytes(const struct dyn_lsa *lsa, const struct dyn_gin_life *life) { /* of a lane */
  return slot_bytes(lsa) + dyn_gin_pipe_bytes((int)lsa->nRanks, life->granted.lsaSize, CELL_BYTES);
}

/* No kernel that has them runs. */
static void give_back_numbers(struct dyn_gin_life *life) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  if (life->numbers != 0) driver->cuMemFree_v2(life->numbers);
  life->numbers = 0;
  dyn_watch_hold(); /* who finds a rank gone now stops what is there (dyn_gin_stop), and that is no more */
  struct dyn_gin_words *words = life->words;
  life->words = NULL;
  dyn_watch_go_on();
  if (words != NULL) driver->cuMemFreeHost(words);
}

static bool make_numbers(struct dyn_lsa *lsa, struct dyn_gin_life *life, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  size_t calls = (DYN_GIN_COUNTERS + DYN_GIN_FLAG_WORDS) * sizeof(uint32_t), seen = life->state.contexts * dyn_gin_seen((int)lsa->nRanks) * sizeof(uint64_t);
  struct dyn_gin_words *words = NULL;
  const uint64_t lateNs = dyn_late_ns();
  size_t legs = DYN_GIN_TRIP_BLOCKS * lsa->nRanks * sizeof(struct dyn_gin_legs), lane = (seen + legs + calls + 63) / 64 * 64; /* a GPU wants all aligned */
  bool made = driver->cuMemAlloc_v2(&life->numbers, NUM_LANES * lane) == 0 && driver->cuMemsetD8Async(life->numbers, 0, NUM_LANES * lane, stream) == 0 &&
              driver->cuMemAllocHost_v2((void **)&words, sizeof *words) == 0;
  if (made) life->words = memset(words, 0, sizeof *words);
  made = made && driver->cuStreamSynchronize(stream) == 0;
  for (int l = 0; l < NUM_LANES && made; l++) {
    char *at = (char *)(uintptr_t)life->numbers + (size_t)l * lane;
    life->lanes[l] = (struct dyn_gin){.rank = (int32_t)lsa->rank, .nRanks = (int32_t)lsa->nRanks, .slotBytes = DYN_GIN_SLOT_BYTES, .seen = (uint64_t *)at, .contexts = life->state.contexts,
                                      .legs = (struct dyn_gin_legs *)(at + seen), .calls = (uint32_t *)(at + seen + legs),
                                      .items = (uint32_t *)(at + seen + legs) + DYN_GIN_COUNTERS,
                                      .stop = &words->stop, .fault = words->faults, .late = lateNs == 0 ? NULL : &words->late[l], .lateNs = lateNs, .localRanks = life->granted.lsaSize,
                                      .slotsAt = (size_t)l * window_bytes(lsa, life), .pipesAt = (size_t)l * window_bytes(lsa, life) + slot_bytes(lsa),
                                      .cellBytes = CELL_BYTES, .firstSignal = (uint32_t)l * dyn_gin_signals((int)lsa->nRanks),
                                      .firstCounter = (uint32_t)l * dyn_gin_counters((int)lsa->nRanks)};
  }
  if (made && dyn_trips_make(life, lsa->nRanks)) return true;
  give_back_numbers(life);
  return fail(lsa->gin, "CUDA gives no memory");
}

/* Entries of the shortest queue to a peer: no rank puts to itself. 0: NCCL did not tell, or what cannot be. */
static uint32_t shortest_queue(const struct dyn_lsa *lsa, const struct dyn_gin_life *life) {
  uint64_t depth = UINT64_MAX;
  for (uint32_t c = 0; c < life->state.contexts; c++)
    for (uint32_t r = 0; r < lsa->nRanks; r++) {
      uint64_t of = life->words->stamps[c * lsa->nRanks + r].depth;
      if (r != lsa->rank && of < depth) depth = of;
    }
  return depth <= DYN_GIN_MOST_DEPTH && (depth & (depth - 1)) == 0 ? (uint32_t)depth : 0;
}

/* Where signals and counters stand: NCCL 2.28.9 does not begin at 0 with a device communicator that gets those of one before it. And
 * how deep queues are. */
static bool look(struct dyn_lsa *lsa, struct dyn_gin_life *life, void *stream) {
  struct dyn_gin_call call = {.stamps = life->words->stamps};
  const struct dyn_gin_grid grid = {life->module->look, DYN_GIN_MAX_BLOCKS, 32};
  int error = 0;
  for (int l = 0; l < NUM_LANES && error == 0; l++)
    error = dyn_gin_launch(life, l, &grid, stream, &call, NULL);
  if (error == 0) error = dyn_host_driver()->cuStreamSynchronize(stream);
  if (error == 0) life->state.depth = shortest_queue(lsa, life);
  return error == 0 || fail(lsa->gin, "CUDA error %d of the first kernel", error);
}

/* Registering waits for all ranks at its end, and each has looked before: so nobody puts before all have. */
static bool make_window(struct dyn_lsa *lsa, struct dyn_gin_life *life, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_lives *gin = lsa->gin;
  size_t bytes = NUM_LANES * window_bytes(lsa, life);
  if (!ended(lsa, gin->nccl->ncclMemAlloc(&life->memory, bytes), "ncclMemAlloc")) return false;
  if (driver->cuMemsetD8Async((dyn_gpu_address)(uintptr_t)life->memory, 0, bytes, stream) != 0 || driver->cuStreamSynchronize(stream) != 0)
    return fail(gin, "CUDA does not clear memory of NCCL's");
  if (!ended(lsa, gin->nccl->ncclCommWindowRegister(gin->comm, life->memory, bytes, &life->window, DYN_NCCL_WIN_SYMMETRIC), "ncclCommWindowRegister")) return false;
  return life->window != NULL || fail(gin, "ncclCommWindowRegister gives no window");
}

/* ---- the steps ---- */

/* What became of a life. OVER: NCCL's steps were all made, and nothing of this rank's runs on, so another one may follow. */
enum outcome { UNGRANTED, STUCK, OVER, PROVEN };

static enum outcome prove(struct dyn_lsa *lsa, struct dyn_gin_life *life, void *stream) {
  if (!make_window(lsa, life, stream)) return STUCK;
  if (dyn_gin_exchange(lsa, life, at_most(PROBE_S) * UINT64_C(1000000000), lsa->gin->why) != NULL)
    return !dyn_lsa_stopped(lsa) && dyn_host_driver()->cuEventQuery(lsa->scratch->done[LANE_CALLS]) == 0 ? OVER : STUCK;
  for (int l = 0; l < NUM_LANES; l++) life->lanes[l].waitNs = call_wait_ns();
  dyn_gin_join(lsa, life);
  atomic_store(&life->proven, true);
  return PROVEN;
}

static void begin_life(struct dyn_gin_life *life) {
  dyn_gin_move(&life->state, DYN_GIN_WANTED);
  dyn_gin_move(&life->state, DYN_GIN_INITIALISING);
}

static enum outcome make_life(struct dyn_lsa *lsa, struct dyn_gin_life *life, int type, void *stream) {
  bool made = make_device(lsa, life, type) && make_numbers(lsa, life, stream);
  if (made) dyn_gin_expect(life, lsa->gin->nccl->version);
  if (!made || !look(lsa, life, stream)) {
    dyn_gin_move(&life->state, DYN_GIN_FAILED);
    return UNGRANTED;
  }
  dyn_gin_move(&life->state, DYN_GIN_GRANTED);
  enum outcome came = prove(lsa, life, stream);
  dyn_gin_move(&life->state, came == PROVEN ? DYN_GIN_ACTIVE : DYN_GIN_FAILED);
  return came;
}

/* Once. by: the backend; "": no communicator, or one backend that nobody could ask for by name. */
static void say_why(const struct dyn_lsa *lsa, const char *by) {
  const char *why = lsa->gin->why;
  if (*why == '\0') return;
  if (*by == '\0') dyn_host_say("rank %u of %u: no GIN for this communicator: %s; NCCL runs its calls", lsa->rank, lsa->nRanks, why);
  else dyn_host_say("rank %u of %u: no GIN by %s for this communicator: %s", lsa->rank, lsa->nRanks, by, why);
  lsa->gin->why[0] = '\0';
}

/* How many are active. */
static int make_lives(struct dyn_lsa *lsa, const uint8_t id[128], void *stream) {
  struct dyn_gin_lives *gin = lsa->gin;
  int types[DYN_GIN_LIVES], active = 0;
  size_t count = 0;
  bool granted = false;
  if (make_comm(lsa, id) && ended(lsa, dyn_gin_types(gin->nccl, gin->comm, &count, types), "ncclCommQueryProperties") && count == 0)
    fail(gin, "NCCL has none of the types that the kernels know here, GDAKI and Proxy");
  for (size_t i = 0; i < count; i++) {
    if (i > 0) begin_life(&gin->each[i]); /* the first one began with the communicator */
    enum outcome came = make_life(lsa, &gin->each[i], types[i], stream);
    granted |= came != UNGRANTED;
    active += came == PROVEN;
    if (came != PROVEN) say_why(lsa, types[i] == DYN_NCCL_GIN_ANY ? "" : dyn_gin_backend_name(dyn_gin_backend_of(types[i])));
    if (came < OVER) break;
    gin->lateS = 4 * at_most(PROBE_S); /* a rank may have heard all where others wait in vain until their probe ends (await_exchange) */
  }
  if (granted) return active;
  dyn_gin_move(&gin->each[0].state, DYN_GIN_FAILED);
  for (int i = 0; i < DYN_GIN_LIVES; i++) gin->each[i].expected = (struct dyn_carrier_expected){0}; /* it goes with the communicator */
  if (gin->comm != NULL) gin->nccl->ncclCommAbort(gin->comm); /* nobody has put anything yet */
  return 0;
}

static bool begin(struct dyn_lsa *lsa, const uint8_t id[128]) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int mode = DYN_RELAXED_CAPTURE;
  bool pushed, made = false;
  void *stream;
  if (!dyn_context_enter(lsa->context, &pushed)) return fail(lsa->gin, "its CUDA context is gone");
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  if (driver->cuStreamCreate(&stream, DYN_STREAM_NON_BLOCKING) == 0) {
    made = make_lives(lsa, id, stream) > 0;
    driver->cuStreamDestroy_v2(stream);
  } else {
    fail(lsa->gin, "CUDA refuses a stream");
  }
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  dyn_context_leave(pushed);
  return made;
}

static void tell(const struct dyn_lsa *lsa, struct dyn_rank *self) {
  const char *counts = getenv("DYNAMICCL_COUNT_CALLS");
  for (int i = 0; i < DYN_GIN_LIVES; i++) {
    const struct dyn_gin_life *life = &lsa->gin->each[i];
    if (!dyn_gin_usable(&life->state)) continue;
    __atomic_store_n(&self->ginSignals, (uint32_t)life->granted.signals, __ATOMIC_RELAXED); /* asked for alike of each backend */
    __atomic_store_n(&self->ginCounters, (uint32_t)life->granted.counters, __ATOMIC_RELAXED);
    if (counts != NULL && strcmp(counts, "1") == 0)
      dyn_host_say("rank %u of %u: GIN is %s: %s, %u contexts, queues of %u, %d signals, %d counters", lsa->rank, lsa->nRanks, dyn_gin_state_name(atomic_load(&life->state.now)),
                   dyn_gin_backend_name(life->state.backend), life->state.contexts, life->state.depth, life->granted.signals, life->granted.counters);
  }
}

bool dyn_gin_make(struct dyn_lsa *lsa, const struct dyn_offer *offers, const uint8_t id[128], struct dyn_rank *self) {
  struct dyn_gin_lives *gin = calloc(1, sizeof *gin);
  const struct dyn_gin_module *module = dyn_gin_module_get(lsa->context);
  uint32_t *const told[DYN_GIN_LIVES] = {&self->gin, &self->ginSecond};
  if (gin == NULL || lsa->gin != NULL) return free(gin), false;
  if (!atomic_load(&lsa->ready)) {
    memcpy(lsa->peers, offers, lsa->nRanks * sizeof *offers);
    lsa->mostCtas = dyn_most_ctas(offers, lsa->nRanks);
  }
  gin->nccl = dyn_gin_nccl();
  dyn_gin_bound(lsa, gin);
  atomic_store(&lsa->ready, true); /* their processes are watched from here on */
  for (int i = 0; i < DYN_GIN_LIVES; i++) gin->each[i].state.told = told[i], gin->each[i].module = module;
  lsa->gin = gin;
  begin_life(&gin->each[0]);
  const char *against = gin->nccl == NULL || module == NULL ? "its kernels do not load" : NULL;
  if (against == NULL && !dyn_gin_can_agree(gin->nccl->version, lsa->peers, lsa->nRanks)) against = "NCCL_GIN_NCONTEXTS is not the same on all ranks";
  bool made = against == NULL ? begin(lsa, id) : fail(gin, "%s", against);
  if (made) {
    tell(lsa, self);
    if (gin->narrow) dyn_host_say("rank %u of %u: a kernel may have %u CTAs, which ranks on other hosts do not know: no kernels over GIN", lsa->rank, lsa->nRanks, lsa->mostCtas);
    return true;
  }
  dyn_gin_move(&gin->each[0].state, DYN_GIN_FAILED);
  say_why(lsa, "");
  return false;
}

/* ---- the end ---- */

static bool give_back_life(struct dyn_lsa *lsa, struct dyn_gin_life *life) {
  const struct dyn_gin_lives *gin = lsa->gin;
  dyn_watch_hold(); /* as give_back_numbers: the carrier's words go with the device communicator, and may be another's behind it */
  life->expected = (struct dyn_carrier_expected){0};
  dyn_watch_go_on();
  if (!ended(lsa, gin->nccl->ncclDevCommDestroy(gin->comm, &life->device), "ncclDevCommDestroy") ||
      !ended(lsa, gin->nccl->ncclCommWindowDeregister(gin->comm, life->window), "ncclCommWindowDeregister") ||
      !ended(lsa, gin->nccl->ncclMemFree(life->memory), "ncclMemFree"))
    return false;
  dyn_trips_free(life);
  give_back_numbers(life);
  return true;
}

static bool begun(const struct dyn_gin_life *life) { return atomic_load(&life->state.now) != DYN_GIN_UNINITIALISED; }

/* Of all lives, or of none: where one failed puts may be on their way, and the communicator stays. A kernel that has not ended by then may give up
 * later, in all lanes, so the memory of these waits for it as for one that the program called, also where there was none (dyn_lsa_settle). */
static bool farewell(struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  bool done = true;
  atomic_store(&lsa->called, true);
  for (int i = 0; i < DYN_GIN_LIVES; i++) done = done && (!begun(&gin->each[i]) || dyn_gin_usable(&gin->each[i].state));
  for (int i = 0; i < DYN_GIN_LIVES; i++) done = done && (!begun(&gin->each[i]) || dyn_gin_exchange(lsa, &gin->each[i], at_most(FAREWELL_S) * UINT64_C(1000000000), gin->why) == NULL);
  for (int i = 0; i < DYN_GIN_LIVES; i++) done = done && (!begun(&gin->each[i]) || give_back_life(lsa, &gin->each[i]));
  if (done) gin->nccl->ncclCommAbort(gin->comm); /* NCCL 2.32.3 destroys one with all ranks of a node, of which one may have given up */
  else if (*gin->why != '\0') dyn_host_say("rank %u of %u: memory of kernels over GIN stays behind their communicator: %s", lsa->rank, lsa->nRanks, gin->why);
  return done;
}

static void move_all(struct dyn_gin_lives *gin, uint32_t to) {
  for (int i = 0; i < DYN_GIN_LIVES; i++) dyn_gin_move(&gin->each[i].state, to);
}

static bool usable(const struct dyn_gin_lives *gin) {
  bool any = false;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++) any |= dyn_gin_usable(&gin->each[i].state);
  return any;
}

/* What this rank has put its peers may still wait for, and NCCL's thread may still have: so they exchange a word once more,
 * which comes behind all else. A graph may be replayed later: what it needs stays. */
void dyn_gin_destroy(struct dyn_lsa *lsa) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int mode = DYN_RELAXED_CAPTURE;
  bool pushed;
  if (!usable(lsa->gin) || lsa->numCaptures > 0) return;
  dyn_gin_look(lsa);
  if (dyn_lsa_stopped(lsa) || !dyn_context_lives(lsa) || !dyn_lsa_settle(lsa, 0)) {
    move_all(lsa->gin, DYN_GIN_FAILED);
    return;
  }
  if (!dyn_context_enter(lsa->context, &pushed)) return;
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  atomic_store(&lsa->gin->parting, true);
  bool done = farewell(lsa);
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  dyn_context_leave(pushed);
  move_all(lsa->gin, done ? DYN_GIN_DESTROYED : DYN_GIN_FAILED);
}

/* The communicator's memory goes: where something may still be under way, what that needs stays. */
bool dyn_gin_forget(struct dyn_lsa *lsa) {
  struct dyn_gin_lives *gin = lsa->gin;
  bool stays = usable(gin);
  if (gin == NULL) return false;
  for (int i = 0; i < DYN_GIN_LIVES; i++) gin->each[i].state.told = NULL, dyn_gin_left(lsa, &gin->each[i]);
  lsa->gin = NULL;
  if (atomic_load(&gin->each[0].state.now) == DYN_GIN_DESTROYED) free(gin);
  return stays;
}
