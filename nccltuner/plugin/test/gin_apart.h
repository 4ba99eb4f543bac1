/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_gin: the one rank of this host, whose peers are on others. Included by it.
 */
#ifndef DYN_GIN_APART_H
#define DYN_GIN_APART_H

/* wants: DYNAMICCL_GIN. */
static void rank_apart(const char *wants, struct apart world) {
  struct rig profiler;
  rank = 1;
  how = APART;
  lsa.made = false;
  choose = NULL, now = NULL;
  apart = world;
  memset(&fence, 0, sizeof fence);
  memset(shared, 0, sizeof *shared);
  wants == NULL ? unsetenv("DYNAMICCL_GIN") : setenv("DYNAMICCL_GIN", wants, 1);
  join(&profiler);
  CHECK(!world.meet || fence.exchanges == (apart.wish ? DYN_ALL_UNDECIDED : DYN_ALL_DECLINE), "%u", fence.exchanges);
  for (int i = 0; world.late && i < 20; i++) CHECK(one_call() == 0);
  CHECK(!world.late || fence.exchanges == DYN_ALL_DECLINE, "it has called");
  bool asks = wants != NULL && *wants == '1', begins = asks && world.meet && world.verdict == DYN_ALL_BEGIN, mine = begins && !world.fails, counts = begins && !world.late;
  CHECK(apart.wish == asks && (now != NULL) == (asks || getenv("NCCL_HOSTID") != NULL), "a program that says nothing of it gets none between hosts");
  uint64_t began = now_ms();
  if (now != NULL) {
    call = (struct dyn_preload_call){.depth = 1};
    now(chooser);
    call = (struct dyn_preload_call){0};
  }
  uint64_t took = now_ms() - began;
  CHECK(shared->made == begins && apart.declined == (asks && world.meet && world.verdict == DYN_ALL_UNDECIDED), "made %d, declined %d", shared->made, apart.declined);
  CHECK(world.verdict == DYN_ALL_UNDECIDED || !world.meet ? took < 9900 : took < 1950, "%d ms", (int)took);
  CHECK((comm->self->gin & 255) == (mine ? DYN_GIN_ACTIVE : begins ? DYN_GIN_FAILED : DYN_GIN_REFUSED), "%u", comm->self->gin & 255);
  for (int i = 0; i < 2; i++) {
    uint64_t seq = comm->seq;
    CHECK(one_call() == 0 && comm->seq == seq + 1 && exchange() == 0 && comm->seq == seq + 1 + counts, "what NCCL asks nobody about counts from the first call on, or never");
  }
  CHECK(!world.meet || fence.exchanges == (counts ? DYN_ALL_BEGIN : DYN_ALL_DECLINE), "%u", fence.exchanges);
  CHECK((comm->self->marks[ALLTOALL][BUCKET] & (MARK | 1u << 31)) == (counts ? 1u << 31 | (mine ? MARK : 0) : 0), "%x", comm->self->marks[ALLTOALL][BUCKET]);
  CHECK((comm->self->marks[ALLREDUCE][BUCKET] & MARK) == (mine ? MARK : 0), "%x", comm->self->marks[ALLREDUCE][BUCKET]);
  if (mine) { /* what all have promised is in force */
    comm->plan.index[ALLREDUCE][BUCKET] = 1;
    comm->plan.entries[1] = (struct dyn_entry){.id = 1, .base = GIN(DYN_BACKEND_PROXY, 4)};
    comm->plan.index[ALLTOALL][BUCKET] = 2;
    comm->plan.entries[2] = (struct dyn_entry){.id = 2, .base = GIN(DYN_BACKEND_PROXY, 2)};
    CHECK(one_call() == GIN(DYN_BACKEND_PROXY, 4) && exchange() == (counts ? GIN(DYN_BACKEND_PROXY, 2) : 0));
    comm->closeLeft = 3; /* this epoch and two, also where this rank's own record is damaged */
    dyn_member_of(comm)->broken = true;
    int closely = 0;
    while (closely < 100 && one_call() == (GIN(DYN_BACKEND_PROXY, 4) | CLOSELY)) closely++;
    CHECK(closely >= 32 && closely <= 48 && one_call() == GIN(DYN_BACKEND_PROXY, 4), "%d calls", closely);
    comm->lost = true; /* and cannot be known any more: the call is NCCL's, where it fails */
    uint64_t seq = comm->seq;
    CHECK(choose(chooser, ALLREDUCE, BYTES, ABLE) == 0 && comm->seq == seq);
    CHECK(exchange() == (counts ? DYN_CHOSEN_LOST : 0) && comm->seq == seq, "of which NCCL asks nobody");
  }
  ncclTunerPlugin_v6.finalize(tuner);
  rig_close(&profiler);
  CHECK(apart.left == world.meet);
}

static void all_apart(void) {
  rank_apart("1", (struct apart){.meet = true, .verdict = DYN_ALL_BEGIN});
  rank_apart("1", (struct apart){.meet = true, .verdict = DYN_ALL_BEGIN, .fails = true});
  rank_apart("1", (struct apart){.meet = true, .verdict = DYN_ALL_BEGIN, .late = true});
  rank_apart("1", (struct apart){.meet = true, .verdict = DYN_ALL_DECLINE});
  rank_apart("1", (struct apart){.meet = true, .verdict = DYN_ALL_UNDECIDED}); /* a rank without our library, or a hub that has died */
  rank_apart("1", (struct apart){.meet = false});
  rank_apart(NULL, (struct apart){.meet = true, .verdict = DYN_ALL_BEGIN});
  rank_apart("0", (struct apart){.meet = true, .verdict = DYN_ALL_BEGIN});
  setenv("NCCL_HOSTID", "one", 1); /* nodes that are pretended, and hosts besides */
  rank_apart(NULL, (struct apart){.meet = true, .verdict = DYN_ALL_DECLINE});
  unsetenv("NCCL_HOSTID");
  unsetenv("DYNAMICCL_GIN");
  apart = (struct apart){0};
  lsa.made = false;
  choose = NULL, now = NULL;
}

#endif
