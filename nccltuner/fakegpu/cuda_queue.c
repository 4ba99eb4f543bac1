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

/* Under the lock, by the stream's thread, or by one that waits for the stream, which has no grid. */
static void run_first(struct queue *queue, struct grid *grid) {
  struct job *job = queue->first;
  queue->runs = 1;
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
    else if (job->kind == JOB_CALL) job->call.run(job->call.argument);
    else memory_fill(job->fill.at, job->fill.value, job->fill.bytes);
    pthread_mutex_lock(&lock);
  }
  queue->first = job->next;
  if (queue->first == NULL) queue->last = NULL;
  free(job);
  queue->done++;
  queue->runs = 0;
  pthread_cond_broadcast(&changed);
}

static void *run_jobs(void *stream) {
  struct queue *queue = &((CUstream)stream)->queue;
  struct grid *grid = grid_new();
  pthread_mutex_lock(&lock);
  for (;;) {
    while (queue->runs || queue->done == queue->wanted) pthread_cond_wait(&queue->begins, &lock);
    run_first(queue, grid);
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

/* Under the lock: the stream's thread sees to what may run. */
static void go_on(CUstream stream) {
  if (stream->queue.runs || stream->queue.done == stream->queue.wanted) return;
  if (!stream->queue.hasThread) start_thread(stream);
  else pthread_cond_signal(&stream->queue.begins);
}

/* Under the lock: all that was added so far may run, and does but for one stream's, which who calls this will wait for. NULL: all does. */
static void begin(CUstream but) {
  for (CUstream s = all; s != NULL; s = s->queue.other) {
    int more = s->queue.wanted != s->queue.added;
    s->queue.wanted = s->queue.added;
    if (s != but && more) go_on(s);
  }
}

/* Under the lock: a thread that waits runs what it waits for, if it can: most programs wait for each of their calls, and two threads that wake
 * each other would take longer than a call. */
static void wait_for(CUstream stream, uint64_t jobs) {
  struct queue *queue = &stream->queue;
  while (queue->done < jobs) {
    int kind = queue->first->kind;
    if (!queue->runs && (kind == JOB_CALL || kind == JOB_AFTER || kind == JOB_FILL)) {
      run_first(queue, NULL);
    } else {
      go_on(stream);
      pthread_cond_wait(&changed, &lock);
    }
  }
  go_on(stream);
}

uint64_t queue_add(CUstream stream, const struct job *job) {
  struct queue *queue = &stream->queue;
  struct job *own = malloc(sizeof *own);
  if (own == NULL) abort();
  *own = *job;
  own->next = NULL;
  stream_place(stream);
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
  uint64_t added = ++queue->added;
  pthread_mutex_unlock(&lock);
  return added;
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
  begin(stream);
  wait_for(stream, jobs);
  pthread_mutex_unlock(&lock);
}

void queue_wait_context(CUcontext context) {
  pthread_mutex_lock(&lock);
  CUstream first = all;
  while (first != NULL && (first->context != context || first->queue.done == first->queue.added)) first = first->queue.other;
  begin(first);
  /* Streams that come meanwhile are at the list's head; what is added meanwhile may not run yet, and is not waited for. */
  for (CUstream s = first; s != NULL; s = s->queue.other)
    if (s->context == context) wait_for(s, s->queue.wanted);
  pthread_mutex_unlock(&lock);
}

int queue_is_done(CUstream stream, uint64_t jobs) {
  if (jobs == 0) return 1;
  pthread_mutex_lock(&lock);
  begin(NULL);
  int done = stream->queue.done >= jobs;
  pthread_mutex_unlock(&lock);
  return done;
}

/* For libnccl. */
uint64_t fakegpu_job(CUstream stream, void (*run)(void *argument), void *argument) {
  return queue_add(stream_of(stream), &(struct job){.kind = JOB_CALL, .call = {run, argument}});
}

void fakegpu_after(CUstream stream, CUstream other, uint64_t jobs) {
  queue_add(stream_of(stream), &(struct job){.kind = JOB_AFTER, .after = {stream_of(other), jobs}});
}

void fakegpu_wait(CUstream stream, uint64_t jobs) { queue_wait(stream_of(stream), jobs); }
