/* SPDX-License-Identifier: Apache-2.0
 *
 * What was decided of late (tuner.c notes it), for the profiler half, which hears later what NCCL ran.
 */
#include "comm.h"

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
