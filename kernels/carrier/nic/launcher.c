/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher.h"

#include <signal.h>
#include <time.h>

enum { TURN_NS = 100000, IDLE_TURN_NS = 500000 }; /* from one turn to the next */

static void *launch(void *argument) {
  struct nic_launcher *launcher = argument;
  while (!atomic_load(&launcher->stops)) nanosleep(&(struct timespec){.tv_nsec = launcher->turn(launcher->of) ? TURN_NS : IDLE_TURN_NS}, NULL);
  return NULL;
}

/* The program's signals are not for it. */
bool nic_launcher_start(struct nic_launcher *launcher, bool (*turn)(void *of), void *of) {
  sigset_t every, before;
  launcher->turn = turn, launcher->of = of;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  launcher->isThere = pthread_create(&launcher->thread, NULL, launch, launcher) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return launcher->isThere;
}

void nic_launcher_stop(struct nic_launcher *launcher) {
  atomic_store(&launcher->stops, true);
  if (launcher->isThere) pthread_join(launcher->thread, NULL);
  launcher->isThere = false;
}
