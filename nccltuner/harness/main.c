/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamiccl-rank: processes and threads of a run.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "nccl.h"

static void *rank_thread(void *argument) {
  rank_run(argument);
  return NULL;
}

static void report(const struct rank *rank) {
  if (rank->result != 0 && rank->result != EXIT_LEFT)
    fprintf(stderr, "dynamiccl-rank: rank %d: %s\n", rank->rank, rank->error);
}

/* The ranks of this process; the largest exit code. */
static int run_ranks(const struct plan *plan, struct sync *sync, int first, int count) {
  struct rank *ranks = calloc((size_t)count, sizeof *ranks);
  pthread_t *threads = calloc((size_t)count, sizeof *threads);
  int result = 0, started = 0;
  if (ranks == NULL || threads == NULL) return EXIT_USAGE;
  for (int i = 0; i < count; i++) ranks[i] = (struct rank){.plan = plan, .sync = sync, .rank = first + i};
  if (count == 1) rank_run(ranks); /* as in a real rank process, from the main thread */
  for (; count > 1 && started < count; started++)
    if (pthread_create(&threads[started], NULL, rank_thread, &ranks[started]) != 0) {
      fprintf(stderr, "dynamiccl-rank: rank %d: no thread: %s\n", first + started, strerror(errno));
      exit(EXIT_USAGE); /* the threads that run would wait for this rank */
    }
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < count; i++) {
    report(&ranks[i]);
    if (ranks[i].result > result) result = ranks[i].result;
  }
  free(ranks);
  free(threads);
  return result;
}

/* One process for every --threads ranks; the largest exit code, 128 + signal for a killed one. */
static int spawn(const struct plan *plan, struct sync *sync) {
  int result = 0, step = plan->options->threads;
  for (int first = 0; first < plan->nRanks; first += step) {
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
      fprintf(stderr, "dynamiccl-rank: rank %d: no process: %s\n", first, strerror(errno));
      exit(EXIT_USAGE); /* children go with us */
    }
    if (child > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_USAGE);
    int count = plan->nRanks - first < step ? plan->nRanks - first : step;
    exit(run_ranks(plan, sync, first, count));
  }
  int status;
  for (pid_t pid; (pid = wait(&status)) > 0;) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFSIGNALED(status)) fprintf(stderr, "dynamiccl-rank: pid %d was killed by signal %d\n", pid, WTERMSIG(status));
    if (code > result) result = code;
  }
  return result;
}

int main(int argc, char **argv) {
  static struct options options;
  static struct plan plan;
  char error[1024] = "";
  if (options_parse(&options, argc, argv, error, sizeof error) != 0) {
    fprintf(stderr, "dynamiccl-rank: %s\n", error);
    return EXIT_USAGE;
  }
  setenv("DYNAMICCL_KERNEL_EVENTS", "1", 0); /* what can hang NCCL does not hang its stand-in */
  setenv("DYNAMICCL_NO_GRAPHS", "1", 0); /* there are none here, hence no preload library; the caller's word goes first */
  if (options.selftest) return selftest_run(stdout) == 0 ? 0 : 1;
  nccl_version_set(options.ncclVersion, options.maxTunerAbi, options.maxProfilerAbi);
  if (plan_build(&plan, &options, error, sizeof error) != 0) {
    fprintf(stderr, "dynamiccl-rank: %s\n", error);
    return EXIT_USAGE;
  }
  int count = options.threads < plan.nRanks - options.rank ? options.threads : plan.nRanks - options.rank;
  if (options.rank >= plan.nRanks) {
    snprintf(error, sizeof error, "option --rank %d: the run has ranks 0 to %d", options.rank, plan.nRanks - 1);
  } else if (!options.spawn && options.syncPath == NULL && count < plan.nRanks && options.window != 0) {
    snprintf(error, sizeof error, "%d of %d ranks run elsewhere: give all of them the same new --sync FILE, or "
             "--spawn, or --threads %d, or --window 0 for ranks that do not wait for each other",
             plan.nRanks - count, plan.nRanks, plan.nRanks);
  }
  int alone = !options.spawn && options.syncPath == NULL; /* no other process is seen */
  struct sync *sync = NULL;
  if (*error == '\0')
    sync = sync_open(options.syncPath, plan.nRanks, alone ? options.rank : 0, alone ? count : plan.nRanks, error,
                     sizeof error);
  if (sync == NULL) {
    fprintf(stderr, "dynamiccl-rank: %s\n", error);
    return EXIT_USAGE;
  }
  int result = options.spawn ? spawn(&plan, sync) : run_ranks(&plan, sync, options.rank, count);
  plan_free(&plan);
  free(sync);
  return result;
}
