/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_queue.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_graph.h"
#include "cuda_grid.h"
#include "cuda_stream.h"

/* Of all queues. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a job is done */
static CUstream all;

static void hold(const uint32_t *word) {
  for (unsigned vain = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0; vain++) usleep(vain < 20 ? 50 : 500);
}

static void *run_jobs(void *stream) {
  struct queue *queue = &((CUstream)stream)->queue;
  struct grid *grid = grid_new();
  pthread_mutex_lock(&lock);
  for (;;) {
    while (queue->done == queue->wanted) pthread_cond_wait(&queue->begins, &lock);
    struct job *job = queue->first;
    if (job->kind == JOB_AFTER) {
      while (job->after.stream->queue.done < job->after.jobs) pthread_cond_wait(&changed, &lock);
    } else {
      pthread_mutex_unlock(&lock);
      if (job->kind == JOB_KERNEL) grid_run(grid, &job->launch), module_ended(&job->launch);
      else if (job->kind == JOB_COPY) copy_run(job);
      else if (job->kind == JOB_ADD) add_run(job);
      else if (job->kind == JOB_NIC) nic_run(&job->nic);
      else if (job->kind == JOB_WATCH) nic_watch(&job->nic);
      else if (job->kind == JOB_HOLD) hold(job->hold);
      else if (job->kind == JOB_LET_GO) object_drop(job->object, 1);
      else memory_fill(job->fill.at, job->fill.value, job->fill.bytes);
      pthread_mutex_lock(&lock);
    }
    queue->first = job->next;
    if (queue->first == NULL) queue->last = NULL;
    free(job);
    queue->done++;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

/* It ends with the process, and the program's signals are not for it. */
static void start_thread(CUstream stream) {
  pthread_t thread;
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  if (pthread_create(&thread, NULL, run_jobs, stream) != 0) abort(); /* a test's machine is out of threads */
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  stream->queue.hasThread = 1;
}

/* Under the lock: all that was added so far may run. */
static void begin(void) {
  for (CUstream s = all; s != NULL; s = s->queue.other) {
    int more = s->queue.wanted != s->queue.added;
    s->queue.wanted = s->queue.added;
    if (!s->queue.hasThread) start_thread(s);
    else if (more) pthread_cond_signal(&s->queue.begins);
  }
}

void queue_add(CUstream stream, const struct job *job) {
  struct queue *queue = &stream->queue;
  struct job *own = malloc(sizeof *own);
  if (own == NULL) abort();
  *own = *job;
  own->next = NULL;
  pthread_mutex_lock(&lock);
  if (!queue->known) {
    queue->known = 1;
    pthread_cond_init(&queue->begins, NULL);
    queue->other = all;
    all = stream;
  }
  if (queue->last == NULL) queue->first = own;
  else queue->last->next = own;
  queue->last = own;
  queue->added++;
  pthread_mutex_unlock(&lock);
}

uint64_t queue_added(CUstream stream) {
  pthread_mutex_lock(&lock);
  uint64_t added = stream->queue.added;
  pthread_mutex_unlock(&lock);
  return added;
}

int queue_is_idle(CUstream stream) {
  pthread_mutex_lock(&lock);
  int idle = stream->queue.done == stream->queue.added;
  pthread_mutex_unlock(&lock);
  return idle;
}

void queue_wait(CUstream stream, uint64_t jobs) {
  if (jobs == 0) return;
  pthread_mutex_lock(&lock);
  begin();
  while (stream->queue.done < jobs) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

void queue_wait_context(CUcontext context) {
  pthread_mutex_lock(&lock);
  begin();
  /* Streams that come meanwhile are at the list's head; what is added meanwhile may not run yet, and is not waited for. */
  for (CUstream s = all; s != NULL; s = s->queue.other)
    for (uint64_t jobs = s->queue.wanted; s->context == context && s->queue.done < jobs;) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

int queue_is_done(CUstream stream, uint64_t jobs) {
  if (jobs == 0) return 1;
  pthread_mutex_lock(&lock);
  begin();
  int done = stream->queue.done >= jobs;
  pthread_mutex_unlock(&lock);
  return done;
}
