/* SPDX-License-Identifier: Apache-2.0 */
#include "windows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../plugin/datatype.h"
#include "forward.h"

#define RESERVED 1 /* no address */

enum { SUCCESS = 0, IN_PROGRESS = 7 }; /* ncclResult_t */

struct window {
  uintptr_t at;
  size_t bytes;
  void *handle;
  void **pending; /* where the group that registers it leaves the handle; NULL: it has */
  int flags;
  bool known; /* peers */
  uint64_t number;
  struct dyn_peers peers;
};

/* Sorted by address, as NCCL's own list is: those of one address in the order in which they came. Made when a communicator first
 * needs it, and kept: most processes under the library never have one. */
struct dyn_windows {
  atomic_uintptr_t comm; /* ncclComm_t; 0: free; RESERVED: it is being made */
  bool lost;
  bool grouped; /* in this thread's list of those with pending windows */
  struct dyn_windows *next;
  size_t n;
  uint64_t calls; /* that were to register a window */
  struct window list[DYN_MAX_WINDOWS];
};
static struct dyn_windows *tables[DYN_MAX_WINDOWED];
static atomic_int used; /* tables so far: no look goes further */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for taking and giving back a table */
static __thread struct dyn_windows *grouped;

/* ---- whose ---- */

struct dyn_windows *dyn_windows_reserve(void) {
  struct dyn_windows *found = NULL;
  pthread_mutex_lock(&lock);
  int n = atomic_load(&used);
  for (int i = 0; i < DYN_MAX_WINDOWED && found == NULL; i++) {
    if (i < n && atomic_load(&tables[i]->comm) != 0) continue;
    if (i == n && (tables[i] = calloc(1, sizeof *tables[i])) == NULL) break;
    found = tables[i];
    found->n = found->calls = 0;
    found->lost = found->grouped = false;
    atomic_store_explicit(&found->comm, RESERVED, memory_order_release);
    if (i == n) atomic_store_explicit(&used, n + 1, memory_order_release);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void dyn_windows_fill(struct dyn_windows *windows, const void *comm) {
  if (windows != NULL) atomic_store_explicit(&windows->comm, (uintptr_t)comm, memory_order_release);
}

/* Also within the group that registers windows of it. */
void dyn_windows_release(struct dyn_windows *windows) {
  struct dyn_windows **at = &grouped;
  while (*at != NULL && *at != windows) at = &(*at)->next;
  if (windows != NULL && *at == windows) *at = windows->next;
  dyn_windows_fill(windows, NULL);
}

struct dyn_windows *dyn_windows_of(const void *comm) {
  int n = atomic_load_explicit(&used, memory_order_acquire);
  for (int i = 0; i < n && comm != NULL; i++)
    if (atomic_load_explicit(&tables[i]->comm, memory_order_acquire) == (uintptr_t)comm) return tables[i];
  return NULL;
}

/* ---- looks ---- */

/* How many begin at the address or before it. */
static size_t place_of(const struct dyn_windows *windows, uintptr_t at) {
  size_t low = 0, high = windows->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (windows->list[middle].at <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

bool dyn_window_of(const struct dyn_windows *windows, const void *at, size_t bytes, struct dyn_window_place *place) {
  if (windows == NULL || windows->n == 0) return false;
  size_t i = place_of(windows, (uintptr_t)at);
  if (i == 0) return false;
  const struct window *w = &windows->list[i - 1];
  uint64_t offset = (uintptr_t)at - w->at;
  if (!(w->flags & DYN_WIN_COLL_SYMMETRIC) || offset >= w->bytes || bytes > w->bytes - offset) return false;
  if (place != NULL) *place = (struct dyn_window_place){w->handle, offset, w->bytes, w->flags, w->number, w->known ? &w->peers : NULL};
  return true;
}

bool dyn_windows_any(const struct dyn_windows *windows) { return windows != NULL && windows->n > 0; }
bool dyn_windows_ever(const struct dyn_windows *windows) { return windows != NULL && windows->calls > 0; }
bool dyn_windows_lost(const struct dyn_windows *windows) { return windows != NULL && windows->lost; }

/* ---- changes ---- */

static void find_peers(const void *comm, struct window *w) {
  w->known = (w->flags & DYN_WIN_COLL_SYMMETRIC) && !(w->flags & DYN_WIN_GIN_ONLY) && dyn_device_peers(comm, w->handle, (void *)w->at, w->bytes, &w->peers);
}

static void lose(struct dyn_windows *windows) {
  windows->lost = true;
  windows->n = 0;
}

static void take_out(struct dyn_windows *windows, size_t i) {
  memmove(&windows->list[i], &windows->list[i + 1], (--windows->n - i) * sizeof *windows->list);
}

void dyn_window_comes(const void *comm, const void *at, size_t bytes, void **win, int flags, int result) {
  bool group = dyn_in_group();
  struct dyn_windows *windows = dyn_windows_of(comm);
  if (windows != NULL) windows->calls++; /* whatever becomes of it: ranks count alike */
  if (windows == NULL || windows->lost || at == NULL || bytes == 0 || win == NULL) return;
  if (result == IN_PROGRESS || (result == SUCCESS && windows->n == DYN_MAX_WINDOWS)) lose(windows);
  if (windows->lost || result != SUCCESS || (!group && *win == NULL)) return;
  size_t i = place_of(windows, (uintptr_t)at);
  memmove(&windows->list[i + 1], &windows->list[i], (windows->n++ - i) * sizeof *windows->list);
  windows->list[i] = (struct window){.at = (uintptr_t)at, .bytes = bytes, .handle = group ? NULL : *win, .pending = group ? win : NULL,
                                     .flags = flags, .number = windows->calls};
  if (!group) find_peers(comm, &windows->list[i]);
  if (!group || windows->grouped) return;
  windows->grouped = true;
  windows->next = grouped;
  grouped = windows;
}

void dyn_window_goes(const void *comm, const void *handle) {
  struct dyn_windows *windows = handle == NULL ? NULL : dyn_windows_of(comm);
  for (size_t i = 0; windows != NULL && i < windows->n; i++) {
    if (windows->list[i].handle != handle) continue;
    take_out(windows, i);
    return;
  }
}

/* What failed in a group may be any of it: its windows are taken for not made, as NCCL leaves no handle for them. */
static void settle(struct dyn_windows *windows, int result) {
  windows->grouped = false;
  if (result == IN_PROGRESS) lose(windows);
  for (size_t i = 0; i < windows->n;) {
    struct window *w = &windows->list[i];
    bool pends = w->pending != NULL;
    if (pends) w->handle = result == SUCCESS ? *w->pending : NULL;
    w->pending = NULL;
    if (w->handle == NULL) {
      take_out(windows, i);
      continue;
    }
    if (pends) find_peers((void *)atomic_load(&windows->comm), w);
    i++;
  }
}

void dyn_windows_group_ended(int result) {
  for (; grouped != NULL; grouped = grouped->next) settle(grouped, result);
}

void dyn_windows_suspend(const void *comm) {
  struct dyn_windows *windows = dyn_windows_of(comm);
  for (size_t i = 0; windows != NULL && i < windows->n; i++) windows->list[i].known = false;
}

void dyn_windows_resume(const void *comm) {
  struct dyn_windows *windows = dyn_windows_of(comm);
  for (size_t i = 0; windows != NULL && i < windows->n; i++)
    if (windows->list[i].handle != NULL) find_peers(comm, &windows->list[i]);
}

bool dyn_windows_matter(int collective, int op, int datatype) {
  enum { SUM = 0, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, FLOAT8_E4M3 = 10, FLOAT8_E5M2 = 11 };
  if (collective == DYN_ALL_GATHER) return true;
  return (collective == DYN_ALL_REDUCE || collective == DYN_REDUCE_SCATTER) && op == SUM &&
         (datatype == FLOAT16 || datatype == FLOAT32 || datatype == BFLOAT16 || datatype == FLOAT8_E4M3 || datatype == FLOAT8_E5M2);
}
