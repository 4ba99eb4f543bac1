/* SPDX-License-Identifier: Apache-2.0
 *
 * Decision 3 of docs/design.md: which plan buffer is in force in an epoch, decided once by whoever comes first, without
 * waiting. Written as a step machine in which a step makes at most one access to shared memory, so that a program can
 * run every interleaving of these very steps (test/epoch_check.c); ranks run them in a loop (dyn_epoch_enter).
 *
 * All accesses are sequentially consistent: the check explores exactly that memory model, and once in an epoch the
 * difference to weaker orders does not show.
 */
#ifndef DYN_EPOCH_H
#define DYN_EPOCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi.h"

/* The check also runs a log so short that it wraps. It must divide 256, for a frontier holds its index modulo 256. */
#ifndef DYN_LOG_LENGTH
#define DYN_LOG_LENGTH DYN_NUM_CHANGES
#endif
_Static_assert(256 % DYN_LOG_LENGTH == 0 && DYN_LOG_LENGTH >= 2, "index modulo 256 must find its log entry");

/* Only the check sets this: each number plants one mistake that the check has to find. */
#ifndef DYN_MUTATE
#define DYN_MUTATE 0
#endif
#define DYN_MUTATE_PLAIN_STORE 1  /* the entry is stored, not compared and swapped */
#define DYN_MUTATE_NO_RECHECK 2   /* the frontier is not read again after the entry */
#define DYN_MUTATE_NO_ROOM 3      /* the log is overwritten although a slow rank needs it */
#define DYN_MUTATE_NO_HELP 4      /* an entry prepared by another rank for this epoch is replaced */
#define DYN_MUTATE_NEWEST_WINS 5  /* a rank trusts what it wanted and does not read what was decided */

/* Where the words lie; the check puts them into its own small state. positionStride counts words. */
struct dyn_epoch_memory {
  uint64_t *frontier, *changes, *newest, *positions;
  uint32_t *joined, *veto;
  size_t positionStride;
  uint32_t nRanks;
};

enum dyn_epoch_pc {
  DYN_AT_FRONTIER,
  DYN_AT_SCAN,
  DYN_AT_JOINED,
  DYN_AT_VETO,
  DYN_AT_CURRENT,
  DYN_AT_NEWEST,
  DYN_AT_LIMIT,
  DYN_AT_ROOM,
  DYN_AT_ENTRY,
  DYN_AT_RECHECK,
  DYN_AT_SWAP_ENTRY,
  DYN_AT_COMMIT_CHANGE,
  DYN_AT_COMMIT_SAME,
  DYN_AT_END,
};

struct dyn_epoch {
  enum dyn_epoch_pc pc;
  uint32_t tries; /* visits to DYN_AT_FRONTIER */
  uint32_t index; /* of the loops in DYN_AT_SCAN and DYN_AT_ROOM */
  bool mayChange; /* every rank has joined, none vetoed */
  bool broken;    /* no live record looks like this: the memory is not ours any more */
  uint8_t current, want; /* plan buffer + 1 */
  uint8_t slot;          /* the result: plan buffer + 1 in force, 0: NCCL's defaults */
  uint64_t epoch;        /* that is entered */
  uint64_t frontier;     /* as last read */
  uint64_t entry;        /* log entry after the frontier's, as last read */
  uint64_t limit;        /* slower ranks than this epoch need the entry that a change would overwrite */
};

/* A try is lost only to a rank that has just prepared or committed this epoch, or to a late swap by a rank that stalled
 * in an older one, and each rank can do either once. */
static inline uint32_t dyn_epoch_max_tries(uint32_t nRanks) { return 2 * nRanks + 4; }

static inline uint64_t dyn_word_load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static inline bool dyn_word_swap(uint64_t *word, uint64_t expected, uint64_t desired) {
  return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline void dyn_epoch_begin(struct dyn_epoch *s, uint64_t epoch) {
  *s = (struct dyn_epoch){.pc = DYN_AT_FRONTIER, .epoch = epoch};
}

static inline void dyn_epoch_end(struct dyn_epoch *s, uint8_t slot, bool broken) {
  s->slot = slot;
  s->broken = broken;
  s->pc = DYN_AT_END;
}

/* Word n + offset of the log, n being the index in the frontier as last read. */
static inline uint64_t *dyn_epoch_log(const struct dyn_epoch *s, const struct dyn_epoch_memory *m, uint32_t offset) {
  return &m->changes[((uint32_t)(s->frontier & 255) + offset) % DYN_LOG_LENGTH];
}

/* One step. True: the epoch is resolved, s->slot says to what. */
static inline bool dyn_epoch_step(struct dyn_epoch *s, const struct dyn_epoch_memory *m) {
  const uint64_t e = s->epoch, n = s->frontier & 255;
  switch (s->pc) {
  case DYN_AT_FRONTIER:
    if (s->tries++ >= dyn_epoch_max_tries(m->nRanks)) {
      dyn_epoch_end(s, 0, true);
      break;
    }
    s->frontier = dyn_word_load(m->frontier);
    s->index = 0;
    if (s->frontier >> 8 >= e) {
      s->pc = DYN_AT_SCAN;
    } else if ((s->frontier >> 8) + 1 == e) {
      s->pc = DYN_AT_JOINED;
    } else {
      dyn_epoch_end(s, 0, true); /* this rank itself saw e - 1 decided */
    }
    break;

  case DYN_AT_SCAN: {
    uint64_t change = dyn_word_load(dyn_epoch_log(s, m, 256 - s->index));
    if (change >> 8 <= e) {
      dyn_epoch_end(s, change & 255, false);
    } else if (++s->index == DYN_LOG_LENGTH) {
      dyn_epoch_end(s, 0, true); /* the room rule keeps what a rank needs */
    }
    break;
  }

  case DYN_AT_JOINED:
    s->mayChange = __atomic_load_n(m->joined, __ATOMIC_SEQ_CST) == m->nRanks;
    s->pc = s->mayChange ? DYN_AT_VETO : DYN_AT_COMMIT_SAME;
    break;

  case DYN_AT_VETO:
    s->mayChange = __atomic_load_n(m->veto, __ATOMIC_SEQ_CST) == 0;
    s->pc = s->mayChange ? DYN_AT_CURRENT : DYN_AT_COMMIT_SAME;
    break;

  case DYN_AT_CURRENT:
    s->current = dyn_word_load(dyn_epoch_log(s, m, 0)) & 255;
    s->pc = DYN_AT_NEWEST;
    break;

  case DYN_AT_NEWEST:
    s->want = dyn_word_load(m->newest) & 255;
    s->pc = s->want == s->current || s->want > DYN_NUM_PLANS ? DYN_AT_COMMIT_SAME : DYN_AT_LIMIT;
    if (DYN_MUTATE == DYN_MUTATE_NO_ROOM && s->pc == DYN_AT_LIMIT) s->pc = DYN_AT_ENTRY;
    break;

  case DYN_AT_LIMIT:
    /* The oldest entry that stays when entry n + 1 is written lies right behind it in the ring. */
    s->limit = dyn_word_load(dyn_epoch_log(s, m, 2)) >> 8;
    s->pc = s->limit == 0 ? DYN_AT_ENTRY : DYN_AT_ROOM;
    break;

  case DYN_AT_ROOM:
    if (dyn_word_load(&m->positions[s->index * m->positionStride]) >> 8 < s->limit) {
      s->pc = DYN_AT_COMMIT_SAME;
    } else if (++s->index == m->nRanks) {
      s->pc = DYN_AT_ENTRY;
    }
    break;

  case DYN_AT_ENTRY:
    s->entry = dyn_word_load(dyn_epoch_log(s, m, 1));
    s->pc = DYN_AT_RECHECK;
    if (DYN_MUTATE == DYN_MUTATE_NO_RECHECK) s->pc = DYN_AT_SWAP_ENTRY;
    break;

  case DYN_AT_RECHECK:
    /* Unmoved: the entry just read is not committed, and whoever commits it must change it first. */
    s->pc = dyn_word_load(m->frontier) != s->frontier         ? DYN_AT_FRONTIER
            : s->entry >> 8 == e && DYN_MUTATE != DYN_MUTATE_NO_HELP ? DYN_AT_COMMIT_CHANGE
                                                              : DYN_AT_SWAP_ENTRY;
    break;

  case DYN_AT_SWAP_ENTRY:
    if (DYN_MUTATE == DYN_MUTATE_PLAIN_STORE) {
      __atomic_store_n(dyn_epoch_log(s, m, 1), e << 8 | s->want, __ATOMIC_SEQ_CST);
      s->pc = DYN_AT_COMMIT_CHANGE;
      break;
    }
    s->pc = dyn_word_swap(dyn_epoch_log(s, m, 1), s->entry, e << 8 | s->want) ? DYN_AT_COMMIT_CHANGE : DYN_AT_FRONTIER;
    break;

  case DYN_AT_COMMIT_CHANGE:
    if (dyn_word_swap(m->frontier, s->frontier, e << 8 | ((n + 1) & 255)) && DYN_MUTATE == DYN_MUTATE_NEWEST_WINS) {
      dyn_epoch_end(s, s->want, false);
      break;
    }
    s->pc = DYN_AT_FRONTIER;
    break;

  case DYN_AT_COMMIT_SAME:
    dyn_word_swap(m->frontier, s->frontier, e << 8 | n);
    s->pc = DYN_AT_FRONTIER;
    break;

  case DYN_AT_END:
    break;
  }
  return s->pc == DYN_AT_END;
}

/* What a rank publishes once it runs by the plan that the epoch resolved to. */
static inline uint64_t dyn_epoch_position(uint64_t epoch, uint8_t slot) { return epoch << 8 | slot; }

static inline struct dyn_epoch_memory dyn_epoch_memory_of(struct dyn_record *record, uint32_t nRanks) {
  struct dyn_rank *ranks = (struct dyn_rank *)(record + 1);
  return (struct dyn_epoch_memory){
      .frontier = &record->frontier,
      .changes = record->changes,
      .newest = &record->newest,
      .positions = &ranks->position,
      .joined = &record->joined,
      .veto = &record->veto,
      .positionStride = sizeof *ranks / sizeof(uint64_t),
      .nRanks = nRanks, /* not the record's: it was checked when this rank joined */
  };
}

/* Resolves an epoch. Every epoch from 1 on must be entered, in order. False: the record is broken. */
static inline bool dyn_epoch_enter(const struct dyn_epoch_memory *m, uint64_t epoch, uint8_t *slot) {
  struct dyn_epoch s;
  dyn_epoch_begin(&s, epoch);
  while (!dyn_epoch_step(&s, m)) {
  }
  *slot = s.slot;
  return !s.broken;
}

#endif
