/* SPDX-License-Identifier: Apache-2.0 */
#include "hub.h"

#include <stdlib.h>
#include <string.h>

#include "../plugin/marks.h"

#define ANSWER_NS UINT64_C(2000000000) /* ranks answer from a thread of their own, in milliseconds */
#define MOST_OWED 8 /* questions, each with a plan: 38 KB, which any connection takes */
#define KEEP_NS (2 * DYN_HOSTS_SEEK_NS) /* what was decided, for ranks that come back */
/* How far ahead of the fastest rank that it knows of the hub puts a fence, in epochs, which are 16 calls: twice as far as any rank went
 * while it was asked of late. What is decided begins no sooner, and nothing is decided until then, so there is a bound: hosts run no further
 * ahead of their GPUs than CUDA has room for launches, 1024 or so, and who was late in such a burst is asked again behind it. */
#define FIRST_MARGIN 2
#define LAST_MARGIN 64

enum { NOBODY = -1 };

struct member {
  int connection; /* NOBODY: none now */
  bool came;      /* once */
  bool promised;  /* to the question that is open */
  uint32_t owes;  /* so many answers, on this connection: they come, unless its process is stopped */
  bool told;      /* word is its */
  bool left, gone; /* gone: all were told */
  uint32_t wish;  /* DYN_ALL_*, about GIN */
  uint32_t exchanges; /* DYN_ALL_*, as it counts AllToAll, once it has promised */
  uint64_t lostNs; /* since when it has no connection, as ticks found it; 0: it has one, or was not looked at since */
  uint64_t host, entered;
  struct dyn_hosts_word word;
};

struct dyn_hub_comm {
  struct dyn_hub_comm *next;
  uint64_t commId;
  uint32_t nRanks, epochCalls;
  bool together; /* all have come */
  bool asking;
  uint32_t apart; /* a rank that counts other calls than rank 0, for ever; 0: none is known */
  uint64_t question, askedNs; /* the last one */
  uint64_t took;           /* the last one that was decided for; later ones may have been dropped since */
  uint64_t emptyNs;        /* since when nobody is connected; 0: somebody is, or it was not looked at since */
  uint64_t margin, from, went; /* from: where the fastest rank was when it was asked; went: how far any has gone from there */
  uint32_t verdict; /* DYN_ALL_*, about GIN; final */
  struct dyn_hosts_gin gin; /* rank 0's */
  bool othersSent;
  struct dyn_hosts_word others; /* as rank 0 was told */
  struct member members[];
};

static struct dyn_hub_comm *comm_of(struct dyn_hub *hub, uint64_t commId) {
  struct dyn_hub_comm *c = hub->comms;
  while (c != NULL && c->commId != commId) c = c->next;
  return c;
}

static struct dyn_hub_comm *new_comm(struct dyn_hub *hub, const struct dyn_hosts_message *hello) {
  struct dyn_hub_comm *c = calloc(1, sizeof *c + hello->nRanks * sizeof *c->members);
  if (c == NULL) return NULL;
  c->commId = hello->commId;
  c->nRanks = hello->nRanks;
  c->epochCalls = hello->count;
  c->margin = FIRST_MARGIN;
  for (uint32_t i = 0; i < c->nRanks; i++) c->members[i].connection = NOBODY;
  c->next = hub->comms;
  return hub->comms = c;
}

static void say(const struct dyn_hub *hub, const struct dyn_hub_comm *c, uint32_t rank, struct dyn_hosts_message message, const void *payload) {
  if (c->members[rank].connection == NOBODY) return;
  message.version = DYN_HOSTS_VERSION;
  message.bytes = dyn_hosts_bytes(message.kind);
  message.commId = c->commId;
  message.nRanks = c->nRanks;
  hub->send(hub->to, c->members[rank].connection, &message, payload);
}

static void decide(const struct dyn_hub *hub, struct dyn_hub_comm *c, uint32_t refusal, uint32_t refuser) {
  c->asking = false;
  if (refusal == DYN_REFUSED_NOT) c->took = c->question;
  c->margin = 2 * c->went > c->margin * 3 / 4 ? 2 * c->went : c->margin * 3 / 4;
  if (c->margin < FIRST_MARGIN) c->margin = FIRST_MARGIN;
  if (c->margin > LAST_MARGIN) c->margin = LAST_MARGIN;
  for (uint32_t i = 0; i < c->nRanks; i++)
    say(hub, c, i, (struct dyn_hosts_message){.kind = DYN_HOSTS_DECIDE, .question = c->question, .refusal = refusal, .rank = refuser}, NULL);
}

static uint32_t ranks_beside(const struct dyn_hub_comm *c, uint32_t rank) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->nRanks; i++) n += c->members[i].host == c->members[rank].host;
  return n;
}

static bool all_here(const struct dyn_hub_comm *c) {
  for (uint32_t i = 0; i < c->nRanks; i++)
    if (c->members[i].connection == NOBODY) return false;
  return true;
}

static void say_together(const struct dyn_hub *hub, const struct dyn_hub_comm *c, uint32_t rank) {
  say(hub, c, rank, (struct dyn_hosts_message){.kind = DYN_HOSTS_TOGETHER, .count = ranks_beside(c, rank), .host = c->members[0].host}, NULL);
}

/* ---- GIN: all begin, or none ---- */

static bool is_apart(const struct dyn_hub_comm *c) { return ranks_beside(c, 0) < c->nRanks; } /* one host has its record for all this */

static void say_verdict(const struct dyn_hub *hub, const struct dyn_hub_comm *c, uint32_t rank) {
  say(hub, c, rank, (struct dyn_hosts_message){.kind = DYN_HOSTS_VERDICT, .refusal = c->verdict == DYN_ALL_BEGIN ? DYN_REFUSED_NOT : DYN_REFUSED_USER}, &c->gin);
}

/* Once all have met: one that cannot binds all, and all must be able to. */
static void judge(const struct dyn_hub *hub, struct dyn_hub_comm *c) {
  uint32_t want = 0, not = 0;
  if (!c->together || !is_apart(c) || c->verdict != DYN_ALL_UNDECIDED) return;
  for (uint32_t i = 0; i < c->nRanks; i++) want += c->members[i].wish == DYN_ALL_BEGIN, not += c->members[i].wish == DYN_ALL_DECLINE;
  if (want > 0 && hub->has != NULL && !hub->has(hub->to, c->commId)) not++;
  if (not == 0 && want + (DYN_HUB_MUTATE == DYN_HUB_MUTATE_WISH) < c->nRanks) return;
  c->verdict = not == 0 ? DYN_ALL_BEGIN : DYN_ALL_DECLINE;
  for (uint32_t i = 0; i < c->nRanks; i++) say_verdict(hub, c, i);
}

/* Whoever no longer wants it is late, if all have begun: the steps of NCCL's that it does not make end by the clock. It never wants it again:
 * what says so was said before, on a connection that was heard later. */
static void hear_wish(const struct dyn_hub *hub, struct dyn_hub_comm *c, const struct dyn_hosts_message *m, const struct dyn_hosts_gin *gin) {
  if (c->verdict != DYN_ALL_UNDECIDED && DYN_HUB_MUTATE != DYN_HUB_MUTATE_TWICE) {
    say_verdict(hub, c, m->rank);
    return;
  }
  if (DYN_HUB_MUTATE == DYN_HUB_MUTATE_TWICE) c->verdict = DYN_ALL_UNDECIDED;
  if (m->refusal != DYN_REFUSED_NOT) c->members[m->rank].wish = DYN_ALL_DECLINE;
  else if (c->members[m->rank].wish == DYN_ALL_UNDECIDED || DYN_HUB_MUTATE == DYN_HUB_MUTATE_AGAIN) c->members[m->rank].wish = DYN_ALL_BEGIN;
  if (m->rank == 0) c->gin = *gin;
  judge(hub, c);
}

/* ---- ranks that die: kernels over GIN wait for nobody else's word ---- */

static void say_gone(const struct dyn_hub *hub, const struct dyn_hub_comm *c, uint32_t to, uint32_t gone) {
  say(hub, c, to, (struct dyn_hosts_message){.kind = DYN_HOSTS_GONE, .rank = gone}, NULL);
}

static void miss(const struct dyn_hub *hub, struct dyn_hub_comm *c, uint64_t nowNs) {
  for (uint32_t i = 0; i < c->nRanks && c->together; i++) {
    struct member *m = &c->members[i];
    if (m->connection != NOBODY || m->left || m->gone) continue;
    if (m->lostNs == 0) m->lostNs = nowNs;
    if (nowNs - m->lostNs < DYN_HOSTS_GONE_NS) continue;
    m->gone = true;
    for (uint32_t k = 0; k < c->nRanks; k++) say_gone(hub, c, k, i);
  }
}

/* One rank's flags bind all, but for what all must have. Marks: as all have them; where they differ, or one is missing in what another one has
 * seen, nothing can be had. */
static void add_word(struct dyn_hosts_word *all, const struct dyn_hosts_word *one, bool first) {
  const uint32_t shared = DYN_HUB_MUTATE == DYN_HUB_MUTATE_GATHERS ? DYN_RANK_EVENT_TIMED : DYN_RANK_EVENT_TIMED | DYN_RANK_ALONE_GATHERS | DYN_RANK_NEW_GRAPHS, each = DYN_MARKS_GIN; /* each: a rank may be active alone, which is nothing to NCCL's choices */
  if (first) {
    *all = *one;
    return;
  }
  all->flags = ((all->flags | one->flags) & ~shared) | (all->flags & one->flags & shared);
  if (all->ncclVersion != one->ncclVersion) all->ncclVersion = 0;
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) {
      uint32_t a = all->marks[c][b], o = one->marks[c][b];
      bool seen = a & o & DYN_MARKS_SEEN; /* else not everybody was asked yet: nothing was seen */
      all->marks[c][b] = !((a ^ o) & ~each) ? a & o : seen ? DYN_MARKS_SEEN : 0;
    }
}

static void tell_others(struct dyn_hub *hub, struct dyn_hub_comm *c) {
  struct dyn_hosts_word all;
  bool first = true;
  for (uint32_t i = 0; i < c->nRanks; i++) {
    const struct member *m = &c->members[i];
    if (m->host == c->members[0].host) continue;
    if (!m->told) return;
    add_word(&all, &m->word, first);
    first = false;
  }
  if (first || (c->othersSent && memcmp(&all, &c->others, sizeof all) == 0)) return;
  c->others = all;
  c->othersSent = true;
  say(hub, c, 0, (struct dyn_hosts_message){.kind = DYN_HOSTS_OTHERS}, &all);
}

static bool greet(struct dyn_hub *hub, int connection, const struct dyn_hosts_message *m) {
  struct dyn_hub_comm *c = comm_of(hub, m->commId);
  if (m->nRanks < 2 || m->nRanks > DYN_MAX_RANKS || m->rank >= m->nRanks) return false;
  if (m->question > (c == NULL ? 0 : c->question) && DYN_HUB_MUTATE != DYN_HUB_MUTATE_ANEW) return false; /* that was asked before all had gone and it was forgotten: nobody can say what was decided */
  if (c == NULL && (c = new_comm(hub, m)) == NULL) return false;
  struct member *rank = &c->members[m->rank];
  if (c->nRanks != m->nRanks || c->epochCalls != m->count || (rank->came && rank->host != m->host)) return false;
  if (rank->connection != NOBODY) { /* the network has told the rank, and not us */
    int old = rank->connection;
    dyn_hub_lost(hub, old);
    hub->drop(hub->to, old);
  }
  rank->connection = connection;
  rank->came = true;
  if (DYN_HUB_MUTATE != DYN_HUB_MUTATE_BACK) rank->lostNs = 0;
  rank->host = m->host;
  rank->entered = m->entered;
  bool first = !c->together;
  if (first && !(c->together = all_here(c))) return true;
  for (uint32_t i = 0; i < c->nRanks; i++)
    if (first || i == m->rank) say_together(hub, c, i);
  for (uint32_t i = 0; i < c->nRanks; i++)
    if (c->members[i].gone) say_gone(hub, c, m->rank, i);
  judge(hub, c);
  if (m->rank == 0) c->othersSent = false;
  if (m->question != 0) {
    bool to = m->question == c->took && (DYN_HUB_MUTATE != DYN_HUB_MUTATE_LAST || m->question == c->question) && DYN_HUB_MUTATE != DYN_HUB_MUTATE_FORGET;
    say(hub, c, m->rank, (struct dyn_hosts_message){.kind = DYN_HOSTS_DECIDE, .question = m->question, .refusal = to ? DYN_REFUSED_NOT : DYN_REFUSED_SILENT,
                                                    .rank = m->rank}, NULL);
  }
  tell_others(hub, c); /* who told before the last one came said it to nobody */
  return true;
}

/* One that is stopped is asked a few times and no more: what it does not read would fill its connection, which TCP then takes for broken, and it
 * is not gone. Nor do others wait at fences for it again and again. */
static bool can_answer(const struct member *m) { return m->connection != NOBODY && m->owes < MOST_OWED; }

static void propose(struct dyn_hub *hub, struct dyn_hub_comm *c, const void *plan, uint64_t nowNs) {
  uint32_t missing = 0;
  while (missing < c->nRanks && can_answer(&c->members[missing])) missing++;
  if (c->asking || !c->together || !is_apart(c) || missing < c->nRanks || c->apart != 0) {
    bool late = missing < c->nRanks && c->members[missing].owes == MOST_OWED && nowNs - c->askedNs < ANSWER_NS; /* others refused, and its answers are on their way */
    uint32_t why = c->asking || late ? DYN_REFUSED_BUSY : c->apart != 0 ? DYN_REFUSED_APART : DYN_REFUSED_SILENT;
    if (missing == c->nRanks) missing--;
    say(hub, c, 0, (struct dyn_hosts_message){.kind = DYN_HOSTS_DECIDE, .refusal = why, .rank = c->apart != 0 ? c->apart : missing}, NULL);
    return;
  }
  uint64_t furthest = 0;
  for (uint32_t i = 0; i < c->nRanks; i++) {
    if (DYN_HUB_MUTATE != DYN_HUB_MUTATE_OLD) c->members[i].promised = false;
    c->members[i].owes++;
    if (c->members[i].entered > furthest) furthest = c->members[i].entered;
  }
  c->asking = true;
  c->from = furthest;
  c->went = 0;
  c->question++;
  c->askedNs = nowNs;
  for (uint32_t i = 0; i < c->nRanks; i++) say(hub, c, i, (struct dyn_hosts_message){.kind = DYN_HOSTS_PREPARE, .epoch = furthest + c->margin, .question = c->question}, plan);
}

/* 0: there is none. */
static uint32_t counts_apart(const struct dyn_hub_comm *c) {
  uint32_t i = c->nRanks - 1;
  while (i > 0 && c->members[i].exchanges == c->members[0].exchanges) i--;
  return DYN_HUB_MUTATE == DYN_HUB_MUTATE_APART ? 0 : i;
}

static void hear(struct dyn_hub *hub, struct dyn_hub_comm *c, const struct dyn_hosts_message *m) {
  if (!c->asking || m->question != c->question) return; /* one that was dropped */
  uint32_t promised = 0;
  if (m->entered > c->from && m->entered - c->from > c->went) c->went = m->entered - c->from;
  if (m->refusal != DYN_REFUSED_NOT) {
    decide(hub, c, m->refusal, m->rank);
    return;
  }
  c->members[m->rank].promised = true;
  c->members[m->rank].exchanges = m->count;
  for (uint32_t i = 0; i < c->nRanks; i++) promised += c->members[i].promised;
  if (promised + (DYN_HUB_MUTATE == DYN_HUB_MUTATE_MAJORITY) < c->nRanks) return;
  c->apart = counts_apart(c);
  decide(hub, c, c->apart != 0 ? DYN_REFUSED_APART : DYN_REFUSED_NOT, c->apart);
}

bool dyn_hub_take(struct dyn_hub *hub, int connection, const struct dyn_hosts_message *m, const void *payload, uint64_t nowNs) {
  if (m->kind == DYN_HOSTS_HELLO) return greet(hub, connection, m);
  struct dyn_hub_comm *c = comm_of(hub, m->commId);
  if (c == NULL || m->rank >= c->nRanks || c->members[m->rank].connection != connection) return false;
  struct member *rank = &c->members[m->rank];
  if (m->entered > rank->entered) rank->entered = m->entered;
  switch (m->kind) {
  case DYN_HOSTS_TELL:
    memcpy(&rank->word, payload, sizeof rank->word);
    rank->told = true;
    if (c->together) tell_others(hub, c);
    return true;
  case DYN_HOSTS_PROPOSE:
    if (m->rank != 0) return false;
    propose(hub, c, payload, nowNs);
    return true;
  case DYN_HOSTS_ANSWER:
    if (rank->owes > 0) rank->owes--;
    hear(hub, c, m);
    return true;
  case DYN_HOSTS_WISH:
    hear_wish(hub, c, m, payload);
    return true;
  case DYN_HOSTS_BYE:
    rank->left = true;
    return true;
  case DYN_HOSTS_SAMPLES:
  case DYN_HOSTS_TRIPS:
    if (m->count > DYN_HOSTS_SAMPLES_AT_ONCE) return false;
    say(hub, c, 0, (struct dyn_hosts_message){.kind = m->kind, .count = m->count, .rank = m->rank}, payload);
    return true;
  default:
    return false;
  }
}

static bool anybody(const struct dyn_hub_comm *c) {
  for (uint32_t i = 0; i < c->nRanks; i++)
    if (c->members[i].connection != NOBODY) return true;
  return false;
}

void dyn_hub_lost(struct dyn_hub *hub, int connection) {
  for (struct dyn_hub_comm *c = hub->comms; c != NULL; c = c->next)
    for (uint32_t i = 0; i < c->nRanks; i++) {
      if (c->members[i].connection != connection) continue;
      c->members[i].connection = NOBODY;
      c->members[i].owes = 0;
      if (c->asking && DYN_HUB_MUTATE != DYN_HUB_MUTATE_GONE) decide(hub, c, DYN_REFUSED_SILENT, i);
      return;
    }
}

/* Nobody of it has been here for so long that nobody will come back. */
static bool is_over(struct dyn_hub_comm *c, uint64_t nowNs) {
  if (anybody(c)) c->emptyNs = 0;
  else if (c->emptyNs == 0) c->emptyNs = nowNs;
  return c->emptyNs != 0 && nowNs - c->emptyNs > KEEP_NS;
}

void dyn_hub_tick(struct dyn_hub *hub, uint64_t nowNs) {
  for (struct dyn_hub_comm **at = &hub->comms, *c; (c = *at) != NULL;) {
    if (is_over(c, nowNs)) {
      *at = c->next;
      free(c);
      continue;
    }
    at = &c->next;
    miss(hub, c, nowNs);
    if (!c->asking || nowNs - c->askedNs < ANSWER_NS) continue;
    uint32_t silent = 0;
    while (silent + 1 < c->nRanks && c->members[silent].promised) silent++;
    decide(hub, c, DYN_REFUSED_SILENT, silent);
  }
}

void dyn_hub_free(struct dyn_hub *hub) {
  for (struct dyn_hub_comm *c = hub->comms, *next; c != NULL; c = next) {
    next = c->next;
    free(c);
  }
  hub->comms = NULL;
}
