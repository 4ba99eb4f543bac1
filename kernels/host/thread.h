/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DYN_HOST_THREAD_H
#define DYN_HOST_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* A thread of ours in a program's process, for as long as that lives. False: it cannot be had. */
static inline bool dyn_thread_start(void *(*run)(void *), void *of) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false; /* the program's signals are its own threads' */
  bool made = pthread_create(&thread, NULL, run, of) == 0 && pthread_detach(thread) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return made;
}

#endif
