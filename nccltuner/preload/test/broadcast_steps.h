/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plugin is told of broadcasts in groups (gathers.h). Included by test_making.c.
 */
#ifndef DYN_BROADCAST_STEPS_H
#define DYN_BROADCAST_STEPS_H

#include "../gathers.h"

static struct dyn_gathers *token;
static bool severalAsked, gatherAsked, averageAsked; /* as NCCL asks at the group's end */

/* The plugin is met, for a communicator that has its context so far in. */
static struct dyn_gathers *meets_it(uintptr_t comm) { return preload->gathers->of((const void *)(comm + 24), (uint32_t)numRanks, (uint32_t)rank); }

/* NCCL leaves the communicator at once, and meets the plugin then. */
static int meets_plugin(void) {
  if (madeComm[0] == 0) madeComm[0] = COMM;
  token = meets_it(madeComm[0]);
  return 0;
}
static int meets_first(void) {
  token = meets_it(COMM);
  madeComm[0] = COMM;
  return 0;
}
static int asks_at_end(void) {
  if (strncmp(fake->name, "ncclGroup", 9) == 0) severalAsked = dyn_gathers_broadcasts(token), gatherAsked = dyn_gathers_grouped(token), averageAsked = dyn_gathers_averages(token);
  return 0;
}
static void *meets_alone(void *nothing) {
  token = meets_it(madeComm[0]);
  return nothing;
}
static int meets_in_thread(void) {
  pthread_t thread;
  madeComm[0] = COMM;
  CHECK(pthread_create(&thread, NULL, meets_alone, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return 0;
}
static int refuses_early(void) { return strcmp(fake->name, "ncclGroupEnd") == 0 ? 4 : tell_progress(); } /* ncclInvalidArgument */
static int asks_later(void) { return strcmp(fake->name, "ncclGroupEnd") == 0 ? IN_PROGRESS : 0; }

static uintptr_t leaves; /* in a group, as NCCL does before the call returns */
static int leaves_it(void) {
  *(uintptr_t *)fake->arguments[0] = leaves;
  return 0;
}
static int meets_elsewhere(void) {
  token = meets_it(madeComm[0] + 8);
  return 0;
}
static int meets_at_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") == 0) token = meets_it(COMM);
  return 0;
}
static int fails(void) {
  meets_plugin();
  return 6;
}
/* NCCL has taken it away by then, and what another thread makes meanwhile has its place. */
static struct dyn_gathers *other;
static int meets_other(void) {
  madeComm[1] = OTHER_COMM;
  other = meets_it(OTHER_COMM);
  return 0;
}
static void *makes_other(void *nothing) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  last_call()->inside = meets_other;
  CHECK(init(&madeComm[1], numRanks, id, rank) == 0);
  return nothing;
}
static int fails_behind_its_end(void) {
  pthread_t thread;
  meets_plugin();
  preload->gathers->over(token);
  CHECK(pthread_create(&thread, NULL, makes_other, NULL) == 0 && pthread_join(thread, NULL) == 0);
  return 6;
}
/* Another thread was told that nothing is under way before the group that ends meanwhile. */
static int group_meanwhile(void) {
  *(int *)fake->arguments[1] = 0;
  fake->inside = asks_later;
  group_start();
  for (int i = 0; i < 2; i++) CHECK(find("ncclBroadcast")(1, 2, 8, FLOAT32, (uintptr_t)i, COMM, 0, 0, 0) == 0);
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == IN_PROGRESS);
  return 0;
}

/* The program keeps the handle that the call left, and has the place for another one by the group's end. */
static void in_one_place(void) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  uintptr_t place = 0;
  group_start();
  fake->inside = leaves_it;
  for (int i = 0; i < 2; i++) {
    leaves = i == 0 ? COMM : OTHER_COMM;
    CHECK(init(&place, numRanks, id, rank + 2 * i) == 0);
  }
  fake->inside = meets_at_end;
  group_end();
  fake->inside = succeed;
  CHECK(token != NULL && atomic_load(&token->comm) == COMM, "%lx", (unsigned long)atomic_load(&token->comm));
}

static void broadcast(int root, size_t count, uintptr_t comm, bool old) {
  if (old) CHECK(find("ncclBcast")(1, count, FLOAT32, (uintptr_t)root, comm, 0, 0, 0, 0) == 0);
  else CHECK(find("ncclBroadcast")(1, 2, count, FLOAT32, (uintptr_t)root, comm, 0, 0, 0) == 0);
}

/* Of a release with configurations as without one. */
static int gather(bool config, size_t count, uintptr_t comm, int *told) {
  return find(config ? "ncclAllGatherConfig" : "ncclAllGather")(1, (uintptr_t)told, count, FLOAT32, comm, 0, 0, 0, 0);
}

/* Whether the group has an AllGather that the library has seen. */
static void gathers(void) {
  static const struct { size_t count; uintptr_t comm; int root; bool gather, several; } groups[] = {
      {8, COMM, -1, true, false}, {8, COMM, 0, true, false}, {8, COMM, 1, true, true}, {0, COMM, -1, false, false}, {0, COMM, 1, false, true}, {8, OTHER_COMM, -1, false, false}};
  int told = -1;
  prepare();
  madeComm[0] = 0;
  make_one(meets_in_thread, 0, 0);
  CHECK(token != NULL && !token->inThread, "it may block nobody");
  preload->gathers->over(token);
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  CHECK(token != NULL && token->inThread && !dyn_gathers_grouped(token));
  for (size_t g = 0; g < 4 * sizeof groups / sizeof *groups; g++) {
    size_t i = g / 4;
    group_start();
    for (int r = 0; r <= groups[i].root && g % 2; r++) broadcast(r, 8, COMM, false);
    CHECK(gather(g & 2, groups[i].count, groups[i].comm, &told) == 0);
    for (int r = 0; r <= groups[i].root && !(g % 2); r++) broadcast(r, 8, COMM, false);
    severalAsked = !groups[i].several, gatherAsked = !groups[i].gather;
    fake->inside = asks_at_end;
    CHECK(find(g & 1 ? "ncclGroupEnd" : "ncclGroupSimulateEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    fake->inside = succeed;
    CHECK(gatherAsked == groups[i].gather && severalAsked == groups[i].several && !dyn_gathers_grouped(token) && !dyn_gathers_broadcasts(token), "group %zu", g);
  }
  group_start(); /* what does not block is asked about later, and no pending group is made of it */
  CHECK(gather(true, 8, COMM, &told) == 0);
  fake->inside = asks_later;
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == IN_PROGRESS && atomic_load(&token->pending) == 0);
  fake->inside = succeed;
  group_start();
  for (int i = 0; i < 2; i++) broadcast(i, 8, COMM, false);
  fake->inside = asks_later;
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == IN_PROGRESS);
  asked_in_progress = IN_PROGRESS;
  fake->inside = succeed;
  group_start(); /* too early: NCCL refuses it */
  fake->inside = tell_progress;
  CHECK(gather(false, 8, COMM, &told) == 0);
  fake->inside = refuses_early;
  CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 4 && dyn_gathers_broadcasts(token), "NCCL may yet ask about those before");
  asked_in_progress = 0;
  fake->inside = tell_progress;
  CHECK(gather(false, 8, COMM, &told) == 0 && !dyn_gathers_broadcasts(token));
  fake->inside = succeed;
}

static void broadcasts(void) {
  static const struct { int roots[4]; size_t counts[4]; uintptr_t comms[4]; bool old, config, several; } groups[] = {
      {{0, 0}, {8, 8}, {COMM, COMM}, false, false, false},
      {{0, 1}, {8, 8}, {COMM, COMM}, false, false, true},
      {{1, 0}, {8, 8}, {COMM, COMM}, true, false, true},
      {{1, 0}, {8, 8}, {COMM, COMM}, false, true, true},
      {{1, 1}, {8, 8}, {COMM, COMM}, false, true, false},
      {{0, 1}, {8, 0}, {COMM, COMM}, false, false, false},
      {{0, 1}, {8, 8}, {COMM, OTHER_COMM}, false, false, false},
      {{0, 1, 0, 1}, {8, 8, 8, 8}, {OTHER_COMM, OTHER_COMM, COMM, COMM}, false, false, true},
      {{1}, {8}, {COMM}, false, false, false},
  };
  prepare();
  madeComm[0] = 0;
  make_one(meets_first, 0, 0);
  CHECK(token == NULL, "of which communicator?");
  madeComm[0] = 0;
  make_one(in_progress, 0, IN_PROGRESS);
  make_one(meets_plugin, 1, 0);
  CHECK(token == NULL, "the one before can be meant");
  ask_error(0);
  fake->inside = succeed;
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  CHECK(token != NULL && !dyn_gathers_broadcasts(token));
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    group_start();
    group_start();
    for (int i = 0; i < 4 && groups[g].comms[i] != 0; i++) {
      if (groups[g].config && i == 1) CHECK(find("ncclBroadcastConfig")(1, 2, groups[g].counts[i], FLOAT32, (uintptr_t)groups[g].roots[i], groups[g].comms[i], 0, 0, 0) == 0);
      else broadcast(groups[g].roots[i], groups[g].counts[i], groups[g].comms[i], groups[g].old && i == 0);
    }
    group_end();
    severalAsked = !groups[g].several;
    fake->inside = asks_at_end;
    group_end();
    fake->inside = succeed;
    CHECK(severalAsked == groups[g].several && !dyn_gathers_broadcasts(token), "group %zu", g);
  }
  for (int i = 0; i < 2; i++) broadcast(i, 8, COMM, false);
  CHECK(!dyn_gathers_broadcasts(token), "outside of groups");
  for (int way = 0; way < 2; way++) { /* it does not block: NCCL may ask until it says that all is launched, or until its next group */
    group_start();
    for (int i = 0; i < 2; i++) broadcast(i, 8, COMM, false);
    fake->inside = asks_later;
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == IN_PROGRESS && dyn_gathers_broadcasts(token));
    for (int error = IN_PROGRESS; error >= 0 && way == 0; error -= IN_PROGRESS) {
      int told = -1;
      asked_in_progress = error;
      fake->inside = tell_progress;
      CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&told, 0, 0, 0, 0, 0, 0, 0) == 0 && dyn_gathers_broadcasts(token) == (error != 0));
    }
    fake->inside = succeed;
    group_start();
    broadcast(0, 8, COMM, false);
    CHECK(!dyn_gathers_broadcasts(token), "way %d", way);
    group_end();
  }
  int told = -1;
  for (int error = IN_PROGRESS, n = 0; n < 4; n++, error = IN_PROGRESS * (n % 2 == 0)) { /* or nobody asks, and an AllGather comes, which NCCL takes when it is over */
    fake->inside = succeed;
    group_start();
    for (int i = 0; i < 2; i++) broadcast(i, 8, COMM, false);
    fake->inside = asks_later;
    CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == IN_PROGRESS && dyn_gathers_broadcasts(token));
    asked_in_progress = error;
    fake->inside = tell_progress;
    CHECK(gather(n > 1, 8, COMM, &told) == 0 && dyn_gathers_broadcasts(token) == (error != 0), "%d, %d", n, error);
  }
  for (int i = 0; i < 2; i++) { /* of no group, and of the one before */
    fake->inside = group_meanwhile;
    CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&told, 0, 0, 0, 0, 0, 0, 0) == 0 && dyn_gathers_broadcasts(token), "told of another group, %d", i);
  }
  asked_in_progress = 0;
  fake->inside = tell_progress;
  CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&told, 0, 0, 0, 0, 0, 0, 0) == 0 && !dyn_gathers_broadcasts(token));
  fake->inside = succeed;
  struct dyn_gathers *before = token;
  preload->gathers->over(token);
  group_start();
  for (int i = 0; i < 2; i++) broadcast(i, 8, COMM, false);
  group_end();
  CHECK(!dyn_gathers_broadcasts(before), "of nobody");
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  CHECK(token == before, "its place is another one's");
  make_one(meets_plugin, 0, 0);
  CHECK(token == NULL, "two of one address");
  preload->gathers->over(before);
  in_one_place();
  preload->gathers->over(token);
  madeComm[0] = 0;
  make_one(fails, 0, 6);
  before = token;
  CHECK(before != NULL);
  make_one(meets_plugin, 0, 0);
  CHECK(token != NULL && token != before, "of one that failed, of which the plugin does not hear");
  preload->gathers->over(token);
  madeComm[0] = 0;
  make_one(fails_behind_its_end, 0, 6);
  CHECK(token != NULL && other == token && atomic_load(&other->comm) == OTHER_COMM, "one that failed took another one's place: %lx", (unsigned long)atomic_load(&other->comm));
  preload->gathers->over(other);
}

/* ---- children, which NCCL leaves to the program when they are made, and others that no call tells of ---- */

#define CHILD ((uintptr_t)0x8000)
#define TWIN ((uintptr_t)0x9000)
static struct dyn_gathers *twin;
static uintptr_t childPlace, twinPlace;

static int meets_child(void) {
  token = meets_it(CHILD);
  childPlace = CHILD;
  return 0;
}
static int meets_child_in_vain(void) {
  token = meets_it(CHILD);
  return 6;
}
static int meets_twins_at_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") != 0) return 0;
  twin = meets_it(TWIN);
  token = meets_it(CHILD);
  childPlace = CHILD, twinPlace = TWIN;
  return 0;
}
static void split(int color, uintptr_t *place, int result) {
  *place = 0;
  CHECK(find("ncclCommSplit")(COMM, (uintptr_t)color, 0, (uintptr_t)place, 0, 0, 0, 0, 0) == result);
}
/* In a group it has broadcasts with several roots, and the other one has not. */
static void told_apart(uintptr_t comm, const struct dyn_gathers *of, const struct dyn_gathers *other) {
  CHECK(of != NULL && other != NULL && of != other);
  group_start();
  for (int i = 0; i < 2; i++) broadcast(i, 8, comm, false);
  CHECK(dyn_gathers_broadcasts(of) && !dyn_gathers_broadcasts(other), "%lx", (unsigned long)comm);
  group_end();
  CHECK(!dyn_gathers_broadcasts(of));
}
/* One that has it elsewhere than the parent: what is told of the address that it was taken for is of nobody, and so is all that comes. */
static int meets_other_child(void) {
  token = meets_it(CHILD);
  childPlace = TWIN;
  return 0;
}
static void strangers(void) {
  prepare();
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  struct dyn_gathers *parent = token;
  fake->inside = meets_other_child;
  split(0, &childPlace, 0);
  fake->inside = succeed;
  CHECK(token != NULL && dyn_gathers_broadcasts(token), "it may be about broadcasts at any time");
  CHECK(dyn_gathers_windows(token) && !dyn_gathers_windows(parent), "and have windows");
  group_start();
  for (int i = 0; i < 2; i++) broadcast(i, 8, CHILD, false), broadcast(i, 8, TWIN, false);
  group_end();
  CHECK(dyn_gathers_broadcasts(token) && !dyn_gathers_broadcasts(parent));
  fake->inside = meets_child;
  split(0, &childPlace, 0);
  CHECK(token == NULL);
}

static void families(void) {
  prepare();
  fake->inside = meets_child;
  split(0, &childPlace, 0);
  CHECK(token == NULL, "whose, before any is known?");
  madeComm[0] = 0;
  make_one(in_progress, 0, IN_PROGRESS);
  struct dyn_gathers *late = meets_it(OTHER_COMM);
  CHECK(late != NULL, "the only one, whose call has returned and left it");
  ask_error(0);
  madeComm[0] = 0;
  make_one(meets_plugin, 0, 0);
  struct dyn_gathers *parent = token;
  told_apart(OTHER_COMM, late, parent);
  fake->inside = meets_child;
  split(0, &childPlace, 0);
  fake->inside = succeed;
  told_apart(CHILD, token, parent);
  told_apart(COMM, parent, token);
  preload->gathers->over(token);
  fake->inside = meets_child;
  CHECK(find("ncclCommShrink")(COMM, 0, 0, (uintptr_t)&childPlace, 0, 0, 0, 0, 0) == 0);
  fake->inside = succeed;
  told_apart(CHILD, token, parent);
  preload->gathers->over(token);
  group_start(); /* either call may be meant */
  split(0, &childPlace, 0);
  split(-1, &madeComm[2], 0);
  split(1, &twinPlace, 0);
  fake->inside = meets_twins_at_end;
  group_end();
  fake->inside = succeed;
  told_apart(CHILD, token, twin);
  told_apart(TWIN, twin, token);
  preload->gathers->over(token);
  preload->gathers->over(twin);
  fake->inside = splits; /* it does not block, and the place is the program's again before it looks */
  split(0, &childPlace, IN_PROGRESS);
  childPlace = TWIN;
  token = meets_it(CHILD);
  fake->inside = succeed;
  told_apart(CHILD, token, parent);
  preload->gathers->over(token);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  fake->inside = meets_child_in_vain;
  split(0, &childPlace, 6);
  struct dyn_gathers *before = token;
  fake->inside = meets_child;
  split(0, &childPlace, 0);
  CHECK(before != NULL && token != NULL && token != before, "of one that failed");
  preload->gathers->over(token);
  CHECK(meets_it(TWIN) == NULL, "no call makes it: its calls go past the library, too");
  for (int i = 0; i < 2; i++) { /* not NCCL's own place for it: nothing is relied on any more, of no communicator */
    madeComm[0] = TWIN;
    make_one(i == 0 ? meets_elsewhere : meets_plugin, 0, 0);
    CHECK(token == NULL, "%d", i);
  }
  fake->inside = meets_child;
  split(0, &childPlace, 0);
  CHECK(token == NULL);
}

#endif
