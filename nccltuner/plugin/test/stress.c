/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement under stress: rank processes on one record, a publisher that changes plans all the time and is killed and
 * started again, ranks stopped at random. Every rank notes what NCCL would run, call by call; all notes must be equal.
 *
 *   stress RANKS CALLS KILLS [minimum number of plans that ranks must have run]
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0x57e55ull
#define MAX_AHEAD 2000 /* calls */
#define PAUSES_PER_PLAN 8 /* a rank sleeps a little now and then, so that so many plans fit into so many calls */

struct shared {
  uint32_t plansRun[DYN_MAX_RANKS], unfit[DYN_MAX_RANKS];
  uint64_t published, refused;
  uint64_t progress[DYN_MAX_RANKS];
  uint32_t done;
};

static uint64_t calls, pauseCalls, seed;
static struct shared *shared;
static uint32_t *notes; /* [rank][call] */
static int numRanks;

/* Real ranks wait for each other in their collectives; how far one runs ahead is a matter of queues. Here: of luck, and
 * now and then without bound. */
static void wait_for_others(int rank, uint64_t seq, uint64_t *random) {
  __atomic_store_n(&shared->progress[rank], seq, __ATOMIC_RELAXED);
  if (test_random(random) % 16 == 0) return;
  for (int i = 0; i < numRanks; i++)
    while (__atomic_load_n(&shared->progress[i], __ATOMIC_RELAXED) + MAX_AHEAD < seq) usleep(100);
}

static void rank_process(int rank) {
  uint64_t random = seed + 1000 + (uint64_t)rank, version = 0;
  void *context = NULL;
  usleep(test_random(&random) % 20000); /* some come late */
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, (size_t)numRanks, 1, test_log, NULL, NULL) == 0 && context, "init");
  struct dyn_comm *comm = context;
  check(comm->record, "rank %d has no record: %s", rank, test_last_message());
  for (uint64_t seq = 0; seq < calls; seq++) {
    uint64_t shape = seq * 0x9e3779b97f4a7c15u; /* the same on all ranks */
    size_t bytes = (size_t)1 << (10 + (shape >> 50) % 8);
    notes[(uint64_t)rank * calls + seq] = test_call(context, (int)(shape >> 60) % 5, bytes, 0);
    if (comm->plan.version != version) {
      version = comm->plan.version;
      shared->plansRun[rank]++;
    }
    if (comm->slot && comm->plan.version == 0) shared->unfit[rank]++;
    if (seq % pauseCalls == 0) {
      usleep(test_random(&random) % 1500);
      wait_for_others(rank, seq, &random);
    }
  }
  __atomic_store_n(&shared->progress[rank], UINT64_MAX / 2, __ATOMIC_RELAXED);
  check(ncclTunerPlugin_v6.finalize(context) == 0, "finalize");
  __atomic_fetch_add(&shared->done, 1, __ATOMIC_SEQ_CST);
  _exit(0);
}

static void publisher_process(uint64_t random) {
  struct publisher p;
  struct dyn_plan plan;
  struct timespec nap = {.tv_nsec = 900 * 1000};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (!publisher_open(&p, COMM_ID)) usleep(500);
  for (;;) {
    plan_random(&plan, &random, (uint32_t)test_random(&random));
    if (publisher_publish(&p, &plan)) __atomic_fetch_add(&shared->published, 1, __ATOMIC_RELAXED);
    else __atomic_fetch_add(&shared->refused, 1, __ATOMIC_RELAXED);
    nanosleep(&nap, NULL);
  }
}

static pid_t spawn(int rank, uint64_t random) {
  pid_t pid = fork();
  check(pid >= 0, "fork");
  if (pid == 0 && rank >= 0) rank_process(rank);
  if (pid == 0) publisher_process(random);
  return pid;
}

int main(int argc, char **argv) {
  numRanks = argc > 1 ? atoi(argv[1]) : 8;
  calls = argc > 2 ? strtoull(argv[2], NULL, 0) / (uint64_t)numRanks : 50000;
  int kills = argc > 3 ? atoi(argv[3]) : 10, killed = 0, stalls = 0;
  uint32_t wantPlans = argc > 4 ? (uint32_t)atoi(argv[4]) : 50;
  check(numRanks > 0 && numRanks <= DYN_MAX_RANKS && calls > 0, "usage: stress RANKS CALLS KILLS PLANS");
  pauseCalls = calls / (PAUSES_PER_PLAN * wantPlans) + 1;
  seed = test_seed();
  uint64_t random = seed;
  test_directory();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  notes = mmap(NULL, (uint64_t)numRanks * calls * 4, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(shared != MAP_FAILED && notes != MAP_FAILED, "mmap");
  pid_t ranks[DYN_MAX_RANKS], publisher = spawn(-1, random);
  for (int i = 0; i < numRanks; i++) ranks[i] = spawn(i, 0);
  while (__atomic_load_n(&shared->done, __ATOMIC_SEQ_CST) < (uint32_t)numRanks) {
    int status, victim = (int)(test_random(&random) % (uint64_t)numRanks);
    for (int i = 0; i < numRanks; i++)
      if (ranks[i] && waitpid(ranks[i], &status, WNOHANG) == ranks[i]) {
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d ended with status %x", i, status);
        ranks[i] = 0;
      }
    if (ranks[victim]) {
      kill(ranks[victim], SIGSTOP);
      usleep(test_random(&random) % 4000);
      kill(ranks[victim], SIGCONT);
      stalls++;
    }
    usleep(test_random(&random) % 1000);
    if (killed < kills && test_random(&random) % 4 == 0) {
      kill(publisher, SIGKILL);
      waitpid(publisher, &status, 0);
      publisher = spawn(-1, test_random(&random));
      killed++;
    }
  }
  kill(publisher, SIGKILL);
  while (wait(NULL) > 0) {
  }
  uint64_t disagreements = 0, tuned = 0;
  uint32_t fewest = UINT32_MAX, unfit = 0;
  for (uint64_t seq = 0; seq < calls; seq++) {
    bool equal = true;
    for (int i = 1; i < numRanks; i++) equal &= notes[(uint64_t)i * calls + seq] == notes[seq];
    disagreements += !equal;
    tuned += notes[seq] != 0;
  }
  for (int i = 0; i < numRanks; i++) {
    if (shared->plansRun[i] < fewest) fewest = shared->plansRun[i];
    unfit += shared->unfit[i];
  }
  int left = test_count_files("comm-");
  printf("{\"stress\":{\"ranks\":%d,\"calls\":%" PRIu64 ",\"tunedCallsPerRank\":%" PRIu64 ",\"plansPublished\":%" PRIu64
         ",\"plansRunByEveryRank\":%u,\"noBufferFree\":%" PRIu64 ",\"publisherKills\":%d,\"stalls\":%d,"
         "\"unfitPlans\":%u,\"filesLeft\":%d,\"disagreements\":%" PRIu64 "}}\n",
         numRanks, calls * (uint64_t)numRanks, tuned, shared->published, fewest, shared->refused, killed, stalls, unfit,
         left, disagreements);
  test_remove_directory();
  check(disagreements == 0, "ranks disagreed");
  check(unfit == 0, "a rank read a plan that did not pass its check");
  check(fewest >= wantPlans, "only %u plans were run, %u wanted", fewest, wantPlans);
  check(left == 0, "%d records were left", left);
  return 0;
}
