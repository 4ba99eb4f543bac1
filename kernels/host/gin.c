/* SPDX-License-Identifier: Apache-2.0
 *
 * How GIN comes to a communicator, and how it goes: the steps between the states of gin_state.c. NCCL's own steps wait for all
 * ranks, and a rank for which one fails leaves the others waiting there. So GIN has a communicator of its own, of the same
 * ranks: one that does not block, so that each step has a deadline, and that can be aborted. The program's communicator is
 * left alone, whatever happens here.
 */
#include "gin_life.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STEP_S 30                       /* of NCCL's: the first communicator of a process takes seconds */
#define PROBE_S 5                       /* a wait of the probe, at most */
#define FAREWELL_NS UINT64_C(2000000000) /* one of the last exchange: ranks may end a communicator one after the other */
#define SLOT_BYTES ((size_t)256 << 10)
#define CELL_BYTES ((size_t)32 << 10) /* of buffers of hierarchical kernels */
#define CONFIG_MAGIC 0xcafebeefu /* NCCL_CONFIG_INITIALIZER */

bool dyn_gin_can(void) { return dyn_gin_module_there() && dyn_gin_nccl() != NULL; }

bool dyn_gin_id(uint8_t id[128]) {
  const struct dyn_gin_nccl *nccl = dyn_gin_nccl();
  struct dyn_nccl_id made;
  if (nccl == NULL || nccl->ncclGetUniqueId(&made) != DYN_NCCL_SUCCESS) return false;
  memcpy(id, &made, sizeof made);
  return true;
}

uint32_t dyn_gin_now(const struct dyn_lsa *lsa) { return lsa->gin == NULL ? DYN_GIN_UNINITIALISED : atomic_load(&lsa->gin->state.now); }

__attribute__((format(printf, 2, 3))) static bool fail(struct dyn_gin_life *life, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(life->why, sizeof life->why, format, arguments);
  va_end(arguments);
  return false;
}

static unsigned step_seconds(void) {
  const char *text = getenv("DYNAMICCL_GIN_WAIT_S");
  int seconds = text == NULL ? 0 : atoi(text);
  return seconds >= 1 && seconds <= 3600 ? (unsigned)seconds : STEP_S;
}

/* ---- NCCL ---- */

/* A call of NCCL's that gave this has come to its end. On a communicator that does not block ncclDevCommCreate and
 * ncclCommWindowRegister of 2.28.9 give ncclSuccess while a thread is at it: only the communicator tells. */
static bool ended(struct dyn_lsa *lsa, int result, const char *what) {
  struct dyn_gin_life *life = lsa->gin;
  unsigned seconds = step_seconds();
  uint64_t until = dyn_host_ns() + seconds * UINT64_C(1000000000);
  for (;; nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL)) {
    if (result == DYN_NCCL_SUCCESS || result == DYN_NCCL_IN_PROGRESS) {
      int failed = life->nccl->ncclCommGetAsyncError(life->comm, &result);
      if (failed != DYN_NCCL_SUCCESS) result = failed;
    }
    if (result == DYN_NCCL_SUCCESS) return true;
    if (result != DYN_NCCL_IN_PROGRESS) return fail(life, "%s: %s: %s", what, life->nccl->ncclGetErrorString(result), life->nccl->ncclGetLastError(life->comm));
    if (dyn_lsa_stopped(lsa)) return fail(life, "%s: a rank is gone", what);
    if (dyn_host_ns() > until) return fail(life, "%s: not done within %u s: a rank did not come so far", what, seconds);
  }
}

static bool make_comm(struct dyn_lsa *lsa, const uint8_t id[128]) {
  const char *net = getenv("DYNAMICCL_GIN_NET");
  struct dyn_nccl_config config = {.size = sizeof config, .magic = CONFIG_MAGIC, .version = DYN_GIN_NCCL_VERSION, .blocking = 0,
                                   .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN, .trafficClass = INT_MIN,
                                   .commName = DYN_GIN_COMM_NAME, .collnetEnable = INT_MIN, .CTAPolicy = INT_MIN, .shrinkShare = INT_MIN,
                                   .nvlsCTAs = INT_MIN, .nChannelsPerNetPeer = INT_MIN, .nvlinkCentricSched = INT_MIN};
  struct dyn_nccl_id own;
  memcpy(&own, id, sizeof own);
  config.netName = net != NULL && *net != '\0' ? net : NULL;
  return ended(lsa, lsa->gin->nccl->ncclCommInitRankConfig(&lsa->gin->comm, (int)lsa->nRanks, own, (int)lsa->rank, &config), "ncclCommInitRankConfig");
}

static uint32_t backend_of(const struct dyn_nccl_dev_comm *device) {
  for (int c = 1; c < device->ginContextCount; c++)
    if (device->ginTypes[c] != device->ginTypes[0]) return 0;
  return device->ginTypes[0] == DYN_NCCL_GIN_GDAKI ? DYN_BACKEND_GDAKI : device->ginTypes[0] == DYN_NCCL_GIN_PROXY ? DYN_BACKEND_PROXY : 0;
}

/* What was granted need not be what was asked for: 2.28.9 makes as many contexts as NCCL_GIN_NCONTEXTS says (4). Signals are
 * asked for directly, not by a list of requirements, in which they are forgotten (deepCopyDevCommRequirements). */
static bool make_device(struct dyn_lsa *lsa) {
  struct dyn_gin_life *life = lsa->gin;
  const struct dyn_nccl_dev_comm *device = &life->device;
  const struct dyn_nccl_requirements wants = {.ginForceEnable = true, .ginContextCount = DYN_GIN_MAX_CONTEXTS,
                                              .ginSignalCount = NUM_LANES * (int)dyn_gin_signals((int)lsa->nRanks),
                                              .ginCounterCount = NUM_LANES * (int)dyn_gin_counters((int)lsa->nRanks)};
  if (!ended(lsa, life->nccl->ncclDevCommCreate(life->comm, &wants, &life->device), "ncclDevCommCreate")) return false;
  if (device->rank != (int)lsa->rank || device->nRanks != (int)lsa->nRanks) return fail(life, "the device communicator is of other ranks");
  if (device->ginContextCount < 1 || device->ginContextCount > DYN_GIN_MAX_CONTEXTS) return fail(life, "no context was granted");
  if (device->ginSignalCount < wants.ginSignalCount || device->ginCounterCount < wants.ginCounterCount)
    return fail(life, "fewer signals or counters were granted than were asked for");
  if (device->lsaSize < 1 || device->nRanks % device->lsaSize != 0 || device->lsaRank != device->rank % device->lsaSize) return fail(life, "an LSA team is not of ranks in a row");
  life->state.backend = backend_of(device);
  life->state.contexts = device->ginContextCount;
  return life->state.backend != 0 || fail(life, "contexts of an unknown kind, or of several");
}

/* ---- memory ---- */

static size_t slot_bytes(const struct dyn_lsa *lsa) { return DYN_GIN_SLOTS * lsa->nRanks * SLOT_BYTES; }
static size_t window_bytes(const struct dyn_lsa *lsa) { /* of a lane */
  return slot_bytes(lsa) + dyn_gin_pipe_bytes((int)lsa->nRanks, lsa->gin->device.lsaSize, CELL_BYTES);
}

static bool make_numbers(struct dyn_lsa *lsa, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_life *life = lsa->gin;
  size_t calls = (DYN_GIN_CALLS + DYN_GIN_FLAG_WORDS) * sizeof(uint32_t), seen = life->state.contexts * dyn_gin_seen((int)lsa->nRanks) * sizeof(uint64_t);
  struct dyn_gin_words *words;
  size_t legs = DYN_GIN_TRIP_BLOCKS * lsa->nRanks * sizeof(struct dyn_gin_legs), lane = seen + legs + calls;
  if (driver->cuMemAlloc_v2(&life->numbers, NUM_LANES * lane) != 0 || driver->cuMemsetD8Async(life->numbers, 0, NUM_LANES * lane, stream) != 0 ||
      driver->cuMemAllocHost_v2((void **)&words, sizeof *words) != 0 || driver->cuStreamSynchronize(stream) != 0)
    return fail(life, "CUDA gives no memory");
  memset(words, 0, sizeof *words);
  life->words = words;
  for (int l = 0; l < NUM_LANES; l++) {
    char *at = (char *)(uintptr_t)life->numbers + (size_t)l * lane;
    life->lanes[l] = (struct dyn_gin){.rank = (int32_t)lsa->rank, .nRanks = (int32_t)lsa->nRanks, .slotBytes = SLOT_BYTES, .seen = (uint64_t *)at, .contexts = life->state.contexts,
                                      .legs = (struct dyn_gin_legs *)(at + seen), .calls = (uint32_t *)(at + seen + legs),
                                      .items = (uint32_t *)(at + seen + legs) + DYN_GIN_CALLS,
                                      .stop = &words->stop, .fault = words->faults, .localRanks = life->device.lsaSize,
                                      .slotsAt = (size_t)l * window_bytes(lsa), .pipesAt = (size_t)l * window_bytes(lsa) + slot_bytes(lsa),
                                      .cellBytes = CELL_BYTES, .firstSignal = (uint32_t)l * dyn_gin_signals((int)lsa->nRanks),
                                      .firstCounter = (uint32_t)l * dyn_gin_counters((int)lsa->nRanks)};
  }
  return dyn_trips_make(lsa) || fail(life, "there is no memory");
}

/* Where signals and counters stand: NCCL does not begin at 0 with a device communicator that gets those of one before it. */
static bool look(struct dyn_lsa *lsa, void *stream) {
  int error = 0;
  for (int l = 0; l < NUM_LANES && error == 0; l++)
    error = dyn_gin_launch(lsa, l, lsa->gin->module->look, DYN_GIN_MAX_BLOCKS, 32, stream, &(struct dyn_gin_call){0}, NULL);
  if (error == 0) error = dyn_host_driver()->cuStreamSynchronize(stream);
  return error == 0 || fail(lsa->gin, "CUDA error %d of the first kernel", error);
}

/* Registering waits for all ranks at its end, and each has looked before: so nobody puts before all have. */
static bool make_window(struct dyn_lsa *lsa, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_life *life = lsa->gin;
  size_t bytes = NUM_LANES * window_bytes(lsa);
  if (!ended(lsa, life->nccl->ncclMemAlloc(&life->memory, bytes), "ncclMemAlloc")) return false;
  if (driver->cuMemsetD8Async((dyn_gpu_address)(uintptr_t)life->memory, 0, bytes, stream) != 0 || driver->cuStreamSynchronize(stream) != 0)
    return fail(life, "CUDA does not clear memory of NCCL's");
  if (!ended(lsa, life->nccl->ncclCommWindowRegister(life->comm, life->memory, bytes, &life->window, DYN_NCCL_WIN_SYMMETRIC), "ncclCommWindowRegister")) return false;
  return life->window != NULL || fail(life, "ncclCommWindowRegister gives no window");
}

/* ---- the steps ---- */

static bool initialise(struct dyn_lsa *lsa, const uint8_t id[128], void *stream) {
  return make_comm(lsa, id) && make_device(lsa) && make_numbers(lsa, stream) && look(lsa, stream);
}

static bool prove(struct dyn_lsa *lsa, void *stream) {
  struct dyn_gin_life *life = lsa->gin;
  unsigned seconds = step_seconds() < PROBE_S ? step_seconds() : PROBE_S;
  if (!make_window(lsa, stream) || dyn_gin_exchange(lsa, seconds * UINT64_C(1000000000), life->why) != NULL) return false;
  for (int l = 0; l < NUM_LANES; l++) life->lanes[l].waitNs = UINT64_MAX; /* a rank may be late by hours. Who is dead is found by watch.c */
  return true;
}

static bool steps(struct dyn_lsa *lsa, const uint8_t id[128], void *stream) {
  struct dyn_gin_life *life = lsa->gin;
  if (!initialise(lsa, id, stream)) {
    dyn_gin_move(&life->state, DYN_GIN_FAILED);
    if (life->comm != NULL) life->nccl->ncclCommAbort(life->comm); /* nobody has put anything yet */
    return false;
  }
  dyn_gin_move(&life->state, DYN_GIN_GRANTED);
  bool proven = prove(lsa, stream);
  dyn_gin_move(&life->state, proven ? DYN_GIN_ACTIVE : DYN_GIN_FAILED);
  return proven;
}

static bool begin(struct dyn_lsa *lsa, const uint8_t id[128]) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int mode = DYN_RELAXED_CAPTURE;
  bool pushed, made = false;
  void *stream;
  if (!dyn_context_enter(lsa->context, &pushed)) return fail(lsa->gin, "its CUDA context is gone");
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  if (driver->cuStreamCreate(&stream, DYN_STREAM_NON_BLOCKING) == 0) {
    made = steps(lsa, id, stream);
    driver->cuStreamDestroy_v2(stream);
  }
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  dyn_context_leave(pushed);
  return made;
}

static void tell(const struct dyn_lsa *lsa, struct dyn_rank *self) {
  const struct dyn_gin_life *life = lsa->gin;
  const char *counts = getenv("DYNAMICCL_COUNT_CALLS");
  __atomic_store_n(&self->ginSignals, (uint32_t)life->device.ginSignalCount, __ATOMIC_RELAXED);
  __atomic_store_n(&self->ginCounters, (uint32_t)life->device.ginCounterCount, __ATOMIC_RELAXED);
  if (counts == NULL || strcmp(counts, "1") != 0) return;
  dyn_host_say("rank %u of %u: GIN is %s: %s, %u contexts, %d signals, %d counters", lsa->rank, lsa->nRanks,
               dyn_gin_state_name(atomic_load(&life->state.now)), dyn_gin_backend_name(life->state.backend), life->state.contexts,
               life->device.ginSignalCount, life->device.ginCounterCount);
}

bool dyn_gin_make(struct dyn_lsa *lsa, const struct dyn_offer *offers, const uint8_t id[128], struct dyn_rank *self) {
  struct dyn_gin_life *life = calloc(1, sizeof *life);
  if (life == NULL || lsa->gin != NULL) return free(life), false;
  if (!atomic_load(&lsa->ready)) memcpy(lsa->peers, offers, lsa->nRanks * sizeof *offers);
  atomic_store(&lsa->ready, true); /* their processes are watched from here on */
  life->state.told = self;
  life->nccl = dyn_gin_nccl();
  life->module = dyn_gin_module_get(lsa->context);
  lsa->gin = life;
  dyn_gin_move(&life->state, DYN_GIN_WANTED);
  dyn_gin_move(&life->state, DYN_GIN_INITIALISING);
  bool made = life->nccl != NULL && life->module != NULL ? begin(lsa, id) : fail(life, "its kernels do not load");
  if (made) {
    tell(lsa, self);
    return true;
  }
  dyn_gin_move(&life->state, DYN_GIN_FAILED);
  dyn_host_say("rank %u of %u: no GIN for this communicator: %s; NCCL runs its calls", lsa->rank, lsa->nRanks, life->why[0] == '\0' ? "CUDA refuses a stream" : life->why);
  return false;
}

/* ---- the end ---- */

static bool give_back(struct dyn_lsa *lsa) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_life *life = lsa->gin;
  if (!ended(lsa, life->nccl->ncclDevCommDestroy(life->comm, &life->device), "ncclDevCommDestroy") ||
      !ended(lsa, life->nccl->ncclCommWindowDeregister(life->comm, life->window), "ncclCommWindowDeregister") ||
      !ended(lsa, life->nccl->ncclMemFree(life->memory), "ncclMemFree"))
    return false;
  dyn_trips_free(life);
  driver->cuMemFree_v2(life->numbers);
  driver->cuMemFreeHost(life->words);
  life->words = NULL;
  life->nccl->ncclCommDestroy(life->comm);
  return true;
}

/* What this rank has put its peers may still wait for, and NCCL's thread may still have: so they exchange a word once more,
 * which comes behind all else. A graph may be replayed later: what it needs stays. */
void dyn_gin_destroy(struct dyn_lsa *lsa) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct dyn_gin_life *life = lsa->gin;
  int mode = DYN_RELAXED_CAPTURE;
  bool pushed;
  if (life == NULL || !dyn_gin_usable(&life->state) || lsa->captureId != 0) return;
  dyn_gin_look(lsa);
  if (dyn_lsa_stopped(lsa) || !dyn_lsa_settle(lsa, 0)) {
    dyn_gin_move(&life->state, DYN_GIN_FAILED);
    return;
  }
  if (!dyn_context_enter(lsa->context, &pushed)) return;
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  bool done = dyn_gin_exchange(lsa, FAREWELL_NS, life->why) == NULL && give_back(lsa);
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  dyn_context_leave(pushed);
  dyn_gin_move(&life->state, done ? DYN_GIN_DESTROYED : DYN_GIN_FAILED);
}

/* The communicator's memory goes: where something may still be under way, what that needs stays. */
void dyn_gin_forget(struct dyn_lsa *lsa) {
  struct dyn_gin_life *life = lsa->gin;
  if (life == NULL) return;
  life->state.told = NULL;
  lsa->gin = NULL;
  if (atomic_load(&life->state.now) == DYN_GIN_DESTROYED) free(life);
}
