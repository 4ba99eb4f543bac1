/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that share a process have of NCCL's device kernels.
 */
#include "everywhere.h"

#define DYN_READS_NOWIN 22902 /* NCCL_VERSION code */

int8_t dyn_device_of_ranks(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  uint32_t sharing = 0;
  if (!dyn_everywhere(comm, DYN_RANK_DEVICE_LL)) return DYN_DEVICE_NONE;
  if (dyn_everywhere(comm, DYN_RANK_SHARES_LL)) return DYN_DEVICE_ALL;
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    bool shares = false;
    for (uint32_t j = 0; j < comm->nRanks && !shares; j++) shares = j != i && ranks[j].pid == ranks[i].pid;
    sharing += shares;
  }
  if (sharing == 0) return DYN_DEVICE_ALL;
  bool parted = sharing < comm->nRanks && comm->nNodes == 1 && comm->self->ncclVersion >= DYN_READS_NOWIN; /* between nodes there are none */
  return parted ? DYN_DEVICE_SOME : DYN_DEVICE_NONE;
}
