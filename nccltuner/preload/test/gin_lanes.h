/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: what stands in the stream behind a call that a rank gives up, and has another lane: it is a graph's, of another
 * backend, or over load and store.
 */
#ifndef DYN_GIN_LANES_H
#define DYN_GIN_LANES_H

enum path { NEAR, FIRST, SECOND };
struct lane_of {
  enum path path;
  bool inGraph;
};

/* As begin, with scratch memory beside GIN: one host, and DYNAMICCL_GIN=1. opens: this rank can open the others' memory, and not only its own. */
static bool begin_beside(bool opens) {
  struct dyn_offer offers[MAX_RANKS];
  setenv("DYNAMICCL_KERNELS", getenv("DYNAMICCL_GIN_KERNELS"), 1);
  lsa = dyn_lsa_offer(7, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  CHECK(lsa != NULL, "no offer");
  if (rank == 0) CHECK(dyn_gin_id(shared->id), "no id");
  meet();
  memcpy(offers, shared->offers, sizeof offers);
  if (!opens) setenv("FAKEGPU_IPC", "refuse", 1);
  CHECK(dyn_lsa_open(lsa, offers) == opens, "whether it opens");
  unsetenv("FAKEGPU_IPC");
  meet();
  memset(&self, 0, sizeof self);
  bool made = dyn_gin_make(lsa, offers, shared->id, &self);
  meet();
  return made;
}

static bool begin_near(void) { return begin_beside(true); }

/* A rank that cannot open all memory has GIN, as the others do, and nothing over load and store. */
static void near_on_some(void) {
  struct dyn_work work = {DYN_ALL_GATHER, in[0], out[0], 100, FLOAT32, SUM, 0, NULL, true, NULL, NULL};
  bool opens = rank > 0;
  load();
  CHECK(begin_beside(opens) && dyn_lsa_can_exchange(lsa, DYN_PATH_GIN));
  CHECK(dyn_lsa_near(lsa) == opens && dyn_lsa_can_exchange(lsa, DYN_PATH_LSA) == opens && (dyn_lsa_able(lsa, &work) >> DYN_KERNEL_BULK & 1) == opens, "it would run in memory that it has not");
  struct exchange x;
  exchange_make(&x, 1, MOST);
  exchange_fill(&x, in[0], out[0]);
  CHECK(issue_exchange(&x, 0, 0) == 0);
  wait_for_all();
  exchange_compare(&x, out[0]);
  end(DYN_GIN_DESTROYED);
}

static void run_in(const struct lane_of *lane, const struct step *s, int slot) {
  struct dyn_work work = work_of(s, slot);
  unsigned ctas;
  uint32_t near = DYN_PATH_LSA | DYN_KERNEL_ONE_SHOT << DYN_ACTION_ALGO_SHIFT | 1 << DYN_ACTION_CHANNELS_SHIFT;
  uint32_t action = lane->path == NEAR ? near : GIN(backends[lane->path - FIRST], 1, 0);
  CUgraph captured;
  CUgraphExec graph;
  if (lane->inGraph) CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(dyn_lsa_launch(lsa, &work, action, &ctas, NULL) == 0);
  if (!lane->inGraph) return;
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
}

static void *wait_there(void *nothing) { return wait_for_all(), nothing; }

/* Rank 0 is stopped while the others are late. What its call left is no result, and is what the one behind has to send: the others wait
 * for it there in vain. */
static void gives_up_before(struct lane_of first, struct lane_of behind) {
  struct step call = {.collective = DYN_ALL_REDUCE, .count = 100, .seed = 1}, next = {.collective = DYN_ALL_REDUCE, .count = 100, .seed = 2};
  pthread_t waiter; /* the stand-in runs for who waits */
  CHECK(begin_near());
  fill(&call, 0);
  fill(&next, 1);
  if (rank > 0) meet();
  run_in(&first, &call, 0);
  if (rank > 0) wait_for_all();
  if (rank > 0) compare(&call, 0);
  run_in(&behind, &next, 1);
  CHECK(pthread_create(&waiter, NULL, wait_there, NULL) == 0);
  usleep(200000);
  for (size_t i = 0; i < next.count && rank > 0; i++) CHECK(out[1][i] == -1, "rank 0 sent in lane %d%d what it had given up in lane %d%d", behind.path, behind.inGraph, first.path, first.inGraph);
  dyn_lsa_stop(lsa, "it is enough");
  CHECK(pthread_join(waiter, NULL) == 0);
  if (rank == 0) meet();
  meet();
  dyn_lsa_close(lsa);
}

/* Before each other lane that there may be. Of two backends: pairs that there are not of one. */
static struct lane_of gaveUp;
static void lanes_behind(void) {
  int last = backends[1] == 0 ? FIRST : SECOND;
  setenv("DYNAMICCL_SCRATCH_MIB", "1", 1);
  load();
  for (int path = NEAR; path <= last; path++)
    for (int inGraph = 0; inGraph < 2; inGraph++) {
      const struct lane_of behind = {(enum path)path, inGraph == 1};
      if ((path != (int)gaveUp.path || behind.inGraph != gaveUp.inGraph) && (last == FIRST || path == SECOND || gaveUp.path == SECOND)) gives_up_before(gaveUp, behind);
    }
}
static void give_up_in_lanes(void) {
  for (int path = NEAR; path <= (backends[1] == 0 ? FIRST : SECOND); path++)
    for (int inGraph = 0; inGraph < 2; inGraph++) {
      gaveUp = (struct lane_of){(enum path)path, inGraph == 1};
      play("a lane that is given up", 3, lanes_behind);
    }
}

/* The probe gives up where GIN does not work, and calls over load and store run all the same. */
static void probe_gives_up(void) {
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .seed = 3};
  load();
  CHECK(!begin_near());
  for (int inGraph = 0; inGraph < 2; inGraph++) {
    fill(&s, 0);
    run_in(&(struct lane_of){NEAR, inGraph == 1}, &s, 0);
    wait_for_all();
    compare(&s, 0);
    meet();
  }
}

/* Of a communicator that never called the last kernel runs on behind its end, and gives up later, in all lanes: nobody else may have their
 * memory by then. As CUDA may say it, without the wait. */
static int queries;
static int runs_on(dyn_event event) { return (void)event, queries++ == 0 ? 1 : DYN_CUDA_NOT_READY; }
static void farewell_runs_on(void) {
  load();
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  CHECK(begin_near());
  const struct scratch *had = lsa->scratch;
  int (*query)(dyn_event) = driver->cuEventQuery;
  driver->cuEventQuery = runs_on;
  dyn_gin_destroy(lsa);
  CHECK(dyn_gin_now(lsa) == DYN_GIN_FAILED && queries == 1, "%d", queries);
  dyn_lsa_close(lsa);
  CHECK(!had->spare, "memory of a kernel that runs is another communicator's");
  driver->cuEventQuery = query;
  meet();
}

/* Nor is a kernel waited for that has no place on the GPU, behind one of the program's which waits for a rank that has died, or until another thread
 * aborts the communicator: then it gives up whenever it comes. */
static int has_no_place(dyn_event event) { return (void)event, DYN_CUDA_NOT_READY; }
static void *stop_soon(void *unused) {
  usleep(300000);
  dyn_lsa_stop(lsa, "a rank has died");
  return unused;
}
static void farewell_stops(void) {
  alarm(in_vain_s(60));
  load();
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  CHECK(begin_near());
  int (*query)(dyn_event) = driver->cuEventQuery;
  pthread_t stops;
  driver->cuEventQuery = has_no_place;
  CHECK(pthread_create(&stops, NULL, stop_soon, NULL) == 0);
  const uint64_t from = now_ms();
  dyn_gin_destroy(lsa);
  CHECK(now_ms() - from < in_vain_s(5) * 1000 && dyn_gin_now(lsa) == DYN_GIN_FAILED, "%d ms", (int)(now_ms() - from));
  CHECK(pthread_join(stops, NULL) == 0);
  dyn_lsa_close(lsa);
  driver->cuEventQuery = query;
  meet();
}

static void probes_give_up(void) {
  play("a farewell stops", 2, farewell_stops);
  play("a farewell runs on", 2, farewell_runs_on);
  play("near on some", 3, near_on_some);
  setenv("FAKEGPU_GIN", "silent", 1);
  steps_wait_s("1");
  play("a probe gives up", 2, probe_gives_up);
  steps_wait_s(AS_EVER);
  unsetenv("FAKEGPU_GIN");
}

#endif
