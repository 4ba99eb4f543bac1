/* SPDX-License-Identifier: Apache-2.0
 *
 * How a plan comes into force on the ranks of several hosts in one epoch, or on none (docs/design.md, decision 8). Between a rank's own
 * thread, which enters epochs, and the thread that speaks for it to the others (rank.c): that one raises a fence at an epoch that
 * the rank has not entered, and says so; then the hub, which hears that of all ranks or not, decides; and what it has decided is
 * told here. A rank that comes to a raised fence waits, for it has promised to enter this epoch as all do.
 *
 * Each function makes at most one access to shared memory, so that a program can run every interleaving of these very steps
 * (test/fence_check.c). Each word is sequentially consistent: a rank says which epoch it enters before it looks at the fence, the other
 * thread raises the fence before it looks at the epoch, so one of them sees the other.
 */
#ifndef DYN_FENCE_H
#define DYN_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi.h"

/* Only the check sets this: each number plants one mistake that the check has to find. */
#ifndef DYN_FENCE_MUTATE
#define DYN_FENCE_MUTATE 0
#endif
#define DYN_FENCE_MUTATE_NO_RECHECK 1 /* the rank's epoch is not looked at once the fence is up */
#define DYN_FENCE_MUTATE_NO_WAIT 2    /* who comes to a raised fence goes on as before */
#define DYN_FENCE_MUTATE_EARLY 3      /* an epoch before the fence's takes its plan as well */
#define DYN_FENCE_MUTATE_BUSY 4       /* a fence is raised although what was decided there has not been taken */

enum dyn_fence_state {
  DYN_FENCE_DOWN,
  DYN_FENCE_RAISED, /* the rank waits if it comes to the epoch */
  DYN_FENCE_OPEN,   /* decided: from the epoch on the plan is in force */
  DYN_FENCE_LOST,   /* nobody can say any more what was decided */
};

struct dyn_fence {
  uint64_t entered; /* atomic, rank: the last epoch that it has entered, or is about to */
  uint64_t word;    /* atomic: epoch << 2 | dyn_fence_state. The rank changes OPEN to DOWN, the other thread all else */
  uint64_t waiting; /* atomic, rank: it waits at the fence */
  uint32_t exchanges; /* atomic, rank, once: DYN_ALL_*, whether it counts AllToAll, of which NCCL asks nobody, from its first call on */
  struct dyn_plan plan; /* of a raised or open fence: written before it is raised, and not before it is down again */
};

static inline enum dyn_fence_state dyn_fence_state_of(uint64_t word) { return (enum dyn_fence_state)(word & 3); }

/* ---- the rank, which enters epochs one by one ---- */

static inline void dyn_fence_enter(struct dyn_fence *f, uint64_t epoch) { __atomic_store_n(&f->entered, epoch, __ATOMIC_SEQ_CST); }

enum dyn_fence_answer {
  DYN_FENCE_KEEP, /* the plan in force stays */
  DYN_FENCE_WAIT, /* ask again */
  DYN_FENCE_TAKE, /* the fence's plan is in force from here on */
  DYN_FENCE_FAIL, /* it cannot be known */
};

static inline enum dyn_fence_answer dyn_fence_ask(const struct dyn_fence *f, uint64_t epoch) {
  uint64_t word = __atomic_load_n(&f->word, __ATOMIC_SEQ_CST);
  enum dyn_fence_state state = dyn_fence_state_of(word);
  if (state == DYN_FENCE_DOWN) return DYN_FENCE_KEEP;
  if (word >> 2 > epoch && DYN_FENCE_MUTATE != DYN_FENCE_MUTATE_EARLY) return DYN_FENCE_KEEP;
  if (state == DYN_FENCE_OPEN) return DYN_FENCE_TAKE;
  if (state == DYN_FENCE_LOST) return DYN_FENCE_FAIL;
  return DYN_FENCE_MUTATE == DYN_FENCE_MUTATE_NO_WAIT ? DYN_FENCE_KEEP : DYN_FENCE_WAIT;
}

/* Behind TAKE, once it has copied the plan. */
static inline void dyn_fence_taken(struct dyn_fence *f) { __atomic_store_n(&f->word, DYN_FENCE_DOWN, __ATOMIC_SEQ_CST); }

/* ---- the other thread ---- */

/* Whether a plan may be written and the fence raised. */
static inline bool dyn_fence_is_down(const struct dyn_fence *f) {
  return dyn_fence_state_of(__atomic_load_n(&f->word, __ATOMIC_SEQ_CST)) == DYN_FENCE_DOWN || DYN_FENCE_MUTATE == DYN_FENCE_MUTATE_BUSY;
}

static inline void dyn_fence_raise(struct dyn_fence *f, uint64_t epoch) {
  __atomic_store_n(&f->word, epoch << 2 | DYN_FENCE_RAISED, __ATOMIC_SEQ_CST);
}

/* Behind raise: the rank has come to the epoch, so nothing may be promised, and the fence must go down. */
static inline bool dyn_fence_late(const struct dyn_fence *f, uint64_t epoch) {
  return DYN_FENCE_MUTATE != DYN_FENCE_MUTATE_NO_RECHECK && __atomic_load_n(&f->entered, __ATOMIC_SEQ_CST) >= epoch;
}

/* Of a raised fence. */
static inline void dyn_fence_lower(struct dyn_fence *f) { __atomic_store_n(&f->word, DYN_FENCE_DOWN, __ATOMIC_SEQ_CST); }
static inline void dyn_fence_open(struct dyn_fence *f, uint64_t epoch) {
  __atomic_store_n(&f->word, epoch << 2 | DYN_FENCE_OPEN, __ATOMIC_SEQ_CST);
}
static inline void dyn_fence_lose(struct dyn_fence *f, uint64_t epoch) {
  __atomic_store_n(&f->word, epoch << 2 | DYN_FENCE_LOST, __ATOMIC_SEQ_CST);
}

/* The epoch at which it is raised; 0: it is not. */
static inline uint64_t dyn_fence_raised_at(const struct dyn_fence *f) {
  uint64_t word = __atomic_load_n(&f->word, __ATOMIC_SEQ_CST);
  return dyn_fence_state_of(word) == DYN_FENCE_RAISED ? word >> 2 : 0;
}

#endif
