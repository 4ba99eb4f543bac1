/* SPDX-License-Identifier: Apache-2.0
 *
 * What was decided of late, for the profiler half, which hears later what NCCL ran.
 */
#include "comm.h"
#include "datatype.h"

/* The profiler half may read this from a thread of NCCL's while it is written: an entry whose number is not the same
 * before and after is torn, and the communicator's seq counts an entry only once it is whole. */
void dyn_decision_note(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action) {
  struct dyn_decision *d = &comm->decisions[seq % DYN_NUM_DECISIONS];
  __atomic_store_n(&d->seq, UINT64_MAX, __ATOMIC_RELAXED);
  atomic_thread_fence(memory_order_release);
  d->bytes = bytes;
  d->action = action;
  d->planVersion = (uint32_t)comm->plan.version;
  d->counted = (unsigned)collective < UINT8_MAX ? (uint8_t)collective : UINT8_MAX;
  d->collective = (unsigned)collective < DYN_NUM_COLLECTIVES ? (uint8_t)dyn_nccls(collective) : d->counted;
  __atomic_store_n(&d->seq, seq, __ATOMIC_RELEASE);
}

static int find(struct dyn_comm *comm, int collective, const uint64_t *bytes, struct dyn_decision *out) {
  uint64_t oldest = comm->seq > DYN_NUM_DECISIONS ? comm->seq - DYN_NUM_DECISIONS : 0;
  for (uint64_t seq = comm->seq; seq-- > oldest;) {
    const struct dyn_decision *d = &comm->decisions[seq % DYN_NUM_DECISIONS];
    if (d->seq != seq || d->collective != collective || (bytes && d->bytes != *bytes)) continue;
    *out = *d;
    return 1;
  }
  return 0;
}

int dyn_decision_find(struct dyn_comm *comm, int collective, uint64_t bytes, struct dyn_decision *out) {
  return find(comm, collective, &bytes, out);
}

int dyn_decision_newest(struct dyn_comm *comm, int collective, struct dyn_decision *out) {
  return find(comm, collective, NULL, out);
}
