/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's activation mask with guards. NCCL copies the mask at the start of a call, before anything of ours runs in that
 * call; a call that goes into a CUDA graph must not find KernelCh in it. Whoever makes such a call (nccltuner/preload)
 * therefore enters a guard before it and leaves it after it. This file is all that ever writes the mask: the guards in
 * any thread, the updates in any other.
 *
 * The number of guards that are up stands in the mask itself, in bits that no event of NCCL's uses (the highest up to
 * 2.32 is 1 << 15; NCCL tests single bits and, of a task's copy, whether it is zero, which decides nothing for a task
 * without events). So one compare-and-swap sees both:
 *   1. A bit of ours is put into the mask by compare-and-swap alone, and only where expected and new value have no guard.
 *   2. Entering raises the number (one atomic addition) and then takes the bit away (one atomic and).
 *   After the addition no swap of 1 succeeds until the guard has left, however long before it was computed: its expected
 *   value has no guard, the mask has. After the and the bit is gone, and by 1 it stays gone. What a thread reads of one
 *   word after its own write of it is never older than that write, with any memory order, so NCCL's copy has no KernelCh.
 *   An equal value met again (ABA) is no harm: what counts is the number of guards at the moment of the swap.
 *   3. Then it puts in what is to stay (tell), and no update takes that out: its swap keeps what it finds.
 * Entering is three steps without a loop; leaving and updating are bounded loops that fail only when others get on.
 * test/mask_check.c runs every interleaving of these very steps.
 *
 * Who else writes the word? NCCL 2.32.3, by its symbols, when a user sets the mask through its RAS service, and at init
 * when KernelPhase is in it without KernelCh, which we never ask for. A number of guards that such a plain store loses or
 * brings back keeps KernelCh out for too long, or, while it is lost, fails to keep it out of that call.
 * What a chained profiler asks for is its user's own wish: those bits are not taken.
 */
#ifndef DYN_MASK_H
#define DYN_MASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DYN_GUARD_SHIFT 20 /* 12 bits: 4095 threads in captured calls at the same moment */
#define DYN_GUARD_ONE (1 << DYN_GUARD_SHIFT)
#define DYN_MASK_EVENTS (DYN_GUARD_ONE - 1)
#define DYN_MASK_TRIES 1000 /* a try is lost only to another thread's step; so many in a row do not happen */

/* Only the check sets this: each number plants one mistake that the check has to find. */
#ifndef DYN_MASK_MUTATE
#define DYN_MASK_MUTATE 0
#endif
#define DYN_MASK_MUTATE_STORE 1        /* an update stores, it does not compare and swap */
#define DYN_MASK_MUTATE_TAKE_FIRST 2   /* a guard takes the bit and counts itself afterwards */
#define DYN_MASK_MUTATE_BLIND 3        /* an update does not look at the number of guards */
#define DYN_MASK_MUTATE_RESTORE 4      /* the first guard that leaves gives the bit back, not the last */
#define DYN_MASK_MUTATE_NO_TURN 5      /* a guard that leaves does not count its turn */
#define DYN_MASK_MUTATE_FORGET 6       /* an update takes away what a guard has put in */

/* Where the words lie. All are shared by all threads of the process. */
struct dyn_mask_words {
  atomic_int *mask;
  atomic_int *take;    /* bits that guards take away: ours that the chained profiler does not want */
  atomic_int *restore; /* of these, what the last guard gives back when it leaves */
  atomic_uint *turns;  /* guards that began to enter or to leave; dyn_call_kept */
  atomic_int *tell;    /* bits that guards put in, to stay: NCCL then tells what is captured and what is not */
};

enum dyn_mask_pc {
  DYN_MASK_ENTER_TURN, DYN_MASK_ENTER_COUNT, DYN_MASK_ENTER_TAKE, DYN_MASK_ENTER_TELL,
  DYN_MASK_LEAVE_TURN, DYN_MASK_LEAVE_RESTORE, DYN_MASK_LEAVE_READ, DYN_MASK_LEAVE_SWAP,
  DYN_MASK_UPDATE_RESTORE, DYN_MASK_UPDATE_READ, DYN_MASK_UPDATE_SWAP,
  DYN_MASK_END,
};

struct dyn_mask_walk {
  enum dyn_mask_pc pc;
  unsigned tries;
  int old;     /* the mask as last read */
  int restore; /* as last read */
  int want;    /* update: all bits that are to be in the mask, ... */
  int guarded; /* ... and those of them that must not be while a guard is up */
};

static inline unsigned dyn_mask_guards(int mask) { return (unsigned)mask >> DYN_GUARD_SHIFT; }

static inline void dyn_mask_leave_swap(struct dyn_mask_walk *s, const struct dyn_mask_words *m) {
  unsigned guards = dyn_mask_guards(s->old);
  int next = s->old;
  /* None is up although we are: somebody wrote the whole word (NCCL's RAS service can). Nothing to leave then. */
  if (guards > 0) next = s->old - DYN_GUARD_ONE;
  if (guards == 1 || (DYN_MASK_MUTATE == DYN_MASK_MUTATE_RESTORE && guards > 0)) next |= s->restore;
  bool done = next == s->old || atomic_compare_exchange_strong(m->mask, &s->old, next);
  s->pc = done || ++s->tries >= DYN_MASK_TRIES ? DYN_MASK_END : DYN_MASK_LEAVE_READ;
  if (!done && s->pc == DYN_MASK_END) atomic_fetch_sub(m->mask, DYN_GUARD_ONE); /* gives nothing back, but is sure */
}

static inline void dyn_mask_update_swap(struct dyn_mask_walk *s, const struct dyn_mask_words *m) {
  bool up = dyn_mask_guards(s->old) > 0 && DYN_MASK_MUTATE != DYN_MASK_MUTATE_BLIND;
  int kept = DYN_MASK_MUTATE == DYN_MASK_MUTATE_FORGET ? 0 : s->old & atomic_load(m->tell);
  int next = (int)((unsigned)s->old & ~(unsigned)DYN_MASK_EVENTS) | (s->want & ~(up ? s->guarded : 0)) | kept;
  /* Every thread of NCCL reads this word at every call: it is written only to change it. */
  bool done = next == s->old;
  if (!done && DYN_MASK_MUTATE == DYN_MASK_MUTATE_STORE) atomic_store(m->mask, next), done = true;
  if (!done) done = atomic_compare_exchange_strong(m->mask, &s->old, next);
  /* After so many lost tries it is left as it is: the next epoch writes it. */
  s->pc = done || ++s->tries >= DYN_MASK_TRIES ? DYN_MASK_END : DYN_MASK_UPDATE_READ;
}

/* One step, with at most one access to shared memory where it matters. False: it was the last. */
static inline bool dyn_mask_step(struct dyn_mask_walk *s, const struct dyn_mask_words *m) {
  bool takeFirst = DYN_MASK_MUTATE == DYN_MASK_MUTATE_TAKE_FIRST;
  switch (s->pc) {
  case DYN_MASK_ENTER_TURN:
    atomic_fetch_add(m->turns, 1);
    s->pc = takeFirst ? DYN_MASK_ENTER_TAKE : DYN_MASK_ENTER_COUNT;
    break;
  case DYN_MASK_ENTER_COUNT:
    atomic_fetch_add(m->mask, DYN_GUARD_ONE);
    s->pc = takeFirst ? DYN_MASK_ENTER_TELL : DYN_MASK_ENTER_TAKE;
    break;
  case DYN_MASK_ENTER_TAKE:
    atomic_fetch_and(m->mask, ~atomic_load(m->take));
    s->pc = takeFirst ? DYN_MASK_ENTER_COUNT : DYN_MASK_ENTER_TELL;
    break;
  case DYN_MASK_ENTER_TELL:
    atomic_fetch_or(m->mask, atomic_load(m->tell));
    s->pc = DYN_MASK_END;
    break;
  case DYN_MASK_LEAVE_TURN:
    if (DYN_MASK_MUTATE != DYN_MASK_MUTATE_NO_TURN) atomic_fetch_add(m->turns, 1);
    s->pc = DYN_MASK_LEAVE_RESTORE;
    break;
  case DYN_MASK_LEAVE_RESTORE:
    s->restore = atomic_load(m->restore);
    s->pc = DYN_MASK_LEAVE_READ;
    break;
  case DYN_MASK_LEAVE_READ:
    s->old = atomic_load(m->mask);
    s->pc = DYN_MASK_LEAVE_SWAP;
    break;
  case DYN_MASK_LEAVE_SWAP: dyn_mask_leave_swap(s, m); break;
  case DYN_MASK_UPDATE_RESTORE:
    if (atomic_load(m->restore) != (s->want & s->guarded)) atomic_store(m->restore, s->want & s->guarded);
    s->pc = DYN_MASK_UPDATE_READ;
    break;
  case DYN_MASK_UPDATE_READ:
    s->old = atomic_load(m->mask);
    s->pc = DYN_MASK_UPDATE_SWAP;
    break;
  case DYN_MASK_UPDATE_SWAP: dyn_mask_update_swap(s, m); break;
  case DYN_MASK_END: break;
  }
  return s->pc != DYN_MASK_END;
}

static inline void dyn_mask_run(struct dyn_mask_walk walk, const struct dyn_mask_words *m) {
  while (dyn_mask_step(&walk, m)) {
  }
}

static inline void dyn_guard_enter(const struct dyn_mask_words *m) {
  dyn_mask_run((struct dyn_mask_walk){.pc = DYN_MASK_ENTER_TURN}, m);
}

static inline void dyn_guard_leave(const struct dyn_mask_words *m) {
  dyn_mask_run((struct dyn_mask_walk){.pc = DYN_MASK_LEAVE_TURN}, m);
}

/* want goes into the mask; of it the bits of guarded only once no guard is up: then the last one puts them in. */
static inline void dyn_mask_write(const struct dyn_mask_words *m, int want, int guarded) {
  dyn_mask_run((struct dyn_mask_walk){.pc = DYN_MASK_UPDATE_RESTORE, .want = want, .guarded = guarded}, m);
}

/* ---- did a call of this thread that is not captured find a bit in the mask? ---- */

/* Both words as they were before the call. */
struct dyn_mask_before {
  unsigned turns;
  int mask;
};

static inline struct dyn_mask_before dyn_mask_look(const struct dyn_mask_words *m) {
  struct dyn_mask_before before = {.turns = atomic_load(m->turns)};
  before.mask = atomic_load(m->mask);
  return before;
}

/* True: whatever the call read of the mask since had the bit, as far as guards are concerned. mask and turns are the
 * words after the call, the mask read first. A guard that took the bit in between began to enter after the first look at
 * turns, which the second shows; or before it, and then it was up at the first look at the mask, or is up at the second,
 * or has begun to leave before that, which the second look at turns shows. */
static inline bool dyn_mask_kept(struct dyn_mask_before before, unsigned turns, int mask, int bit) {
  return turns == before.turns && (before.mask & bit) && dyn_mask_guards(before.mask) == 0 && (mask & bit) &&
         dyn_mask_guards(mask) == 0;
}

static inline bool dyn_call_kept(const struct dyn_mask_words *m, struct dyn_mask_before before, int bit) {
  atomic_thread_fence(memory_order_acquire); /* after NCCL's own, unordered read */
  int mask = atomic_load(m->mask);
  return dyn_mask_kept(before, atomic_load(m->turns), mask, bit);
}

#endif
