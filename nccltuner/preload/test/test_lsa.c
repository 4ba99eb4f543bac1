/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_lsa FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * Which calls become kernels and which NCCL's, in and out of groups, on several streams and in CUDA graphs, with every
 * element compared; what becomes of those who wait for a rank that dies, and of ranks that fork.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "lsa_steps.h"

static void calls(void) {
  begin();
  for (uint64_t n = 0; n < 300; n += SLOTS) {
    struct step steps[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      steps[i] = step_of(n + (uint64_t)i);
      fill(&steps[i], i);
      make_call(&steps[i], i, random_of(n * 31 + (uint64_t)i * 7 + (uint64_t)rank));
    }
    wait_for_all();
    for (int i = 0; i < SLOTS; i++) compare(&steps[i], i, runs(&steps[i]));
    meet(); /* nobody fills what a peer still sends: as in any program */
  }
}

/* Several calls of a communicator in a group are NCCL's, in their order, whatever the plan says; also where the group only simulates. */
static void groups(void) {
  begin();
  struct step a = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0]}, b = a;
  b.collective = ALL_GATHER;
  planned = LSA(0, 1);
  group_start();
  unsigned before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && fake->calls == before, "held back");
  CHECK(issue(&b, 1, COMM) == 0 && fake->calls == before + 2 && strcmp(fake->name, "ncclAllGather") == 0, "in order");
  CHECK(issue(&a, 2, COMM) == 0 && fake->calls == before + 3);
  group_end();
  group_start();
  before = fake->calls;
  CHECK(issue(&a, 0, COMM) == 0 && fake->calls == before);
  CHECK(find("ncclGroupSimulateEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && fake->calls == before + 2);
  CHECK(asked == 0, "the plan was asked %u times", asked);
  fill(&a, 0); /* and nothing of it is left behind */
  a.action = planned;
  make_call(&a, 0, 0);
  wait_for_all();
  compare(&a, 0, true);
}

/* A communicator goes within a group that has a call of it: NCCL is given the call first, as it was made, and what comes at the
 * group's end is none of it. */
static void goes_in_group(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 10, .stream = streams[0], .action = LSA(0, 1)};
  for (int way = 0; way < 4; way++) {
    planned = LSA(0, 1);
    asked = 0;
    group_start();
    unsigned before = fake->calls;
    CHECK(issue(&s, 0, COMM) == 0 && fake->calls == before, "held back");
    if (way & 1) CHECK(issue(&s, 0, COMM) == 0 && fake->calls == before + 2);
    CHECK(find(way & 2 ? "ncclCommAbort" : "ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && asked == 0);
    CHECK(fake->calls == before + 2 + (way & 1), "NCCL had %u calls", fake->calls - before);
    preload->device->close(lsa);
    meet();
    make();
    group_end();
    asked = 0;
    bind_lsa();
    fill(&s, 0);
    make_call(&s, 0, 1);
    wait_for_all();
    compare(&s, 0, true);
    meet();
  }
}

/* Two graphs are replayed at once, on streams of their own, while a call goes on: the graphs take turns, in the same order on
 * all ranks; between graphs and calls ranks need no order. */
static void graphs(void) {
  begin();
  CUgraphExec graph[2];
  struct step steps[2][NODES], call = {.collective = ALL_REDUCE, .count = 500, .stream = streams[1], .action = LSA(1, 2)};
  for (int g = 0; g < 2; g++) {
    for (int i = 0; i < NODES; i++)
      steps[g][i] = (struct step){.collective = ALL_REDUCE, .count = 50 + 1000 * (size_t)(g + i), .stream = streams[0], .action = LSA((g + i) % 3, 3)};
    graph[g] = capture(steps[g], g * NODES);
  }
  for (uint64_t n = 0; n < 40; n++) {
    for (int g = 0; g < 2; g++) fill_all(steps[g], NODES, g * NODES, 2 * n + (uint64_t)g);
    fill_all(&call, 1, 2 * NODES, n + 1000);
    meet();
    if (rank == 0) make_call(&call, 2 * NODES, 0);
    CHECK(cuda.cuGraphLaunch(graph[0], streams[0]) == 0);
    CHECK(cuda.cuGraphLaunch(graph[1], streams[2]) == 0);
    if (rank != 0) make_call(&call, 2 * NODES, 0);
    wait_for_all();
    for (int g = 0; g < 2; g++)
      for (int i = 0; i < NODES; i++) compare(&steps[g][i], g * NODES + i, true);
    compare(&call, 2 * NODES, true);
    meet();
  }
}

static int async_error(void) {
  int error = 0;
  CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&error, 0, 0, 0, 0, 0, 0, 0) == 0);
  return error;
}

#include "group_steps.h"
#include "fork_steps.h"
#include "domain_steps.h"

static uint64_t now_ms(void);

/* An error of the program's ends its capture, of which there will be no graph: calls into it fail, and later ones do not. */
static void invalidated(void) {
  begin();
  CUgraph graph;
  CUevent event;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1)};
  CHECK(cuda.cuEventCreate(&event, 0) == 0);
  for (int way = 0; way < 4; way++) {
    for (int i = 0; i < 2; i++) CHECK(cuda.cuStreamBeginCapture_v2(streams[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
    s.stream = streams[0];
    capturing = true;
    if (way & 1) make_call(&s, 0, 0);
    CHECK(cuda.cuEventRecord(event, streams[1]) == 0 && wait_event(streams[0], event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
    planned = s.action;
    if (way & 2) group_start();
    CHECK(issue(&s, 0, COMM) == (way & 2 ? 0 : 1), "ncclUnhandledCudaError");
    if (way & 2) CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 1);
    capturing = false;
    for (int i = 0; i < 2; i++) CHECK(cuda.cuStreamEndCapture(streams[i], &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(async_error() == 0, "the communicator was given up");
    for (int i = 0; i < 2; i++) {
      s.stream = streams[i];
      fill(&s, 0);
      make_call(&s, 0, 0);
      wait_for_all();
      compare(&s, 0, true);
      meet();
    }
    struct step steps[NODES] = {s, s};
    steps[0].stream = steps[1].stream = streams[0];
    CUgraphExec exec = capture(steps, 0);
    fill_all(steps, NODES, 0, 5);
    meet();
    CHECK(cuda.cuGraphLaunch(exec, streams[0]) == 0);
    wait_for_all();
    for (int i = 0; i < NODES; i++) compare(&steps[i], i, true);
    meet();
  }
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* What is tested begins behind a call that is right. */
static struct step begin_with_call(void) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  return s;
}

#include "system_steps.h"
#include "late_steps.h"
#include "child_steps.h"
#include "abort_steps.h"
#include "end_steps.h"
#include "revoke_steps.h"

/* The others' kernels give up, and the program hears of it. */
static void death(void) {
  struct step s = begin_with_call();
  CHECK(async_error() == 0);
  if (rank == numRanks - 1) _exit(0);
  uint64_t began = now_ms();
  make_call(&s, 0, 0);
  wait_for_all();
  CHECK(now_ms() - began < in_vain_s(5) * 1000, "waited for %d ms", (int)(now_ms() - began));
  CHECK(async_error() == 6 && issue(&s, 0, COMM) == 6);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

/* A rank's process is over before the others', without a word, and nobody waits for it: no error, until one needs it, in a call or in a graph. */
static void leaves(void) {
  struct step s = begin_with_call(), steps[NODES] = {s, s};
  CUgraphExec graph = capture(steps, 0);
  meet();
  if (rank == numRanks - 1) _exit(0);
  for (uint64_t began = now_ms(); now_ms() - began < 3000; usleep(10000)) CHECK(async_error() == 0, "behind %d ms", (int)(now_ms() - began));
  if (rank == 0) CHECK(issue(&s, 0, COMM) == 6);
  else CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
  wait_for_all();
  CHECK(async_error() == 6);
  usleep(rank == 0 ? 0 : 700000); /* it is said at the next look */
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

/* The program destroys the CUDA context and goes on, with cudaDeviceReset: who watches touches none of its memory, nor does what gives the
 * communicator up later. */
static void reset(void) {
  begin_with_call();
  meet();
  CHECK(((CUresult(*)(CUdevice))of_driver("cuDevicePrimaryCtxReset_v2"))(rank) == 0);
  usleep(1200000);
  CHECK(find(rank == 0 ? "ncclCommAbort" : "ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

/* A process that can open nothing cannot look after its peers, which live on. */
static void blind(void) {
  begin();
  struct rlimit limit, none;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1)};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  none = (struct rlimit){0, limit.rlim_max};
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0 && open("/proc/self/stat", O_RDONLY) < 0 && errno == EMFILE);
  usleep(2200000);
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && async_error() == 0);
  fill(&s, 0);
  make_call(&s, 0, 0);
  wait_for_all();
  compare(&s, 0, true);
  meet();
}

/* Rank 0 ends what the others never began: it aborts, or shrinks with NCCL_SHRINK_ABORT; without that NCCL waits as well. */
static void ends(bool shrinks) {
  begin();
  struct step s = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(2, 1)};
  if (rank == 0) {
    make_call(&s, 0, 0);
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, (void *(*)(void *))(void *)wait_for_all, NULL) == 0);
    usleep(100000);
    if (shrinks) {
      find("ncclCommShrink")(COMM, 0, 0, 0, 0, 0, 0, 0, 0);
      usleep(100000);
      CHECK(async_error() == 0, "NCCL waits for the calls under way");
      group_start();
      CHECK(issue(&s, 0, COMM) == 0);
      planned = 0; /* the kernel that it was to have is gone with it */
      find("ncclCommShrink")(COMM, 0, 0, 0, 0, 1, 0, 0, 0);
      unsigned before = fake->calls;
      CHECK(find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0) == 6 && fake->calls == before + 1, "NCCL runs what others may run by our kernel");
      CHECK(async_error() == 0 && issue(&s, 0, COMM) == 6);
      group_start();
      before = fake->calls;
      CHECK(issue(&s, 0, COMM) == 6 && fake->calls == before);
      group_end();
    } else {
      CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    }
    CHECK(pthread_join(waiter, NULL) == 0);
    preload->device->close(lsa);
  }
  meet();
}

static void aborts(void) { ends(false); }
static void shrinks(void) { ends(true); }

/* What is aborted stands behind a call that somebody has yet to abort, as NCCL's of the same communicator: that comes as soon. */
static void aborts_behind(void) {
  begin();
  struct dyn_lsa *behind = lsa;
  struct step s = {.collective = ALL_REDUCE, .count = 1, .stream = streams[0], .action = LSA(2, 1)};
  make();
  fake->inside = do_bind;
  CHECK(issue(&s, 0, OTHER_COMM) == 0);
  fake->inside = succeed;
  planned = s.action;
  if (rank == 0) {
    s.count = 100;
    CHECK(issue(&s, 0, OTHER_COMM) == 0 && issue(&s, 1, COMM) == 0 && asked == 2);
    uint64_t began = now_ms();
    CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    CHECK(now_ms() - began < in_vain_s(3) * 1000, "after %d ms", (int)(now_ms() - began));
    preload->device->close(behind);
    CHECK(find("ncclCommAbort")(OTHER_COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    wait_for_all();
    preload->device->close(lsa);
  }
  meet();
}

/* Memory of a communicator that is gone serves the next, as fresh as the first. */
static void again(void) {
  begin();
  uint64_t first = shared->offers[rank].at;
  for (int round = 0; round < 4; round++) {
    struct step s = {.collective = ALL_REDUCE, .count = 700, .stream = streams[0], .action = LSA(round % 3, 2), .seed = (uint64_t)round};
    fill(&s, 0);
    make_call(&s, 0, 0);
    if (round & 1) wait_for_all();
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0); /* also in flight */
    preload->device->close(lsa);
    wait_for_all();
    compare(&s, 0, true);
    meet();
    make();
    CHECK(shared->offers[rank].at == first, "other memory");
    asked = 0;
    bind_lsa();
  }
}

/* What communicators leave behind is bounded: memory into which somebody may still write, or that a graph may still use. */
static void abandoned(void) {
  for (int i = 0; i < 16; i++) {
    if (i == 0) prepare();
    else make();
    asked = 0;
    bind_lsa();
    if (i % 2 == 0) {
      struct step steps[NODES] = {{.collective = ALL_REDUCE, .count = 10, .stream = streams[0], .action = LSA(0, 1)}};
      steps[1] = steps[0];
      capture(steps, 0);
    }
    CHECK(find(i % 2 ? "ncclCommAbort" : "ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    preload->device->close(lsa);
    meet();
  }
  CHECK(preload->device->offer(COMM_ID, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]) == NULL, "the GPU's memory runs out");
}

static void refused(void) {
  setenv("FAKEGPU_IPC", "refuse", 1);
  lsa = preload->device->offer(COMM_ID, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  CHECK(lsa != NULL);
  meet();
  CHECK(!preload->device->open(lsa, shared->offers), "opened");
  preload->device->close(lsa);
  meet();
  unsetenv("FAKEGPU_IPC");
  setenv("DYNAMICCL_SCRATCH_MIB", rank == 0 ? "8" : "16", 1);
  lsa = preload->device->offer(COMM_ID, (uint32_t)numRanks, (uint32_t)rank, &shared->offers[rank]);
  meet();
  CHECK(!preload->device->open(lsa, shared->offers), "of different sizes");
  preload->device->close(lsa);
}

int main(int argc, char **argv) {
  char kernels[4096];
  begin_program(argc, argv, kernels);
  for (int ranks = 2; ranks <= MAX_RANKS; ranks++) play("calls", ranks, calls);
  play("waited for", 2, waited_for);
  play("groups", 2, groups);
  play("uneven groups", 2, uneven);
  play("a send on another stream", 2, apart);
#ifndef __SANITIZE_THREAD__ /* its threads go by the clock alone, as a watchdog's does */
  play("aborted in a group", 2, aborted_in_group);
#endif
  play("groups of two communicators", 2, of_two);
  play("refused beside", 2, refused_beside);
  play("goes in group", 2, goes_in_group);
  play("graphs", 3, graphs);
  all_domains();
  play("forked", 2, forked);
  play("invalidated", 2, invalidated);
  play("invalidated between", 2, invalidated_between);
  play("again", 3, again);
  play("children", 2, children_of_ranks);
  play("death", 3, death);
  play("leaves", 3, leaves);
  play("late", 2, late);
  play("unread", 2, unread);
  play("finalized", 2, finalized);
  play("finalized in vain", 2, finalized_in_vain);
  play("destroyed in vain", 2, destroyed_in_vain);
  play("destroyed", 2, destroyed);
  play("kept", 2, kept);
  play("reset", 2, reset);
  play("blind", 2, blind);
  play("aborts", 2, aborts);
  play("aborts behind another", 2, aborts_behind);
  play("aborts before a graph", 3, aborts_before_a_graph);
  play("shrinks", 2, shrinks);
  play("revokes", 2, revokes);
  play("revokes in vain", 2, revokes_in_vain);
  play("abandoned", 2, abandoned);
  play("refused", 2, refused);
  unlink(kernels);
  return 0;
}
