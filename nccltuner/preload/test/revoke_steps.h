/* SPDX-License-Identifier: Apache-2.0
 *
 * ncclCommRevoke (2.29 and later) ends what runs, ours with NCCL's, and NCCL refuses every call that comes then. What NCCL refuses to revoke
 * goes on. Included by test_lsa.c.
 */
#ifndef DYN_REVOKE_STEPS_H
#define DYN_REVOKE_STEPS_H

static int invalid_argument(void) { return 4; }
static int invalid_usage(void) { return 5; }
static int revoked_as(int flags) { return find("ncclCommRevoke")(COMM, (uintptr_t)flags, 0, 0, 0, 0, 0, 0, 0); }

/* Rank 0 waits for the other one in vain, blocking or not. */
static void revokes(void) {
  for (int way = 0; way < 2; way++) {
    if (way == 0) prepare();
    else make();
    asked = 0;
    bind_lsa();
    struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
    if (rank == 0) make_call(&s, 0, 0);
    fake->inside = way == 0 ? succeed : in_progress;
    CHECK(revoked_as(0) == (way == 0 ? 0 : 7));
    wait_for_all();
    fake->inside = succeed;
    CHECK(async_error() == 0);
    for (int group = 0; group < 2; group++) { /* NCCL says what it says of every other call */
      unsigned before = fake->calls;
      if (group) group_start();
      fake->inside = invalid_usage;
      CHECK(issue(&s, 0, COMM) == 5 && fake->calls == before + 1 + (unsigned)group, "way %d, group %d", way, group);
      fake->inside = succeed;
      if (group) group_end();
    }
    fake->inside = invalid_argument;
    CHECK(revoked_as(0) == 4);
    fake->inside = succeed;
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    preload->device->close(lsa);
    meet();
  }
}

/* With flags that NCCL does not know, and behind ncclCommFinalize. */
static void revokes_in_vain(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1), .seed = 3};
  fill(&s, 0);
  fake->inside = invalid_argument;
  CHECK(revoked_as(2) == 4);
  fake->inside = succeed;
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  s.seed = 4;
  fill(&s, 0);
  if (rank > 0) meet();
  make_call(&s, 0, 0);
  fake->inside = in_progress;
  CHECK(find("ncclCommFinalize")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 7);
  fake->inside = invalid_argument;
  CHECK(revoked_as(0) == 4);
  fake->inside = succeed;
  if (rank == 0) meet();
  wait_for_all();
  compare(&s, 0, true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
  meet();
}

#endif
