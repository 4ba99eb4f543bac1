/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that die. A kernel waits for its peers as long as they live, as NCCL's do: a rank may be late by any time. So a
 * thread looks twice a second whether the processes of all peers still live, and where one is dead for a second the
 * communicator's kernels give up: what a rank wrote before it died has arrived by then. Of peers on other hosts those tell that
 * agree with them (nccltuner/hosts). Others may look with it.
 */
#include "gin_life.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../../nccltuner/plugin/process_start.h"
#include "thread.h"

#define ROUND_NS 500000000

void (*dyn_lsa_look)(struct dyn_lsa *lsa);
bool (*dyn_lsa_gone)(uint64_t id, uint32_t rank, char *why, size_t bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static struct dyn_lsa *list; /* under lock */
static bool started;         /* under lock */
static atomic_bool ended;    /* the process ends, and CUDA's driver may be gone */

/* Of one on another host nothing is known here, by which it lives. */
static int dead_rank(const struct dyn_lsa *lsa) {
  for (uint32_t r = 0; r < lsa->nRanks; r++)
    if (r != lsa->rank && !dyn_process_lives(lsa->peers[r].pid, lsa->peers[r].startTime)) return (int)r;
  return -1;
}

static void give_up(struct dyn_lsa *lsa, const char *why) {
  const char *kept = strdup(why); /* for who asks later */
  bool waits = !dyn_lsa_settle(lsa, 0);
  dyn_lsa_stop(lsa, kept == NULL ? "a rank is dead" : kept);
  if (waits) dyn_lsa_complain(lsa);
}

static void look(struct dyn_lsa *lsa) {
  char why[128];
  int rank = atomic_load(&lsa->ready) && !dyn_lsa_stopped(lsa) ? dead_rank(lsa) : -1;
  if (rank >= 0 && lsa->diedOnce) {
    snprintf(why, sizeof why, "rank %d, process %u, is dead", rank, lsa->peers[rank].pid);
    give_up(lsa, why);
  } else if (rank < 0 && dyn_lsa_gone != NULL && atomic_load(&lsa->ready) && !dyn_lsa_stopped(lsa) && dyn_lsa_gone(lsa->id, lsa->rank, why, sizeof why)) {
    give_up(lsa, why);
  }
  lsa->diedOnce = rank >= 0;
  dyn_gin_check(lsa);
  dyn_gin_look(lsa);
  if (dyn_lsa_look != NULL && atomic_load(&lsa->ready)) dyn_lsa_look(lsa);
}

static void *run(void *nothing) {
  prctl(PR_SET_NAME, "dynamiccl-peers");
  pthread_mutex_lock(&lock);
  for (;;) {
    while (list == NULL) pthread_cond_wait(&opened, &lock);
    for (struct dyn_lsa *lsa = list; lsa != NULL && !atomic_load(&ended); lsa = lsa->next) look(lsa);
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = ROUND_NS}, NULL);
    pthread_mutex_lock(&lock);
  }
  return nothing;
}

/* The child of a fork has no such thread, and no communicator that its parent opened. */
static void forget(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  opened = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  list = NULL;
  started = false;
}

/* Registered behind the driver's own handlers, hence run before them. Behind the look that may be under way none begins; one that the
 * driver keeps, or a thread that has the lock and ends the process from a signal's handler, keeps nobody from ending. */
static void at_exit(void) {
  atomic_store(&ended, true);
  for (int naps = 0; naps < 200; naps++) {
    if (pthread_mutex_trylock(&lock) == 0) {
      pthread_mutex_unlock(&lock);
      return;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

/* Under lock. */
static void start(void) {
  static bool watched;
  if (!watched && (pthread_atfork(NULL, NULL, forget) != 0 || atexit(at_exit) != 0)) return;
  watched = true;
  started = dyn_thread_start(run, NULL);
  if (!started) dyn_host_say("no thread can be had that watches over peers: a kernel waits for ever for one that dies");
}

void dyn_watch_begin(struct dyn_lsa *lsa) {
  pthread_mutex_lock(&lock);
  if (!started) start();
  lsa->next = list;
  list = lsa;
  pthread_cond_signal(&opened);
  pthread_mutex_unlock(&lock);
}

void dyn_watch_end(struct dyn_lsa *lsa) {
  pthread_mutex_lock(&lock);
  for (struct dyn_lsa **at = &list; *at != NULL; at = &(*at)->next) {
    if (*at != lsa) continue;
    *at = lsa->next;
    break;
  }
  pthread_mutex_unlock(&lock);
}

void dyn_watch_hold(void) { pthread_mutex_lock(&lock); }
void dyn_watch_go_on(void) { pthread_mutex_unlock(&lock); }

bool dyn_watch_find(dyn_gpu_address at, dyn_context *context) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (struct dyn_lsa *lsa = list; lsa != NULL && !found; lsa = lsa->next) {
    found = lsa->scratch->memory == at;
    *context = lsa->context;
  }
  pthread_mutex_unlock(&lock);
  return found;
}
