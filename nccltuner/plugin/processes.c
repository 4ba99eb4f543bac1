/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have of NCCL's device kernels, by its version and by the processes they share.
 */
#include "everywhere.h"

#include <stdlib.h>

#define NOWIN "NCCL_SYM_NOWIN_ENABLE"

void dyn_device_settle(dyn_logger log) {
  uint32_t version = dyn_nccl_version(log);
  const char *value = getenv(NOWIN);
  if (version < DYN_READS_NOWIN || version >= DYN_DEVICE_LOADS || !value || strtoll(value, NULL, 0) == 0) return;
  setenv(NOWIN, "0", 1); /* in the place that it has: no other thread's look meets a list that moves */
  dyn_say_once(log, DYN_LOG_INFO, "the device kernels of NCCL %u.%u.%u read some addresses wrongly: " NOWIN "=0 in this process, LL stays the classic kernel",
               version / 10000, version / 100 % 100, version % 100);
}

int8_t dyn_device_of_ranks(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  uint32_t sharing = 0, version = comm->self->ncclVersion;
  bool reads = comm->nNodes == 1 && version >= DYN_READS_NOWIN; /* between nodes there are none */
  int8_t all = !reads || dyn_everywhere(comm, DYN_RANK_SEES_AVERAGES) ? DYN_DEVICE_ALL : DYN_DEVICE_BUT_ALL_REDUCE;
  if (!dyn_everywhere(comm, DYN_RANK_DEVICE_LL)) return DYN_DEVICE_NONE;
  if (dyn_everywhere(comm, DYN_RANK_SHARES_LL)) return reads && version < DYN_DEVICE_LOADS ? DYN_DEVICE_SOME : all;
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    bool shares = false;
    for (uint32_t j = 0; j < comm->nRanks && !shares; j++) shares = j != i && ranks[j].pid == ranks[i].pid;
    sharing += shares;
  }
  if (sharing == comm->nRanks || (sharing && !reads)) return DYN_DEVICE_NONE;
  return sharing || (reads && version < DYN_DEVICE_LOADS) ? DYN_DEVICE_SOME : all;
}
