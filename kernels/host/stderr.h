/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on standard error. It may be a pipe that is full and that nobody reads, a terminal that is stopped or a file of a server that does not
 * answer: who writes to it then stands still, and other ranks may be waiting for him. So a thread of its own writes, for as long as there is
 * something. Who has it said waits a while for that, since a process may end behind it, but not for what does not come: then lines come late, and
 * what is too many is lost. One queue for each file that includes it.
 */
#ifndef DYN_HOST_STDERR_H
#define DYN_HOST_STDERR_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "thread.h"

#define DYN_STDERR_LINES 64
#define DYN_STDERR_NAPS 1000 /* of 0.5 ms */

static struct {
  pthread_mutex_t lock;
  char *lines[DYN_STDERR_LINES]; /* under lock, as what follows */
  unsigned put;                  /* so far */
  atomic_uint taken;             /* of these; written, or refused by the system */
  bool writes;                   /* a thread does */
  bool watched;                  /* forks are */
  atomic_bool stuck;             /* somebody has waited in vain since a line was last written */
} dyn_stderr = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The child of a fork has no thread that writes, and what was to be said is its parent's. */
static void dyn_stderr_forget(void) {
  dyn_stderr.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  dyn_stderr.put = dyn_stderr.taken = 0;
  dyn_stderr.writes = dyn_stderr.stuck = false;
}

/* Not through stdio, whose lock the program may want meanwhile, as exit does. */
static void dyn_stderr_write(const char *line) {
  for (ssize_t n; *line != '\0' && (n = write(STDERR_FILENO, line, strlen(line))) > 0;) line += n;
}

static void *dyn_stderr_run(void *nothing) {
  pthread_mutex_lock(&dyn_stderr.lock);
  while (dyn_stderr.taken != dyn_stderr.put) {
    char *line = dyn_stderr.lines[dyn_stderr.taken % DYN_STDERR_LINES];
    pthread_mutex_unlock(&dyn_stderr.lock);
    dyn_stderr_write(line);
    free(line);
    pthread_mutex_lock(&dyn_stderr.lock);
    dyn_stderr.taken++;
    dyn_stderr.stuck = false;
  }
  dyn_stderr.writes = false;
  pthread_mutex_unlock(&dyn_stderr.lock);
  return nothing;
}

enum dyn_stderr_became { DYN_STDERR_PUT, DYN_STDERR_LOST, DYN_STDERR_ALONE };
/* Under lock. ALONE: no thread can be had. */
static enum dyn_stderr_became dyn_stderr_put(char *line) {
  if (dyn_stderr.put - dyn_stderr.taken == DYN_STDERR_LINES) return DYN_STDERR_LOST;
  if (!dyn_stderr.watched) dyn_stderr.watched = pthread_atfork(NULL, NULL, dyn_stderr_forget) == 0;
  if (!dyn_stderr.writes) dyn_stderr.writes = dyn_stderr.watched && dyn_thread_start(dyn_stderr_run, NULL);
  if (!dyn_stderr.writes) return DYN_STDERR_ALONE;
  dyn_stderr.lines[dyn_stderr.put++ % DYN_STDERR_LINES] = line;
  return DYN_STDERR_PUT;
}

/* A line of ours. */
static void dyn_stderr_say(const char *text) {
  char *line;
  if (asprintf(&line, "dynamiccl: %s\n", text) <= 0) return;
  pthread_mutex_lock(&dyn_stderr.lock);
  enum dyn_stderr_became became = dyn_stderr_put(line);
  unsigned own = dyn_stderr.put;
  pthread_mutex_unlock(&dyn_stderr.lock);
  if (became == DYN_STDERR_ALONE) dyn_stderr_write(line);
  if (became != DYN_STDERR_PUT) free(line);
  for (int naps = 0; became == DYN_STDERR_PUT && (int)(dyn_stderr.taken - own) < 0 && !dyn_stderr.stuck; naps++) {
    if (naps == DYN_STDERR_NAPS) dyn_stderr.stuck = true;
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
  }
}

#endif
