/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DYN_MOVER_COUNT_H
#define DYN_MOVER_COUNT_H

#include <stdint.h>

#define DYN_MOVERS 8 /* at most */

uint64_t dyn_movers_clock_ns(void);

/* How many threads this process should have, by what the user says or by how many CPUs there are for each rank. */
int dyn_movers_wanted(void);

/* That many are there. */
void dyn_movers_are(int count);

/* How many of them to use, at this time: fewer where one had to wait for a CPU. */
int dyn_movers_now(uint64_t nowNs);

/* Of one of the threads: what it ran, and waited for a CPU, when it looked last, and how often it was woken since. */
struct dyn_mover_wait {
  int file;
  uint64_t lookedNs, ranNs, waitedNs, woken;
  unsigned strain; /* of late looks */
};
void dyn_mover_begins(struct dyn_mover_wait *wait);

/* A thread that has worked just now: whether it had to wait is looked at now and then. */
void dyn_mover_worked(struct dyn_mover_wait *wait, uint64_t nowNs);

#endif
