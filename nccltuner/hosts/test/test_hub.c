/* SPDX-License-Identifier: Apache-2.0
 *
 *   test_hub SEEDS [FIRST]
 *   test_hub hub|rank|fence MISTAKE     one that is planted, by its number: it is to be found
 * The shipped hub and ranks (hub.c, rank.c) in worlds of chance: messages are late, connections break at one end and then at the other,
 * ranks run ahead, leave and come back, the hub forgets or vanishes, NCCL's marks come and change, plans follow each other. Checked:
 *   all ranks that enter an epoch run one plan there, which was published, bit by bit, and which each rank could promise when it was asked;
 *   a rank's calls fail only if it has given up the hub;
 *   all that are at one place of the program run one plan there, whichever calls each counts;
 *   about GIN all ranks hear one word, that all begin only where all wanted to, and with rank 0's id;
 *   who is said to have gone for good has gone, for as long as that takes;
 *   where nothing breaks any more a rank waits no longer, and if all are there the newest plan comes into force on all of them.
 */
#include "mistakes.h"

#include "hub_rig.h"

int fence_mistake, hub_mistake, rank_mistake;

#define memcpy(to, from, bytes) racing_copy(to, from, bytes)
#include "../rank.c"
#undef memcpy

static struct rank {
  struct dyn_hosts_rank speaks;
  int host, connection; /* -1: none */
  bool waits, failed, parted, left;
  uint64_t epoch, version; /* of the plan in force */
  uint64_t soughtNs;       /* since when it has not heard of the hub, as in hosts.c */
  uint64_t asked;          /* last question that came, and whether it could promise */
  bool could;
  bool wanted, declined, said, gone;/* about GIN, as the hub has heard; BYE, likewise; as it says of it */
  uint64_t unseenNs;       /* since when the hub has no connection of it; 0: it has one, or never had */
} ranks[RANKS];
static struct dyn_hub hub;
static int numRanks, numHosts;
static bool gone, forgetful; /* the hub has vanished; it may forget */
static uint64_t ran[2 * EPOCHS], furthest; /* version + 1 that the first rank there ran */
static uint64_t exchanged, apart, commits, waits, fails, tookLast, begins, goings;
static uint32_t verdict; /* about GIN: 1 + the refusal that is told; 0: none yet */

#include "hub_gin.h"

/* ---- the rank's own thread, as plugin/hosts.c ---- */

static void run(struct rank *r) {
  for (uint64_t half = first_half(r); half <= last_half(r); half++) {
    if (ran[half] == 0) ran[half] = r->version + 1;
    if (ran[half] != r->version + 1) violated("two ranks run an epoch by different plans");
  }
  if (r->epoch > furthest) furthest = r->epoch;
}

static void take(struct rank *r) {
  const struct dyn_plan *plan = &r->speaks.fence.plan;
  if (plan->version == 0 || plan->version > (uint64_t)numPlans || !published[plan->version - 1] || memcmp(plan, &plans[plan->version - 1], sizeof *plan) != 0)
    violated("what is in force was not published");
  r->version = plan->version;
  dyn_fence_taken(&r->speaks.fence);
  r->speaks.place.self->agreed = r->version;
}

static void enter(struct rank *r) {
  struct dyn_fence *fence = &r->speaks.fence;
  if (r->failed || r->left || !has_comm(r)) return;
  if (r->epoch + 1 == EPOCHS) abort(); /* too short */
  if (!r->waits) dyn_fence_enter(fence, ++r->epoch);
  enum dyn_fence_answer answer = dyn_fence_ask(fence, r->epoch);
  if ((r->waits = answer == DYN_FENCE_WAIT)) {
    waits++;
    return;
  }
  if (answer == DYN_FENCE_FAIL) {
    r->failed = true;
    fails++;
    if (!r->parted) violated("a rank fails that has not given up the hub");
    return;
  }
  if (answer == DYN_FENCE_TAKE) take(r);
  run(r);
}

/* ---- connections ---- */

static void hub_sends(void *to, int number, const struct dyn_hosts_message *m, const void *payload) {
  (void)to;
  if (m->kind == DYN_HOSTS_VERDICT) check_verdict(m, payload);
  if (m->kind == DYN_HOSTS_GONE) check_gone(&ranks[m->rank]);
  if (m->kind == DYN_HOSTS_DECIDE && m->refusal == DYN_REFUSED_NOT)
    for (int i = 0; i < numRanks; i++)
      if (ranks[i].asked != m->question || !ranks[i].could) { /* asked again later: it has begun what was decided */
        if (ranks[i].asked <= m->question) violated("the hub decides for a plan that a rank has not promised, or cannot run");
      }
  commits += m->kind == DYN_HOSTS_DECIDE && m->refusal == DYN_REFUSED_NOT;
  if (connections[number].hubOpen) push(&connections[number].down, m, payload);
}
static void hub_closes(struct connection *c) {
  if (c->greeted) ranks[c->rank].unseenNs = nowNs;
  c->hubOpen = c->greeted = false;
  empty(&c->up);
}
static void hub_drops(void *to, int number) {
  (void)to;
  hub_closes(&connections[number]);
}
static void hub_notices(int number) {
  struct connection *c = &connections[number];
  bool greeted = c->greeted;
  if (!c->hubOpen) return;
  hub_closes(c);
  if (greeted && !gone) dyn_hub_lost(&hub, number);
}

static void rank_sends(void *to, const struct dyn_hosts_message *m, const void *payload) {
  const struct rank *r = to;
  struct connection *c = &connections[r->connection];
  if (!c->hubOpen) return; /* into nothing */
  push(&c->up, m, payload);
  struct letter *last = (struct letter *)((char *)c->up.last - offsetof(struct letter, next));
  if (!calm && m->kind == DYN_HOSTS_PROPOSE && one_in(30)) last->payload[chance(m->bytes) & ~4u] ^= (unsigned char)(1u << chance(8)); /* a change in a word's highest bits alone the checksum may miss */
}

static void rank_notices(struct rank *r) {
  if (r->connection < 0) return;
  connections[r->connection].rankOpen = false;
  empty(&connections[r->connection].down);
  r->connection = -1;
  dyn_hosts_rank_cut(&r->speaks);
  if (r->soughtNs == 0) r->soughtNs = nowNs;
}

static void give_up(struct rank *r) {
  rank_notices(r);
  dyn_hosts_rank_parted(&r->speaks);
  r->parted = true;
}

/* As hosts.c does in every turn. */
static void serve(struct rank *r) {
  if (r->parted || r->left) return;
  if (r->soughtNs != 0 && nowNs - r->soughtNs > DYN_HOSTS_SEEK_NS) {
    give_up(r);
  } else if (r->connection >= 0) {
    dyn_hosts_rank_tick(&r->speaks, nowNs);
  } else if (!gone && (r->connection = new_connection((int)(r - ranks))) >= 0) {
    dyn_hosts_rank_greet(&r->speaks);
    if (one_in(2)) dyn_hosts_rank_tick(&r->speaks, nowNs);
    if (!calm && !r->speaks.together && numConnections > numRanks && one_in(8)) dyn_hosts_rank_decline(&r->speaks); /* the hub may not have read a lost connection */
  }
}

static void to_hub(int number) {
  struct connection *c = &connections[number];
  struct letter *l = c->hubOpen && !gone ? pop(&c->up) : NULL;
  if (!l) return;
  struct rank *r = &ranks[c->rank];
  r->declined |= l->message.kind == DYN_HOSTS_WISH && c->greeted && l->message.refusal != DYN_REFUSED_NOT;
  r->said |= l->message.kind == DYN_HOSTS_BYE && c->greeted;
  bool sound = dyn_hub_take(&hub, number, &l->message, l->payload, nowNs);
  if (l->message.kind == DYN_HOSTS_HELLO && (c->greeted = sound)) r->unseenNs = 0;
  if (!sound) hub_notices(number);
  free(l);
}

static void to_rank(int number) {
  struct connection *c = &connections[number];
  struct rank *r = &ranks[c->rank];
  struct letter *l = c->rankOpen ? pop(&c->down) : NULL;
  if (!l) return;
  if (l->message.kind == DYN_HOSTS_PREPARE) {
    r->asked = l->message.question;
    r->could = may_promise(&memories[r->host], r->speaks.place.self, (const struct dyn_plan *)l->payload);
  }
  r->soughtNs = 0;
  if (!dyn_hosts_rank_take(&r->speaks, &l->message, l->payload, nowNs)) rank_notices(r);
  free(l);
}

/* What one end knows the other one hears of. */
static void all_notice(void) {
  for (int i = 0; i < numConnections; i++) {
    struct connection *c = &connections[i];
    if (c->hubOpen && !c->rankOpen) hub_notices(i);
    if (c->rankOpen && !c->hubOpen) rank_notices(&ranks[c->rank]);
  }
}

static void leave(struct rank *r) {
  if (r->connection >= 0) dyn_hosts_rank_bye(&r->speaks);
  rank_notices(r);
  dyn_fence_lower(&r->speaks.fence);
  r->left = true;
}

static void vanish(void) {
  gone = true;
  dyn_hub_free(&hub);
  for (int i = 0; i < numConnections; i++) hub_notices(i);
}

/* ---- chance ---- */

/* How lively it is: of 256. */
static struct {
  uint32_t pace, breaks, changes;
} often;

static void begin(uint64_t seed) {
  randomState = seed * 0x9E3779B97F4A7C15u + 1;
  nowNs = MS;
  numConnections = numPlans = 0;
  memset(published, 0, sizeof published);
  memset(memories, 0, sizeof memories);
  memset(ran, 0, 2 * (furthest + 1) * sizeof *ran);
  memset(ranks, 0, sizeof ranks);
  furthest = 0;
  verdict = 0;
  for (size_t i = 0; i < sizeof memories[0].record.ginId; i++) memories[0].record.ginId[i] = (uint8_t)chance(256);
  bool gin = !one_in(3);
  wrong = NULL;
  gone = calm = false;
  forgetful = one_in(5);
  often.pace = 1 + chance(60);
  patience = one_in(3) ? 1 + chance(4) : 1 + chance(300);
  often.breaks = one_in(3) ? 1 : chance(30);
  often.changes = 2 + chance(20);
  hub = (struct dyn_hub){.send = hub_sends, .drop = hub_drops};
  numHosts = 2 + (int)chance(HOSTS - 1);
  numRanks = numHosts + (int)chance((uint32_t)(RANKS - numHosts + 1));
  for (int i = 0; i < numRanks; i++) {
    struct rank *r = &ranks[i];
    r->host = i < numHosts ? i : (int)chance((uint32_t)numHosts);
    struct memory *memory = &memories[r->host];
    struct dyn_rank *self = &memory->ranks[memory->record.joined++];
    *r = (struct rank){.host = r->host, .connection = -1, .soughtNs = nowNs,
                       .speaks = {.place = {.record = &memory->record, .self = self, .commId = 7, .nonce = 1, .host = (uint64_t)r->host + 1, .nRanks = (uint32_t)numRanks,
                                            .rank = (uint32_t)i, .gin = gin || one_in(2)}, .send = rank_sends}};
    r->wanted = r->speaks.place.gin;
    if (!r->wanted) r->speaks.fence.exchanges = DYN_ALL_DECLINE;
    r->speaks.to = r;
    memory->record.epochCalls = DYN_EPOCH_CALLS;
    self->ncclVersion = 22703;
    self->flags = DYN_RANK_EVENT_TIMED | (one_in(4) ? 0 : DYN_RANK_ALONE_GATHERS);
    if (one_in(8)) change_flags(self);
  }
  publish(write_plan(false));
}

/* The ranks are stopped, or so is the network between, for so long that the hub forgets them; and they have not noticed yet. */
static void forget(void) {
  for (int i = 0; i < numConnections; i++) hub_notices(i);
  for (int i = 0; i < 4; i++, nowNs += 50000 * MS) dyn_hub_tick(&hub, nowNs);
  verdict = 0; /* and who has not heard the word hears another one: NCCL's steps end by the clock */
}

static void breaks(struct rank *r) {
  int any = numConnections ? numConnections - 1 - (int)chance(numConnections < 12 ? (uint32_t)numConnections : 12) : -1; /* old ones are closed */
  uint32_t what = chance(256);
  if (what < 100) rank_notices(r);
  else if (what < 200 && any >= 0) hub_notices(any);
  else if (what < 240 && any >= 0 && !connections[any].hubOpen) rank_notices(&ranks[connections[any].rank]);
  else if (what < 247) nowNs += one_in(4) ? 3000 * MS : 100 * MS;
  else if (what < 250 && forgetful && !gone) forget();
  else if (what < 253 && one_in(2)) one_in(3) ? leave(r) : vanish();
}

static void changes(struct rank *r) {
  uint32_t what = chance(256);
  if (what < 100) publish(write_plan(one_in(3)));
  else if (what < 220) change_marks(r->speaks.place.self);
  else if (what < 235) change_flags(r->speaks.place.self);
  else if (what < 236) memories[r->host].record.veto = 1;
  else if (what < 238 && r->connection >= 0) dyn_hosts_rank_decline(&r->speaks);
}

static void happens(void) {
  struct rank *r = &ranks[chance((uint32_t)numRanks)];
  uint32_t what = chance(256);
  int any = numConnections ? numConnections - 1 - (int)chance(numConnections < 10 ? (uint32_t)numConnections : 10) : -1;
  nowNs += chance(3 * MS);
  if (what < often.pace) for (uint32_t n = 1 + chance(one_in(20) ? one_in(20) ? 3000 : 40 : 2); n > 0; n--) enter(r);
  else if ((what -= often.pace) < often.breaks) breaks(r);
  else if ((what -= often.breaks) < often.changes) changes(r);
  else if ((what -= often.changes) < 30) serve(r);
  else if (what < 32 && !gone) dyn_hub_tick(&hub, nowNs);
  else if (any >= 0) what & 1 ? to_hub(any) : to_rank(any);
}

/* ---- where nothing breaks any more ---- */

static bool all_there(void) {
  for (int i = 0; i < numRanks; i++)
    if (ranks[i].parted || ranks[i].left) return false;
  return !gone;
}

static void deliver(void) {
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < numConnections; i++) {
      more |= (connections[i].hubOpen && !gone && connections[i].up.first) || (connections[i].rankOpen && connections[i].down.first);
      to_hub(i);
      to_rank(i);
    }
  }
}

static void check_others(void) {
  const struct dyn_rank *told = &memories[0].ranks[memories[0].record.joined];
  uint32_t any = 0, all = UINT32_MAX;
  for (int i = 0; i < numRanks; i++)
    if (ranks[i].host != 0) any |= ranks[i].speaks.place.self->flags, all &= ranks[i].speaks.place.self->flags;
  if (told->flags != ((any & ~OF_ALL) | (all & OF_ALL))) violated("rank 0's daemon does not know the flags of other hosts");
  for (int c = 0; c <= DYN_ALL_TO_ALL; c++)
    for (int b = 0; b < BUCKETS; b++) {
      bool same = true, seen = true;
      uint32_t first = 0;
      for (int i = 0, n = 0; i < numRanks; i++) {
        uint32_t marks = ranks[i].speaks.place.self->marks[c][b];
        if (ranks[i].host == 0) continue;
        if (n++ == 0) first = marks;
        same &= !((marks ^ first) & ~GIN_MARKS);
        first &= marks | ~GIN_MARKS;
        seen &= marks >> 31;
      }
      if (told->marks[c][b] != (same ? first : seen ? SEEN : 0)) violated("rank 0's daemon does not know the marks of other hosts");
    }
}

static void settle(void) {
  bool there = all_there();
  calm = true;
  for (int i = 0; i < numHosts; i++) memories[i].record.veto = 0;
  for (int i = 0; i < numRanks; i++) ranks[i].speaks.place.self->flags &= OF_ALL;
  if (there) publish(write_plan(true));
  for (int round = 0; round < 400 && !wrong; round++) {
    bool done = true;
    nowNs += there && round < 300 ? 50 * MS : 2000 * MS;
    all_notice();
    for (int i = 0; i < numRanks; i++) serve(&ranks[i]);
    deliver();
    if (!gone) dyn_hub_tick(&hub, nowNs);
    deliver();
    for (int i = 0; i < numRanks; i++) {
      for (uint64_t to = furthest + 1 + chance(20); has_comm(&ranks[i]) && ranks[i].epoch < to && !ranks[i].waits && !ranks[i].failed && !ranks[i].left;) enter(&ranks[i]);
      if (ranks[i].waits) enter(&ranks[i]);
      done &= !ranks[i].waits && (ranks[i].left || ranks[i].parted || (settled(&ranks[i]) && there && (!all_count_alike() || ranks[i].version == newest() >> 8)));
    }
    there = there && all_there();
    if (done && round > (there ? 2 : 40)) break;
  }
  for (int i = 0; i < numRanks; i++) {
    if (ranks[i].waits && !ranks[i].left) violated("a rank waits for ever");
    if (there && ranks[i].version != (all_count_alike() ? newest() >> 8 : 0)) violated("the newest plan does not come into force, or one does where ranks count other calls");
    uint32_t hosts = memories[ranks[i].host].record.hosts;
    if (ranks[i].speaks.together && ranks[i].parted && hosts != DYN_HOSTS_PARTED) violated("a host does not say that a rank of it has parted");
    if (ranks[i].speaks.together && ranks[i].host != 0 && hosts < DYN_HOSTS_MET) violated("a host that has met says that it has not");
  }
  if (!there) return;
  for (int i = 0; i < numRanks; i++)
    if (ranks[i].speaks.verdict == DYN_ALL_UNDECIDED || (!forgetful && ranks[i].speaks.verdict != ranks[0].speaks.verdict)) violated("ranks know different words about GIN");
  tookLast++;
  exchanged += all_count_alike() && counts(&ranks[0]);
  apart += !all_count_alike();
  check_others();
  for (int h = 0; h < numHosts; h++)
    if (memories[h].record.hosts != DYN_HOSTS_MET) violated("a host does not know that all have met");
}

static void end(void) {
  for (int i = 0; i < numConnections; i++) empty(&connections[i].up), empty(&connections[i].down);
  dyn_hub_free(&hub);
}

int main(int argc, char **argv) {
  bool planted = argc > 2 && strchr("hrf", *argv[1]) != NULL;
  if (planted) *(*argv[1] == 'h' ? &hub_mistake : *argv[1] == 'r' ? &rank_mistake : &fence_mistake) = atoi(argv[2]);
  uint64_t seeds = planted || argc < 2 ? 100000 : strtoull(argv[1], NULL, 0), first = planted || argc < 3 ? 0 : strtoull(argv[2], NULL, 0);
  for (uint64_t seed = first; seed < first + seeds; seed++) {
    begin(seed);
    for (int i = 0; i < 1500 && !wrong; i++) happens();
    settle();
    end();
    if (!wrong) continue;
    printf("%s: seed %llu: %s\n", planted ? "found" : "test_hub", (unsigned long long)seed, wrong);
    return !planted;
  }
  printf("{\"seeds\":%llu,\"decisions\":%llu,\"waits\":%llu,\"fails\":%llu,\"settled\":%llu,\"begins\":%llu,\"goings\":%llu,\"exchanged\":%llu,\"apart\":%llu}\n", (unsigned long long)seeds, (unsigned long long)commits,
         (unsigned long long)waits, (unsigned long long)fails, (unsigned long long)tookLast, (unsigned long long)begins, (unsigned long long)goings, (unsigned long long)exchanged, (unsigned long long)apart);
  return planted || !commits || !waits || !fails || !tookLast || !begins || !goings || !exchanged || !apart;
}
