/* SPDX-License-Identifier: Apache-2.0 */
#include "gathers.h"

#include <pthread.h>
#include <string.h>

#define MOST 256 /* communicators of a process; for further ones nothing is known */
#define IN_PROGRESS 7 /* ncclInProgress */
#define MOST_INSIDE (4 << 20) /* bytes: a struct ncclComm has 1.2 MB */

static struct dyn_gathers all[MOST];
static atomic_int used; /* places that ever were: no look goes further */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for taking and giving back */
atomic_bool dyn_gathers_waited;
static __thread struct dyn_gathers *grouped; /* that this thread's group has broadcasts, AllGathers or averages of */

/* The child of a fork has no communicators of its own yet. */
static void forget_all(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  memset(all, 0, sizeof all);
  atomic_store(&used, 0);
  grouped = NULL;
}
static void watch(void) { pthread_atfork(NULL, NULL, forget_all); }

/* NCCL has the tuner write its context into the communicator itself (&comm->tunerContext; initTransportsRank, src/init.cc, 2.29.2 to 2.30.7;
 * ncclTuningInit, 2.31.2 and 2.32.3), so how far in that is one communicator of a process tells of all others: also of one whose handle the
 * program gets when it is made, as with a child, and where several calls may be meant. Whatever does not agree, as with two NCCLs, or another
 * tuner around ours, is not relied on. */
static bool differs;
const void *dyn_gathers_around(const void *inside, const void *said) {
  static uintptr_t known; /* 0: not yet */
  pthread_mutex_lock(&lock);
  if (said != NULL) {
    uintptr_t in = (uintptr_t)inside - (uintptr_t)said;
    differs |= in == 0 || in >= MOST_INSIDE || (known != 0 && in != known);
    known = in;
  }
  uintptr_t comm = differs || known == 0 ? 0 : (uintptr_t)inside - known;
  pthread_mutex_unlock(&lock);
  return (const void *)comm;
}

struct dyn_gathers *dyn_gathers_take(const void *comm) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
  pthread_mutex_lock(&lock);
  int i = 0, n = atomic_load(&used);
  bool had = false;
  for (int j = 0; j < n; j++) had |= atomic_load(&all[j].comm) == (uintptr_t)comm;
  while (i < n && (atomic_load(&all[i].comm) != 0 || atomic_load(&all[i].inGroup))) i++; /* a thread may be in a group with what another one has ended */
  if (had) i = MOST; /* of which is its place? */
  if (i < MOST) {
    atomic_store(&all[i].root, DYN_NO_ROOT);
    atomic_store(&all[i].pending, 0);
    atomic_store(&all[i].averages, false);
    atomic_store(&all[i].windows, false);
    all[i].inThread = false;
    atomic_store(&all[i].comm, (uintptr_t)comm);
    if (i == n) atomic_store(&used, n + 1);
  }
  pthread_mutex_unlock(&lock);
  return i < MOST ? &all[i] : NULL;
}

const void *dyn_gathers_comm(const struct dyn_gathers *of) {
  pthread_mutex_lock(&lock);
  uintptr_t comm = differs ? 0 : atomic_load(&of->comm);
  pthread_mutex_unlock(&lock);
  return comm == (uintptr_t)of ? NULL : (const void *)comm;
}

void dyn_gathers_lost(struct dyn_gathers *of) { atomic_store(&of->comm, (uintptr_t)of); }

/* Where it is another one than was taken for it, by how far in others have theirs, nothing can be told of either: of a release whose source has not
 * been read this is what holds that. */
void dyn_gathers_made(struct dyn_gathers *of, const void *comm) {
  uintptr_t is = atomic_load(&of->comm);
  if (is == 0 || is == (uintptr_t)comm) return;
  pthread_mutex_lock(&lock);
  differs = true;
  atomic_store(&of->windows, true);
  atomic_store(&of->root, DYN_ROOTS);
  pthread_mutex_unlock(&lock);
  dyn_gathers_lost(of);
}

void dyn_gathers_over(struct dyn_gathers *of) {
  pthread_mutex_lock(&lock);
  atomic_store(&of->comm, 0);
  pthread_mutex_unlock(&lock);
}

static struct dyn_gathers *find(const void *comm) {
  for (int i = 0; i < atomic_load_explicit(&used, memory_order_acquire) && comm != NULL; i++)
    if (atomic_load(&all[i].comm) == (uintptr_t)comm) return &all[i];
  return NULL;
}

/* Any thread may be told first. */
static void settle(struct dyn_gathers *of, unsigned group) {
  if (group == 0) return;
  pthread_mutex_lock(&lock);
  if (atomic_load(&of->pending) == group) {
    atomic_store(&of->root, DYN_NO_ROOT);
    atomic_store(&of->pending, 0);
  }
  pthread_mutex_unlock(&lock);
}

static void join(struct dyn_gathers *of) {
  if (atomic_exchange(&of->inGroup, true)) return;
  of->next = grouped;
  grouped = of;
}

void dyn_gathers_broadcast(const void *comm, int root) {
  struct dyn_gathers *of = find(comm);
  if (of == NULL) return;
  settle(of, atomic_load(&of->pending));
  int before = atomic_load(&of->root);
  if (before != root) atomic_store(&of->root, before == DYN_NO_ROOT ? root : DYN_ROOTS);
  join(of);
}

void dyn_gathers_gather(const void *comm) {
  struct dyn_gathers *of = find(comm);
  if (of == NULL) return;
  atomic_store(&of->gathers, true);
  join(of);
}

void dyn_gathers_average(const void *comm, bool inGroup) {
  struct dyn_gathers *of = find(comm);
  if (of == NULL) return;
  if (!inGroup) atomic_store(&of->averages, true);
  else of->averaging = true, join(of);
}

void dyn_gathers_window(const void *comm) {
  struct dyn_gathers *of = find(comm);
  if (of != NULL) atomic_store(&of->windows, true);
}

void dyn_gathers_ends(bool simulated) {
  for (struct dyn_gathers *of = grouped; of != NULL; of = of->next)
    if (of->averaging && !simulated) atomic_store(&of->averages, true);
}

/* What does not block NCCL asks about later, and the program waits for that before its next call. */
void dyn_gathers_ended(int result) {
  static atomic_uint groups;
  while (grouped != NULL) {
    struct dyn_gathers *of = grouped;
    grouped = of->next;
    atomic_store(&of->gathers, false);
    of->averaging = false;
    if (result == IN_PROGRESS && atomic_load(&of->root) != DYN_NO_ROOT) {
      atomic_store(&of->pending, atomic_fetch_add(&groups, 1) | 1u << 31);
      atomic_store(&dyn_gathers_waited, true);
    }
    else if (atomic_load(&of->pending) == 0) atomic_store(&of->root, DYN_NO_ROOT);
    atomic_store(&of->inGroup, false);
  }
}

unsigned dyn_gathers_pending(const void *comm) {
  const struct dyn_gathers *of = find(comm);
  return of == NULL ? 0 : atomic_load(&of->pending);
}

void dyn_gathers_launched(const void *comm, unsigned group) {
  struct dyn_gathers *of = group == 0 ? NULL : find(comm);
  if (of != NULL) settle(of, group);
}

const struct dyn_gathers_calls dyn_gathers_calls = {dyn_making_gathers, dyn_making_gathers_over};
