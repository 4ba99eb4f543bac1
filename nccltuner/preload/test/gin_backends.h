/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: NCCL 2.32.3, where a communicator may have several backends. Each has a life of its own: calls go by either,
 * in any order, and what becomes of one has no part in the other.
 */
#ifndef DYN_GIN_BACKENDS_H
#define DYN_GIN_BACKENDS_H

static uint32_t state_of(int life) { return atomic_load(&lsa->gin->each[life].state.now); }

/* Both have run calls, and graphs. */
static void both(void) {
  begin();
  play_calls(1, 20);
  CHECK(state_of(0) >= DYN_GIN_IN_FLIGHT && state_of(1) >= DYN_GIN_IN_FLIGHT, "%u and %u", state_of(0), state_of(1));
  CHECK(lsa->gin->each[0].window != lsa->gin->each[1].window && lsa->gin->each[0].numbers != lsa->gin->each[1].numbers, "they share memory");
  end(DYN_GIN_DESTROYED);
  CHECK((self.ginSecond & 255) == DYN_GIN_DESTROYED);
  meet();
  CHECK(make_gin(), "a second time");
  meet();
  play_calls(1000, 5);
  play_exchanges(2000, 5);
  end(DYN_GIN_DESTROYED);
}

/* A call of each in one graph: they are replayed in the order of its capture, as others' calls are. */
static void both_in_graphs(void) {
  struct step steps[2] = {{.collective = DYN_ALL_TO_ALL, .count = 3000, .ctas = 2, .backend = DYN_BACKEND_PROXY},
                          {.collective = DYN_ALL_GATHER, .count = 500, .ctas = 2, .backend = DYN_BACKEND_GDAKI}};
  CUgraphExec graph;
  CUgraph captured;
  begin();
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(issue(&steps[0], 0) == 0 && issue(&steps[1], 1) == 0 && cuda.cuStreamEndCapture(streams[0], &captured) == 0);
  CHECK(cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  for (uint64_t n = 0; n < 10; n++) {
    for (int i = 0; i < 2; i++) steps[i].seed = random_of(n * 2 + (uint64_t)i), fill(&steps[i], i);
    meet();
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    wait_for_all();
    for (int i = 0; i < 2; i++) compare(&steps[i], i);
    meet();
  }
}

/* first and second: what becomes of the two. Calls go by what is left, on all ranks. */
static void one_fails(uint32_t first, uint32_t second) {
  load();
  bool made = make_gin();
  uint32_t told2 = __atomic_load_n(&self.ginSecond, __ATOMIC_ACQUIRE) & 255;
  CHECK(made == (first == DYN_GIN_ACTIVE || second == DYN_GIN_ACTIVE));
  CHECK(state_of(0) == first && state_of(1) == second && (told() & 255) == first && told2 == second, "%s and %s", dyn_gin_state_name(state_of(0)), dyn_gin_state_name(state_of(1)));
  meet();
}

/* Signals of GDAKI do not come: NCCL's steps were made by all, so Proxy follows. Rank 1 hears the others, and is active alone. */
static void first_silent(void) {
  one_fails(rank == 1 ? DYN_GIN_ACTIVE : DYN_GIN_FAILED, DYN_GIN_ACTIVE);
  CHECK(dyn_gin_of(lsa, DYN_BACKEND_GDAKI) == (rank == 1 ? &lsa->gin->each[0] : NULL) && dyn_gin_of(lsa, DYN_BACKEND_PROXY) == &lsa->gin->each[1]);
  for (uint64_t n = 0; n < 20; n++) {
    struct step s = step_of(n);
    struct dyn_work work;
    unsigned ctas;
    fill(&s, 0);
    work = work_of(&s, 0);
    CHECK(dyn_lsa_able(lsa, &work) & DYN_ABLE_GIN(DYN_BACKEND_PROXY) && dyn_lsa_launch(lsa, &work, GIN(DYN_BACKEND_PROXY, s.ctas, s.contexts), &ctas, NULL) == 0);
    if (rank != 1) CHECK(dyn_lsa_launch(lsa, &work, GIN(DYN_BACKEND_GDAKI, 1, 0), &ctas, NULL) != 0, "by a backend that failed");
    wait_for_all();
    compare(&s, 0);
    meet();
  }
  dyn_lsa_settle(lsa, 1000000000);
  dyn_gin_destroy(lsa);
  CHECK(state_of(0) == DYN_GIN_FAILED && (state_of(1) == DYN_GIN_FAILED), "puts of the first may be on their way");
  dyn_lsa_close(lsa);
  meet();
}

/* NCCL fails on rank 0 with the second: the first goes on. */
static void second_none(void) {
  one_fails(DYN_GIN_ACTIVE, DYN_GIN_FAILED);
  struct step s = {.collective = DYN_ALL_GATHER, .count = 1000, .ctas = 2, .seed = 9};
  struct dyn_work work = work_of(&s, 0);
  unsigned ctas;
  fill(&s, 0);
  CHECK(dyn_lsa_able(lsa, &work) == (DYN_ABLE_GIN(DYN_BACKEND_GDAKI) | DYN_ABLE_CONTEXTS) && dyn_lsa_launch(lsa, &work, GIN(DYN_BACKEND_GDAKI, 2, 0), &ctas, NULL) == 0);
  wait_for_all();
  compare(&s, 0);
  meet();
}

/* NCCL fails on rank 0 with the first, where the others wait: nothing more is made on that communicator. */
static void first_none(void) { one_fails(DYN_GIN_FAILED, DYN_GIN_UNINITIALISED); }

/* A file of kernels that are for another NCCL, and NCCL with backends that no kernel knows. */
static void unknown(void) {
  load();
  CHECK(dyn_gin_can() && !make_gin() && (told() & 255) == DYN_GIN_FAILED && self.ginSecond == 0);
  meet();
}

static void fault(const char *how, const char *ofRank, const char *ofType) {
  setenv("FAKEGPU_GIN", how, 1);
  setenv("FAKEGPU_GIN_RANK", ofRank, 1);
  setenv("FAKEGPU_GIN_TYPE", ofType, 1);
}

/* By one backend: what is asked for and granted in another way than by 2.28.9. */
static void all_of_newer(void) {
  play("calls", 3, calls);
  play_on(2, "calls", 4, calls);
  play_on(2, "choice", 4, choice);
  play("able", 2, able);
  parted();
  steps_wait_s(IN_VAIN);
  play("silent", 3, silent);
  play("none", 3, none);
  play("everywhere", 2, everywhere);
  steps_wait_s(AS_EVER);
}

static void of_several(void) {
  setenv("FAKEGPU_GIN_TYPES", "23", 1);
  backends[0] = DYN_BACKEND_GDAKI, backends[1] = DYN_BACKEND_PROXY;
}
static void lanes_of_several(void) {
  of_several();
  give_up_in_lanes();
}

static void all_of_several(void) {
  of_several();
  play("both", 3, both);
  play_on(2, "choice of both", 4, choice);
  play_on(2, "both", 4, both);
  play("both in graphs", 2, both_in_graphs);
  give_up_in_lanes();
  play("trips by the first of both", 2, trips_told_closely);
  all_contexts();
  late_of_several();
  steps_wait_s("1");
  fault("silent", "1", "3");
  play("first silent", 3, first_silent);
  fault("none", "0", "2");
  play("second none", 2, second_none);
  fault("none", "0", "3");
  play("first none", 2, first_none);
  steps_wait_s(AS_EVER);
  fault("", "", "");
  setenv("FAKEGPU_GIN_TYPES", "45", 1);
  play("unknown types", 2, unknown);
  setenv("FAKEGPU_GIN_TYPES", "23", 1);
  setenv("FAKEGPU_GIN_KERNELS", "22809", 1);
  play("unknown kernels", 2, unknown);
  unsetenv("FAKEGPU_GIN_KERNELS");
  setenv("FAKEGPU_GIN_TYPES", "25", 1);
  backends[0] = DYN_BACKEND_PROXY, backends[1] = DYN_GIN_NO_BACKEND;
  play("one that is known", 2, able);
  unsetenv("FAKEGPU_GIN_TYPES");
}

#endif
