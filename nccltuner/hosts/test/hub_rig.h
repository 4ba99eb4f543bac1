/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hub: the world that it tries. Hosts with a record each, in memory; connections, whose ends see them break at different times;
 * plans as a daemon writes them; and what may be in force, said a second time.
 */
#ifndef DYN_HUB_RIG_H
#define DYN_HUB_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugin/datatype.h"
#include "../../plugin/plan.h"
#include "../hub.h"

#define RANKS 6
#define HOSTS 3
#define CONNECTIONS 1024
#define PLANS 128
#define EPOCHS (1 << 17)
#define BUCKETS 4 /* that plans and marks are about: so few that they meet */
#define SEEN (UINT32_C(1) << 31)
#define GIN_MARKS (UINT32_C(13) << 22)
#define MS UINT64_C(1000000)

static uint64_t randomState, nowNs;
static bool calm; /* nothing breaks any more */
static uint32_t chance(uint32_t n) { /* 0 to n - 1 */
  randomState = randomState * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((randomState >> 33) % n);
}
static bool one_in(uint32_t n) { return chance(n) == 0; }

static const char *wrong; /* the first violation */
static void violated(const char *what) { if (!wrong) wrong = what; }

/* ---- shared memory ---- */

static struct memory {
  struct dyn_record record;
  struct dyn_rank ranks[RANKS];
} memories[HOSTS];

/* ---- connections: messages come in order, or are lost with all that are behind them ---- */

struct letter {
  struct letter *next;
  struct dyn_hosts_message message;
  unsigned char payload[];
};
struct queue {
  struct letter *first, **last;
};
struct connection {
  int rank;
  bool rankOpen, hubOpen, greeted; /* as either end knows */
  struct queue up, down;
};
static struct connection connections[CONNECTIONS];
static int numConnections;

static void empty(struct queue *q) {
  for (struct letter *l = q->first, *next; l != NULL; l = next) {
    next = l->next;
    free(l);
  }
  q->first = NULL;
  q->last = &q->first;
}

static void push(struct queue *q, const struct dyn_hosts_message *m, const void *payload) {
  struct letter *l = malloc(sizeof *l + m->bytes);
  if (!l) abort();
  l->next = NULL;
  l->message = *m;
  if (m->bytes) memcpy(l->payload, payload, m->bytes);
  *q->last = l;
  q->last = &l->next;
}

static struct letter *pop(struct queue *q) {
  struct letter *l = q->first;
  if (l && (q->first = l->next) == NULL) q->last = &q->first;
  return l;
}

static int new_connection(int rank) {
  if (numConnections == CONNECTIONS) return -1;
  struct connection *c = &connections[numConnections];
  *c = (struct connection){.rank = rank, .rankOpen = true, .hubOpen = true};
  empty(&c->up);
  empty(&c->down);
  return numConnections++;
}

/* ---- the daemon of rank 0's host ---- */

static struct dyn_plan plans[PLANS]; /* version is index + 1 */
static bool published[PLANS];
static int numPlans;

static uint32_t random_gin(void) {
  return DYN_PATH_GIN | (one_in(20) ? chance(5) : DYN_BACKEND_GDAKI + chance(2)) << DYN_ACTION_BACKEND_SHIFT | chance(16) << DYN_ACTION_CONTEXTS_SHIFT | 4 << DYN_ACTION_CHANNELS_SHIFT;
}
static uint32_t random_action(void) {
  if (one_in(8)) return 0;
  if (one_in(8)) return random_gin();
  return DYN_PATH_COLLECTIVE | chance(7) << DYN_ACTION_ALGO_SHIFT | chance(3) << DYN_ACTION_PROTO_SHIFT | chance(3) << DYN_ACTION_CHANNELS_SHIFT;
}

static struct dyn_plan *write_plan(bool plain) { /* plain: it chooses nothing */
  if (numPlans >= (calm ? PLANS : PLANS - 1)) return NULL;
  struct dyn_plan *plan = &plans[numPlans++];
  memset(plan, 0, sizeof *plan);
  plan->version = (uint64_t)numPlans;
  plan->numEntries = 1 + chance(3);
  for (uint32_t i = 1; !plain && i < plan->numEntries + 1; i++) {
    struct dyn_entry *entry = &plan->entries[i];
    entry->id = plan->version * 8 + i;
    entry->base = random_action();
    entry->numTrials = one_in(3) ? 1 + chance(3) : 0;
    for (uint32_t k = 0; k < entry->numTrials; k++) entry->trials[k] = random_action();
    if (one_in(30)) entry->base = DYN_PATH_LSA;
    int collective = (int)chance(one_in(40) ? DYN_NUM_COLLECTIVES : DYN_NUM_ASKED);
    if (one_in(8)) collective = DYN_ALL_TO_ALL, entry->base = random_gin(), entry->numTrials = 0;
    plan->index[collective][chance(BUCKETS)] = (uint8_t)i;
  }
  plan->checksum = dyn_plan_checksum(plan);
  return plan;
}

static uint64_t newest(void) { return memories[0].record.newest; }

/* Into a buffer that is not the newest's. */
static void publish(const struct dyn_plan *plan) {
  if (!plan) return;
  uint32_t slot = (uint32_t)(newest() & 255) % DYN_NUM_PLANS + 1;
  memories[0].record.plans[slot - 1] = *plan;
  published[plan->version - 1] = true;
  memories[0].record.newest = plan->version << 8 | slot;
}

/* While rank 0's process reads the newest plan: another one is published, and the buffer that is read is written, for a plan to come. */
static void *racing_copy(void *to, const void *from, size_t bytes) {
  uint32_t slot = (uint32_t)(newest() & 255);
  if (!calm && slot != 0 && from == &memories[0].record.plans[slot - 1] && one_in(16)) {
    publish(write_plan(false));
    const struct dyn_plan *coming = write_plan(false);
    if (coming) memories[0].record.plans[slot - 1] = *coming;
  }
  return memcpy(to, from, bytes);
}

/* ---- what ranks allow ---- */

static void change_marks(struct dyn_rank *self) {
  uint32_t *marks = &self->marks[chance(DYN_ALL_TO_ALL + 1)][chance(BUCKETS)], usable = one_in(3) ? chance(1u << 21) : (1u << 21) - 1;
  *marks = *marks & SEEN ? *marks & (usable | SEEN | GIN_MARKS) : SEEN | usable;
  if (one_in(3)) *marks |= one_in(2) ? GIN_MARKS : chance(16) << 22 & GIN_MARKS;
}
#define OF_ALL (DYN_RANK_EVENT_TIMED | DYN_RANK_ALONE_GATHERS) /* flags that all ranks must have */
static void change_flags(struct dyn_rank *self) {
  static const uint32_t flags[] = {DYN_RANK_NO_EXPLORE, DYN_RANK_FIXED_NUMERICS, DYN_RANK_VETO, DYN_RANK_NO_PROFILER, DYN_RANK_EVENT_TIMED, DYN_RANK_EVENT_TIMED, DYN_RANK_ALONE_GATHERS};
  self->flags ^= flags[chance(sizeof flags / sizeof *flags)];
}

/* ---- what may be in force ---- */

static bool may_run(uint32_t flags, uint32_t marks, int collective, uint32_t action) {
  if (action == 0) return true;
  uint32_t path = action & 15, algorithm = action >> 4 & 15, protocol = action >> 8 & 15;
  bool adds = collective == 1 || collective == 3 || collective == 4;
  if (path == DYN_PATH_GIN) {
    uint32_t backend = action >> 12 & 15;
    return collective <= 5 && (backend == DYN_BACKEND_GDAKI || backend == DYN_BACKEND_PROXY) && marks & SEEN && marks & UINT32_C(1) << (23 + backend) && (!(protocol & 7) || marks & UINT32_C(1) << 22) &&
           !(adds && flags & DYN_RANK_FIXED_NUMERICS);
  }
  if (path != 1 || algorithm > 6 || protocol > 2 || collective > 4 || (adds && flags & DYN_RANK_FIXED_NUMERICS)) return false;
  if (collective == 2 && action >> 16 & 255 && !(flags & DYN_RANK_ALONE_GATHERS)) return false; /* AllGather's number of channels */
  return !(marks & SEEN) || marks & UINT32_C(1) << (3 * algorithm + protocol);
}

/* Whether a rank can promise this plan, which is to be one that was published, bit by bit. */
static bool may_promise(const struct memory *memory, const struct dyn_rank *self, const struct dyn_plan *plan) {
  if (plan->version == 0 || plan->version > (uint64_t)numPlans || !published[plan->version - 1] || memcmp(plan, &plans[plan->version - 1], sizeof *plan) != 0)
    return false;
  if (memory->record.veto || self->flags & DYN_RANK_VETO) return false;
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < BUCKETS; b++) {
      const struct dyn_entry *entry = &plan->entries[plan->index[c][b]];
      if (plan->index[c][b] == 0) continue;
      if (entry->numTrials && self->flags & (DYN_RANK_NO_EXPLORE | DYN_RANK_NO_PROFILER)) return false;
      if (!may_run(self->flags, self->marks[c][b], c, entry->base)) return false;
      for (uint32_t i = 0; i < entry->numTrials; i++)
        if (!may_run(self->flags, self->marks[c][b], c, entry->trials[i])) return false;
    }
  return true;
}

#endif
