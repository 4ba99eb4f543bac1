/* SPDX-License-Identifier: Apache-2.0 */
#include "bound.h"

#include <stdlib.h>
#include <string.h>

#include "windows.h"

#define MAX_BOUND 256 /* communicators of a process that have kernels; more go without */
#define RESERVED 1 /* no address */

/* Found by any thread, used by one at a time. */
static struct dyn_bound bounds[MAX_BOUND];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for making and taking away, never for a look */

struct dyn_bound *dyn_bound_find(const void *comm) {
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
  dyn_groups_forget();
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
  bounds[i].stopped = bounds[i].revoked = bounds[i].finalized = bounds[i].goes = bounds[i].joins = false;
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
void dyn_bound_free(struct dyn_lsa *lsa) {
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
  dyn_bound_free(lsa);
  dyn_lsa_close(lsa);
}

static const struct dyn_gin_calls ginCalls = {dyn_gin_can, dyn_gin_id, dyn_gin_offer, dyn_gin_make};

static const struct dyn_hosts_calls hostsCalls = {dyn_making_hosts, dyn_hosts_leave, dyn_hosts_gin, dyn_hosts_decline};
__attribute__((constructor)) static void begin(void) { dyn_lsa_gone = dyn_hosts_gone; }

const struct dyn_device_calls dyn_device_calls = {dyn_lsa_offer, dyn_lsa_open, dyn_lsa_room, bind_here, dyn_making_expect, close_lsa, dyn_making_alone, &ginCalls, dyn_names_can, has_windows, dyn_host_gpu, &hostsCalls, dyn_making_ctas};
