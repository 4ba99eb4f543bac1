/* SPDX-License-Identifier: Apache-2.0
 *
 * How soon plans come into force: ranks that run on while they are asked, in bursts as programs do, are asked about epochs that they have not
 * passed, and about none far away once they have slowed down, or after many questions that were refused. One that does not answer is asked
 * eight times and no more until it does, or is back on another connection.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../hub.h"

enum { RANKS = 4 };
#define CHECK(condition) ((condition) ? (void)0 : (printf("test_pace: line %d: %s\n", __LINE__, #condition), exit(1)))

static struct dyn_hub hub;
static uint64_t entered, asked, question;
static int decided; /* 1: for, -1: against, 0: not yet */
static unsigned told; /* the last rank, of questions and decisions */
static uint32_t why, refuser;
static uint64_t nowNs = 1;

static void hear(void *to, int connection, const struct dyn_hosts_message *m, const void *payload) {
  (void)to, (void)payload;
  told += connection == RANKS - 1;
  why = m->refusal, refuser = m->rank;
  if (m->kind == DYN_HOSTS_PREPARE) asked = m->epoch, question = m->question;
  if (m->kind == DYN_HOSTS_DECIDE) decided = m->refusal == DYN_REFUSED_NOT ? 1 : -1;
}
static void closed(void *to, int connection) { (void)to, (void)connection; }

static void say(int rank, struct dyn_hosts_message m, const void *payload) {
  m.version = DYN_HOSTS_VERSION;
  m.bytes = dyn_hosts_bytes(m.kind);
  m.commId = 7;
  m.nRanks = RANKS;
  m.rank = (uint32_t)rank;
  m.entered = entered;
  CHECK(dyn_hub_take(&hub, rank, &m, payload, nowNs));
}

/* One question, while which each rank goes on by so many epochs; refusal: of the last one. How far ahead of all it was. */
static uint64_t ask(uint64_t goes, uint32_t refusal) {
  static const struct dyn_plan plan;
  decided = 0;
  say(0, (struct dyn_hosts_message){.kind = DYN_HOSTS_PROPOSE}, &plan);
  uint64_t ahead = asked - entered;
  CHECK(asked > entered);
  entered += goes;
  for (int i = 0; i < RANKS; i++) /* also behind one that refuses */
    say(i, (struct dyn_hosts_message){.kind = DYN_HOSTS_ANSWER, .question = question, .refusal = entered >= asked ? DYN_REFUSED_LATE : i + 1 == RANKS ? refusal : DYN_REFUSED_NOT}, NULL);
  CHECK(decided != 0);
  if (decided > 0 && entered < asked) entered = asked; /* and the plan begins */
  return ahead;
}

static void propose(void) {
  static const struct dyn_plan plan;
  decided = 0;
  say(0, (struct dyn_hosts_message){.kind = DYN_HOSTS_PROPOSE}, &plan);
}

static void answer(int ranks) {
  for (int i = RANKS - 1; i >= RANKS - ranks; i--) say(i, (struct dyn_hosts_message){.kind = DYN_HOSTS_ANSWER, .question = question}, NULL);
}

/* The last rank is stopped: what waits for it in its connection is bounded. */
static void stopped(void) {
  int questions = 0;
  for (propose(); decided == 0; propose(), questions++)
    for (int i = 0; i < RANKS - 1; i++) say(i, (struct dyn_hosts_message){.kind = DYN_HOSTS_ANSWER, .question = question, .refusal = i == 0 ? DYN_REFUSED_LATE : DYN_REFUSED_NOT}, NULL);
  CHECK(questions == 8 && why == DYN_REFUSED_BUSY); /* its answers are on their way, for all that is known */
  told = 0;
  for (int i = 0; i < 1000; i++) {
    nowNs += 2500000000;
    dyn_hub_tick(&hub, nowNs);
    propose();
    CHECK(decided < 0 && why == DYN_REFUSED_SILENT && refuser == RANKS - 1);
  }
  CHECK(told == 0);
  answer(1); /* it goes on */
  propose();
  CHECK(decided == 0);
  answer(RANKS);
  CHECK(decided > 0);
  propose();
  dyn_hub_lost(&hub, RANKS - 1); /* it had not answered */
  say(RANKS - 1, (struct dyn_hosts_message){.kind = DYN_HOSTS_HELLO, .host = RANKS, .count = DYN_EPOCH_CALLS}, NULL);
  answer(RANKS);
  propose();
  CHECK(decided == 0);
  answer(RANKS);
  CHECK(decided > 0);
}

int main(void) {
  hub.send = hear;
  hub.drop = closed;
  for (int i = 0; i < RANKS; i++) say(i, (struct dyn_hosts_message){.kind = DYN_HOSTS_HELLO, .host = (uint64_t)i + 1, .count = DYN_EPOCH_CALLS}, NULL);
  static const uint64_t paces[] = {0, 1, 3, 10, 25, 30, 2, 0};
  for (size_t i = 0; i < sizeof paces / sizeof *paces; i++) {
    int late = 0, rounds = 0;
    for (; rounds < 12; rounds++) {
      ask(paces[i], DYN_REFUSED_NOT);
      late += decided < 0;
    }
    CHECK(late <= 2);
    CHECK(ask(paces[i], DYN_REFUSED_NOT) <= 2 * paces[i] + 2);
  }
  for (int i = 0; i < 1000; i++) CHECK(ask(1, DYN_REFUSED_MARKS) <= 4 && decided < 0); /* no further away for being refused */
  stopped();
  ask(200, DYN_REFUSED_NOT); /* a burst that no question keeps up with */
  CHECK(decided < 0 && ask(0, DYN_REFUSED_NOT) <= 64 && decided > 0);
  dyn_hub_free(&hub);
  printf("ok\n");
  return 0;
}
