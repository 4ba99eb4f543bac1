/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_making.c: what configs say that NCCL's own kernels go by, and ours do; and a child that does not block, which the plugin meets
 * before the call has returned.
 */
#ifndef DYN_CONFIG_STEPS_H
#define DYN_CONFIG_STEPS_H

/* Of 2.29 and later: behind what 2.28.9 has. */
struct longer_config {
  struct dyn_nccl_config first;
  int graphUsageMode, others[5];
};
static struct longer_config used_by(int graphs) {
  return (struct longer_config){.first = {.size = sizeof(struct longer_config), .magic = DYN_NCCL_MAGIC, .version = 23007, .maxCTAs = INT_MIN, .CTAPolicy = INT_MIN}, .graphUsageMode = graphs};
}

static void init_with(const void *config) {
  struct fake_id id = {""};
  fake->inside = make_comms;
  CHECK(((int (*)(uintptr_t *, int, struct fake_id, int, uintptr_t))(void *)find("ncclCommInitRankConfig"))(&madeComm[1], numRanks, id, rank, (uintptr_t)config) == 0 && expected);
  fake->inside = succeed;
}
static void split_with(const void *config) {
  fake->inside = make_comms;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[1], (uintptr_t)config, 0, 0, 0, 0) == 0 && expected);
  fake->inside = succeed;
}

/* Of a graph with one call of the communicator's, which goes then. */
static size_t nodes_of_call(void) {
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1), .stream = streams[0]};
  CUgraph graph;
  size_t n = 0;
  fill(&s, 0);
  planned = s.action;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  capturing = true;
  CHECK(issue(&s, 0, COMM) == 0);
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphGetNodes(graph, NULL, &n) == 0 && cuda.cuGraphDestroy(graph) == 0);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  return n;
}

/* Of which NCCL's graphs have no events, since they run alone, ours have none. */
static void alone(void) {
  enum { KERNEL = 1, WITH_EVENTS = 3 };
  struct longer_config one = used_by(1), none = used_by(0), mixing = used_by(2), silent = used_by(INT_MIN), older = used_by(1), shorter = used_by(1);
  older.first.version = 22809; /* as NCCL reads it, the rest is not there */
  shorter.first.size = sizeof shorter.first;
  prepare();
  init_with(NULL);
  CHECK(nodes_of_call() == WITH_EVENTS);
  const struct { const struct longer_config *config; size_t nodes; } cases[] = {
      {&one, KERNEL}, {&mixing, WITH_EVENTS}, {&none, KERNEL}, {&silent, WITH_EVENTS}, {&older, WITH_EVENTS}, {&shorter, WITH_EVENTS}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    init_with(cases[i].config);
    size_t n = nodes_of_call();
    CHECK(n == cases[i].nodes, "%zu nodes in case %zu", n, i);
  }
  bound_of(&one.first);
  split_with(NULL);
  CHECK(nodes_of_call() == KERNEL, "a child has its parent's config");
  split_with(&silent);
  CHECK(nodes_of_call() == WITH_EVENTS, "and not where it has its own");
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "1", 1);
  init_with(&one);
  CHECK(nodes_of_call() == WITH_EVENTS, "the variable goes before the config");
  unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
}

/* Where NCCL is to do without CTAs as far as it can, the plugin is told so, beside how many it may have. */
static void without_ctas(void) {
  struct longer_config zero = used_by(INT_MIN), efficient = zero, both = zero;
  zero.first.CTAPolicy = 2, efficient.first.CTAPolicy = 1, both.first.CTAPolicy = 3, both.first.maxCTAs = 6;
  prepare();
  CHECK(bound_of(&efficient.first) == 0 && bound_of(&both.first) == (DYN_NO_CTAS | 6) && bound_of(&zero.first) == DYN_NO_CTAS);
  CHECK(split_bound(NULL) == DYN_NO_CTAS && split_bound(&efficient.first) == 0);
  zero.first.version = 22600;
  CHECK(bound_of(&zero.first) == 0, "as NCCL reads it, it is not there");
  fake->inside = succeed;
}

/* NCCL's thread has come to the plugin before the call returns, and leaves the communicator a little later: the other ranks know by then that
 * kernels are counted on here. */
static void *leave_it(void *nothing) {
  usleep(20000);
  __atomic_store_n(&madeComm[0], COMM, __ATOMIC_RELEASE);
  return nothing;
}
static pthread_t leaving;
static void *meet_it(void *nothing) {
  expected = preload->device->expect(lsa, &planned, choose, bound);
  return nothing;
}
static int met_before(void) {
  pthread_t other;
  CHECK(pthread_create(&other, NULL, meet_it, NULL) == 0 && pthread_join(other, NULL) == 0);
  CHECK(pthread_create(&leaving, NULL, leave_it, NULL) == 0);
  return 7;
}
static void met_early(void) {
  prepare();
  boundNow = 0;
  madeComm[0] = 0;
  fake->inside = met_before;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[0], 0, 0, 0, 0, 0) == 7 && expected);
  fake->inside = succeed;
  CHECK(pthread_join(leaving, NULL) == 0 && boundNow == 0);
  ask_error(0);
  fake->inside = succeed;
  launched(true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
}

/* Or not before the call has returned, which does not wait for it: where the plugin can tell which one it is it is known at once, else by
 * when NCCL says that it is made. Or it never is. */
static bool tells;
static int met_and_left_late(void) {
  pthread_t other;
  if (tells) CHECK(preload->gathers->of((const void *)(COMM + 24), (uint32_t)numRanks, (uint32_t)rank) != NULL);
  CHECK(pthread_create(&other, NULL, meet_it, NULL) == 0 && pthread_join(other, NULL) == 0);
  return 7;
}
static int meets_parent(void) {
  madeComm[0] = OTHER_COMM;
  CHECK(preload->gathers->of((const void *)(OTHER_COMM + 24), (uint32_t)numRanks, (uint32_t)rank) != NULL);
  return 0;
}
enum { KNOWN, TOLD, FAILS, NUM_LATE };
static void left_late(void) {
  prepare();
  for (int way = 0; way < NUM_LATE; way++) {
    if (way > 0) make();
    tells = way == KNOWN;
    madeComm[0] = 0;
    if (tells) make_one(meets_parent, 0, 0);
    madeComm[0] = 0;
    fake->inside = met_and_left_late;
    uint64_t from = dyn_host_ns();
    CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[0], 0, 0, 0, 0, 0) == 7 && expected);
    CHECK(dyn_host_ns() - from < in_vain_s(1) * UINT64_C(500000000), "%d ms, way %d", (int)((dyn_host_ns() - from) / 1000000), way);
    fake->inside = succeed;
    if (way != KNOWN) ask_error(7);
    madeComm[0] = way == FAILS ? 0 : COMM;
    if (way != KNOWN) ask_error(way == FAILS ? 6 : 0);
    madeComm[0] = 0; /* the place is another one's */
    fake->inside = succeed;
    launched(way != FAILS);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    if (way == FAILS) preload->device->close(lsa);
  }
}

#endif
