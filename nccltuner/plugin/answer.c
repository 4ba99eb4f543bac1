/* SPDX-License-Identifier: Apache-2.0
 *
 * A program may capture the first calls of a communicator in a CUDA graph, or time them, and what was measured before
 * (`dynamiccld calibrate`) is in force once the daemon has published a plan. It does so within a few milliseconds after the ranks
 * have joined. So each rank waits for that, once NCCL has made the communicator and before the program has it. No choice depends on
 * whether it came in time.
 */
#include <time.h>

#include "../../kernels/host/host.h"
#include "comm.h"

#define ANSWER_WAIT_MS 25 /* making a communicator takes hundreds */

/* One thread may make the communicators of several GPUs: the last of them waits. */
static bool last_of_process(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  for (uint32_t i = 0; i < comm->nRanks; i++)
    if (ranks[i].pid == comm->self->pid && __atomic_load_n(&ranks[i].memoryState, __ATOMIC_ACQUIRE) != DYN_MEMORY_BOUND) return false;
  return true;
}

void dyn_answer_wait(struct dyn_comm *comm) {
  static atomic_bool missed; /* a daemon that is stopped, or that many others keep busy, costs a process this once */
  const struct dyn_record *record = comm->record;
  bool kernels = comm->bound > 0;
  uint32_t want = kernels ? DYN_ANSWERED_KERNELS : DYN_ANSWERED_RANKS;
  if (!record || __atomic_load_n(&record->veto, __ATOMIC_RELAXED) || __atomic_load_n(&record->joined, __ATOMIC_ACQUIRE) != comm->nRanks ||
      (kernels && (!comm->allBind || !last_of_process(comm))) || !dyn_daemon_lives(comm->log))
    return;
  uint64_t until = dyn_host_ns() + (atomic_load(&missed) ? 0 : DYN_NS_PER_MS * ANSWER_WAIT_MS);
  bool answered;
  while (!(answered = __atomic_load_n(&record->answered, __ATOMIC_ACQUIRE) >= want) && dyn_host_ns() < until)
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  atomic_store(&missed, !answered);
}
