/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks have of NCCL's device kernels, by its version and by the processes they share.
 */
#include "everywhere.h"
#include "nccl_env.h"

#include <stdlib.h>

#include "transport.h"

#define NOWIN "NCCL_SYM_NOWIN_ENABLE"

/* NULL: nothing. What all ranks of a communicator say alike, whatever becomes of their records. The first one whose calls may have NCCL look
 * decides for all: what it has seen stays. */
static const char *stands_against(const struct dyn_comm *comm) {
  static atomic_bool decided;
  uint32_t version = dyn_nccl_version(comm->log);
  if (version == 0) return "NCCL does not say which it is";
  if (version >= DYN_READS_NOWIN && version < DYN_DEVICE_LOADS) return "those of this NCCL read some addresses wrongly";
  if (dyn_user_decides()) return "the user's algorithm or protocol is meant";
  if (comm->nNodes != 1 || comm->nRanks < 2 || atomic_exchange(&decided, true)) return NULL;
  if (dyn_transport_beyond(&dyn_this_machine, comm->nRanks)) return "this host has fewer GPUs than there are ranks, which cannot agree on them";
  return dyn_transport_node(&dyn_this_machine, comm->nRanks) == DYN_TRANSPORT_PCIE ? "they need NVLink" : NULL;
}

void dyn_device_settle(const struct dyn_comm *comm) {
  const char *why;
  if (!nccl_is_on(NOWIN) || !(why = stands_against(comm))) return;
  setenv(NOWIN, "0", 1); /* in the place that it has: no other thread's look meets a list that moves */
  dyn_say_once(comm->log, DYN_LOG_INFO, "NCCL's device kernels on ordinary buffers are let alone, for %s: " NOWIN "=0 in this process, LL is the classic kernel", why);
}

/* Of ordinary buffers. */
static int8_t none_of_ranks(const struct dyn_comm *comm) {
  if (!dyn_asks_of_windows(comm, comm->self->ncclVersion)) return DYN_DEVICE_NONE;
  return dyn_everywhere(comm, DYN_RANK_SEES_WINDOWS) ? DYN_DEVICE_WINDOWS : DYN_DEVICE_UNSEEN;
}

int8_t dyn_device_of_ranks(const struct dyn_comm *comm) {
  const struct dyn_rank *ranks = dyn_ranks_of(comm->record);
  uint32_t sharing = 0, version = comm->self->ncclVersion;
  bool reads = comm->nNodes == 1 && version >= DYN_READS_NOWIN; /* between nodes there are none */
  int8_t all = !reads || dyn_everywhere(comm, DYN_RANK_SEES_AVERAGES) ? DYN_DEVICE_ALL : DYN_DEVICE_BUT_ALL_REDUCE;
  if (!dyn_everywhere(comm, DYN_RANK_DEVICE_LL)) return reads && dyn_anywhere(comm, DYN_RANK_DEVICE_LL) ? DYN_DEVICE_SOME : none_of_ranks(comm);
  if (dyn_everywhere(comm, DYN_RANK_SHARES_LL)) return reads && version < DYN_DEVICE_LOADS ? DYN_DEVICE_SOME : all;
  for (uint32_t i = 0; i < comm->nRanks; i++) {
    bool shares = false;
    for (uint32_t j = 0; j < comm->nRanks && !shares; j++) shares = j != i && ranks[j].pid == ranks[i].pid;
    sharing += shares;
  }
  if (sharing == comm->nRanks || (sharing && !reads)) return none_of_ranks(comm);
  return sharing || (reads && version < DYN_DEVICE_LOADS) ? DYN_DEVICE_SOME : all;
}
