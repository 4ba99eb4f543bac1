/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching a kernel for a call: which one, how large, and in which order. Kernels of a lane run one after the other, in the
 * order of the program's calls, whatever streams they come on: the scratch memory rests on it (domain.cuh), and slots of GIN
 * do (gin/calls.cuh). NCCL sees to the same for its own kernels.
 */
#include "gin_life.h"

#include <string.h>

#include "../../nccltuner/plugin/datatype.h"

#define NUM_OPS 5 /* ncclSum to ncclAvg; what a program makes itself has numbers above */
#define DEFAULT_CTAS 16
#define FEW_THREADS 128 /* fewer in a CTA, and more CTAs do better */

/* ncclResult_t */
enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6 };
#define SAYING_NAPS 1000 /* of 0.5 ms, as long as a line on standard error is waited for */

uint32_t dyn_lsa_ranks(const struct dyn_lsa *lsa) { return lsa->nRanks; }
uint64_t dyn_lsa_id(const struct dyn_lsa *lsa) { return lsa->id; }
uint32_t dyn_lsa_rank(const struct dyn_lsa *lsa) { return lsa->rank; }

static bool in_parts(int collective) {
  return collective == DYN_ALL_GATHER || collective == DYN_REDUCE_SCATTER || collective == DYN_ALL_TO_ALL;
}

uint64_t dyn_work_bytes(const struct dyn_work *work, uint32_t nRanks) {
  uint64_t bytes = work->count * (uint64_t)dyn_datatype_number_bytes(work->datatype);
  return in_parts(work->collective) ? bytes * nRanks : bytes;
}

/* ---- what can run ---- */

/* Over load and store. */
static uint32_t near_room(const struct dyn_lsa *lsa, int collective, uint64_t bytes) {
  const struct lane *lane = &lsa->lanes[LANE_CALLS]; /* all have the same */
  int n = (int)lsa->nRanks;
  size_t lines = dyn_lines(in_parts(collective) ? bytes / lsa->nRanks : bytes);
  bool twoShot = false;
  switch (collective) { /* that what is in bulk could go directly nobody knows before there are windows: dyn_choose_kernel */
    case DYN_ALL_REDUCE: twoShot = dyn_two_shot_lines(lines, n) <= lane->domain.lines; break;
    case DYN_ALL_GATHER:
    case DYN_ALL_TO_ALL:
    case DYN_REDUCE_SCATTER: break;
    case DYN_BROADCAST: lines++; break;
    default: return 0;
  }
  return (uint32_t)(lines <= lane->domain.lines) << DYN_KERNEL_ONE_SHOT | (uint32_t)twoShot << DYN_KERNEL_TWO_SHOT |
         1u << DYN_KERNEL_BULK;
}

/* All peers' memory was opened, and not only this rank's, which comes before some. */
bool dyn_lsa_near(const struct dyn_lsa *lsa) { return lsa->lanes[LANE_CALLS].domain.calls != NULL; }

uint32_t dyn_lsa_room(const struct dyn_lsa *lsa, int collective, uint64_t bytes) {
  return (dyn_lsa_near(lsa) ? near_room(lsa, collective, bytes) : 0) | dyn_gin_room(lsa, collective, bytes);
}

uint32_t dyn_lsa_able(const struct dyn_lsa *lsa, const struct dyn_work *work) {
  bool adds = work->collective == DYN_ALL_REDUCE || work->collective == DYN_REDUCE_SCATTER;
  unsigned size = dyn_datatype_number_bytes(work->datatype);
  if (work->count == 0 || size == 0 || work->count > SIZE_MAX / 2 / size / lsa->nRanks) return 0;
  if (adds && (work->op < 0 || work->op >= NUM_OPS || work->datatype >= DYN_NUM_TYPES)) return 0;
  if (work->collective == DYN_BROADCAST && (work->root < 0 || (uint32_t)work->root >= lsa->nRanks)) return 0;
  uint32_t room = dyn_lsa_room(lsa, work->collective, dyn_work_bytes(work, lsa->nRanks));
  if (!dyn_gin_adds(work)) room &= ~DYN_ABLE_OVER_GIN;
  return room & 1u << DYN_KERNEL_BULK ? room | 1u << DYN_KERNEL_DIRECT : room;
}

/* ---- one launch ---- */

struct launch {
  const struct dyn_work *work; /* NULL: no call of the plan */
  uint32_t action;
  struct dyn_timing *timing; /* NULL: it is not timed */
  void *function;
  size_t items; /* pieces of lines, or packs, that threads have to do */
  struct dyn_call call;
  bool bulk;
  const struct dyn_windowed *sendWindow, *recvWindow; /* of what goes in bulk: through these where all ranks have them; NULL: none */
  struct dyn_gin_life *life; /* of the backend that it runs by; NULL: over load and store */
  struct dyn_gin_call *gin;
  const void *second; /* argument; where it is bulk, the lane's */
  const struct dyn_parts *parts; /* last argument of those that have them */
  unsigned ctas, threads;
  unsigned roles; /* over GIN: of each CTA that was asked for there are so many, which share its context */
  unsigned kernels; /* over GIN, one behind the other; 0: one */
};

static void choose_function(const struct dyn_lsa *lsa, const struct dyn_work *work, uint32_t kernel, struct launch *l) {
  const struct dyn_module *m = lsa->module;
  size_t bytes = work->count * dyn_datatype_number_bytes(work->datatype);
  enum dyn_typed typed = DYN_TYPED_ONE_SHOT;
  l->bulk = kernel == DYN_KERNEL_BULK || kernel == DYN_KERNEL_DIRECT;
  if (kernel == DYN_KERNEL_DIRECT) l->sendWindow = work->sendWindow, l->recvWindow = work->recvWindow;
  l->items = l->bulk ? dyn_packs(bytes, DYN_BULK_BYTES) : dyn_lines(bytes) * DYN_LINE_THREADS;
  l->call.count = bytes;
  switch (work->collective) {
    case DYN_BROADCAST:
      l->function = l->bulk ? m->broadcastBulk : m->broadcast;
      if (l->bulk) l->items = dyn_part(l->items, (int)lsa->nRanks - 1); /* the root has none to forward */
      return;
    case DYN_ALL_GATHER: l->function = l->bulk ? m->allGatherBulk : m->allGather; return;
    case DYN_ALL_TO_ALL: l->function = l->bulk ? m->allToAllBulk : m->allToAll; return;
  }
  l->call.count = work->count;
  if (work->collective == DYN_REDUCE_SCATTER) typed = l->bulk ? DYN_TYPED_REDUCE_SCATTER_BULK : DYN_TYPED_REDUCE_SCATTER;
  else if (kernel != DYN_KERNEL_ONE_SHOT) typed = l->bulk ? DYN_TYPED_BULK : DYN_TYPED_TWO_SHOT;
  if (typed == DYN_TYPED_BULK || typed == DYN_TYPED_TWO_SHOT) l->items = dyn_part(l->items, (int)lsa->nRanks);
  l->function = m->typed[typed][work->datatype];
}

/* Shares of the call, at most. */
static size_t choose_gin(const struct dyn_work *work, unsigned mostCtas, struct dyn_gin_call *call, struct launch *l) {
  *call = (struct dyn_gin_call){.send = work->send, .recv = work->recv, .op = work->op, .gin.contexts = l->action >> DYN_ACTION_CONTEXTS_SHIFT & (DYN_GIN_FLAT - 1),
                                 .gin.closely = l->action >> DYN_ACTION_ALGO_SHIFT & DYN_GIN_CLOSELY};
  struct dyn_gin_choice choice = dyn_gin_choose(l->life, work, (l->action >> DYN_ACTION_CONTEXTS_SHIFT & DYN_GIN_FLAT) != 0, mostCtas, call);
  l->function = choice.function;
  l->items = dyn_packs(choice.bytes, DYN_GIN_UNIT);
  l->roles = choice.roles;
  l->kernels = dyn_gin_kernels(l->life, work, &choice);
  l->gin = call;
  return choice.most;
}

static size_t within(size_t n, size_t least, size_t most) { return n < least ? least : n > most ? most : n; }

/* As many CTAs as asked for, and no more than have something to do; of threads, where none are asked for, as many as do it at
 * once. The same on all ranks. */
static void choose_grid(uint32_t action, size_t otherwise, size_t most, struct launch *l) {
  size_t ctas = action >> DYN_ACTION_CHANNELS_SHIFT & 255, threads = (action >> DYN_ACTION_WARPS_SHIFT & 255) * 32;
  size_t useful = dyn_packs(l->items, threads == 0 ? FEW_THREADS : threads);
  ctas = within(ctas == 0 ? otherwise : ctas, 1, useful < most ? useful : most);
  if (threads == 0) threads = within(dyn_packs(dyn_packs(l->items, ctas), 32) * 32, FEW_THREADS, DYN_KERNEL_THREADS);
  l->ctas = (unsigned)ctas;
  l->threads = (unsigned)within(threads, 32, DYN_KERNEL_THREADS);
}

/* Kernels of calls: the stream waits for the newest one where that ran on another stream. */
static int order_before(struct dyn_lsa *lsa, void *stream) {
  unsigned long long id;
  int error = dyn_host_driver()->cuStreamGetId(stream, &id);
  if (error == 0 && lsa->called && id != lsa->streamId)
    error = dyn_host_driver()->cuStreamWaitEvent(stream, lsa->scratch->done[LANE_CALLS], 0);
  if (error == 0) lsa->streamId = id;
  return error;
}

static uint64_t about(const struct dyn_lsa *lsa, const struct launch *l) {
  if (l->work != NULL) return dyn_about((unsigned)l->work->collective, dyn_work_bytes(l->work, lsa->nRanks));
  return dyn_about(l->parts != NULL ? DYN_ABOUT_EXCHANGE : DYN_ABOUT_NORM, 0);
}

static int launch_gin(struct launch *l, unsigned k, int lane, void *stream) {
  struct dyn_gin_grid grid = {l->function, l->ctas * l->roles, l->threads};
  if (l->kernels > 1) dyn_gin_kernel(l->life, l->work, k, &grid, l->gin);
  if (lane == LANE_GRAPHS) dyn_gin_captured(&l->life->expected, DYN_EXPECTED_GRAPHS);
  return dyn_gin_launch(l->life, lane, &grid, stream, l->gin, l->parts);
}

static bool is_long(const struct dyn_lsa *lsa, const struct launch *l) { return l->work != NULL && dyn_work_bytes(l->work, lsa->nRanks) >= DYN_LONG_BYTES; }

static unsigned kernels(const struct launch *l) { return l->kernels == 0 ? 1 : l->kernels; }

/* The k-th of its kernels. */
static int launch(struct dyn_lsa *lsa, int lane, struct launch *l, unsigned k, void *stream) {
  if (l->life != NULL) {
    l->gin->gin.about = about(lsa, l);
    return launch_gin(l, k, lane, stream);
  }
  struct dyn_bulk bulk = lsa->lanes[lane].bulk;
  if (l->work != NULL) bulk.root = l->work->root;
  if (l->sendWindow != NULL) bulk.send = *l->sendWindow;
  if (l->recvWindow != NULL) bulk.recv = *l->recvWindow;
  void *arguments[] = {&l->call, l->bulk ? &bulk : (void *)l->second, (void *)l->parts};
  l->call.domain = lsa->lanes[lane].domain;
  l->call.domain.about = about(lsa, l);
  const struct dyn_launch config = {.gridX = l->ctas, .gridY = 1, .gridZ = 1, .blockX = l->threads, .blockY = 1, .blockZ = 1,
                                    .stream = stream, .attributes = lsa->module->attributes,
                                    .numAttributes = is_long(lsa, l) ? lsa->module->numOfLong : lsa->module->numAttributes};
  return dyn_host_driver()->cuLaunchKernelEx(&config, l->function, arguments, NULL);
}

static int launch_captured(struct dyn_lsa *lsa, struct launch *l, void *stream, uint64_t captureId) {
  if (l->work != NULL && l->life == NULL) l->call.tag = dyn_tag_of(lsa, l->work, l->action, l->ctas);
  l->call.stamps = lsa->scratch->stamps;
  int error = 0;
  for (unsigned k = 0; k < kernels(l) && error == 0; k++) {
    error = dyn_graph_before(lsa, stream, captureId);
    if (error == 0) error = launch(lsa, LANE_GRAPHS, l, k, stream);
    if (error == 0) error = dyn_graph_after(lsa, stream);
  }
  return error;
}

static int launch_in_order(struct dyn_lsa *lsa, struct launch *l, void *stream, bool perhapsCaptured) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  uint64_t captureId = 0;
  int status = 0, error = 0;
  if (perhapsCaptured) error = driver->cuStreamGetCaptureInfo_v2(stream, &status, &captureId, NULL, NULL, NULL);
  if (error != 0 || status == DYN_CAPTURE_INVALIDATED) return error != 0 ? error : DYN_CUDA_INVALID_VALUE;
  if (status == DYN_CAPTURE_ACTIVE) return launch_captured(lsa, l, stream, captureId);
  if (l->timing != NULL && l->life == NULL) dyn_timing_begin(lsa->scratch, l->timing, &l->call);
  error = order_before(lsa, stream);
  for (unsigned k = 0; k < kernels(l) && error == 0; k++) error = launch(lsa, LANE_CALLS, l, k, stream);
  if (error == 0) error = driver->cuEventRecord(lsa->scratch->done[LANE_CALLS], stream);
  atomic_store_explicit(&lsa->called, true, memory_order_release);
  return error;
}

/* A capture that an error has ended, the program's most often: there will be no graph, so nobody waits for what was to be in it. */
static bool capture_is_lost(void *stream) {
  int status = 0;
  return dyn_host_driver()->cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, NULL) == 0 && status == DYN_CAPTURE_INVALIDATED;
}

/* Behind what CUDA has answered for a call on that stream. An ncclResult_t. */
static int result_of(struct dyn_lsa *lsa, int error, void *stream, const char *refused) {
  if (error == 0) return SUCCESS;
  if (capture_is_lost(stream)) return UNHANDLED_CUDA_ERROR;
  dyn_lsa_stop(lsa, refused); /* the other ranks wait for it */
  dyn_lsa_complain(lsa);
  return UNHANDLED_CUDA_ERROR;
}

/* An ncclResult_t. */
static int run(struct dyn_lsa *lsa, struct launch *l, void *stream, bool perhapsCaptured) {
  bool pushed;
  if (dyn_lsa_gave_up(lsa)) return dyn_lsa_complain(lsa), REMOTE_ERROR;
  if (!dyn_context_enter(lsa->context, &pushed)) return UNHANDLED_CUDA_ERROR;
  int result = result_of(lsa, launch_in_order(lsa, l, stream, perhapsCaptured), stream, "CUDA refused to launch a kernel");
  dyn_context_leave(pushed);
  return result;
}

int dyn_lsa_order(struct dyn_lsa *lsa, void *first, void *then) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  int mode = DYN_RELAXED_CAPTURE; /* another thread may capture, and forbid all others to make events */
  dyn_event event = NULL;
  bool pushed;
  if (!dyn_context_enter(lsa->context, &pushed)) return UNHANDLED_CUDA_ERROR;
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  int error = driver->cuEventCreate(&event, DYN_EVENT_DISABLE_TIMING);
  if (error == 0) error = driver->cuEventRecord(event, first);
  if (error == 0) error = driver->cuStreamWaitEvent(then, event, 0);
  if (event != NULL) driver->cuEventDestroy_v2(event); /* once it is recorded */
  driver->cuThreadExchangeStreamCaptureMode(&mode);
  int result = result_of(lsa, error, then, "CUDA refused to have a stream wait for another");
  dyn_context_leave(pushed);
  return result;
}

int dyn_lsa_launch(struct dyn_lsa *lsa, const struct dyn_work *work, uint32_t action, unsigned *ctas, struct dyn_timing *timing) {
  struct launch l = {.work = work, .action = action, .timing = timing, .call = {.send = work->send, .recv = work->recv, .op = work->op}, .second = &work->root};
  struct dyn_gin_call gin;
  bool overGin = (action & 15) == DYN_PATH_GIN;
  size_t most = lsa->mostCtas;
  if (overGin && (l.life = dyn_gin_of(lsa, action >> DYN_ACTION_BACKEND_SHIFT & 15)) == NULL) return dyn_lsa_complain(lsa), REMOTE_ERROR; /* it was stopped since it was asked */
  if (overGin) most = choose_gin(work, lsa->mostCtas, &gin, &l);
  else choose_function(lsa, work, action >> DYN_ACTION_ALGO_SHIFT & 15, &l);
  choose_grid(action, overGin ? l.life->state.contexts : DEFAULT_CTAS, most, &l);
  *ctas = l.ctas;
  int result = run(lsa, &l, work->stream, work->perhapsCaptured);
  if (overGin && result == SUCCESS) dyn_gin_move(&l.life->state, DYN_GIN_IN_FLIGHT);
  return result;
}

/* A question of type and size alone but for missing buffers, and those are the program's mistake. */
static bool can_norm(const struct dyn_lsa *lsa, const struct dyn_norm *norm) {
  size_t size = dyn_datatype_number_bytes(norm->datatype), most = lsa->lanes[LANE_CALLS].domain.lines;
  if (!dyn_lsa_near(lsa)) return false;
  if (norm->input == NULL || norm->residual == NULL || norm->weight == NULL || norm->output == NULL) return false;
  if (size == 0 || lsa->module->rmsNorm[norm->datatype] == NULL || norm->tokens == 0 || norm->width == 0) return false;
  return norm->tokens <= most && norm->width <= most * DYN_LINE_DATA && dyn_row_lines(norm->tokens, norm->width * size) <= most;
}

/* A block for each row, as far as there are blocks; threads by the row alone, so that its sum of squares is the same whatever
 * other rows there are. */
int dyn_lsa_rms_norm(struct dyn_lsa *lsa, const struct dyn_norm *norm) {
  if (!can_norm(lsa, norm)) return INVALID_ARGUMENT;
  const struct dyn_rms_norm second = {.residual = norm->residual, .weight = norm->weight, .width = norm->width, .epsilon = norm->epsilon};
  size_t pieces = dyn_lines(norm->width * dyn_datatype_number_bytes(norm->datatype)) * DYN_LINE_THREADS, threads = dyn_packs(pieces, 32) * 32;
  struct launch l = {.function = lsa->module->rmsNorm[norm->datatype],
                     .call = {.send = norm->input, .recv = norm->output, .count = norm->tokens * norm->width},
                     .second = &second,
                     .ctas = (unsigned)within(norm->tokens, 1, lsa->mostCtas),
                     .threads = (unsigned)within(threads, 32, DYN_KERNEL_THREADS)};
  return run(lsa, &l, norm->stream, true); /* the stream may be captured */
}

/* ---- parts of any sizes ---- */

/* Over GIN by the backend that is made first, on all ranks alike: they agree on a path and on nothing more. */
bool dyn_lsa_can_exchange(const struct dyn_lsa *lsa, int path) {
  const struct dyn_gin_lives *gin = lsa->gin;
  if (path == DYN_PATH_LSA) return dyn_lsa_near(lsa);
  return path == DYN_PATH_GIN && gin != NULL && !gin->narrow && dyn_gin_usable(&gin->each[0].state);
}

/* In bytes. False: the type is unknown, or it is more than memory has. */
static bool parts_of(const struct dyn_lsa *lsa, const struct dyn_exchange *x, struct dyn_parts *parts) {
  size_t size = dyn_datatype_number_bytes(x->datatype), most = size == 0 ? 0 : SIZE_MAX / 4 / size;
  bool fits = size > 0 && x->sendCounts != NULL && x->sendOffsets != NULL && x->recvCounts != NULL && x->recvOffsets != NULL;
  for (uint32_t r = 0; r < lsa->nRanks && fits; r++) {
    fits = x->sendCounts[r] <= most && x->sendOffsets[r] <= most && x->recvCounts[r] <= most && x->recvOffsets[r] <= most &&
           (x->send != NULL || x->sendCounts[r] == 0) && (x->recv != NULL || x->recvCounts[r] == 0);
    parts->sendBytes[r] = x->sendCounts[r] * size, parts->sendAt[r] = x->sendOffsets[r] * size;
    parts->recvBytes[r] = x->recvCounts[r] * size, parts->recvAt[r] = x->recvOffsets[r] * size;
  }
  return fits && x->sendCounts[lsa->rank] == x->recvCounts[lsa->rank];
}

uint64_t dyn_exchange_bytes(const struct dyn_lsa *lsa, const struct dyn_exchange *x) {
  struct dyn_parts parts = {0};
  uint64_t end = 0;
  if (!parts_of(lsa, x, &parts)) return 0;
  for (uint32_t r = 0; r < lsa->nRanks; r++)
    if (parts.recvBytes[r] > 0 && parts.recvAt[r] + parts.recvBytes[r] > end) end = parts.recvAt[r] + parts.recvBytes[r];
  return end;
}

int dyn_lsa_exchange(struct dyn_lsa *lsa, const struct dyn_exchange *x) {
  struct dyn_parts parts = {0};
  if (!dyn_lsa_can_exchange(lsa, x->path) || !parts_of(lsa, x, &parts)) return INVALID_ARGUMENT;
  bool overGin = x->path == DYN_PATH_GIN;
  struct dyn_gin_call gin = {.send = x->send, .recv = x->recv};
  struct dyn_gin_choice choice = {.roles = 1, .most = (unsigned)within(DYN_PARTS_CTAS, 1, lsa->mostCtas)};
  if (overGin) choice = dyn_gin_choose_parts(&lsa->gin->each[0], lsa->mostCtas);
  else choice.function = lsa->module->allToAllV;
  struct launch l = {.function = choice.function,
                     .call = {.send = x->send, .recv = x->recv},
                     .life = overGin ? &lsa->gin->each[0] : NULL,
                     .gin = &gin,
                     .bulk = true, .recvWindow = x->recvWindow, .parts = &parts, .roles = choice.roles,
                     .ctas = choice.most,
                     .threads = overGin ? DYN_GIN_PARTS_THREADS : DYN_PARTS_THREADS};
  if (!overGin) l.call.count = dyn_parts_lines(lsa->lanes[LANE_CALLS].domain.lines, l.ctas); /* all lanes have the same */
  int result = run(lsa, &l, x->stream, true); /* the stream may be captured */
  if (overGin && result == SUCCESS) dyn_gin_move(&l.life->state, DYN_GIN_IN_FLIGHT);
  return result;
}

/* ---- the end ---- */

void dyn_lsa_stop(struct dyn_lsa *lsa, const char *why) {
  const char *none = NULL;
  if (!atomic_compare_exchange_strong(&lsa->stopped, &none, why) || !dyn_words_there(lsa)) return;
  __atomic_store_n((uint32_t *)lsa->scratch->words, 1, __ATOMIC_RELEASE);
  dyn_gin_stop(lsa);
}

bool dyn_lsa_stopped(const struct dyn_lsa *lsa) { return atomic_load_explicit(&lsa->stopped, memory_order_acquire) != NULL; }

bool dyn_lsa_gave_up(struct dyn_lsa *lsa) {
  dyn_gin_check(lsa);
  return dyn_lsa_stopped(lsa);
}

bool dyn_lsa_missed(struct dyn_lsa *lsa) {
  bool says = dyn_lsa_stopped(lsa) || lsa->gin != NULL; /* else no kernel has left word, and the system is not asked: programs ask on end */
  bool looks = says && !atomic_load(&lsa->missed) && dyn_words_there(lsa), overGin = looks && dyn_gin_check(lsa);
  if (looks && dyn_lsa_stopped(lsa) &&
      (__atomic_load_n((uint32_t *)lsa->scratch->words, __ATOMIC_ACQUIRE) & DYN_STOP_MISSED || dyn_gin_missed(lsa)))
    atomic_store(&lsa->missed, true);
  if (overGin || (atomic_load(&lsa->missed) && atomic_load(&lsa->dead))) return dyn_lsa_complain(lsa), true;
  return atomic_load(&lsa->missed);
}

void dyn_lsa_complain(struct dyn_lsa *lsa) {
  const char *why = atomic_load(&lsa->stopped);
  static atomic_int saying; /* threads; of all communicators, since another thread may abort this one meanwhile */
  atomic_store(&lsa->missed, true);
  if (why == NULL) return;
  atomic_fetch_add(&saying, 1);
  if (!atomic_flag_test_and_set(&lsa->complained))
    dyn_host_say("%s: kernels of this communicator of %u ranks give up, its further calls fail; abort it (ncclCommAbort)", why, lsa->nRanks);
  atomic_fetch_sub(&saying, 1);
  /* Another thread may be about to say it, and the program end behind this. */
  for (int naps = 0; naps < SAYING_NAPS && atomic_load(&saying) != 0; naps++) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

/* Other errors than that it is not: its context is gone, and all that ran there. What graphs do is not known where they run alone. */
static bool is_done(const struct dyn_lsa *lsa, int lane) {
  return dyn_host_driver()->cuEventQuery(lsa->scratch->done[lane]) != DYN_CUDA_NOT_READY;
}

bool dyn_lsa_settle(struct dyn_lsa *lsa, uint64_t ns) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  uint64_t began = dyn_host_ns();
  int mode = DYN_RELAXED_CAPTURE; /* asking would break captures of other threads that forbid it to all */
  bool over;
  if ((!atomic_load(&lsa->called) && lsa->numCaptures == 0) || !dyn_context_lives(lsa)) return true;
  bool relaxed = driver->cuThreadExchangeStreamCaptureMode(&mode) == 0;
  while (!(over = is_done(lsa, LANE_CALLS) && is_done(lsa, LANE_GRAPHS)) && dyn_host_ns() - began < ns)
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  if (relaxed) driver->cuThreadExchangeStreamCaptureMode(&mode);
  return over;
}
