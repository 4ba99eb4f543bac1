/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include <stdlib.h>

#include "probe.h"

#define MOST DYN_MAX_GPUS
#define KIND_SHIFT 48 /* of a key: function and size (watch.h) */

/* Of a thread that groups calls; not in each thread's own memory, which comes off the stack of every thread under the library. */
struct group {
  unsigned n;
  bool left;   /* alone */
  bool ending;
  struct grouped {
    void *comm, *stream;
    uint64_t key;
    int nRanks, rank; /* while it ends */
    struct dyn_probe *probe; /* NULL: not timed */
  } calls[MOST];
};
static __thread struct group *group;
static pthread_key_t groupKey; /* has it go with its thread */
static bool keyed;

/* Functions of the program's that run behind this one may group calls, too. */
static void let_go(void *ending) {
  group = NULL;
  free(ending);
}

static void make_key(void) { keyed = pthread_key_create(&groupKey, let_go) == 0; }

/* False: there is no memory, and no group of this thread is timed. */
static bool has_group(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (group != NULL) return true;
  pthread_once(&once, make_key);
  group = keyed ? calloc(1, sizeof *group) : NULL;
  if (group == NULL || pthread_setspecific(groupKey, group) == 0) return group != NULL;
  free(group);
  group = NULL;
  return false;
}

/* ---- what is in it ---- */

static bool alike(const struct grouped *a, const struct grouped *b) {
  return a->stream != b->stream && a->key >> KIND_SHIFT == b->key >> KIND_SHIFT;
}

void dyn_grouped_add(void *comm, void *stream, uint64_t key) {
  if (!has_group() || group->left) return;
  struct grouped call = {.comm = comm, .stream = stream, .key = key};
  group->left = key == 0 || group->n == MOST;
  for (unsigned i = 0; i < group->n && !group->left; i++) group->left = !alike(&group->calls[i], &call);
  if (!group->left) group->calls[group->n++] = call;
}

void dyn_grouped_spoil(void) {
  if (has_group()) group->left = true;
}

static bool ask(const char *name, dyn_real *cache, void *comm, int *out) {
  int (*real)(void *, int *) = (int (*)(void *, int *))dyn_find(cache, name, NULL, NULL);
  return real != NULL && real(comm, out) == 0;
}

/* Which rank each call is of, for that is what the plugin knows. False: not known, or two are of one. */
static bool find_ranks(void) {
  static dyn_real userRank, count;
  for (unsigned i = 0; i < group->n; i++) {
    struct grouped *it = &group->calls[i];
    if (!ask("ncclCommCount", &count, it->comm, &it->nRanks) || !ask("ncclCommUserRank", &userRank, it->comm, &it->rank)) return false;
    for (unsigned j = 0; j < i; j++)
      if (group->calls[j].rank == it->rank && group->calls[j].nRanks == it->nRanks) return false;
  }
  return true;
}

static bool any_captured(void) {
  bool known, any = false;
  for (unsigned i = 0; i < group->n && !any; i++) any = dyn_captured(group->calls[i].stream, &known);
  return any;
}

/* ---- its end ---- */

static bool wanted(const struct grouped *it) { return dyn_call_wanted(&dynamiccl_preload, it->comm, it->key); }

/* The calls are told apart whether or not one is timed: of each the plugin may want the next one timed. The driver was asked about
 * each that NCCL has been given; where one is to be timed it is asked again about all, for no event may go into a graph. */
void dyn_grouped_begin(bool simulated, bool captured) {
  bool plugin = atomic_load_explicit(&dynamiccl_preload.mask, memory_order_acquire) != NULL, asks = false;
  if (group == NULL || simulated || captured || !plugin || group->left || group->n == 0 || !find_ranks()) return;
  for (unsigned i = 0; i < group->n && !asks; i++) asks = wanted(&group->calls[i]);
  if (asks && any_captured()) return;
  group->ending = true;
  for (unsigned i = 0; i < group->n; i++)
    if (wanted(&group->calls[i])) group->calls[i].probe = dyn_probe_begin(group->calls[i].stream);
}

/* What one thread takes to launch for several GPUs is part of what such a call takes, whoever runs it: NCCL needs longer for it
 * than our kernels do, and the GPUs wait. So there the call begins where its stream reaches it. A call for one GPU begins no
 * earlier than the host has issued it, as outside of groups. */
void dyn_grouped_end(int result) {
  if (group == NULL) return;
  for (unsigned i = 0; i < group->n; i++)
    if (group->calls[i].probe != NULL) dyn_probe_end(group->calls[i].probe, result == 0, group->n > 1 ? 0 : dyn_host_ns());
  group->n = 0;
  group->left = group->ending = false;
}

struct dyn_timed *dyn_grouped_timed(const void *comm) {
  for (unsigned i = 0; group != NULL && i < group->n && group->ending; i++)
    if (group->calls[i].comm == comm) return group->calls[i].probe == NULL ? NULL : dyn_probe_timed(group->calls[i].probe);
  return NULL;
}

bool dyn_grouped_about(uint32_t nRanks, int rank, int collective, struct dyn_about *about) {
  for (unsigned i = 0; group != NULL && i < group->n && group->ending; i++) {
    const struct grouped *it = &group->calls[i];
    if ((uint32_t)it->nRanks != nRanks || it->rank != rank || dyn_watch_kind(it->key) != (unsigned)collective + 1) continue;
    *about = (struct dyn_about){it->probe == NULL ? NULL : dyn_probe_timed(it->probe), it->key};
    return true;
  }
  return false;
}
