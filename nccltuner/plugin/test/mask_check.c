/* SPDX-License-Identifier: Apache-2.0
 *
 * Every interleaving of captured calls, updates of the mask and one call that is not captured, breadth first, with the
 * shipped steps of mask.h. Each distinct state is kept whole. Checked:
 *   what NCCL reads in a captured call has no KernelCh, whoever wants it in the mask at that time, and has what guards put
 *   in, which stays;
 *   a call that is not captured and is said to have found KernelCh did find it (where it is always wanted);
 *   when all have ended no guard is up, and KernelCh is there if it is always wanted.
 * With DYN_MASK_MUTATE set the program expects a violation and fails when it finds none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../mask.h"

#define KERNEL 1
#define OTHER 2 /* a bit that no guard touches */
#define TELL 4  /* one that each guard puts in */
#define MAX_ACTORS 5
#define MAX_STATES (4u << 20)

enum kind { GUARD = 1, UPDATE, CALLER };
struct world {
  const char *name;
  int guards, updaters, callers, rounds;
  bool held; /* every update wants KernelCh */
};

struct actor {
  uint8_t kind, rounds, phase; /* phase: 0 to begin, 1 walking in, 2 NCCL reads, 3 walking out; caller: its steps */
  uint8_t pc, tries, old, restore, want;
  uint8_t turns, mask, read; /* caller */
};
struct state {
  uint8_t mask, restore, turns; /* mask packed as guards << 4 | bits */
  struct actor actors[MAX_ACTORS];
};

static uint8_t pack(int mask) { return (uint8_t)(dyn_mask_guards(mask) << 4 | (unsigned)(mask & 15)); }
static int unpack(uint8_t mask) { return (mask >> 4) << DYN_GUARD_SHIFT | (mask & 15); }

static struct state *states;
static uint32_t numStates, *table, tableSize;

static void add(const struct state *s) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < sizeof *s; i++) h = (h ^ ((const uint8_t *)s)[i]) * 1099511628211u;
  for (h ^= h >> 29;; h++) {
    uint32_t *at = &table[h & (tableSize - 1)];
    if (*at == 0) {
      if (numStates == MAX_STATES) {
        fprintf(stderr, "mask_check: more than %u states\n", MAX_STATES);
        exit(2);
      }
      states[numStates] = *s;
      *at = ++numStates;
      return;
    }
    if (memcmp(&states[*at - 1], s, sizeof *s) == 0) return;
  }
}

/* One shipped step of an actor's walk. */
static bool walk(struct state *s, struct actor *a) {
  atomic_int mask = unpack(s->mask), take = KERNEL, restore = s->restore, tell = TELL;
  atomic_uint turns = s->turns;
  struct dyn_mask_words words = {&mask, &take, &restore, &turns, &tell};
  struct dyn_mask_walk w = {a->pc, a->tries, unpack(a->old), a->restore, a->want, KERNEL};
  bool more = dyn_mask_step(&w, &words);
  *a = (struct actor){a->kind, a->rounds, a->phase, (uint8_t)w.pc, (uint8_t)w.tries, pack(w.old), (uint8_t)w.restore,
                      (uint8_t)w.want, a->turns, a->mask, a->read};
  if (!more) a->pc = a->tries = a->old = a->restore = a->want = 0;
  s->mask = pack(mask), s->restore = (uint8_t)restore, s->turns = (uint8_t)turns;
  return more;
}

static const char *step_guard(struct state *s, struct actor *a) {
  if (a->phase == 0) a->phase = 1, a->pc = DYN_MASK_ENTER_TURN;
  if (a->phase == 2) {
    a->phase = 3, a->pc = DYN_MASK_LEAVE_TURN;
    if (!(s->mask & TELL)) return "a captured call is not told of";
    return s->mask & KERNEL ? "a captured call finds KernelCh" : NULL;
  }
  if (walk(s, a)) return NULL;
  if (a->phase == 1) a->phase = 2;
  else a->phase = 0, a->rounds--;
  return NULL;
}

static const char *step_caller(struct state *s, struct actor *a) {
  switch (a->phase++) {
  case 0: a->turns = s->turns; return NULL;
  case 1: a->mask = s->mask; return NULL;
  case 2: a->read = s->mask; return NULL; /* NCCL */
  case 3: a->old = s->mask; return NULL;
  }
  struct dyn_mask_before before = {a->turns, unpack(a->mask)};
  bool wrong = dyn_mask_kept(before, s->turns, unpack(a->old), KERNEL) && !(a->read & KERNEL);
  *a = (struct actor){.kind = a->kind, .rounds = (uint8_t)(a->rounds - 1)};
  return wrong ? "a call is said to have found KernelCh and did not" : NULL;
}

static const char *at_end(const struct state *s, const struct world *w) {
  if (s->mask >> 4 != 0) return "a guard is still up";
  if (w->held && !(s->mask & KERNEL)) return "KernelCh did not come back";
  if (!(s->mask & TELL)) return "calls behind a captured one are not told of";
  return s->mask & OTHER ? NULL : "a bit of no guard's is lost";
}

static struct actor begin(enum kind kind, int rounds) {
  return (struct actor){.kind = (uint8_t)kind, .rounds = (uint8_t)rounds};
}

static const char *explore(const struct world *w) {
  struct state start = {.mask = OTHER | (w->held ? KERNEL : 0), .restore = w->held ? KERNEL : 0};
  int numActors = 0;
  bool set = false;
  for (int i = 0; i < w->guards; i++) start.actors[numActors++] = begin(GUARD, w->rounds);
  for (int i = 0; i < w->updaters; i++) start.actors[numActors++] = begin(UPDATE, w->rounds);
  for (int i = 0; i < w->callers; i++) start.actors[numActors++] = begin(CALLER, 1);
  numStates = 0;
  memset(table, 0, tableSize * sizeof *table);
  add(&start);
  for (uint32_t i = 0; i < numStates; i++) {
    bool ended = true;
    set |= states[i].mask & KERNEL;
    for (int actor = 0; actor < numActors; actor++) {
      if (states[i].actors[actor].rounds == 0) continue;
      ended = false;
      bool chooses = states[i].actors[actor].kind == UPDATE && states[i].actors[actor].phase == 0 && !w->held;
      for (int choice = 0; choice <= chooses; choice++) { /* an update that begins wants KernelCh, or no longer */
        struct state s = states[i];
        struct actor *a = &s.actors[actor];
        const char *wrong = NULL;
        if (a->kind == GUARD) wrong = step_guard(&s, a);
        if (a->kind == CALLER) wrong = step_caller(&s, a);
        if (a->kind == UPDATE) {
          if (a->phase == 0) a->phase = 1, a->pc = DYN_MASK_UPDATE_RESTORE, a->want = choice ? OTHER : OTHER | KERNEL;
          if (!walk(&s, a)) a->phase = 0, a->rounds--;
        }
        if (wrong != NULL) return wrong;
        add(&s);
      }
    }
    const char *wrong = ended ? at_end(&states[i], w) : NULL;
    if (wrong != NULL) return wrong;
  }
  return set ? NULL : "KernelCh was never there: the world checks nothing";
}

int main(int argc, char **argv) {
  static const struct world worlds[] = {
      {"captures", 2, 1, 0, 2, false}, {"writers", 1, 2, 0, 2, false}, {"three", 3, 1, 0, 1, false},
      {"both", 2, 2, 0, 1, false},     {"held", 2, 1, 1, 1, true},     {"held twice", 2, 0, 1, 2, true}, {"held long", 1, 1, 1, 3, true}};
  bool found = false;
  tableSize = 1u << 24;
  states = malloc((size_t)MAX_STATES * sizeof *states);
  table = malloc(tableSize * sizeof *table);
  if (states == NULL || table == NULL) return 2;
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds && !found; i++) {
    if (argc > 1 && strcmp(argv[1], worlds[i].name) != 0) continue;
    const char *wrong = explore(&worlds[i]);
    printf("{\"mask\":\"%s\",\"mutation\":%d,\"states\":%u,\"violation\":\"%s\"}\n", worlds[i].name, DYN_MASK_MUTATE,
           numStates, wrong == NULL ? "" : wrong);
    found = wrong != NULL;
  }
  if (found == (DYN_MASK_MUTATE != 0)) return 0;
  fprintf(stderr, found ? "mask_check: violation\n" : "mask_check: the planted mistake was not found\n");
  return 1;
}
