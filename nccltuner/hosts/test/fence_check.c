/* SPDX-License-Identifier: Apache-2.0
 *
 *   fence_check [WORLD [MISTAKE]]     without, or "all": all worlds
 * Every interleaving of a small world, breadth first, with the shipped steps of fence.h: ranks, each with its own thread, which enters
 * epochs, and the one that speaks for it (rank.c: prepare, decided, cut, parted), and a hub that asks at any epoch beyond its last, at any
 * time, drops what it likes and decides for a plan only if all have promised. Connections break, and the hub may vanish. Checked:
 *   all ranks that enter an epoch run one plan there, and one that comes into force does so in the epoch that was decided;
 *   no plan is overwritten while it is copied;
 *   a rank fails only where the hub is gone, and when nothing more can happen no rank waits.
 * With a mistake of fence.h's, by its number, the program expects a violation and fails when it finds none.
 */
#include <stdio.h>

#include "mistakes.h"

#include "../fence.h"

int fence_mistake;

#define RANKS 3
#define EPOCHS 5
#define PLANS 3

enum own { NEXT, ASK, COPY_FIRST, COPY_SECOND, TAKEN, FAILED };
enum speaker { LISTEN, WRITE_FIRST, WRITE_SECOND, RAISE, RECHECK, UNDO, ANSWER, OPEN, LOWER, HELLO, LOSE, PARTED };
enum outcome { UNDECIDED, COMMITTED, DROPPED };

/* Plans are numbers: the hub's first question is about plan 1. */
struct rank {
  uint8_t own, epoch, plan, copied;
  uint8_t entered, word, first, second; /* the fence; the plan's two halves */
  uint8_t speaker, heard, promises, promised; /* heard: of the hub's messages; promises: what it is about to answer */
};
struct world_state {
  struct rank ranks[RANKS];
  uint8_t asked, gone, cuts;
  struct {
    uint8_t epoch, outcome;
  } questions[PLANS];
  uint8_t decided[EPOCHS + 1]; /* plan + 1 that the first rank there runs */
};

#define STATE struct world_state
#include "../../plugin/test/states.h"

static const struct world {
  const char *name;
  int ranks, epochs, plans, cuts;
  bool vanishes;
} worlds[] = {
    {"two", 2, 4, 2, 1, false},
    {"row", 2, 4, 3, 0, false},
    {"gone", 2, 3, 2, 1, true},
    {"three", 3, 2, 2, 0, false},
    {"three-cut", 3, 2, 1, 1, true},
};
static const struct world *world;
static bool reached[3]; /* a rank has waited, come too late, taken the last plan */

/* ---- the fence of a rank: its words alone are looked at by fence.h ---- */

static struct dyn_fence fence;
static struct dyn_fence *load(const struct rank *r) {
  fence.entered = r->entered;
  fence.word = r->word;
  return &fence;
}
static void store(struct rank *r) {
  r->entered = (uint8_t)fence.entered;
  r->word = (uint8_t)fence.word;
}

/* ---- steps: false: not now ---- */

static const char *runs(struct world_state *s, struct rank *r) {
  uint8_t *decided = &s->decided[r->epoch];
  r->own = NEXT;
  if (*decided == 0) *decided = r->plan + 1;
  return *decided == r->plan + 1 ? NULL : "two ranks run an epoch by different plans";
}

static bool step_own(struct world_state *s, struct rank *r, const char **wrong) {
  switch (r->own) {
  case NEXT:
    if (r->epoch == world->epochs) return false;
    dyn_fence_enter(load(r), ++r->epoch);
    store(r);
    r->own = ASK;
    return true;
  case ASK:
    switch (dyn_fence_ask(load(r), r->epoch)) {
    case DYN_FENCE_KEEP: *wrong = runs(s, r); return true;
    case DYN_FENCE_WAIT: reached[0] = true; return false;
    case DYN_FENCE_TAKE: r->own = COPY_FIRST; return true;
    case DYN_FENCE_FAIL:
      r->own = FAILED;
      if (!s->gone) *wrong = "a rank fails although the hub is there";
      return true;
    }
    return false;
  case COPY_FIRST:
    r->copied = r->first;
    r->own = COPY_SECOND;
    return true;
  case COPY_SECOND:
    if (r->copied != r->second) *wrong = "a plan is overwritten while it is copied";
    r->own = TAKEN;
    return true;
  case TAKEN:
    dyn_fence_taken(load(r));
    store(r);
    r->plan = r->copied;
    r->copied = 0;
    if (s->questions[r->plan - 1].outcome != COMMITTED || s->questions[r->plan - 1].epoch != r->epoch)
      *wrong = "a plan comes into force that was not decided for this epoch";
    else *wrong = runs(s, r);
    reached[2] |= r->plan == world->plans;
    return true;
  default: return false;
  }
}

static void hear_answer(struct world_state *s, struct rank *r, int question) {
  bool all = true;
  if (s->gone || question + 1 != s->asked || s->questions[question].outcome != UNDECIDED) return;
  r->promised = r->promises;
  for (int i = 0; i < world->ranks; i++) all &= s->ranks[i].promised;
  if (!r->promises || all) s->questions[question].outcome = all ? COMMITTED : DROPPED;
}

/* The hub's messages: each question and what was decided. */
static bool listen_to(struct world_state *s, struct rank *r) {
  int question = r->heard / 2;
  if (question >= s->asked || (r->heard % 2 && s->questions[question].outcome == UNDECIDED)) return false;
  if (r->heard % 2 == 0) {
    r->speaker = dyn_fence_is_down(load(r)) ? WRITE_FIRST : ANSWER;
  } else {
    bool raised = dyn_fence_raised_at(load(r)) != 0 && r->first == question + 1;
    r->heard++;
    if (raised) r->speaker = s->questions[question].outcome == COMMITTED ? OPEN : LOWER;
  }
  return true;
}

static bool step_speaker(struct world_state *s, struct rank *r, const char **wrong) {
  int question = r->heard / 2;
  bool copied = r->own == COPY_FIRST || r->own == COPY_SECOND;
  switch (r->speaker) {
  case LISTEN: return listen_to(s, r);
  case WRITE_FIRST:
  case WRITE_SECOND:
    if (copied) *wrong = "a plan is written while it is copied";
    *(r->speaker == WRITE_FIRST ? &r->first : &r->second) = (uint8_t)(question + 1);
    r->speaker++;
    return true;
  case RAISE:
    dyn_fence_raise(load(r), s->questions[question].epoch);
    break;
  case RECHECK:
    r->promises = !dyn_fence_late(load(r), s->questions[question].epoch);
    r->speaker = r->promises ? ANSWER : UNDO;
    reached[1] |= !r->promises;
    return true;
  case UNDO:
    dyn_fence_lower(load(r));
    break;
  case ANSWER:
    hear_answer(s, r, question);
    r->heard++;
    r->promises = 0;
    r->speaker = LISTEN;
    return true;
  case OPEN:
    dyn_fence_open(load(r), r->word >> 2);
    break;
  case LOWER:
    dyn_fence_lower(load(r));
    break;
  case HELLO: /* it is back, says where its fence is, and is told */
    if (s->gone) return false;
    r->speaker = LISTEN;
    if (dyn_fence_raised_at(load(r)) != 0) r->speaker = s->questions[r->first - 1].outcome == COMMITTED ? OPEN : LOWER;
    return true;
  case LOSE:
    dyn_fence_lose(load(r), r->word >> 2);
    break;
  default: return false;
  }
  store(r);
  r->speaker = r->speaker == RAISE ? RECHECK : r->speaker == UNDO ? ANSWER : r->speaker == LOSE ? PARTED : LISTEN;
  return true;
}

static void drop(struct world_state *s) {
  if (s->asked > 0 && s->questions[s->asked - 1].outcome == UNDECIDED) s->questions[s->asked - 1].outcome = DROPPED;
}

/* What was on its way to the rank is lost. */
static bool cut(struct world_state *s, struct rank *r) {
  if (s->cuts == 0 || s->gone || r->speaker != LISTEN) return false;
  s->cuts--;
  drop(s);
  r->heard = 2 * s->asked;
  r->speaker = HELLO;
  return true;
}

static bool part(struct world_state *s, struct rank *r) {
  if (!s->gone || (r->speaker != LISTEN && r->speaker != HELLO)) return false;
  r->speaker = dyn_fence_raised_at(load(r)) != 0 ? LOSE : PARTED;
  return true;
}

static bool step_hub(struct world_state *s, int choice) {
  bool asking = s->asked > 0 && s->questions[s->asked - 1].outcome == UNDECIDED;
  int last = s->asked > 0 ? s->questions[s->asked - 1].epoch : 0;
  if (s->gone) return false;
  if (choice == 0) return asking ? drop(s), true : false;
  if (choice > world->epochs) return world->vanishes ? s->gone = 1, true : false;
  if (asking || s->asked == world->plans || (world->ranks > 2 && choice < last)) return false; /* with more ranks there are worlds enough */
  s->questions[s->asked].epoch = (uint8_t)choice;
  s->asked++;
  for (int i = 0; i < world->ranks; i++) s->ranks[i].promised = 0;
  return true;
}

/* Actors: of each rank four, then what the hub may do. */
static int actors(void) { return 4 * world->ranks + world->epochs + 2; }
static bool step(struct world_state *s, int actor, const char **wrong) {
  struct rank *r = &s->ranks[actor / 4];
  *wrong = NULL;
  if (actor >= 4 * world->ranks) return step_hub(s, actor - 4 * world->ranks);
  switch (actor % 4) {
  case 0: return step_own(s, r, wrong);
  case 1: return step_speaker(s, r, wrong);
  case 2: return cut(s, r);
  default: return part(s, r);
  }
}

/* ---- all of them ---- */

static void swap(struct rank *a, struct rank *b) {
  struct rank c = *a;
  *a = *b;
  *b = c;
}
/* Ranks are alike: which is which is no other state. */
static void sort(struct world_state *s) {
  for (int i = 1; i < world->ranks; i++)
    for (int j = i; j > 0 && memcmp(&s->ranks[j], &s->ranks[j - 1], sizeof *s->ranks) < 0; j--) swap(&s->ranks[j], &s->ranks[j - 1]);
}

static void print_way(uint32_t i) {
  const struct world_state *s = &nodes[i].state;
  if (i != 0) print_way(nodes[i].parent);
  printf("  actor %2d: asked %d", nodes[i].actor, s->asked);
  for (int q = 0; q < s->asked; q++) printf(" (epoch %d: %d)", s->questions[q].epoch, s->questions[q].outcome);
  for (int k = 0; k < world->ranks; k++) {
    const struct rank *r = &s->ranks[k];
    printf("; own %d epoch %d plan %d fence %d/%d speaker %d heard %d", r->own, r->epoch, r->plan, r->word >> 2, r->word & 3, r->speaker, r->heard);
  }
  printf("\n");
}

static const char *waits(const struct world_state *s) {
  for (int i = 0; i < world->ranks; i++)
    if (s->ranks[i].own == ASK) return "a rank waits for ever";
  return NULL;
}

static const char *explore(void) {
  struct world_state start = {.cuts = (uint8_t)world->cuts};
  const char *wrong = NULL;
  forget_states();
  memset(reached, 0, sizeof reached);
  add_state(&start, 0, 0);
  for (uint32_t i = 0; i < numNodes && wrong == NULL; i++) {
    bool over = true;
    for (int actor = 0; actor < actors() && wrong == NULL; actor++) {
      struct world_state s = nodes[i].state;
      if (!step(&s, actor, &wrong)) continue;
      over = false;
      sort(&s);
      add_state(&s, i, actor);
    }
    if (over) wrong = waits(&nodes[i].state);
    if (wrong && fence_mistake == 0) print_way(i);
  }
  printf("{\"world\":\"%s\",\"mutation\":%d,\"states\":%u,\"violation\":\"%s\"}\n", world->name, fence_mistake, numNodes, wrong ? wrong : "");
  if (wrong == NULL && !(reached[0] && reached[1] && reached[2])) return "no rank waited, or was late, or took the last plan: the world checks nothing";
  return wrong;
}

int main(int argc, char **argv) {
  bool found = false;
  if (argc > 2) fence_mistake = atoi(argv[2]);
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds && !found; i++) {
    world = &worlds[i];
    if (argc > 1 && strcmp(argv[1], "all") != 0 && strcmp(argv[1], world->name) != 0) continue;
    const char *wrong = explore();
    found = wrong != NULL;
    if (wrong) fprintf(stderr, "fence_check: mutation %d: %s: %s\n", fence_mistake, world->name, wrong);
  }
  return found != (fence_mistake != 0);
}
