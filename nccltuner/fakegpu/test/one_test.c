/* SPDX-License-Identifier: Apache-2.0
 *
 * Several ranks in one process: first all in one thread, which launches for one after the other and then waits for one after
 * the other; then each in a thread of its own, whose peer may not have come yet. one_test [BATCHES]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

static struct rank ranks[MAX_RANKS];

static void open_all(int nRanks) {
  CUdeviceptr shared[MAX_RANKS];
  for (int r = 0; r < nRanks; r++) rank_open(&ranks[r], r, nRanks);
  for (int r = 0; r < nRanks; r++) shared[r] = ranks[r].shared;
  for (int r = 0; r < nRanks; r++) rank_connect(&ranks[r], shared);
}

static void be(const struct rank *r) { MUST(cuCtxSetCurrent(r->context)); }

static uint64_t in_one_thread(int nRanks, uint64_t batches) {
  CUgraphExec execs[MAX_RANKS];
  struct step steps[MAX_CALLS];
  uint64_t compared = 0;
  for (uint64_t batch = 0; batch < batches; batch++) {
    int graph = batch % 2 == 0, first = (int)batch % nRanks;
    steps_of(steps, batch + 7000 * (uint64_t)nRanks, nRanks);
    for (int r = 0; r < nRanks; r++) {
      be(&ranks[r]);
      rank_fill(&ranks[r], steps, 0, MAX_CALLS);
      if (graph) execs[r] = rank_capture(&ranks[r], steps, 4, MAX_CALLS);
    }
    for (int i = 0; i < nRanks; i++) {
      struct rank *r = &ranks[(first + i) % nRanks];
      be(r);
      rank_issue(r, steps, 0, graph ? 4 : MAX_CALLS);
      if (graph) rank_replay(r, execs[r->rank]);
      /* Not before the last rank has launched, too. */
      if (i < nRanks - 1 && !graph) MUST(cuEventRecord(r->tail, r->streams[r->last]));
      if (i < nRanks - 1) WANT(CUDA_ERROR_NOT_READY, cuEventQuery(r->tail));
    }
    for (int r = nRanks - 1; r >= 0; r--) {
      be(&ranks[r]);
      rank_wait(&ranks[r], (int)batch % 5);
      compared += rank_verify(&ranks[r], steps, 0, MAX_CALLS);
      if (graph) MUST(cuGraphExecDestroy(execs[r]));
    }
  }
  return compared;
}

struct thread { struct rank *rank; uint64_t batches, compared; };

static void *in_its_thread(void *argument) {
  struct thread *t = argument;
  struct step steps[MAX_CALLS];
  be(t->rank);
  for (uint64_t batch = 0; batch < t->batches; batch++) {
    steps_of(steps, batch + 9000 * (uint64_t)t->rank->nRanks, t->rank->nRanks);
    rank_fill(t->rank, steps, 0, MAX_CALLS);
    rank_issue(t->rank, steps, 0, MAX_CALLS);
    rank_wait(t->rank, (int)(batch + (uint64_t)t->rank->rank) % 5);
    t->compared += rank_verify(t->rank, steps, 0, MAX_CALLS);
  }
  return NULL;
}

static uint64_t in_threads(int nRanks, uint64_t batches) {
  struct thread threads[MAX_RANKS];
  pthread_t ids[MAX_RANKS];
  uint64_t compared = 0;
  for (int r = 0; r < nRanks; r++) {
    threads[r] = (struct thread){&ranks[r], batches, 0};
    CHECK(pthread_create(&ids[r], NULL, in_its_thread, &threads[r]) == 0);
  }
  for (int r = 0; r < nRanks; r++) {
    pthread_join(ids[r], NULL);
    compared += threads[r].compared;
  }
  return compared;
}

int main(int argc, char **argv) {
  uint64_t batches = argc > 1 ? strtoull(argv[1], NULL, 10) : 12;
  alarm(120);
  for (int nRanks = 2; nRanks <= 3; nRanks++) {
    open_all(nRanks);
    uint64_t one = in_one_thread(nRanks, batches), each = in_threads(nRanks, batches);
    for (int r = 0; r < nRanks; r++) rank_close(&ranks[r]);
    printf("{\"ranks\":%d,\"batches\":%lu,\"one thread\":%lu,\"threads\":%lu}\n", nRanks, batches, one, each);
  }
  return 0;
}
