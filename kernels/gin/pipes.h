/* SPDX-License-Identifier: Apache-2.0
 *
 * Where circular buffers of hierarchical kernels lie in the window, behind a lane's slots: for the device code and for the
 * host's alike. A node is what NCCL calls an LSA team: localRanks ranks in a row, which reach each other's memory. Ranks of
 * the same place in their nodes are a rail.
 *
 * A channel is three blocks, one of each role, and has cells of its own: to and from each node of its rail, and from each rank
 * of its node. Flags of its node's ranks stand before all cells, numbers of items that go up for ever.
 */
#ifndef DYN_GIN_PIPES_H
#define DYN_GIN_PIPES_H

#include "gin.h"

#define DYN_GIN_ROLES 3
#define DYN_GIN_CHANNELS (DYN_GIN_MAX_BLOCKS / DYN_GIN_ROLES)
#define DYN_GIN_CELLS 4 /* of a circular buffer */
/* At least two nodes, so of a node no more; behind these come places that a rank has for its own blocks. */
#define DYN_GIN_MAX_LOCAL (DYN_KERNEL_MAX_RANKS / 2)
enum dyn_gin_flag { DYN_GIN_TAIL, DYN_GIN_HEAD, DYN_GIN_FLAGS }; /* put into a cell so far; taken out of it */
#define DYN_GIN_FLAG_WORDS (DYN_GIN_FLAGS * DYN_GIN_CHANNELS * DYN_KERNEL_MAX_RANKS)
#define DYN_GIN_FLAG_BYTES 512 /* room for them */

/* Hierarchical kernels run on communicators of several nodes that have several ranks each. */
DYN_BOTH static inline bool dyn_gin_hierarchical(int nRanks, int localRanks) {
  return localRanks > 1 && localRanks < nRanks && nRanks % localRanks == 0 && nRanks <= DYN_KERNEL_MAX_RANKS;
}
/* Of a channel: from each node, to each node, from each rank of the node. */
DYN_BOTH static inline size_t dyn_gin_buffers(int nRanks, int localRanks) { return 2 * (size_t)(nRanks / localRanks) + (size_t)localRanks; }
/* Of a lane. */
DYN_BOTH static inline size_t dyn_gin_pipe_bytes(int nRanks, int localRanks, size_t cellBytes) {
  return dyn_gin_hierarchical(nRanks, localRanks) ? DYN_GIN_FLAG_BYTES + DYN_GIN_CHANNELS * dyn_gin_buffers(nRanks, localRanks) * DYN_GIN_CELLS * cellBytes : 0;
}
DYN_BOTH static inline size_t dyn_gin_flag_at(int flag, unsigned channel, int peer) {
  return (((size_t)flag * DYN_GIN_CHANNELS + channel) * DYN_KERNEL_MAX_RANKS + (size_t)peer) * sizeof(uint32_t);
}

#endif
