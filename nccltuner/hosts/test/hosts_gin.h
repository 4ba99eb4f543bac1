/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hosts: whether ranks make GIN's own communicator, and who has gone for good. Included by it.
 */
#ifndef DYN_HOSTS_GIN_H
#define DYN_HOSTS_GIN_H

static bool all_heard(uint32_t verdict) {
  for (int i = 0; i < shared->numRanks; i++)
    if (shared->pids[i] > 0 && LOAD(shared->told[0][i].verdict) != verdict) return false;
  return true;
}
static bool says(int i, const char *gone) { return strcmp(shared->told[0][i].gone, gone) == 0; }
static void nobody_is_gone(void) {
  for (int i = 0; i < shared->numRanks; i++) CHECK(says(i, ""));
}

static void gin_begins(void) {
  uint8_t id[128];
  memset(id, 0x47, sizeof id);
  start(4, 3, 2, -1, NULL);
  AWAIT(all_heard(DYN_ALL_BEGIN), 5000);
  for (int c = 0; c < 2; c++)
    for (int i = 0; i < 4; i++) AWAIT(LOAD(shared->told[c][i].verdict) == DYN_ALL_BEGIN && memcmp(shared->told[c][i].id, id, sizeof id) == 0, 5000);
  settle();
  stop();
  nobody_is_gone();
}

/* All count AllToAll, or none does; where ranks heard different words no plan comes, and they go on. */
static void count_apart(void) {
  counting = 15;
  start(4, 3, 1, -1, NULL);
  settle();
  stop();
  counting = 15 & ~1u << 2;
  start(4, 3, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  publish(0);
  const struct dyn_record *record = &shared->memories[0][0].record;
  AWAIT(LOAD(record->refusal) == DYN_REFUSED_APART && LOAD(record->refuser) == 3, 5000);
  nap(1500 * MS); /* it is proposed again */
  CHECK(all_have(0, 0) && LOAD(record->refusal) == DYN_REFUSED_APART && LOAD(record->refuser) == 3);
  for (int i = 0; i < 4; i++) CHECK(go_on(i));
  stop();
  counting = 0;
}

/* One rank binds all; and so does one that does not come, of which only clocks know. */
static void gin_declined(void) {
  notGin = 2;
  start(4, 3, 1, -1, NULL);
  AWAIT(all_heard(DYN_ALL_DECLINE), 5000);
  settle();
  stop();
  notGin = -1;
}

static void leave_gin(void) {
  while (!LOAD(shared->told[0][self].ready)) nap(MS);
  nap(200 * MS); /* it has spoken */
  dyn_hosts_decline(members[0].comm.fence);
  STORE(shared->now, 1);
}
/* A rank that has waited long enough says so before the last one comes: nobody begins. */
static void gin_too_late(void) {
  held = 2;
  start(4, 3, 1, 1, leave_gin);
  AWAIT(all_heard(DYN_ALL_DECLINE), 5000);
  held = -1;
  settle();
  stop();
}

/* In the middle of it: the others hear that nothing comes of it, and go on. */
static void gin_hub_killed(void) {
  held = 2;
  start(4, 3, 1, -1, NULL);
  AWAIT(LOAD(shared->told[0][0].ready) && LOAD(shared->told[0][1].ready) && LOAD(shared->told[0][3].ready), 3000);
  nap(300 * MS);
  CHECK(all_heard(DYN_ALL_UNDECIDED));
  finish_rank(0, SIGKILL);
  STORE(shared->now, 1);
  held = -1;
  AWAIT(all_heard(DYN_ALL_DECLINE), 6000);
  CHECK(go_on(1) && go_on(2) && go_on(3));
  stop();
}

/* A rank that is killed is known on all others; one that leaves, or is cut off for a moment, is not missed. */
static void gone(void) {
  start(4, 4, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  uint64_t killed = now();
  finish_rank(2, SIGKILL);
  for (int i = 0; i < 4; i++)
    if (i != 2) AWAIT(says(i, "rank 2, on another host, is gone"), 3000);
  CHECK(now() - killed >= 490 * MS);
  stop();
}

static void leave_early(void) {
  await_word();
  dyn_hosts_part(&members[0]);
  STORE(shared->done, 1);
}
static void left(void) {
  start(4, 4, 1, 2, leave_early);
  AWAIT(all_met(), 5000);
  settle();
  STORE(shared->now, 1);
  AWAIT(LOAD(shared->done), 3000);
  nap(1500 * MS);
  nobody_is_gone();
  stop();
}

static void gone_with_hub(void) {
  start(4, 4, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  finish_rank(0, SIGKILL);
  for (int i = 1; i < 4; i++) AWAIT(says(i, "the process that made this communicator's id, on another host, is gone"), 3000);
  stop();
}

#endif
