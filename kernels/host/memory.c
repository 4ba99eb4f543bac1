/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch memory: made where there is room (room.c), offered to peers by CUDA's handles for other processes, opened, and kept for later
 * communicators. Why handles and not NCCL's windows: docs/design.md, decision 27.
 *
 * A lane of it: flags of kernels in bulk, counters of calls and of barriers, places to meet, in the first pages; half of the rest are slots
 * for lines, the other half is for what goes in bulk, in as many rounds as it takes.
 */
#include "lsa.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../nccltuner/plugin/process_start.h"
#include "../carrier/places.h"
#include "readable.h"
#include "stderr.h"
#include "turns.h"

#define FLAGS_BYTES (DYN_KERNEL_MAX_BLOCKS * DYN_KERNEL_MAX_RANKS * sizeof(uint32_t))
#define CALLS_BYTES ((DYN_KERNEL_COUNTERS * sizeof(uint32_t) + 63) / 64 * 64)
#define PASSED_BYTES (DYN_KERNEL_MAX_BLOCKS * sizeof(uint32_t))
#define PAGE ((size_t)4096)
#define MEETINGS_BYTES (DYN_MEETINGS * sizeof(struct dyn_meeting))
#define HEAD_BYTES ((FLAGS_BYTES + CALLS_BYTES + PASSED_BYTES + MEETINGS_BYTES + PAGE - 1) / PAGE * PAGE)
#define MIB ((size_t)1 << 20)
#define WORDS_BYTES (PAGE + DYN_STAMPS * sizeof(struct dyn_stamp)) /* of one communicator; what follows goes by the numbers of calls */
#define TIMED_BYTES (DYN_TIMED_CALLS * sizeof(struct dyn_stamp))
#define DEFAULT_MIB 64
#define MOST_MIB 4096
#define DEFAULT_LATE_S 30
#define MOST_LATE_S 86400

/* As the core counts (tuner/places.go). */
#define USUAL_MULTIPROCESSORS 132
#define CLUSTER_RESERVE 24

void dyn_host_say(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  dyn_stderr_say(text);
}

bool dyn_context_enter(dyn_context context, bool *pushed) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  dyn_context now = NULL;
  *pushed = false;
  if (driver->cuCtxGetCurrent(&now) != 0) return false;
  if (now == context) return true;
  return *pushed = driver->cuCtxPushCurrent_v2(context) == 0;
}

void dyn_context_leave(bool pushed) {
  dyn_context was;
  if (pushed) dyn_host_driver()->cuCtxPopCurrent_v2(&was);
}

/* What belonged to a context went with it, page-locked memory of the host's, too: a program that calls cudaDeviceReset need not have destroyed
 * its communicators. */
bool dyn_context_lives(const struct dyn_lsa *lsa) {
  unsigned long long id;
  return dyn_host_driver()->cuCtxGetId(lsa->context, &id) == 0 && id == lsa->scratch->contextId;
}

bool dyn_words_there(const struct dyn_lsa *lsa) { return dyn_readable(lsa->scratch->words); }

void dyn_host_gpu(uint8_t gpu[16], uint32_t *multiprocessors) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int device, count;
  if (driver == NULL || driver->cuCtxGetDevice(&device) != 0) return;
  if (driver->cuDeviceGetUuid_v2(gpu, device) != 0) memset(gpu, 0, 16);
  if (driver->cuDeviceGetAttribute(&count, DYN_MULTIPROCESSOR_COUNT, device) != 0 || count <= 0) return;
  const uint32_t all = (uint32_t)count, others = dyn_carrier_takes();
  *multiprocessors = all > others ? all - others : 1;
}

/* ---- scratch memory ---- */

unsigned long dyn_setting(const char *name, unsigned long least, unsigned long most, unsigned long otherwise) {
  const char *text = getenv(name);
  if (text == NULL || *text == '\0') return otherwise;
  char *end;
  unsigned long n = strtoul(text, &end, 10);
  if (*text >= '0' && *text <= '9' && *end == '\0' && n >= least && n <= most) return n;
  dyn_host_say("%s=%s: want %lu to %lu; taking %lu", name, text, least, most, otherwise);
  return otherwise;
}

static size_t scratch_mib(void) { return dyn_setting("DYNAMICCL_SCRATCH_MIB", 1, MOST_MIB, DEFAULT_MIB); }
/* All ranks must agree on it: where one differs, none gets kernels (dyn_lsa_open). What comes on top: the first pages
 * of a lane, and one for slots, so that they have a line more than a power of two, which a broadcast needs. */
static size_t scratch_bytes(void) { return scratch_mib() * MIB + NUM_LANES * (HEAD_BYTES + PAGE); }

static bool make_events(const struct dyn_host_driver *driver, struct scratch *scratch) {
  for (int l = 0; l < NUM_LANES; l++)
    if (driver->cuEventCreate(&scratch->done[l], DYN_EVENT_DISABLE_TIMING) != 0) return false;
  return true;
}

/* Of which nobody has had anything yet. */
static void free_scratch(struct scratch *s) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  for (int l = 0; l < NUM_LANES; l++)
    if (s->done[l] != NULL) driver->cuEventDestroy_v2(s->done[l]);
  if (s->words != NULL) driver->cuMemFreeHost(s->words);
  if (s->memory != 0) driver->cuMemFree_v2(s->memory);
  dyn_room_give(s);
  free(s);
}

static struct scratch *make_scratch(dyn_context context, unsigned long long id, size_t bytes) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct scratch *s = calloc(1, sizeof *s);
  if (s == NULL) return NULL;
  s->context = context;
  s->contextId = id;
  s->bytes = bytes;
  if (!dyn_room_take(s)) {
    free(s);
    return NULL;
  }
  if (bytes > 0 && driver->cuMemAlloc_v2(&s->memory, bytes) != 0) {
    dyn_host_say("no %zu MiB of GPU memory for a communicator's scratch: NCCL runs its calls; DYNAMICCL_SCRATCH_MIB takes less",
                 bytes / MIB);
  } else if ((bytes == 0 || driver->cuIpcGetMemHandle(&s->handle, s->memory) == 0) && driver->cuMemAllocHost_v2((void **)&s->words, WORDS_BYTES + TIMED_BYTES) == 0 &&
             make_events(driver, s)) {
    s->stamps = (struct dyn_stamp *)((char *)s->words + PAGE);
    s->timed = memset((char *)s->words + WORDS_BYTES, 0, TIMED_BYTES);
    return s;
  } else {
    dyn_host_say("CUDA gives no handle for memory that other processes are to open, or no host memory: NCCL runs all calls");
  }
  free_scratch(s);
  return NULL;
}

static bool fill(void *of, void *stream) {
  const struct scratch *scratch = of;
  return dyn_host_driver()->cuMemsetD8Async(scratch->memory, 0, scratch->bytes, stream) == 0;
}

/* Nothing that peers sent the communicator before comes later: a rank ends a call with all lines, flags and packs that are sent to it in that
 * call, and where one has not ended the memory was not kept. */
static bool clear(struct scratch *scratch) {
  memset(scratch->words, 0, WORDS_BYTES);
  return scratch->bytes == 0 || dyn_do_on_streams(fill, scratch);
}

uint64_t dyn_late_ns(void) { return dyn_setting("DYNAMICCL_LATE_S", 0, MOST_LATE_S, DEFAULT_LATE_S) * UINT64_C(1000000000); }

struct dyn_lanes *dyn_lanes_of(const struct dyn_lsa *lsa) { return (struct dyn_lanes *)(lsa->scratch->words + LANES_AT); }

static void lay_out(struct dyn_lsa *lsa, struct lane *lane, size_t at, size_t bytes) {
  size_t rest = bytes - HEAD_BYTES - PAGE, slots = 2 * lsa->nRanks;
  struct dyn_domain *d = &lane->domain;
  struct dyn_bulk *b = &lane->bulk;
  d->rank = (int32_t)lsa->rank;
  d->nRanks = (int32_t)lsa->nRanks;
  d->lines = (rest / 2 + PAGE) / slots / DYN_LINE_BYTES;
  b->packs = rest / 2 / dyn_bulk_bytes(1, (int)lsa->nRanks);
  for (uint32_t r = 0; r < lsa->nRanks; r++) {
    char *base = (char *)(uintptr_t)lsa->bases[r] + at;
    d->scratch[r] = base + HEAD_BYTES;
    b->memory[r] = base + HEAD_BYTES + slots * d->lines * DYN_LINE_BYTES;
    b->flags[r] = (uint32_t *)base;
    b->meetings[r] = (struct dyn_meeting *)(base + FLAGS_BYTES + CALLS_BYTES + PASSED_BYTES);
  }
  char *own = (char *)(uintptr_t)lsa->bases[lsa->rank] + at;
  d->calls = (uint32_t *)(own + FLAGS_BYTES);
  d->lanes = dyn_lanes_of(lsa);
  dyn_lanes_of(lsa)->gaveUp[lane - lsa->lanes] = d->calls + DYN_KERNEL_MAX_BLOCKS;
  b->passed = (uint32_t *)(own + FLAGS_BYTES + CALLS_BYTES);
  d->stop = (uint32_t *)lsa->scratch->words;
  d->fault = lsa->scratch->words + 1;
  d->waitNs = UINT64_MAX; /* as NCCL's own kernels: a rank may be late by hours. Who is dead is found by watch.c, which also says who is late */
  d->lateNs = dyn_late_ns();
  d->late = d->lateNs == 0 ? NULL : (struct dyn_late *)(lsa->scratch->words + LATE_AT) + (lane - lsa->lanes);
}

/* ---- a communicator ---- */

/* bytes: of scratch memory; 0: for GIN alone. */
static struct dyn_lsa *make(uint64_t id, uint32_t nRanks, uint32_t rank, dyn_context context, size_t bytes) {
  struct dyn_lsa *lsa = calloc(1, sizeof *lsa);
  const struct dyn_module *module = bytes > 0 ? dyn_module_get(context) : NULL;
  unsigned long long contextId;
  if (lsa == NULL || (bytes > 0 && module == NULL) || dyn_host_driver()->cuCtxGetId(context, &contextId) != 0) {
    free(lsa);
    return NULL;
  }
  lsa->id = id;
  lsa->nRanks = nRanks;
  lsa->rank = rank;
  lsa->context = context;
  lsa->module = module;
  lsa->scratch = dyn_room_spare(context, contextId, bytes);
  if (lsa->scratch == NULL) lsa->scratch = make_scratch(context, contextId, bytes);
  if (lsa->scratch != NULL && clear(lsa->scratch)) return lsa;
  dyn_lsa_close(lsa);
  return NULL;
}

static struct dyn_lsa *offer(uint64_t id, uint32_t nRanks, uint32_t rank, size_t bytes, struct dyn_offer *own) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  dyn_context context = NULL;
  int mode = DYN_RELAXED_CAPTURE; /* another thread may capture, and forbid all others to allocate */
  if (nRanks < 2 || nRanks > DYN_KERNEL_MAX_RANKS || rank >= nRanks || driver == NULL || !dyn_room_may_abandon()) return NULL;
  if (driver->cuCtxGetCurrent(&context) != 0 || context == NULL) return NULL;
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  struct dyn_lsa *lsa = make(id, nRanks, rank, context, bytes);
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  if (lsa == NULL) return NULL;
  *own = (struct dyn_offer){.pid = (uint32_t)getpid(), .startTime = dyn_own_start(), .at = lsa->scratch->memory,
                            .bytes = lsa->scratch->bytes, .contexts = dyn_gin_own_contexts()};
  memcpy(own->handle, &lsa->scratch->handle, sizeof own->handle);
  dyn_watch_begin(lsa);
  return lsa;
}

struct dyn_lsa *dyn_lsa_offer(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own) {
  return offer(id, nRanks, rank, scratch_bytes(), own);
}

struct dyn_lsa *dyn_gin_offer(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own) {
  return dyn_gin_can() ? offer(id, nRanks, rank, 0, own) : NULL;
}

/* Of a rank in this process the memory is there already; its context must be made visible to this one. */
static bool open_own(struct dyn_lsa *lsa, uint32_t r) {
  dyn_context peer;
  lsa->bases[r] = lsa->peers[r].at;
  if (!dyn_watch_find(lsa->peers[r].at, &peer)) return false;
  if (peer == lsa->context) return true;
  int result = dyn_host_driver()->cuCtxEnablePeerAccess(peer, 0);
  return result == 0 || result == DYN_CUDA_PEER_ACCESS_ENABLED;
}

static bool open_one(struct dyn_lsa *lsa, uint32_t r) {
  const struct dyn_offer *offer = &lsa->peers[r];
  struct dyn_ipc_handle handle;
  if (r == lsa->rank) {
    lsa->bases[r] = lsa->scratch->memory;
    return true;
  }
  if (offer->bytes != lsa->scratch->bytes) {
    dyn_host_say("rank %u has %llu MiB of scratch memory and rank %u has %zu: NCCL runs all calls; set DYNAMICCL_SCRATCH_MIB alike on "
                 "all ranks", r, (unsigned long long)offer->bytes / MIB, lsa->rank, lsa->scratch->bytes / MIB);
    return false;
  }
  if (offer->pid == (uint32_t)getpid()) return open_own(lsa, r);
  memcpy(&handle, offer->handle, sizeof handle);
  lsa->opened[r] = dyn_host_driver()->cuIpcOpenMemHandle_v2(&lsa->bases[r], handle, DYN_IPC_LAZY_PEER_ACCESS) == 0;
  return lsa->opened[r];
}

/* Ranks of one GPU, where it has most of them: 1, or where NCCL was told to let them share one. */
static unsigned sharers(const struct dyn_offer *offers, uint32_t nRanks) {
  static const uint8_t unknown[sizeof offers->gpu];
  unsigned most = 1;
  for (uint32_t a = 0; a < nRanks; a++) {
    unsigned same = 0;
    for (uint32_t b = 0; b < nRanks; b++) same += memcmp(offers[a].gpu, offers[b].gpu, sizeof unknown) == 0;
    if (memcmp(offers[a].gpu, unknown, sizeof unknown) != 0 && same > most) most = same;
  }
  return most;
}

/* What a kernel may have beside those of the ranks that share its GPU, each of which may have one in a graph beside one of a call:
 * whichever of them is left out, all others leave it places enough (docs/design.md, decision 2.4). What else may wait there the
 * daemon knows. */
static unsigned most_in_places(const struct dyn_offer *offers, uint32_t nRanks) {
  unsigned ranks = sharers(offers, nRanks), least = USUAL_MULTIPROCESSORS;
  if (ranks == 1) return DYN_KERNEL_MAX_BLOCKS;
  for (uint32_t r = 0; r < nRanks; r++)
    if (offers[r].multiprocessors > 0 && offers[r].multiprocessors < least) least = offers[r].multiprocessors;
  unsigned most = least > CLUSTER_RESERVE ? (least - CLUSTER_RESERVE - 1) / (2 * ranks - 1) : 0;
  return most == 0 ? 1 : most < DYN_KERNEL_MAX_BLOCKS ? most : DYN_KERNEL_MAX_BLOCKS;
}

unsigned dyn_most_ctas(const struct dyn_offer *offers, uint32_t nRanks) {
  unsigned most = most_in_places(offers, nRanks);
  for (uint32_t r = 0; r < nRanks; r++)
    if (offers[r].mostCtas > 0 && offers[r].mostCtas < most) most = offers[r].mostCtas;
  return most;
}

bool dyn_lsa_open(struct dyn_lsa *lsa, const struct dyn_offer *offers) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int mode = DYN_RELAXED_CAPTURE;
  bool pushed, all = dyn_context_enter(lsa->context, &pushed), relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  memcpy(lsa->peers, offers, lsa->nRanks * sizeof *offers);
  lsa->mostCtas = dyn_most_ctas(offers, lsa->nRanks);
  for (uint32_t r = 0; r < lsa->nRanks && all; r++) all = open_one(lsa, r);
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  dyn_context_leave(pushed);
  if (!all) return false;
  size_t bytes = lsa->scratch->bytes / NUM_LANES;
  for (int l = 0; l < NUM_LANES; l++) lay_out(lsa, &lsa->lanes[l], (size_t)l * bytes, bytes);
  atomic_store(&lsa->ready, true);
  return true;
}

static void close_mapped(struct scratch *s) {
  for (unsigned i = 0; i < s->numMapped; i++) dyn_host_driver()->cuIpcCloseMemHandle(s->mapped[i]);
  s->numMapped = 0;
}

/* In the context. Graphs that are left may be replayed until the program destroys them: their kernels go to what this rank has opened. What such
 * graphs left is closed at the end of the next communicator that has the memory, and not while that is made, nor where one is refused then: CUDA
 * may wait for all that is on the GPU, which may be a kernel that waits for a rank which is making it, too. */
static void give_back(struct dyn_lsa *lsa) {
  struct scratch *s = lsa->scratch;
  bool ends = atomic_load(&lsa->ready);
  if (ends) close_mapped(s);
  for (uint32_t r = 0; r < lsa->nRanks; r++) {
    if (lsa->opened[r] && ends) s->mapped[s->numMapped++] = lsa->bases[r];
    else if (lsa->opened[r]) dyn_host_driver()->cuIpcCloseMemHandle(lsa->bases[r]);
  }
  if (ends && atomic_load(&s->graphs) == 0) close_mapped(s);
  dyn_room_keep(s);
}

void dyn_lsa_close(struct dyn_lsa *lsa) {
  bool pushed;
  if (lsa == NULL) return;
  dyn_watch_end(lsa);
  bool ginStays = dyn_gin_forget(lsa);
  /* A stopped kernel's peers may write: then memory stays as it is, for nobody else. */
  bool busy = dyn_lsa_stopped(lsa) || !dyn_lsa_settle(lsa, 0);
  if (busy || ginStays) dyn_room_abandon();
  if (!busy && lsa->scratch != NULL && dyn_context_lives(lsa) && dyn_context_enter(lsa->context, &pushed)) {
    give_back(lsa);
    dyn_context_leave(pushed);
  }
  free(lsa);
}
