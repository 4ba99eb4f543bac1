/* SPDX-License-Identifier: Apache-2.0
 *
 * Where rank processes wait for each other, in memory that they share. Who waits takes no CPU from those who are to come, for machines have
 * more ranks than CPUs.
 */
#ifndef DYN_TEST_MEETING_H
#define DYN_TEST_MEETING_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

struct meeting {
  atomic_int waiting, round;
};

static inline void meet_all(struct meeting *m, int ranks) {
  int round = atomic_load(&m->round);
  if (atomic_fetch_add(&m->waiting, 1) == ranks - 1) {
    atomic_store(&m->waiting, 0);
    atomic_fetch_add(&m->round, 1);
    syscall(SYS_futex, &m->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
  while (atomic_load(&m->round) == round) syscall(SYS_futex, &m->round, FUTEX_WAIT, round, NULL, NULL, 0);
}

#endif
