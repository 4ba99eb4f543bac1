/* SPDX-License-Identifier: Apache-2.0
 *
 * A progress thread of NCCL's moves all bytes of its connections itself, one send or recv behind the other; over TCP that is what a long call
 * takes its time for. Here threads of ours do it beside each other: to NCCL a connection is not ready yet (EAGAIN) until one has. What is on
 * the wire is the same, and the other end need not know. (NCCL's own threads, NCCL_SOCKET_NTHREADS, take short messages as well, which wait
 * for them.)
 *
 *   FREE --NCCL asks--> QUEUED --a thread takes it--> RUNNING --moved, or no more for now--> DONE --NCCL asks--> FREE
 *                         \--no thread has, for a while, and NCCL asks: it does it itself--> FREE
 *
 * A message that is alone on its way gains nothing by another thread, and waits for it. So NCCL's thread moves those itself until two are on
 * their way beside each other: one was whole while something of another was there, or could be.
 */
#include "movers.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../kernels/host/thread.h"
#include "forward.h"
#include "mover_count.h"

#define JOBS 4096 /* file descriptors; those above go as they are */
#define SLOTS 16  /* jobs that one thread has */
#define PIECE 262144 /* bytes that one call moves: a thread of NCCL's that ends waits so long */
#define STEAL_NS 30000     /* a job that no thread has begun */
#define HAND_BACK_NS 20000 /* of which there are no more bytes */
#define SLEEP_NS 50000     /* without a job: to wake takes as long */
#define LONE 16            /* messages in a row that were: the next one is as well, it seems */

enum { FREE, QUEUED, RUNNING, DONE };

/* A thread of NCCL's that asks. */
struct caller {
  _Atomic uint32_t whole; /* messages so far */
  _Atomic int beside;     /* LONE: the last one was beside another; one less for each since that was not */
};
static _Thread_local struct caller caller = {.beside = LONE};

struct job {
  _Atomic int state;
  _Atomic(struct caller *) owner; /* that has asked */
  _Atomic bool withdrawn;
  bool begun;     /* something of a message has been moved, and something not */
  uint32_t whole; /* of its owner's messages, when nothing of this one was there last */
  bool ended;     /* by errorNumber, or by the other end (0) */
  int fd, flags, errorNumber;
  dyn_function real;
  char *data;
  size_t bytes, moved;
  uint64_t queuedNs;
};

static struct mover {
  _Atomic(struct job *) slots[SLOTS];
  bool mine[SLOTS];        /* begun: its thread's */
  uint64_t quietNs[SLOTS]; /* no more bytes since; 0: there were */
  _Atomic uint32_t news;
  _Atomic bool asleep;
} movers[DYN_MOVERS];

static _Atomic(struct job *) jobs; /* NULL: all go as they are */
static int threads;
static pthread_key_t asked; /* by threads that have: to let_go when they end */
static _Atomic uint32_t turn;

static void nothing_yet(struct job *job, struct caller *of) {
  if (!job->begun) job->whole = atomic_load_explicit(&of->whole, memory_order_relaxed);
}

/* Bytes of a message have been moved; whole: there are no more. */
static void some(struct job *job, struct caller *of, bool whole) {
  job->begun = !whole;
  if (!whole) return;
  bool beside = atomic_load_explicit(&of->whole, memory_order_relaxed) != job->whole;
  int before = atomic_load_explicit(&of->beside, memory_order_relaxed);
  if (beside || before > 0) atomic_store_explicit(&of->beside, beside ? LONE : before - 1, memory_order_relaxed);
  job->whole = atomic_fetch_add_explicit(&of->whole, 1, memory_order_relaxed) + 1;
}

/* Moves what there is; whether the job is over. */
static bool step(struct job *job, uint64_t *quietNs) {
  if (atomic_load_explicit(&job->withdrawn, memory_order_relaxed)) return true;
  size_t piece = job->bytes - job->moved < PIECE ? job->bytes - job->moved : PIECE;
  dyn_word moved = job->real(job->fd, (dyn_word)(job->data + job->moved), (dyn_word)piece, job->flags, 0, 0);
  int error = errno;
  struct caller *of = atomic_load_explicit(&job->owner, memory_order_relaxed);
  if (moved > 0) {
    job->moved += (size_t)moved;
    *quietNs = 0;
    some(job, of, job->moved == job->bytes);
    return job->moved == job->bytes;
  }
  if (moved < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) {
    nothing_yet(job, of);
    uint64_t now = dyn_movers_clock_ns();
    if (*quietNs == 0) *quietNs = now;
    return now - *quietNs > HAND_BACK_NS;
  }
  job->ended = true;
  job->errorNumber = moved < 0 ? error : 0;
  return true;
}

static bool sweep(struct mover *mover) {
  bool any = false;
  for (int i = 0; i < SLOTS; i++) {
    struct job *job = atomic_load_explicit(&mover->slots[i], memory_order_acquire);
    if (job == NULL) continue;
    if (!mover->mine[i]) {
      int queued = QUEUED;
      if (!atomic_compare_exchange_strong(&job->state, &queued, RUNNING)) { /* taken back, and perhaps queued again elsewhere since */
        atomic_store_explicit(&mover->slots[i], NULL, memory_order_release);
        continue;
      }
      mover->mine[i] = true;
      mover->quietNs[i] = 0;
    }
    any = true;
    if (!step(job, &mover->quietNs[i])) continue;
    mover->mine[i] = false;
    atomic_store_explicit(&mover->slots[i], NULL, memory_order_release);
    atomic_store_explicit(&job->state, DONE, memory_order_release);
  }
  return any;
}

static void *work(void *which) {
  struct mover *mover = which;
  struct dyn_mover_wait wait;
  uint64_t idleNs = 0;
  prctl(PR_SET_NAME, "dynamiccl-move");
  dyn_mover_begins(&wait);
  for (;;) {
    bool any = sweep(mover);
    uint64_t now = dyn_movers_clock_ns();
    if (any) {
      dyn_mover_worked(&wait, now);
      idleNs = 0;
      continue;
    }
    if (idleNs == 0) idleNs = now;
    if (now - idleNs < SLEEP_NS) continue;
    uint32_t seen = atomic_load(&mover->news);
    atomic_store(&mover->asleep, true);
    if (!sweep(mover)) syscall(SYS_futex, &mover->news, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0), wait.woken++;
    atomic_store(&mover->asleep, false);
    idleNs = 0;
  }
  return NULL;
}

/* A thread of NCCL's ends, be it by an abort, an error or a group that failed. Who joins it frees the buffers, and closes the descriptors for
 * others to have: nothing of it may be under way, nor a result be left. */
static void let_go(void *owner) {
  struct job *all = atomic_load_explicit(&jobs, memory_order_acquire);
  for (int fd = 0; all != NULL && fd < JOBS; fd++) {
    struct job *job = &all[fd];
    int state = QUEUED;
    if (atomic_load_explicit(&job->owner, memory_order_relaxed) != owner) continue;
    if (atomic_compare_exchange_strong(&job->state, &state, FREE) || state == FREE) continue;
    atomic_store_explicit(&job->withdrawn, true, memory_order_relaxed);
    while (atomic_load_explicit(&job->state, memory_order_acquire) == RUNNING) sched_yield();
    atomic_store_explicit(&job->state, FREE, memory_order_relaxed);
  }
}

/* In the child of a fork none of the threads is there. */
static void forget(void) { atomic_store(&jobs, NULL); }

/* By NCCL's thread, whose CPUs these get: near the GPU, where NCCL has chosen. */
static void begin(void) {
  int wanted = dyn_movers_wanted();
  struct job *all = wanted > 0 && pthread_key_create(&asked, let_go) == 0 && pthread_atfork(NULL, NULL, forget) == 0 ? calloc(JOBS, sizeof *all) : NULL;
  if (all == NULL) return;
  while (threads < wanted && dyn_thread_start(work, &movers[threads])) threads++;
  dyn_movers_are(threads);
  if (threads > 0) atomic_store_explicit(&jobs, all, memory_order_release);
}

static bool queue(struct job *job, int inUse) {
  uint32_t first = atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed);
  for (int i = 0; i < inUse; i++) {
    struct mover *mover = &movers[(first + (uint32_t)i) % (uint32_t)inUse];
    for (int s = 0; s < SLOTS; s++) {
      struct job *none = NULL;
      if (atomic_load_explicit(&mover->slots[s], memory_order_relaxed) != NULL) continue;
      if (!atomic_compare_exchange_strong(&mover->slots[s], &none, job)) continue;
      atomic_fetch_add(&mover->news, 1);
      if (atomic_load(&mover->asleep)) syscall(SYS_futex, &mover->news, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
      return true;
    }
  }
  return false;
}

static dyn_word told(dyn_word moved, bool byOurs) {
  if (moved > 0) dyn_traffic_add(&dynamiccl_preload.traffic.longBytes, (uint64_t)moved);
  if (moved > 0 && byOurs) dyn_traffic_add(&dynamiccl_preload.traffic.movedBytes, (uint64_t)moved);
  return moved;
}

/* What a thread has done of a job, as the call would have returned it. What comes behind bytes, as the end, the next call meets itself. */
static dyn_word result(struct job *job) {
  size_t moved = job->moved;
  bool ended = job->ended;
  int error = job->errorNumber;
  atomic_store_explicit(&job->state, FREE, memory_order_relaxed);
  if (moved > 0) return told(moved, true);
  if (ended && error == 0) return 0;
  errno = ended ? error : EAGAIN;
  return -1;
}

/* Whether a thread has the job, now or since it was asked last. The state is FREE, QUEUED or RUNNING, or was a moment ago. */
static bool handed_over(struct job *job, int state, dyn_function real, int fd, char *data, size_t bytes, int flags) {
  if (state == RUNNING) return true;
  uint64_t now = dyn_movers_clock_ns();
  if (state == QUEUED) return !(now - job->queuedNs > STEAL_NS && atomic_compare_exchange_strong(&job->state, &state, FREE));
  int inUse = dyn_movers_now(now);
  if (inUse == 0 || atomic_load_explicit(&caller.beside, memory_order_relaxed) == 0 || pthread_setspecific(asked, &caller) != 0) return false;
  atomic_store_explicit(&job->owner, &caller, memory_order_relaxed);
  atomic_store_explicit(&job->withdrawn, false, memory_order_relaxed);
  job->ended = false;
  job->fd = fd;
  job->flags = flags;
  job->real = real;
  job->data = data;
  job->bytes = bytes;
  job->moved = 0;
  job->queuedNs = now;
  atomic_store_explicit(&job->state, QUEUED, memory_order_release);
  if (queue(job, inUse)) return true;
  state = QUEUED;
  return !atomic_compare_exchange_strong(&job->state, &state, FREE); /* a slot that it was taken back from may still name it */
}

void dyn_move_nothing(int fd) {
  struct job *all = atomic_load_explicit(&jobs, memory_order_acquire);
  if (all == NULL || fd >= JOBS || atomic_load_explicit(&all[fd].state, memory_order_acquire) != FREE) return;
  all[fd].begun = false; /* the last part of a message before it may not have come by here */
  nothing_yet(&all[fd], &caller);
}

dyn_word dyn_move(dyn_function real, int fd, void *data, size_t bytes, int flags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
  struct job *all = atomic_load_explicit(&jobs, memory_order_acquire);
  if (all == NULL || fd >= JOBS) return told(real(fd, (dyn_word)data, (dyn_word)bytes, flags, 0, 0), false);
  struct job *job = &all[fd];
  int state = atomic_load_explicit(&job->state, memory_order_acquire); /* once: a thread may be done at any time */
  if (state == DONE) return result(job);
  if (handed_over(job, state, real, fd, data, bytes, flags)) {
    errno = EAGAIN;
    return -1;
  }
  dyn_word moved = real(fd, (dyn_word)data, (dyn_word)bytes, flags, 0, 0);
  if (moved > 0) some(job, &caller, (size_t)moved == bytes);
  else if (moved < 0) nothing_yet(job, &caller);
  return told(moved, false);
}
