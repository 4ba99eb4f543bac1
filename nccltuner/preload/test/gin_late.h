/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_gin: ranks that are late, whose processes live. Included by it.
 */
#ifndef DYN_GIN_LATE_H
#define DYN_GIN_LATE_H

#include <fcntl.h>

/* Kernels wait as long as they are told to, and who did not come, and for what they waited, is said before the program sees that they are over. */
static void too_late(bool inGraph) {
  CUgraph captured;
  CUgraphExec graph = NULL;
  char who[80];
  bool flat = numNodes == 1;
  alarm(in_vain_s(20)); /* where it waits for ever */
  struct step s = {.collective = flat ? DYN_ALL_REDUCE : DYN_ALL_GATHER, .count = 100, .ctas = 1};
  setenv("DYNAMICCL_GIN_PEER_WAIT_S", "1", 1);
  begin();
  fill(&s, 0);
  if (inGraph) {
    CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0 && issue(&s, 0) == 0);
    CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  }
  CHECK(!dyn_lsa_gave_up(lsa));
  meet();
  if (rank < numRanks - 1) {
    struct dyn_work again = work_of(&s, 0);
    unsigned ctas;
    uint64_t began = now_ms();
    CHECK((inGraph ? cuda.cuGraphLaunch(graph, streams[0]) : issue(&s, 0)) == 0);
    wait_for_all();
    int took = (int)(now_ms() - began);
    CHECK(took >= 990 && took < (int)in_vain_s(4) * 1000, "after %d ms", took);
    CHECK(dyn_lsa_gave_up(lsa) && dyn_gin_now(lsa) == DYN_GIN_FAILED && dyn_lsa_able(lsa, &again) == 0, "what a kernel left that gave up is no result");
    CHECK(dyn_lsa_launch(lsa, &again, GIN(backends[0], 1, 0), &ctas, NULL) == 6, "ncclRemoteError");
    snprintf(who, sizeof who, "rank %d was waited for in vain: its signal did not come", numRanks - 1);
    CHECK(strcmp(lsa->stopped, who) == 0 || (!flat && strstr(lsa->stopped, "was waited for in vain: ") != NULL), "%s", lsa->stopped);
  }
  meet();
  dyn_lsa_close(lsa);
}
/* What this rank says while the last one comes late to a call. */
static void hear(const struct step *s, CUgraphExec graph, char *said, size_t bytes) {
  int was = dup(STDERR_FILENO), ends[2];
  CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
  if (rank == numRanks - 1) usleep(2500000);
  CHECK((graph != NULL ? cuda.cuGraphLaunch(graph, streams[0]) : issue(s, 0)) == 0);
  wait_for_all();
  usleep(700000); /* a round of who says it */
  ssize_t n = read(ends[0], said, bytes - 1);
  said[n < 0 ? 0 : n] = '\0';
  CHECK(dup2(was, STDERR_FILENO) >= 0);
  compare(s, 0);
}

/* A rank that lives and does not come is waited for, and that is said: the call, by what it goes, the rank, what of it, how long. */
static void told_late(bool inGraph, uint32_t of) {
  char said[4096], want[256];
  CUgraph captured;
  CUgraphExec graph;
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1, .backend = of};
  setenv("DYNAMICCL_LATE_S", "1", 1);
  begin();
  fill(&s, 0);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0 && issue(&s, 0) == 0);
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  meet();
  hear(&s, inGraph ? graph : NULL, said, sizeof said);
  snprintf(want, sizeof want, "rank %d waits for rank %d, process %u, its signal, since 1 s: AllReduce of 400 bytes, call %d of our kernels over GIN by %s%s; it goes on waiting\n", rank,
           numRanks - 1, shared->offers[numRanks - 1].pid, inGraph ? 1 : 2, dyn_gin_backend_name(of), inGraph ? " in CUDA graphs" : "");
  if (rank == numRanks - 1) CHECK(*said == '\0', "%s", said);
  else CHECK(strstr(said, want) != NULL, "want \"%s\": %s", want, said);
  meet();
  end(dyn_gin_now(lsa));
}
/* Blocks of a hierarchical kernel wait for others of their own rank, too, and that is nobody to look for. */
static void tells_late_of_a_node(void) {
  char said[4096], own[80], late[80];
  struct step s = {.collective = DYN_REDUCE_SCATTER, .count = 100, .ctas = 1};
  setenv("DYNAMICCL_LATE_S", "1", 1);
  begin();
  fill(&s, 0);
  meet();
  hear(&s, NULL, said, sizeof said);
  snprintf(own, sizeof own, "rank %d waits for rank %d,", rank, rank);
  snprintf(late, sizeof late, "rank %d waits for rank %d,", rank, numRanks - 1);
  CHECK(strstr(said, own) == NULL, "%s", said);
  CHECK(rank != numRanks - 2 || strstr(said, late) != NULL, "want \"%s\": %s", late, said);
  meet();
  end(DYN_GIN_DESTROYED);
}
static void tells_late(void) { told_late(false, backends[0]); }
static void tells_late_in_graph(void) { told_late(true, backends[0]); }
static void tells_late_of_second(void) { told_late(false, backends[1]); }

/* A rank is at the end long before the others, and gives up waiting for them; they hear what it said and go, and wait for nobody. */
static void parts_before(void) {
  begin();
  if (rank > 0) usleep(3000000);
  end(rank > 0 ? DYN_GIN_DESTROYED : DYN_GIN_FAILED);
  meet();
}
static void parted(void) {
  steps_wait_s("1");
  play("parts before others", 2, parts_before);
  steps_wait_s(AS_EVER);
}

/* With both on one communicator that is what one wants to know. */
static void late_of_several(void) {
  play("tells by what of both a call goes whose rank is late", 2, tells_late);
  play("tells by what of both a graph goes whose rank is late", 2, tells_late_in_graph);
  play("tells by what a call of the second goes whose rank is late", 2, tells_late_of_second);
}

static void late(void) { too_late(false); }
static void late_in_graph(void) { too_late(true); }

/* The last rank makes no call, so the others' kernels give up by the clock. True, on these: theirs has, and nobody looks at that before dyn_watch_go_on. */
static bool has_given_up_unseen(void) {
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  alarm(in_vain_s(20));
  setenv("DYNAMICCL_GIN_PEER_WAIT_S", "1", 1);
  begin();
  fill(&s, 0);
  meet();
  if (rank == numRanks - 1) return false;
  dyn_watch_hold();
  CHECK(issue(&s, 0) == 0);
  wait_for_all();
  return true;
}

/* A kernel has given up by the clock, and all is stopped for another reason before anybody has looked at that: its call is missed all the same. */
static void late_then_stopped(void) {
  if (has_given_up_unseen()) {
    dyn_lsa_stop(lsa, "a rank is dead");
    dyn_watch_go_on();
    CHECK(dyn_lsa_missed(lsa), "what a kernel left that gave up is taken for a result");
  }
  meet();
  dyn_lsa_close(lsa);
}

/* Who makes a call is told first and says it last, since another thread may abort the communicator meanwhile, as who asks for errors, and is told
 * so, does. That one has it said. */
static void late_in_silence(void) {
  char said[4096];
  int was = dup(STDERR_FILENO), ends[2];
  if (has_given_up_unseen()) {
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    bool told = rank == 0 ? dyn_lsa_gave_up(lsa) : dyn_lsa_missed(lsa), silent = rank > 0 || read(ends[0], said, sizeof said) < 0;
    if (rank == 0) dyn_lsa_complain(lsa);
    ssize_t n = read(ends[0], said, sizeof said - 1);
    said[n < 0 ? 0 : n] = '\0';
    CHECK(dup2(was, STDERR_FILENO) >= 0);
    dyn_watch_go_on();
    CHECK(told && silent && strstr(said, "was waited for in vain: its signal did not come: kernels") != NULL, "%d, %d: %s", told, silent, said);
  }
  meet();
  dyn_lsa_close(lsa);
}

/* Nobody has heard of a rank while GIN was made, so its calls are NCCL's. That a rank ends later is no loss to them. */
static void failed_then_stopped(void) {
  load();
  CHECK(!make_gin() && dyn_gin_now(lsa) == DYN_GIN_FAILED);
  CHECK(__atomic_load_n(&lsa->gin->each[0].words->stop, __ATOMIC_ACQUIRE) != 0, "no kernel gave up");
  dyn_lsa_stop(lsa, "a rank is dead");
  CHECK(!dyn_lsa_missed(lsa), "a call is missed that never was");
  meet();
  dyn_lsa_close(lsa);
}

/* Else as long as it takes, whatever a step of making GIN may take. */
static void later(void) {
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1, .seed = 5};
  begin();
  fill(&s, 0);
  if (rank == 1) nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
  CHECK(issue(&s, 0) == 0);
  wait_for_all();
  compare(&s, 0);
  CHECK(!dyn_lsa_gave_up(lsa));
  meet();
  end(DYN_GIN_DESTROYED);
}

static bool is_gone(uint64_t id, uint32_t ofRank, char *why, size_t bytes) {
  CHECK(id == 7 && ofRank == (uint32_t)rank);
  snprintf(why, bytes, "rank %d, on another host, is gone", numRanks - 1);
  return atomic_load(&shared->gone) != 0;
}

/* On another host: nobody sees its process, and what agrees with that host says when it has gone. Until then it may be late. */
static void gone_elsewhere(void) {
  elsewhere = true;
  dyn_lsa_gone = is_gone;
  alarm(in_vain_s(20));
  begin();
  play_calls(1, 3);
  struct step s = {.collective = DYN_ALL_REDUCE, .count = 100, .ctas = 1};
  fill(&s, 0);
  if (rank == numRanks - 1) _exit(0);
  CHECK(issue(&s, 0) == 0);
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
  CHECK(!dyn_lsa_gave_up(lsa) && !dyn_lsa_settle(lsa, 0), "it waits");
  atomic_store(&shared->gone, 1);
  uint64_t began = now_ms();
  wait_for_all();
  CHECK(now_ms() - began < in_vain_s(2) * 1000 && dyn_lsa_stopped(lsa) && dyn_gin_now(lsa) == DYN_GIN_FAILED && strstr(lsa->stopped, "on another host, is gone") != NULL, "after %d ms", (int)(now_ms() - began));
  dyn_lsa_close(lsa);
}

/* A rank goes while all is given back: who watches finds that out behind the last look at these words, which by then may be anybody's. */
static struct dyn_gin_words *given;
static atomic_bool givesBack;
static int (*realFreeHost)(void *at);
static int free_host_late(void *at) {
  if (at == given) {
    atomic_store(&givesBack, true);
    for (uint64_t began = now_ms(); !dyn_lsa_stopped(lsa) && now_ms() - began < in_vain_s(5) * 1000;) usleep(1000);
    CHECK(dyn_lsa_stopped(lsa) && given->stop == 0, "it writes what was given back");
  }
  return realFreeHost(at);
}
static bool is_gone_then(uint64_t id, uint32_t ofRank, char *why, size_t bytes) {
  (void)id;
  snprintf(why, bytes, "rank %u is gone", ofRank);
  return atomic_load(&givesBack);
}
static void gone_at_the_end(void) {
  dyn_lsa_gone = is_gone_then;
  begin();
  play_calls(1, 3);
  given = lsa->gin->each[0].words;
  struct dyn_host_driver *driver = (struct dyn_host_driver *)(uintptr_t)dyn_host_driver();
  realFreeHost = driver->cuMemFreeHost;
  driver->cuMemFreeHost = free_host_late;
  dyn_lsa_settle(lsa, 1000000000);
  dyn_gin_destroy(lsa);
  CHECK(atomic_load(&givesBack));
  dyn_lsa_close(lsa);
}

/* The program destroys the CUDA context first. */
static void reset(void) {
  begin();
  play_calls(1, 3);
  meet();
  int (*resets)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxReset_v2");
  CHECK(resets != NULL && resets(rank) == 0 && !dyn_lsa_missed(lsa));
  usleep(1200000);
  dyn_lsa_settle(lsa, 1000000000);
  dyn_gin_destroy(lsa);
  CHECK(dyn_gin_now(lsa) == DYN_GIN_FAILED);
  dyn_lsa_close(lsa);
}

static void all_late(void) {
  play("reset", 2, reset);
  play("gone elsewhere", 3, gone_elsewhere);
  play("gone at the end", 2, gone_at_the_end);
  play("tells of who is late", 3, tells_late);
  play("tells of who is late in a graph", 2, tells_late_in_graph);
  play_on(2, "tells of who is late on a node", 4, tells_late_of_a_node);
  play("late", 3, late);
  play("late in a graph", 3, late_in_graph);
  play("late, then stopped", 3, late_then_stopped);
  play("late in silence", 3, late_in_silence);
  setenv("FAKEGPU_GIN", "silent", 1);
  steps_wait_s(IN_VAIN);
  play("failed, then stopped", 2, failed_then_stopped);
  steps_wait_s(AS_EVER);
  unsetenv("FAKEGPU_GIN");
  play_on(2, "late", 4, late);
  steps_wait_s(IN_VAIN);
  play("later", 2, later);
  steps_wait_s(AS_EVER);
}

#endif
