/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in processes of their own, with each other's memory by IPC: kernels of all kinds on two streams and in graphs, every
 * element compared. ranks_test [BATCHES], and TEST_SEED sets the seed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

/* What the processes of a group share. */
static struct shared {
  pthread_barrier_t barrier;
  CUipcMemHandle handles[MAX_RANKS];
} *shared;

static void meet(void) { pthread_barrier_wait(&shared->barrier); }

static void connect_ranks(struct rank *r, CUdeviceptr *memory) {
  rank_open(r, r->rank, r->nRanks);
  MUST(cuIpcGetMemHandle(&shared->handles[r->rank], r->shared));
  meet();
  for (int p = 0; p < r->nRanks; p++) {
    memory[p] = r->shared;
    if (p != r->rank) MUST(cuIpcOpenMemHandle_v2(&memory[p], shared->handles[p], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
  rank_connect(r, memory);
}

/* A launch waits for nobody: each rank launches all when the one before has, and none waits before all have. */
static void issue_in_turn(struct rank *r, const struct step *steps) {
  for (int turn = 0; turn < r->nRanks; turn++) {
    if (turn == r->rank) rank_issue(r, steps, 0, MAX_CALLS);
    meet();
  }
}

/* A graph of some calls, between others, replayed with other values; twice in a row where no call overwrites what it sends. */
static uint64_t replay(struct rank *r, struct step *steps, int how) {
  enum { BEHIND = 2, END = 8 };
  uint64_t compared = 0;
  int twice = steps[0].seed % 2 == 0;
  for (int i = BEHIND; i < END && twice; i++) steps[i].inPlace = 0;
  CUgraphExec exec = rank_capture(r, steps, BEHIND, END);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < MAX_CALLS; i++) steps[i].seed += (uint64_t)round;
    rank_fill(r, steps, 0, MAX_CALLS);
    rank_issue(r, steps, 0, BEHIND);
    rank_replay(r, exec);
    if (twice) rank_replay(r, exec);
    rank_issue(r, steps, END, MAX_CALLS);
    rank_wait(r, how);
    compared += rank_verify(r, steps, 0, MAX_CALLS);
  }
  MUST(cuGraphExecDestroy(exec));
  return compared;
}

static int run_rank(int rank, int nRanks, uint64_t batches, uint64_t seed) {
  struct rank own = {.rank = rank, .nRanks = nRanks}, *r = &own;
  struct step steps[MAX_CALLS];
  CUdeviceptr memory[MAX_RANKS];
  uint64_t compared = 0;
  alarm(120);
  connect_ranks(r, memory);
  for (uint64_t batch = 0; batch < batches; batch++) {
    int how = (int)((batch + (uint64_t)rank) % 5);
    steps_of(steps, seed * 1009 + batch, nRanks);
    if (batch % 3 == 2) {
      compared += replay(r, steps, how);
      continue;
    }
    rank_fill(r, steps, 0, MAX_CALLS);
    if (batch % 3 == 0) issue_in_turn(r, steps);
    else rank_issue(r, steps, 0, MAX_CALLS);
    rank_wait(r, how);
    compared += rank_verify(r, steps, 0, MAX_CALLS);
  }
  meet(); /* nobody goes whose memory another one still writes */
  for (int p = 0; p < nRanks; p++)
    if (p != rank) MUST(cuIpcCloseMemHandle(memory[p]));
  rank_close(r);
  printf("{\"ranks\":%d,\"rank\":%d,\"batches\":%lu,\"elements\":%lu}\n", nRanks, rank, batches, compared);
  return 0;
}

static int run(int nRanks, uint64_t batches, uint64_t seed) {
  pthread_barrierattr_t among;
  pid_t ranks[MAX_RANKS];
  int failed = 0;
  pthread_barrierattr_init(&among);
  pthread_barrierattr_setpshared(&among, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &among, (unsigned)nRanks);
  for (int rank = 0; rank < nRanks; rank++)
    if ((ranks[rank] = fork()) == 0) exit(run_rank(rank, nRanks, batches, seed));
  for (int left = nRanks; left > 0; left--) {
    int status;
    pid_t ended = wait(&status);
    for (int rank = 0; rank < nRanks; rank++) {
      if (ranks[rank] == ended) ranks[rank] = 0;
      else if (status != 0 && !failed && ranks[rank] != 0) kill(ranks[rank], SIGKILL); /* it would wait for that one */
    }
    failed |= status != 0;
  }
  return failed;
}

int main(int argc, char **argv) {
  const char *text = getenv("TEST_SEED");
  uint64_t batches = argc > 1 ? strtoull(argv[1], NULL, 10) : 12, seed = text != NULL ? strtoull(text, NULL, 10) : 1;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int nRanks = 2; nRanks <= MAX_RANKS; nRanks++)
    if (run(nRanks, batches, seed + (uint64_t)nRanks) != 0) return 1;
  return 0;
}
