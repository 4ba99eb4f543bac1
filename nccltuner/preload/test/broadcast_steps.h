/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plugin is told of broadcasts in groups (gathers.h). Included by test_making.c.
 */
#ifndef DYN_BROADCAST_STEPS_H
#define DYN_BROADCAST_STEPS_H

#include "../gathers.h"

static struct dyn_gathers *token;
static bool severalAsked; /* as NCCL asks at the group's end */

/* NCCL leaves the communicator at once, and meets the plugin then. */
static int meets_plugin(void) {
  if (madeComm[0] == 0) madeComm[0] = COMM;
  token = preload->gathers->of((uint32_t)numRanks, (uint32_t)rank);
  return 0;
}
static int meets_first(void) {
  token = preload->gathers->of((uint32_t)numRanks, (uint32_t)rank);
  madeComm[0] = COMM;
  return 0;
}
static int asks_at_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") == 0) severalAsked = dyn_gathers_broadcasts(token);
  return 0;
}
static int asks_later(void) { return strcmp(fake->name, "ncclGroupEnd") == 0 ? IN_PROGRESS : 0; }

static uintptr_t leaves; /* in a group, as NCCL does before the call returns */
static int leaves_it(void) {
  *(uintptr_t *)fake->arguments[0] = leaves;
  return 0;
}
static int meets_at_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") == 0) token = preload->gathers->of((uint32_t)numRanks, (uint32_t)rank);
  return 0;
}
static int fails(void) {
  meets_plugin();
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
}

#endif
