/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups that one rank alone makes of its calls, as NCCL has it where a communicator has no other collective in them, and groups that have
 * calls of several communicators, not the same on all ranks: who runs a call, and which comes first of two that ranks share, must be the
 * same on all of them. Included by test_lsa.c.
 */
#ifndef DYN_GROUP_STEPS_H
#define DYN_GROUP_STEPS_H

/* Of rank 0's group: what stands beside the call. */
enum { SEND_BEHIND, SEND_BEFORE, OTHERS_BEHIND, OTHERS_BEFORE, SEND_AND_OTHERS_BEFORE, EMPTY_BEFORE, GATHER_BEHIND, NUM_BESIDE };

static struct step besides;

/* NCCL's kernels come behind what is in the stream, and may wait for a peer that has the call before them. */
static int at_the_end(void) {
  if (strcmp(fake->name, "ncclGroupEnd") != 0) return 0;
  wait_for_all();
  compare(&besides, 0, true);
  return 0;
}

static void send_one(CUstream stream) { CHECK(find("ncclSend")(0, 1, FLOAT32, 1, COMM, (uintptr_t)stream, 0, 0, 0) == 0); }

/* An AllToAll beside sends is NCCL's, in its place among them. */
static void among_sends(void) {
  struct step all = {.collective = ALL_TO_ALL, .count = 10, .stream = streams[0]};
  planned = LSA(0, 1);
  for (int first = 0; first < 2; first++) {
    group_start();
    unsigned before = fake->calls;
    if (first == 0) send_one(streams[0]);
    CHECK(issue(&all, 0, COMM) == 0 && fake->calls == before + (first == 0 ? 2 : 0));
    send_one(streams[0]);
    CHECK(fake->calls == before + (first == 0 ? 3 : 2));
    group_end();
  }
}

static void beside(int what) {
  struct step others = besides, empty = besides;
  empty.count = 0;
  group_start();
  if (what == SEND_AND_OTHERS_BEFORE || what == OTHERS_BEFORE) CHECK(issue(&others, 1, OTHER_COMM) == 0);
  if (what == SEND_AND_OTHERS_BEFORE || what == SEND_BEFORE) send_one(besides.stream);
  if (what == EMPTY_BEFORE) CHECK(issue(&empty, 0, COMM) == 0 && find("ncclReduce")(1, 2, 0, FLOAT32, SUM, 0, COMM, (uintptr_t)besides.stream, 0) == 0);
  CHECK(issue(&besides, 0, COMM) == 0);
  if (what == OTHERS_BEHIND) CHECK(issue(&others, 1, OTHER_COMM) == 0);
  if (what == SEND_BEHIND) send_one(besides.stream);
  if (what == GATHER_BEHIND) CHECK(find("ncclGather")(1, 2, 1, FLOAT32, 0, COMM, (uintptr_t)besides.stream, 0, 0) == 0);
  fake->inside = at_the_end;
  group_end();
  fake->inside = succeed;
}

static void alone(int slot, uintptr_t comm) {
  struct step s = besides;
  CHECK(issue(&s, slot, comm) == 0);
}

static void uneven(void) {
  begin();
  among_sends();
  for (int what = 0; what < 2 * NUM_BESIDE; what++) {
    if (what >= NUM_BESIDE && what % NUM_BESIDE != OTHERS_BEHIND && what % NUM_BESIDE != OTHERS_BEFORE && what % NUM_BESIDE != EMPTY_BEFORE) continue;
    besides = (struct step){.collective = what < NUM_BESIDE ? ALL_REDUCE : ALL_TO_ALL, .count = 100, .stream = streams[0], .action = LSA(0, 1), .seed = (uint64_t)what};
    planned = besides.action;
    fill(&besides, 0);
    meet();
    unsigned before = asked;
    if (rank == 0) beside(what % NUM_BESIDE);
    else alone(0, COMM);
    CHECK(asked == before + 1, "case %d: asked %u times", what, asked - before);
    wait_for_all();
    compare(&besides, 0, true);
    meet();
  }
}

/* Two communicators with kernels, on one stream: in the same order on both ranks, whatever these call first and have beside them. The second
 * one made has the lower number, so the order is not that in which they were made. */
static void of_two(void) {
  begin();
  struct dyn_lsa *first = lsa;
  besides = (struct step){.collective = ALL_REDUCE, .count = 1, .stream = streams[0], .action = LSA(0, 1)};
  make_as(COMM_ID - 1);
  fake->inside = do_bind;
  alone(0, OTHER_COMM);
  fake->inside = succeed;
  planned = besides.action;
  for (int n = 0; n < 16; n++) {
    bool turned = (n >> rank & 1) != 0, third = (n >> (rank + 2) & 1) != 0; /* of NCCL's, before all and by itself */
    for (int i = 0; i < 2; i++) fill(&besides, i);
    meet();
    group_start();
    if (third) alone(2, THIRD_COMM);
    for (int i = 0; i < 2; i++) alone(i ^ turned, (i ^ turned) == 0 ? COMM : OTHER_COMM);
    if (rank == 0 && n % 3 == 0) send_one(streams[0]);
    group_end();
    wait_for_all();
    for (int i = 0; i < 2; i++) compare(&besides, i, true);
    meet();
  }
  preload->device->close(lsa);
  preload->device->close(first);
}

/* What is refused of one communicator, whose kernels have given up, takes nothing of another one's with it that stands in the group. */
static void refused_beside(void) {
  begin();
  struct dyn_lsa *first = lsa;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  make();
  fake->inside = do_bind;
  alone(0, OTHER_COMM);
  fake->inside = succeed;
  planned = s.action;
  find("ncclCommShrink")(COMM, 0, 0, 0, 0, 1, 0, 0, 0); /* aborts its calls */
  for (uint64_t n = 0; n < 2; n++) {
    s.seed = n;
    fill(&s, 0);
    meet();
    group_start();
    CHECK(issue(&s, 1, COMM) == 6 && issue(&s, 0, OTHER_COMM) == 0 && issue(&s, 1, COMM) == 6);
    group_end();
    wait_for_all();
    compare(&s, 0, true);
    meet();
  }
  preload->device->close(lsa);
  preload->device->close(first);
}

#endif
