/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: the carrier is told of each kernel before it is launched and by its end, and is waited for where it has none on the GPU.
 */
#ifndef DYN_TEST_GIN_EXPECTED_H
#define DYN_TEST_GIN_EXPECTED_H

static uint32_t *announced, *launched, *ended, *lapsed, *replayed, *captured;
static uint32_t now_of(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void find_words(void) {
  const char *path = getenv("GIN_CARRIER"); /* fake_carrier.c */
  void *carrier = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(carrier != NULL, "GIN_CARRIER: %s", dlerror());
  announced = dlsym(carrier, "fakeAsked"), launched = dlsym(carrier, "fakeLaunched"), ended = dlsym(carrier, "fakeEnded"), lapsed = dlsym(carrier, "fakeLapsed");
  replayed = dlsym(carrier, "fakeReplayed"), captured = dlsym(carrier, "fakeCaptured");
}

/* Its kernels come to the GPU so long after a kernel was announced, which is not launched before. */
static unsigned risesAfterUs = 300000;
static void *rise(void *before) {
  while (now_of(announced) == *(uint32_t *)before) usleep(100);
  usleep(risesAfterUs);
  CHECK(now_of(launched) == *(uint32_t *)before, "it was not waited for");
  __atomic_store_n(lapsed, 0, __ATOMIC_SEQ_CST);
  return NULL;
}

/* A launch that is kept for so long that the carrier, to which a kernel was only coming, has gone meanwhile. */
static int (*launches)(const struct dyn_launch *config, void *function, void **arguments, void **extra);
static int launch_late(const struct dyn_launch *config, void *function, void **arguments, void **extra) {
  __atomic_store_n(lapsed, 1, __ATOMIC_SEQ_CST);
  usleep(400000);
  return launches(config, function, arguments, extra);
}
static void *rise_behind(void *before) {
  while (now_of(launched) == *(uint32_t *)before || now_of(announced) < *(uint32_t *)before + 2) usleep(100);
  __atomic_store_n(lapsed, 0, __ATOMIC_SEQ_CST);
  return NULL;
}
static void launched_late(void) {
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  uint32_t before = now_of(announced);
  pthread_t rises;
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  launches = driver->cuLaunchKernelEx;
  driver->cuLaunchKernelEx = launch_late;
  CHECK(pthread_create(&rises, NULL, rise_behind, &before) == 0 && issue(&s, 0) == 0);
  CHECK(now_of(lapsed) == 0, "a kernel is launched, and no card is there");
  driver->cuLaunchKernelEx = launches;
  CHECK(pthread_join(rises, NULL) == 0);
  wait_for_all();
  __atomic_fetch_sub(announced, 1, __ATOMIC_SEQ_CST); /* announced twice */
}

/* What the carrier is told of graphs, within some of the watching thread's rounds. CUDA lets go of graphs in a thread of its own. */
static void await_captured(uint32_t wanted) {
  for (uint64_t from = now_ms(); now_of(captured) != wanted; usleep(1000)) CHECK(now_ms() - from < 20000, "the carrier is told %u of graphs, not %u", now_of(captured), wanted);
}
static void forget_graphs(void) {
  for (int g = 0; g < 2; g++) CHECK(cuda.cuGraphExecDestroy(replays[g]) == 0 && cuda.cuGraphDestroy(played[g]) == 0);
}

/* A communicator that leaves GIN behind for its graphs has left the carrier's places when these are gone; the carrier hears of it with the next one.
 * Nothing is told of one whose GIN has gone: the words are another's by then. */
static void leaves_places(uint32_t now) {
  end(now);
  CHECK(now_of(captured) == DYN_EXPECTED_NO_GRAPHS, "cards stay for graphs that nobody may replay");
  meet();
  CHECK(make_gin() && now_of(captured) == DYN_EXPECTED_NO_GRAPHS, "there are graphs that may put");
  meet();
  dyn_lsa_settle(lsa, 1000000000);
  dyn_gin_destroy(lsa);
  CHECK(dyn_gin_now(lsa) == DYN_GIN_DESTROYED, "%s", dyn_gin_state_name(dyn_gin_now(lsa)));
  __atomic_store_n(captured, 77, __ATOMIC_SEQ_CST);
  dyn_lsa_close(lsa);
  CHECK(now_of(captured) == 77, "the carrier's memory is written to, and it is the carrier's no more");
  __atomic_store_n(captured, DYN_EXPECTED_NO_GRAPHS, __ATOMIC_SEQ_CST);
  forget_graphs();
  usleep(300000);
  meet();
  CHECK(make_gin() && now_of(captured) == DYN_EXPECTED_NOTHING, "places are kept for graphs that are gone");
  meet();
  end(DYN_GIN_DESTROYED);
}

static void expected(void) {
  find_words();
  uint8_t gpu[16];
  uint32_t alone = 0, beside = 0;
  begin();
  dyn_host_gpu(gpu, &alone);
  setenv("DYNAMICCL_CARRIER", "1", 1);
  dyn_host_gpu(gpu, &beside);
  unsetenv("DYNAMICCL_CARRIER");
  CHECK(alone > 32 && beside == alone - 32, "of %u multiprocessors %u have places, beside the carrier's blocks", alone, beside);
  uint32_t before = now_of(announced);
  CHECK(before > 0 && now_of(launched) == before && now_of(ended) == before, "%u of %u, when it is made", now_of(ended), before);
  CHECK(now_of(captured) == DYN_EXPECTED_NO_GRAPHS, "nothing was captured yet");
  play_calls(1, 10);
  CHECK(now_of(announced) - before >= 10 * SLOTS && now_of(launched) == now_of(announced) && now_of(ended) == now_of(announced), "%u, and %u have ended", now_of(announced) - before, now_of(ended) - before);
  before = now_of(announced);
  play_graphs();
  CHECK(now_of(announced) - before == 20 && now_of(ended) == now_of(announced), "%u behind graphs, and %u have ended: of what a graph has nobody is told before", now_of(announced) - before, now_of(ended) - before);
  CHECK(now_of(captured) == DYN_EXPECTED_GRAPHS && now_of(&replayed[DYN_EXPECTED_BEGUN]) > 20 && now_of(&replayed[DYN_EXPECTED_BEGUN]) == now_of(&replayed[DYN_EXPECTED_OVER]),
        "%u kernels of graphs have told of their beginning and %u of their end", now_of(&replayed[DYN_EXPECTED_BEGUN]), now_of(&replayed[DYN_EXPECTED_OVER]));

  usleep(1200000); /* as long as they are there */
  CHECK(now_of(captured) == DYN_EXPECTED_GRAPHS, "graphs are there, and may be replayed");
  forget_graphs();
  await_captured(DYN_EXPECTED_NO_GRAPHS);
  meet();
  play_graphs();
  CHECK(now_of(captured) == DYN_EXPECTED_GRAPHS, "new graphs are not told of");

  before = now_of(announced);
  pthread_t rises;
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  __atomic_store_n(lapsed, 2, __ATOMIC_SEQ_CST);
  CHECK(pthread_create(&rises, NULL, rise, &before) == 0 && issue(&s, 0) == 0 && now_of(lapsed) == 0, "it was not waited for");
  CHECK(pthread_join(rises, NULL) == 0);
  __atomic_store_n(lapsed, 1, __ATOMIC_SEQ_CST);
  uint64_t from = now_ms();
  CHECK(issue(&s, 0) == 0 && now_ms() - from >= 1900 && now_of(lapsed) == 1, "it is waited for, but not for ever: %d ms", (int)(now_ms() - from));
  __atomic_store_n(lapsed, 0, __ATOMIC_SEQ_CST);
  wait_for_all();

  launched_late();
  const struct dyn_gin_grid none = {NULL, 1, 32};
  CHECK(dyn_gin_launch(&lsa->gin->each[0], LANE_CALLS, &none, streams[0], &(struct dyn_gin_call){0}, NULL) != 0, "a kernel that is none");
  CHECK(now_of(announced) == now_of(ended) + 1 && now_of(launched) == now_of(ended), "what could not be launched is counted as launched");
  meet();
  uint32_t now = dyn_gin_now(lsa);
  leaves_places(now); /* there are graphs */
}

/* Who parts waits for the carrier for as long as for peers: its thread may be kept away by who frees memory, of a communicator that went before. */
static void expected_when_parting(void) {
  find_words();
  begin();
  uint32_t before = now_of(announced);
  pthread_t rises;
  __atomic_store_n(lapsed, 1, __ATOMIC_SEQ_CST);
  risesAfterUs = 2600000;
  CHECK(pthread_create(&rises, NULL, rise, &before) == 0);
  end(DYN_GIN_DESTROYED);
  CHECK(pthread_join(rises, NULL) == 0);
  meet();
}
/* Where it never comes nothing is launched that would wait for it in vain, and what stays is said. */
static void expected_in_vain_when_parting(void) {
  find_words();
  begin();
  uint32_t before = now_of(launched);
  __atomic_store_n(lapsed, 1, __ATOMIC_SEQ_CST);
  uint64_t from = now_ms();
  end(DYN_GIN_FAILED);
  CHECK(now_ms() - from < 5000 + in_vain_s(1) * 800, "%d ms", (int)(now_ms() - from));
  CHECK(now_of(launched) == before, "a kernel waits for puts that nobody carries");
  meet();
}

/* Another thread aborts it, and takes it away soon: who is about to launch does not wait for the carrier then. */
static void expected_when_stopped(void) {
  find_words();
  begin();
  const struct dyn_gin_grid none = {NULL, 1, 32};
  __atomic_store_n(lapsed, 1, __ATOMIC_SEQ_CST);
  dyn_lsa_stop(lsa, "the program aborted the communicator");
  uint64_t from = now_ms();
  CHECK(dyn_gin_launch(&lsa->gin->each[0], LANE_CALLS, &none, streams[0], &(struct dyn_gin_call){0}, NULL) != 0, "a kernel that is none");
  CHECK(now_ms() - from < 1900, "the carrier is waited for %d ms for a kernel that gives up", (int)(now_ms() - from));
  meet();
  dyn_lsa_close(lsa);
}

/* Where a whole node is late some CTAs of the others' kernels are over, and others have to put when it comes: the kernel is not over. */
static void expected_while_late(void) {
  find_words();
  begin();
  struct step s = {.collective = DYN_REDUCE_SCATTER, .count = 100, .ctas = 1};
  const bool isLate = rank >= numRanks / numNodes;
  fill(&s, 0);
  if (isLate) meet();
  CHECK(issue(&s, 0) == 0);
  dyn_gin_look(lsa); /* the stand-in begins what is asked about */
  usleep(300000);
  CHECK(isLate || now_of(launched) != now_of(ended), "a kernel that waits for a node is counted as over");
  if (!isLate) meet();
  wait_for_all();
  compare(&s, 0);
  CHECK(now_of(launched) == now_of(ended), "%u of %u have ended", now_of(ended), now_of(launched));
  end(DYN_GIN_DESTROYED);
}

#endif
