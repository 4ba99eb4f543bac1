/* SPDX-License-Identifier: Apache-2.0
 *
 * fork(2) in a process with an open communicator. Included by test_lsa.c, behind what begins a communicator.
 */
#ifndef DYN_CHILD_STEPS_H
#define DYN_CHILD_STEPS_H

#include "children.h"

static struct dyn_ring *ring; /* which a child has, too */
static unsigned before; /* a fork: of this process's, calls that the chooser was asked about */

static void open_ring(void) {
  size_t bytes = sizeof *ring + DYN_RING_CELLS * sizeof(struct dyn_sample);
  ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(ring != MAP_FAILED);
  for (uint64_t i = 0; i < DYN_RING_CELLS; i++) ((struct dyn_sample *)(ring + 1))[i].cell = i;
  ring->wantMask = 1;
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = ring;
  pthread_mutex_unlock(&preload->roundLock);
}

/* A daemon reads it. */
static void beat(void) { __atomic_fetch_add(&ring->header.heartbeat, 1, __ATOMIC_RELAXED); }

/* Samples that are in it, of graphs or of calls. */
static unsigned samples(bool replayed) {
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
  unsigned n = 0;
  CHECK(head <= DYN_RING_CELLS && ring->dropped == 0);
  for (uint64_t i = 0; i < head; i++) {
    const struct dyn_sample *s = (const struct dyn_sample *)(ring + 1) + i;
    n += __atomic_load_n(&s->cell, __ATOMIC_ACQUIRE) == i + 1 && ((s->flags & DYN_SAMPLE_REPLAYED) != 0) == replayed;
  }
  return n;
}

/* The communicator is its parent's, whose calls go on: what the child's program does with it stops nothing there. */
static void within(void) {
  int error = 0;
  CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&error, 0, 0, 0, 0, 0, 0, 0) == 0 && error == 0);
  if (preload->call()->depth == 0 && asked == before) return;
  CHECK(false, "the child is in a call of its parent's");
}
static void within_group(void) {
  within();
  group_end();
  CHECK(asked == before, "the child has run its parent's call");
}
static void aborts_at_exit(void) {
  if (find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) != 0) _exit(3);
}
static void destroys_at_exit(void) {
  if (find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) != 0) _exit(4);
}

/* A call, timed, and a fork while it is under way, or held back until its group ends. */
static void call_and_fork(struct step *s, int way) {
  bool inGroup = way == EXITS;
  planned = s->action;
  if (inGroup) group_start();
  CHECK(issue(s, 0, COMM) == 0);
  before = asked;
  if (way >= 0) fork_child(way, inGroup ? within_group : within, way == EXITS ? aborts_at_exit : destroys_at_exit);
  if (inGroup) group_end();
}

/* Children end in every way, behind each other and beside calls and graphs of all ranks, one of which waits meanwhile: no rank hears of a
 * death, results are right, and the parent's threads go on. */
static void children_of_ranks(void) {
  begin();
  open_ring();
  int others = inherited();
  struct step steps[NODES] = {{.collective = ALL_REDUCE, .count = 900, .stream = streams[0], .action = LSA(1, 3)},
                              {.collective = ALL_GATHER, .count = 90, .stream = streams[0], .action = LSA(0, 2)}};
  CUgraphExec graph = capture(steps, 1);
  unsigned timed = 0, replayed = 0;
  uint64_t began = now_ms();
  sampled = true;
  atomic_store(&preload->timing, 1);
  for (unsigned n = 0; n < 600 && now_ms() - began < 2 * (uint64_t)CHILD_MS; n++) {
    struct step s = {.collective = ALL_REDUCE, .count = 100 + n, .stream = streams[0], .action = LSA(n % 3, 2), .seed = n};
    int way = n % 100 == 50 + 10 * (unsigned)rank && n / 100 < WAYS ? (int)(n / 100) : -1;
    beat();
    fill(&s, 0);
    fill_all(steps, NODES, 1, n);
    meet();
    call_and_fork(&s, way);
    timed += n > 0 && way != EXITS; /* no stream's first call is timed, and the chooser here describes none of a group */
    CHECK(cuda.cuGraphLaunch(graph, streams[1]) == 0);
    wait_for_all();
    compare(&s, 0, true);
    for (int i = 0; i < NODES; i++) compare(&steps[i], 1 + i, true);
    CHECK(async_error() == 0 && inherited() == others);
    children_ended();
    if (n == 500) replayed = samples(true);
    usleep(10000);
  }
  while (!children_ended()) end_children((int)(now_ms() - began)), usleep(1000);
  for (int i = 0; i < 100 && (samples(false) < timed || samples(true) <= replayed); i++) beat(), usleep(50000);
  CHECK(samples(false) == timed, "%u samples of %u calls", samples(false), timed);
  CHECK(replayed > 0 && samples(true) > replayed, "%u samples of graphs, of which %u behind the children", samples(true), samples(true) - replayed);
  meet();
}

#endif
