/* SPDX-License-Identifier: Apache-2.0
 *
 * Each collective's data is moved by a job of its stream, so that no call of the program waits for other ranks. A communicator's calls
 * have one order, whatever their streams, and so have those that a thread gives to communicators of one GPU: ranks that have two of them
 * in two orders wait for each other for ever.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl_fake.h"

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);

struct moving { /* a job */
  struct mover *mover;
  struct launched launched;
  int again; /* it moves nothing: the one before it has, of an equal call; only what goes wrong may differ */
};

/* Of every mover's job that waits for its turn. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- what jobs use ---- */

struct mover *nccl_mover_new(int rank, int nRanks, char *shared, size_t bytes) {
  struct mover *mover = calloc(1, sizeof *mover);
  if (mover == NULL) return NULL;
  *mover = (struct mover){.references = 1, .rank = rank, .nRanks = nRanks, .shared = shared, .sharedBytes = bytes};
  mover->sums = malloc(CHUNK_BYTES * sizeof *mover->sums); /* written before it is read */
  if (mover->sums != NULL) return mover;
  free(mover);
  return NULL;
}

void nccl_mover_drop(struct mover *mover) {
  if (atomic_fetch_sub(&mover->references, 1) > 1) return;
  munmap(mover->shared, mover->sharedBytes);
  free(mover->sums);
  free(mover->kept);
  free(mover);
}

static void run(void *argument) {
  struct moving *job = argument;
  struct mover *mover = job->mover;
  pthread_mutex_lock(&lock);
  if (mover->waiting == job) mover->waiting = NULL;
  pthread_mutex_unlock(&lock);
  while (job->launched.hangs && !atomic_load(&mover->aborted)) usleep(500);
  if (!atomic_load(&mover->aborted)) nccl_exchange(mover, &job->launched, job->again);
  free(job);
  nccl_mover_drop(mover);
}

static void add(struct ncclComm *comm, const struct launched *launched, int again) {
  struct moving *job = malloc(sizeof *job);
  if (job == NULL) abort(); /* a test's machine is out of memory */
  *job = (struct moving){comm->mover, *launched, again};
  atomic_fetch_add(&comm->mover->references, 1);
  pthread_mutex_lock(&lock);
  comm->mover->waiting = job;
  pthread_mutex_unlock(&lock);
  comm->stream = launched->call.stream;
  comm->jobs = fakegpu_job(comm->stream, run, job);
}

/* ---- equal calls ---- */

/* Of this thread, since what it gave was last looked at: all ranks look at the same places of their programs, so they agree on which calls
 * repeat the one before, while how far jobs are is each rank's own business. */
static _Thread_local struct {
  uint64_t look; /* no other thread's, and no other look's */
  uint64_t commId;
  int n;
  CUstream streams[MAX_HARNESS_RANKS]; /* of each of the communicator's ranks here */
} since;

static void forget(void) {
  static atomic_ullong looks;
  since.look = atomic_fetch_add(&looks, 1) + 1;
  since.n = 0;
}

void nccl_looked(CUstream stream) {
  int mine = stream == NULL;
  for (int i = 0; i < since.n; i++) mine |= since.streams[i] == stream; /* a load waits for its own stream */
  if (mine && since.n > 0) forget();
}

static int equal(const struct call *a, const struct call *b) {
  return a->func == b->func && a->send == b->send && a->recv == b->recv && a->count == b->count && a->type == b->type &&
         a->op == b->op && a->root == b->root;
}

/* A call equal to the one before it writes the same again; every rank drops it alike. */
static int repeats(struct ncclComm *comm, const struct call *call) {
  int known = since.n > 0 && comm->look == since.look, sameStream = comm->stream == call->stream;
  if (since.n > 0 && (since.commId != comm->comm.commId || (known && !sameStream))) forget(), known = 0;
  if (known) return equal(&comm->last.call, call);
  if (since.n == 0 || since.n == MAX_HARNESS_RANKS) forget();
  comm->look = since.look;
  since.commId = comm->comm.commId;
  since.streams[since.n++] = call->stream;
  return 0;
}

/* What goes wrong with the later one is what is seen, and one that hangs is not passed. */
static void repeat(struct ncclComm *comm, const struct launched *launched) {
  pthread_mutex_lock(&lock);
  struct moving *waiting = comm->mover->waiting;
  if (waiting != NULL) {
    waiting->launched.hangs |= launched->hangs;
    waiting->launched.spoils = launched->spoils;
    waiting->launched.skips = launched->skips;
  }
  pthread_mutex_unlock(&lock);
  if (waiting == NULL && (launched->hangs || launched->spoils != comm->last.spoils || launched->skips != comm->last.skips)) add(comm, launched, 1);
}

/* ---- order ---- */

/* The last job that this thread gave to any communicator of a context. */
struct given {
  CUcontext context;
  CUstream stream;
  uint64_t jobs; /* of the stream, with it */
};

static struct given *given_on(CUcontext context) {
  enum { MAX_CONTEXTS = 64 };
  static _Thread_local struct given all[MAX_CONTEXTS];
  static _Thread_local int n;
  for (int i = 0; i < n; i++)
    if (all[i].context == context) return &all[i];
  if (n == MAX_CONTEXTS) abort(); /* there are no more */
  all[n] = (struct given){.context = context};
  return &all[n++];
}

static void come_behind(CUstream stream, CUstream other, uint64_t jobs) {
  if (jobs > 0 && other != stream) fakegpu_after(stream, other, jobs);
}

void nccl_give(struct ncclComm *comm, const struct launched *launched) {
  CUcontext context = NULL;
  struct launched own = *launched;
  own.call.stream = fakegpu_stream(launched->call.stream);
  cuStreamGetCtx(own.call.stream, &context);
  struct given *before = given_on(context);
  if (repeats(comm, &own.call)) {
    repeat(comm, &own);
  } else {
    come_behind(own.call.stream, comm->stream, comm->jobs);
    if (before->stream != comm->stream || before->jobs != comm->jobs) come_behind(own.call.stream, before->stream, before->jobs);
    add(comm, &own, 0);
  }
  *before = (struct given){context, comm->stream, comm->jobs};
  comm->last = own;
}

void nccl_finish(struct ncclComm *comm) {
  nccl_looked(NULL);
  if (comm->jobs > 0) fakegpu_wait(comm->stream, comm->jobs);
}
