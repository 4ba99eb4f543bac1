/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of communicators that ranks have left, and who has (docs/design.md, decision 1). Of record.c alone.
 */
#ifndef DYN_LEFT_H
#define DYN_LEFT_H

#include "comm.h"

/* A process that is dead, or a rank that has left, can never be part of this communicator again. */
static inline bool dyn_is_over(struct dyn_rank *rank) {
  return __atomic_load_n(&rank->position, __ATOMIC_ACQUIRE) == UINT64_MAX ||
         !dyn_process_lives(rank->pid, rank->startTime);
}

/* Ranks that are killed leave their record for the daemon to delete; where none lives a program deletes those of earlier ones. Under join.lock, and
 * so many at most that others need not wait for long. */
void dyn_sweep_records(const char *directory, dyn_logger log);

#endif
