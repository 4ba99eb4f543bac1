/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that die. A kernel waits for its peers as long as they live, as NCCL's do: a rank may be late by any time. So a
 * thread looks twice a second whether the processes of all peers still live, and where one is dead for a second the
 * communicator's kernels give up: what a rank wrote before it died has arrived by then. Of peers on other hosts those tell that
 * agree with them (nccltuner/hosts). Others may look with it.
 *
 * A rank that lives and does not come is waited for, and people are told: a kernel whose wait lasts says whom it waits for (domain.cuh),
 * and it is said here, on standard error as a death is, since NCCL's log shows nothing unless it is asked to. Each call once, and again
 * whenever it has lasted twice as long. No call pays for it: a wait looks at its clock anyway.
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
#define GIVE_UP_MS 20 /* by which kernels that were stopped have said that they were in want of who is dead */
#define LAST_WAIT_NS UINT64_C(10000000000)

void (*dyn_lsa_look)(struct dyn_lsa *lsa);
bool (*dyn_lsa_gone)(uint64_t id, uint32_t rank, char *why, size_t bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static struct dyn_lsa *list; /* under lock */
static bool started, asks;   /* under lock: the threads run */
static uint64_t round;       /* under lock: of the thread that asks */
static int asking;           /* under lock: threads that are asking CUDA about some communicator */
static bool gaveUp;          /* of the thread: kernels were stopped in this round */
static atomic_bool ended;    /* the process ends, and CUDA's driver may be gone */

/* Of one on another host nothing is known here, by which it lives. */
static int dead_rank(const struct dyn_lsa *lsa) {
  for (uint32_t r = 0; r < lsa->nRanks; r++)
    if (r != lsa->rank && !dyn_process_lives(lsa->peers[r].pid, lsa->peers[r].startTime)) return (int)r;
  return -1;
}

/* Where kernels of a lane say who is late, and what was made of it. over, by: what they run over, for people. */
struct lateness {
  struct dyn_late *told;
  uint64_t ns;
  struct waiting *waiting;
  const char *over, *by, *graphs;
};

static void say_late(const struct dyn_lsa *lsa, const struct lateness *of, uint64_t word, uint64_t about, uint64_t ns) {
  static const char *const names[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AllToAll", "AllToAllv", "AllReduce with RMSNorm"};
  uint64_t step = about >> DYN_ABOUT_STEP_SHIFT, what = about >> DYN_ABOUT_SHIFT & 15, bytes = about & ((UINT64_C(1) << DYN_ABOUT_SHIFT) - 1), peer = (word >> DYN_FAULT_PEER_SHIFT) - 1;
  char size[32] = "", where[32] = "on another host";
  if (bytes > 0) snprintf(size, sizeof size, " of %llu bytes", (unsigned long long)bytes);
  if (peer < lsa->nRanks && lsa->peers[peer].pid != 0) snprintf(where, sizeof where, "process %u", lsa->peers[peer].pid);
  dyn_host_say("communicator %016llx: rank %u waits for rank %llu, %s%s%s, since %llu s: %s%s, call %u of our kernels%s%s%s; it goes on waiting",
               (unsigned long long)lsa->id, lsa->rank, (unsigned long long)peer, where, step == DYN_GIN_NOTHING ? "" : ", ", step == DYN_GIN_NOTHING ? "" : dyn_gin_step_name(step), (unsigned long long)(ns / 1000000000),
               what < sizeof names / sizeof *names ? names[what] : "a call", size, (uint32_t)word, of->over, of->by, of->graphs);
}

/* Each wait tells once in lateNs. What is told is of one call: a lane's kernels run one after the other. */
static void look_late_at(const struct dyn_lsa *lsa, const struct lateness *of, uint64_t nowNs) {
  struct waiting *w = of->waiting;
  uint64_t word = of->told == NULL ? 0 : __atomic_exchange_n(&of->told->word, 0, __ATOMIC_RELAXED);
  if (word == 0) return;
  if (w->sinceNs == 0 || (uint32_t)word != w->call) *w = (struct waiting){(uint32_t)word, nowNs - of->ns, 0};
  uint64_t ns = nowNs - w->sinceNs;
  if (ns < w->saysNs) return;
  w->saysNs = 2 * ns;
  say_late(lsa, of, word, __atomic_load_n(&of->told->about, __ATOMIC_RELAXED), ns);
}

static void look_late(struct dyn_lsa *lsa, int lane, uint64_t nowNs) {
  const struct dyn_domain *d = &lsa->lanes[lane].domain;
  const char *graphs = lane == LANE_GRAPHS ? " in CUDA graphs" : "";
  look_late_at(lsa, &(struct lateness){d->late, d->lateNs, &lsa->waiting[lane], "", "", graphs}, nowNs);
  for (int i = 0; lsa->gin != NULL && i < DYN_GIN_LIVES; i++) {
    struct dyn_gin_life *life = &lsa->gin->each[i];
    struct dyn_gin_words *words = life->words;
    if (words != NULL && atomic_load(&life->proven))
      look_late_at(lsa, &(struct lateness){&words->late[lane], life->lanes[lane].lateNs, &life->waiting[lane], " over GIN by ", dyn_gin_backend_name(life->state.backend), graphs}, nowNs);
  }
}

/* CUDA is not asked first: its driver may keep who asks until the kernels are over. */
static void give_up(struct dyn_lsa *lsa, const char *why) {
  const char *kept = strdup(why); /* for who asks later */
  atomic_store(&lsa->dead, true); /* first: who is told by a kernel that gave up says why */
  dyn_lsa_stop(lsa, kept == NULL ? "a rank is dead" : kept);
  gaveUp = true;
}

/* It is no loss to anybody as long as nothing is in want of it: many programs end without destroying their communicators, and their ranks
 * not at once. */
static void complain(struct dyn_lsa *lsa) {
  if (atomic_load(&lsa->dead)) dyn_lsa_missed(lsa);
}

/* Under lock. */
static void complain_all(void) {
  for (struct dyn_lsa *lsa = list; lsa != NULL; lsa = lsa->next) complain(lsa);
}

/* Under lock, but not meanwhile. */
static void nap(long ns) {
  pthread_mutex_unlock(&lock);
  nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
  pthread_mutex_lock(&lock);
}

/* Under lock, which is not held meanwhile; nor does the communicator go. */
static void ask_about(struct dyn_lsa *lsa) {
  lsa->askedIn = round;
  lsa->asking++;
  asking++;
  pthread_mutex_unlock(&lock);
  dyn_gin_look(lsa);
  pthread_mutex_lock(&lock);
  asking--;
  lsa->asking--;
}

/* Whether calls over GIN are over CUDA alone knows, and its driver may keep who asks until kernels are that wait for a dead rank. So who
 * looks for these does not ask. From the list's beginning each time: it may have changed. */
static void *ask(void *nothing) {
  prctl(PR_SET_NAME, "dynamiccl-asks");
  pthread_mutex_lock(&lock);
  for (;; nap(ROUND_NS)) {
    round++;
    for (struct dyn_lsa *lsa = list; lsa != NULL && !atomic_load(&ended);) {
      bool now = lsa->askedIn != round && dyn_gin_in_flight(lsa) && dyn_words_there(lsa);
      if (now) ask_about(lsa);
      lsa = now ? list : lsa->next;
    }
  }
  return nothing;
}

static void look(struct dyn_lsa *lsa) {
  char why[128];
  if (!dyn_words_there(lsa)) return;
  int rank = atomic_load(&lsa->ready) && !dyn_lsa_stopped(lsa) ? dead_rank(lsa) : -1;
  if (rank >= 0 && lsa->diedOnce) {
    snprintf(why, sizeof why, "rank %d, process %u, is dead", rank, lsa->peers[rank].pid);
    give_up(lsa, why);
  } else if (rank < 0 && dyn_lsa_gone != NULL && atomic_load(&lsa->ready) && !dyn_lsa_stopped(lsa) && dyn_lsa_gone(lsa->id, lsa->rank, why, sizeof why)) {
    give_up(lsa, why);
  }
  lsa->diedOnce = rank >= 0;
  complain(lsa);
  for (int l = 0; l < NUM_LANES && rank < 0 && atomic_load(&lsa->ready) && !dyn_lsa_stopped(lsa); l++) look_late(lsa, l, dyn_host_ns());
  if (dyn_gin_check(lsa)) dyn_lsa_complain(lsa);
  dyn_gin_look_captured(lsa);
  if (!asks && dyn_gin_in_flight(lsa)) asks = dyn_thread_start(ask, NULL);
  if (dyn_lsa_look != NULL && atomic_load(&lsa->ready)) dyn_lsa_look(lsa);
}

/* Under lock, so that a communicator which the program takes away behind its kernel's end does not go before it is said why. */
static void await_complaints(void) {
  for (int naps = 0; naps < GIVE_UP_MS && !atomic_load(&ended); naps++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    complain_all();
  }
}

static void *run(void *nothing) {
  prctl(PR_SET_NAME, "dynamiccl-peers");
  pthread_mutex_lock(&lock);
  for (;;) {
    while (list == NULL) pthread_cond_wait(&opened, &lock);
    for (struct dyn_lsa *lsa = list; lsa != NULL && !atomic_load(&ended); lsa = lsa->next) look(lsa);
    if (gaveUp) await_complaints();
    gaveUp = false;
    nap(ROUND_NS);
  }
  return nothing;
}

/* The child of a fork has no such thread, and no communicator that its parent opened. */
static void forget(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  opened = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  list = NULL;
  started = asks = false;
  asking = 0;
}

/* Registered behind the driver's own handlers, hence run before them. Behind what may be looked at or asked none begins; one that the
 * driver keeps, or a thread that has the lock and ends the process from a signal's handler, keeps nobody from ending. */
static void at_exit(void) {
  atomic_store(&ended, true);
  for (int naps = 0; naps < 200; naps++) {
    if (pthread_mutex_trylock(&lock) == 0) {
      bool over = asking == 0;
      if (over) complain_all(); /* of kernels that have given up just now, by which the program may end */
      pthread_mutex_unlock(&lock);
      if (over) return;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

/* Under lock. */
static bool start(void) {
  static bool watched;
  if (!watched && (pthread_atfork(NULL, NULL, forget) != 0 || atexit(at_exit) != 0)) return false;
  watched = true;
  return dyn_thread_start(run, NULL);
}

void dyn_watch_begin(struct dyn_lsa *lsa) {
  pthread_mutex_lock(&lock);
  if (!started) started = start();
  bool alone = !started;
  lsa->next = list;
  list = lsa;
  pthread_cond_signal(&opened);
  pthread_mutex_unlock(&lock);
  if (alone) dyn_host_say("no thread can be had that watches over peers: a kernel waits for ever for one that dies");
}

void dyn_watch_end(struct dyn_lsa *lsa) {
  pthread_mutex_lock(&lock);
  for (struct dyn_lsa **at = &list; *at != NULL; at = &(*at)->next) {
    if (*at != lsa) continue;
    *at = lsa->next;
    while (lsa->asking > 0) nap(50000);
    break;
  }
  pthread_mutex_unlock(&lock);
}

/* ends: by itself, for all that may keep it waiting is found. CUDA is not asked under the lock, which who looks for dead ranks needs; nor does
 * the communicator go meanwhile. */
static bool is_over(struct dyn_lsa *lsa, bool *ends) {
  pthread_mutex_lock(&lock);
  struct dyn_lsa *at = list;
  while (at != NULL && at != lsa) at = at->next;
  bool over = at == NULL;
  if (!over) {
    lsa->asking++;
    pthread_mutex_unlock(&lock);
    over = dyn_lsa_settle(lsa, 0);
    pthread_mutex_lock(&lock);
    lsa->asking--;
  }
  *ends = over || (started && !atomic_load(&ended) && !dyn_lsa_stopped(lsa));
  pthread_mutex_unlock(&lock);
  return over;
}

void dyn_lsa_wait(struct dyn_lsa *lsa) {
  uint64_t until = 0;
  for (bool ends; !is_over(lsa, &ends); nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL)) {
    if (!ends && until == 0) until = dyn_host_ns() + LAST_WAIT_NS;
    if (!ends && dyn_host_ns() > until) return;
  }
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
