/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the preload library: what every forwarded call needs.
 */
#ifndef DYN_FORWARD_H
#define DYN_FORWARD_H

#include "preload.h"

#define DYN_SYSTEM_ERROR 2 /* ncclSystemError */

extern struct dyn_preload dynamiccl_preload; /* which the plugin finds by dlsym (preload.h) */

/* A real function, found once. */
typedef _Atomic(void *) dyn_real;

/* The function of this name behind us: the next one in the program's order, else that of the library that calls us, else libnccl.so.2's,
 * which programs load for themselves alone; from then on it stays loaded. own is our function, if there is one; caller: an address in
 * the library that calls it. NULL, said once: there is none. */
void *dyn_find_first(dyn_real *cache, const char *name, const void *own, const void *caller);
static inline void *dyn_find(dyn_real *cache, const char *name, const void *own, const void *caller) {
  void *real = atomic_load_explicit(cache, memory_order_acquire);
  return real != NULL ? real : dyn_find_first(cache, name, own, caller);
}

/* As dyn_find, in a library that the program has loaded; it is never loaded here. */
void *dyn_find_loaded(const char *library, const char *name);
/* Whether this function of NCCL's, which somebody has looked up, is of the library that ours of that name go on to; that of the first one, if
 * it is the only NCCL. */
bool dyn_is_behind(const char *name, const void *real);
/* Whether the library that has this address, or what it was linked with, has a function of this name that is not ours. */
bool dyn_is_reached(const char *name, const void *caller);
/* NCCL's, for what we have no function of; behind a call of NCCL's. NULL: none. */
void *dyn_find_behind(const char *name);

/* One call of NCCL's in this thread. */
struct dyn_passage {
  atomic_int *mask; /* with a guard of this passage; NULL: none */
  struct dyn_probe *probe; /* that times it; NULL: none */
  int captureMode; /* of the thread before it was relaxed for this passage; negative: it was not */
  void *outer; /* dyn_preload_call.comm of the passage around it; all else of that stays as it is meanwhile */
};
/* key: dyn_watch_key of a call that tuners are asked about, so that timing it is of use; 0: of none. */
void dyn_passage_enter(struct dyn_passage *passage, void *stream, void *comm, uint64_t key);
void dyn_passage_leave(const struct dyn_passage *passage, int result);

/* All that each call looks at of its thread. */
struct dyn_thread {
  struct dyn_preload_call call;
  unsigned groups; /* that it has begun and not ended */
  unsigned nested; /* our functions that it is in (intercepted.h) */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct dyn_thread) == 64, "one line of cache");
extern __thread struct dyn_thread dyn_thread;
static inline const struct dyn_preload_call *dyn_this_call(void) { return &dyn_thread.call; }

/* Communicators of one rank: NCCL copies, and asks no tuner and no profiler (taskAppend, src/enqueue.cc), so a collective of theirs goes on at once.
 * The few that find no place in the list go the way of all others. */
bool dyn_lone_has(const void *comm);
static inline bool dyn_is_lone(const void *comm) {
  return DYN_RARELY(atomic_load_explicit(&dynamiccl_preload.lone, memory_order_relaxed) > 0) && dyn_lone_has(comm);
}
/* The program gets a communicator of so many ranks, or none any more at this address: 0. */
void dyn_lone_set(const void *comm, int nRanks);

/* Whether the stream is captured; also where the driver does not say. */
bool dyn_captured(void *stream, bool *known);

/* Calls between the first two are a group's and run at its end (groups.h). */
static inline bool dyn_in_group(void) { return dyn_thread.groups > 0; }
void dyn_group_begin(void);
void dyn_group_end(bool simulated);
int dyn_group_ended(int result);

void dyn_announce(int communicators);

/* A communicator goes: none of its calls is to be timed any more, and what they still have in flight is waited for. */
void dyn_comm_goes(const void *comm);
void dyn_probes_settle(void);

#endif
