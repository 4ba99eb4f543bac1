/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "../abi.h"
#include "../plugin/named.h"
#include "beside.h"
#include "groups.h"
#include "windows.h"

#define MAX_BOUND 256 /* communicators of a process that have kernels; more go without */
#define RESERVED 1 /* no address */
/* What runs ends at once when it is stopped. What stands behind a call that NCCL has yet to abort, of this communicator or another, does not
 * begin before that; its memory stays. */
#define ABORT_NS UINT64_C(200000000)

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 }; /* ncclResult_t */

/* What a group has seen of a communicator. SENDS: sends and receives alone. BEGUN: it runs, before what NCCL gets of the group. */
enum group_state { NOTHING, SENDS, HELD, PLAIN, BEGUN, GIVEN };

/* One of NCCL's communicators that has kernels. Found by any thread, used by one at a time. */
static struct dyn_bound {
  atomic_uintptr_t comm; /* ncclComm_t; 0: free; RESERVED: it is being made */
  struct dyn_lsa *lsa;
  uint64_t id; /* its number, also when another thread has taken lsa away */
  void *chooser;
  dyn_choose_function choose;
  struct dyn_windows *windows; /* that the program registers; NULL: not known, some may have been missed */
  enum group_state group;
  atomic_bool stopped; /* by the program itself; another thread may ask for errors meanwhile */
  atomic_bool finalized; /* NCCL has been told to come to the end of its calls */
  atomic_bool goes; /* a thread takes it away */
  struct dyn_bound *next; /* in its group */
  struct dyn_beside beside; /* streams of its sends and receives in the group */
  struct dyn_request held;
  bool hadWindows; /* when it came */
  uint32_t action; /* BEGUN, GIVEN */
  int result;      /* BEGUN */
  struct dyn_coll_config config; /* GIVEN, by name */
} __attribute__((aligned(64))) bounds[MAX_BOUND];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for making and taking away, never for a look */
static __thread struct dyn_bound *grouped; /* that this thread's group has seen, by their numbers, which are alike on all ranks */

static struct dyn_bound *find(const void *comm) {
  int n = atomic_load_explicit(&dynamiccl_preload.bounds, memory_order_acquire);
  for (int i = 0; i < n && comm != NULL; i++)
    if (atomic_load_explicit(&bounds[i].comm, memory_order_acquire) == (uintptr_t)comm) return &bounds[i];
  return NULL;
}

/* What the child of a fork has of communicators is its parent's, whose calls go on: a program that aborts them there, at its end say, must not
 * stop these by words that the driver may map for both, nor end a group with their calls in it. So NCCL alone hears of it. */
static void forget_all(void) {
  int n = atomic_exchange(&dynamiccl_preload.bounds, 0);
  for (int i = 0; i < n; i++) dyn_windows_release(bounds[i].windows);
  memset(bounds, 0, (size_t)n * sizeof *bounds);
  grouped = NULL;
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_all); }

/* ---- what the plugin calls ---- */

/* Under lock. NULL: there is no room. */
static struct dyn_bound *fill_cell(uintptr_t comm, struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int i = 0, n = atomic_load(&dynamiccl_preload.bounds);
  pthread_once(&once, watch_forks);
  while (i < n && atomic_load(&bounds[i].comm) != 0) i++;
  if (i == MAX_BOUND) return NULL;
  bounds[i].lsa = lsa;
  bounds[i].id = dyn_lsa_id(lsa);
  bounds[i].chooser = chooser;
  bounds[i].choose = choose;
  bounds[i].group = NOTHING;
  bounds[i].stopped = bounds[i].finalized = bounds[i].goes = false;
  bounds[i].windows = comm == RESERVED ? dyn_windows_reserve() : NULL;
  atomic_store_explicit(&bounds[i].comm, comm, memory_order_release);
  if (i == n) atomic_store_explicit(&dynamiccl_preload.bounds, n + 1, memory_order_release);
  return &bounds[i];
}

/* Called inside of a call, which says which communicator it is; trylock, since nothing there may wait. */
static bool bind_here(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose) {
  const struct dyn_preload_call *call = dyn_this_call();
  if (call->depth == 0 || call->comm == NULL || pthread_mutex_trylock(&lock) != 0) return false;
  bool room = fill_cell((uintptr_t)call->comm, lsa, chooser, choose) != NULL;
  pthread_mutex_unlock(&lock);
  return room;
}

struct dyn_bound *dyn_bound_reserve(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose) {
  pthread_mutex_lock(&lock);
  struct dyn_bound *b = fill_cell(RESERVED, lsa, chooser, choose);
  pthread_mutex_unlock(&lock);
  return b;
}

struct dyn_lsa *dyn_bound_lsa(const struct dyn_bound *b) { return b->lsa; }

void dyn_bound_fill(struct dyn_bound *b, void *comm) {
  dyn_windows_fill(b->windows, comm);
  if (comm == NULL) b->windows = NULL; /* the part is free */
  atomic_store_explicit(&b->comm, (uintptr_t)comm, memory_order_release);
}

static struct dyn_bound *of_lsa(const struct dyn_lsa *lsa) {
  struct dyn_bound *found = NULL;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < atomic_load(&dynamiccl_preload.bounds) && found == NULL; i++)
    if (bounds[i].lsa == lsa) found = &bounds[i];
  pthread_mutex_unlock(&lock);
  return found;
}

/* First nobody is to fill the cell, then it is free for others. */
static void unbind(struct dyn_lsa *lsa) {
  struct dyn_bound *b = of_lsa(lsa);
  if (b == NULL) return;
  dyn_making_forget(b);
  pthread_mutex_lock(&lock);
  dyn_windows_release(b->windows);
  b->windows = NULL;
  b->lsa = NULL;
  atomic_store(&b->comm, 0);
  pthread_mutex_unlock(&lock);
}

static bool has_windows(const struct dyn_lsa *lsa) { return of_lsa(lsa) != NULL && of_lsa(lsa)->windows != NULL; }

static void close_lsa(struct dyn_lsa *lsa) {
  unbind(lsa);
  dyn_lsa_close(lsa);
}

static const struct dyn_gin_calls ginCalls = {dyn_gin_can, dyn_gin_id, dyn_gin_offer, dyn_gin_make};

static const struct dyn_hosts_calls hostsCalls = {dyn_making_hosts, dyn_hosts_leave, dyn_hosts_gin, dyn_hosts_decline};
__attribute__((constructor)) static void begin(void) { dyn_lsa_gone = dyn_hosts_gone; }

const struct dyn_device_calls dyn_device_calls = {dyn_lsa_offer, dyn_lsa_open, dyn_lsa_room, bind_here, dyn_making_expect, close_lsa, dyn_making_alone, &ginCalls, dyn_names_can, has_windows, dyn_host_gpu, &hostsCalls, dyn_making_ctas};

/* ---- calls ---- */

/* NCCL asks nobody about an AllToAll: it counts here, whoever runs it. */
static bool counts(const struct dyn_work *work) { return work->collective == DYN_ALL_TO_ALL; }

/* As NCCL sees it, by the addresses alone (windows.h). An AllToAll it makes of sends and receives, whose buffers may lie in windows on
 * some ranks alone: so all of a communicator that has had a window before count so, which nobody has to promise. */
static bool registered(const struct dyn_bound *b, const struct dyn_work *work, bool hadWindows) {
  if (counts(work)) return hadWindows;
  return work->count > 0 && dyn_windows_any(b->windows) && dyn_windows_matter(work->collective, work->op, work->datatype) &&
         dyn_window_of(b->windows, work->send, 0, NULL) && dyn_window_of(b->windows, work->recv, 0, NULL);
}

static uint32_t able_of(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows) {
  struct dyn_work look = request->work;
  struct dyn_buffers in;
  uint32_t able = dyn_lsa_able(b->lsa, &look);
  if (able & 1u << DYN_KERNEL_DIRECT && dyn_windowed_find(b->windows, &look, dyn_lsa_ranks(b->lsa), &in)) able |= DYN_ABLE_WINDOWS;
  return able | (registered(b, &request->work, hadWindows) ? DYN_ABLE_REGISTERED : 0);
}

static DYN_HOT uint32_t ask(const struct dyn_bound *b, const struct dyn_work *work, uint32_t able) {
  return b->choose(b->chooser, work->collective, dyn_work_bytes(work, dyn_lsa_ranks(b->lsa)), able);
}

/* Most calls are NCCL's, and the plan says so sooner than one knows what could run here. */
static bool is_of_interest(const struct dyn_bound *b, const struct dyn_work *work) {
  return counts(work) || dyn_windows_any(b->windows) || ask(b, work, DYN_ABLE_LOOK) != 0;
}

/* Of one that is. 0: the call is NCCL's, and counts there, if NCCL asks. */
static DYN_HOT uint32_t action_of(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows) {
  uint32_t able = able_of(b, request, hadWindows);
  return able == 0 && !counts(&request->work) ? 0 : ask(b, &request->work, able);
}

/* It has counted, and NCCL runs it. */
static bool is_nccls(uint32_t action) { return (action & 15) != DYN_PATH_LSA && (action & 15) != DYN_PATH_GIN && action != DYN_CHOSEN_LOST; }

static int launch(const struct dyn_bound *b, const struct dyn_request *request, bool perhapsCaptured, uint32_t action, struct dyn_timed *timed) {
  struct dyn_work work = request->work;
  struct dyn_buffers in;
  unsigned ctas = 0;
  if (action == DYN_CHOSEN_LOST) return REMOTE_ERROR;
  work.perhapsCaptured = perhapsCaptured;
  if (dyn_is_direct(action)) dyn_windowed_find(b->windows, &work, dyn_lsa_ranks(b->lsa), &in);
  bool told = timed != NULL && timed->asked == 1; /* else nothing comes of its times */
  int result = dyn_lsa_launch(b->lsa, &work, action, &ctas, told ? &timed->timing : NULL);
  if (result == SUCCESS) dyn_intercepted_kernel(request->counted);
  if (timed != NULL) timed->sample.channels = (uint8_t)ctas;
  return result;
}

/* Behind a call of NCCL's, from which it returns where another thread aborts the communicator: nobody is to be asked of that any more. */
static bool stays(const struct dyn_bound *b, const struct dyn_request *request) { return atomic_load(&b->comm) == (uintptr_t)request->comm; }

/* To NCCL, as chosen. What is refused was not timed. */
static int give(const struct dyn_bound *b, const struct dyn_request *request, bool perhapsCaptured, uint32_t action) {
  const char *name = dyn_name_of(action);
  if (name == NULL) return request->forward(request);
  struct dyn_coll_config config = dyn_named_config(name, !perhapsCaptured);
  int result = request->named(request, &config);
  if (perhapsCaptured || result != INVALID_ARGUMENT || !stays(b, request)) return result;
  ask(b, &request->work, DYN_ABLE_REFUSED);
  if (dyn_this_call()->timed != NULL) dyn_this_call()->timed->asked = 0;
  return request->forward(request);
}

/* NCCL, or a kernel, would wait for the rank that is gone: the call fails. */
static bool gave_up(const struct dyn_bound *b) {
  if (!dyn_lsa_gave_up(b->lsa)) return false;
  dyn_lsa_complain(b->lsa);
  return true;
}

DYN_HOT bool dyn_device_run(const struct dyn_request *request, bool perhapsCaptured, int *result) {
  const struct dyn_bound *b = find(request->comm);
  if (b == NULL) return false;
  if (gave_up(b)) {
    *result = REMOTE_ERROR;
    return true;
  }
  uint32_t action = is_of_interest(b, &request->work) ? action_of(b, request, dyn_windows_ever(b->windows)) : 0;
  if (action == 0) return false;
  *result = is_nccls(action) ? give(b, request, perhapsCaptured, action) : launch(b, request, perhapsCaptured, action, dyn_this_call()->timed);
  if (is_nccls(action) && stays(b, request)) ask(b, &request->work, DYN_ABLE_OVER);
  return true;
}

bool dyn_device_has(const void *comm) {
  const struct dyn_bound *b = find(comm);
  return b != NULL && dyn_lsa_near(b->lsa);
}

/* In a group it could not take its place among the calls that are held back. */
int dyn_device_rms_norm(void *comm, const struct dyn_norm *norm) {
  const struct dyn_bound *b = find(comm);
  if (b == NULL || dyn_in_group()) return INVALID_USAGE;
  return gave_up(b) ? REMOTE_ERROR : dyn_lsa_rms_norm(b->lsa, norm);
}

bool dyn_device_can_exchange(const void *comm, int path) {
  const struct dyn_bound *b = find(comm);
  return b != NULL && dyn_lsa_can_exchange(b->lsa, path);
}

int dyn_device_exchange(void *comm, const struct dyn_exchange *exchange) {
  const struct dyn_bound *b = find(comm);
  struct dyn_exchange x = *exchange;
  struct dyn_windowed in;
  if (b == NULL || dyn_in_group()) return INVALID_USAGE;
  if (dyn_windows_any(b->windows) && dyn_windowed_of(b->windows, x.recv, dyn_exchange_bytes(b->lsa, &x), &in)) x.recvWindow = &in;
  return gave_up(b) ? REMOTE_ERROR : dyn_lsa_exchange(b->lsa, &x);
}

/* ---- groups ---- */

static struct dyn_bound *in_group(const void *comm) {
  struct dyn_bound *b = find(comm), **at = &grouped;
  if (b == NULL || b->group != NOTHING) return b;
  while (*at != NULL && (*at)->id <= b->id) at = &(*at)->next;
  b->beside.n = 0;
  b->next = *at;
  *at = b;
  return b;
}

static void make_plain(struct dyn_bound *b) {
  bool held = b->group == HELD;
  if (b->group == GIVEN) return; /* NCCL calls itself */
  b->group = PLAIN; /* before it goes on: NCCL may call itself through our names */
  if (held) dyn_forward(&b->held, 0);
}

bool dyn_device_hold(const struct dyn_request *request, int *result) {
  struct dyn_bound *b = find(request->comm);
  if (b == NULL) return false;
  *result = gave_up(b) ? REMOTE_ERROR : SUCCESS;
  if (*result != SUCCESS) return true;
  b = in_group(request->comm); /* not before: the group has nothing of what is refused */
  bool first = b->group == NOTHING || b->group == SENDS;
  if (first && is_of_interest(b, &request->work) &&
      (counts(&request->work) || able_of(b, request, false) != 0)) {
    b->held = *request;
    b->hadWindows = dyn_windows_ever(b->windows);
    b->group = HELD;
    return true;
  }
  make_plain(b);
  return false;
}

void dyn_device_plain(void *comm) {
  struct dyn_bound *b = in_group(comm);
  if (b != NULL) make_plain(b);
}

void dyn_device_sends(void *comm, void *stream) {
  struct dyn_bound *b = in_group(comm);
  if (b == NULL) return;
  if (b->group == NOTHING) b->group = SENDS;
  if ((b->group == SENDS || b->group == HELD) && !dyn_beside_add(&b->beside, stream)) make_plain(b);
}

/* NCCL keeps an error for the group's end. */
static void give_held(struct dyn_bound *b) {
  const char *name = dyn_name_of(b->action);
  b->group = GIVEN;
  if (name != NULL) b->config = dyn_named_config(name, false);
  struct dyn_passage passage;
  dyn_passage_enter(&passage, b->held.work.stream, b->held.comm, 0);
  dyn_passage_leave(&passage, name != NULL ? b->held.named(&b->held, &b->config) : b->held.forward(&b->held));
}

/* Inside of a passage, which knows whether the call goes into a CUDA graph. */
static uint32_t action_of_held(const struct dyn_bound *b) {
  struct dyn_passage passage;
  dyn_passage_enter(&passage, b->held.work.stream, b->held.comm, 0);
  uint32_t action = is_of_interest(b, &b->held.work) ? action_of(b, &b->held, b->hadWindows) : 0;
  dyn_passage_leave(&passage, SUCCESS);
  return action;
}

static void launch_held(struct dyn_bound *b) {
  b->group = BEGUN;
  b->result = dyn_beside_first(&b->beside, b->lsa, b->held.work.stream);
  if (b->result == SUCCESS) b->result = launch(b, &b->held, true, b->action, dyn_grouped_timed(b->held.comm));
  if (b->result == SUCCESS) b->result = dyn_beside_then(&b->beside, b->lsa, b->held.work.stream);
}

static void end_held(struct dyn_bound *b, bool simulated) {
  b->action = simulated ? 0 : gave_up(b) ? DYN_CHOSEN_LOST : action_of_held(b); /* others may run what this rank cannot any more */
  if (b->action == 0) make_plain(b);
  else if (is_nccls(b->action)) give_held(b);
  else launch_held(b);
}

void dyn_device_group_ends(bool simulated) {
  for (struct dyn_bound *b = grouped; b != NULL; b = b->next)
    if (b->group == HELD) end_held(b, simulated);
}

int dyn_device_group_ended(int result) {
  for (struct dyn_bound *b = grouped; b != NULL; b = b->next) {
    if (b->group == BEGUN && result == SUCCESS) result = b->result;
    if (b->group == BEGUN && result == SUCCESS && stays(b, &b->held)) result = dyn_beside_first(&b->beside, b->lsa, b->held.work.stream);
    if (b->group == GIVEN && stays(b, &b->held)) ask(b, &b->held.work, DYN_ABLE_OVER);
    if (b->finalized && result == SUCCESS) dyn_lsa_wait(b->lsa);
    b->group = NOTHING;
  }
  grouped = NULL;
  return result;
}

/* ---- the end ---- */

/* Within a group that has calls of it: NCCL gets what was held back, and the group's end finds nothing. */
static void leave_group(struct dyn_bound *b) {
  struct dyn_bound **at = &grouped;
  while (*at != NULL && *at != b) at = &(*at)->next;
  if (*at == NULL) return;
  make_plain(b);
  *at = b->next;
  b->group = NOTHING;
}

void dyn_device_finalizes(void *comm) {
  if (dyn_in_group()) dyn_device_plain(comm); /* and so its end knows of it */
}

/* NCCL waits for its own calls alone. */
void dyn_device_finalized(void *comm, bool over) {
  struct dyn_bound *b = find(comm);
  if (b == NULL) return;
  b->finalized = true;
  if (over && !dyn_in_group()) dyn_lsa_wait(b->lsa);
}

void dyn_device_goes(void *comm, bool aborted) {
  struct dyn_bound *b = find(comm);
  if (b == NULL) return;
  leave_group(b);
  if (aborted) dyn_lsa_stop(b->lsa, "the program aborted the communicator");
  else dyn_lsa_wait(b->lsa); /* which another thread's abort ends */
  if (find(comm) != b || atomic_exchange(&b->goes, true)) return;
  if (aborted) dyn_lsa_settle(b->lsa, ABORT_NS);
  dyn_gin_destroy(b->lsa);
  unbind(b->lsa);
}

void dyn_device_stops(void *comm, const char *why) {
  struct dyn_bound *b = find(comm);
  if (b == NULL) return;
  b->stopped = true;
  dyn_lsa_stop(b->lsa, why);
}

bool dyn_device_peers(const void *comm, void *window, const void *at, uint64_t bytes, struct dyn_peers *peers) {
  const struct dyn_bound *b = find(comm);
  return b != NULL && dyn_lsa_near(b->lsa) && dyn_peers_of(window, at, bytes, dyn_lsa_ranks(b->lsa), dyn_lsa_rank(b->lsa), peers);
}

int dyn_device_error(void *comm) {
  const struct dyn_bound *b = find(comm);
  if (b == NULL || b->stopped) return SUCCESS;
  return dyn_lsa_missed(b->lsa) ? REMOTE_ERROR : b->finalized && !dyn_lsa_settle(b->lsa, 0) ? IN_PROGRESS : SUCCESS;
}
