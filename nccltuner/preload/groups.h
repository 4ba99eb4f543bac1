/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the preload library: timing the calls of a group. A thread that drives several GPUs makes one call for each within
 * a group (ncclCommInitAll, nccl-tests), which is the same as a call by each of as many processes. So a group is timed in which
 * each communicator has one call, all of the same function and size, each on a stream of its own; any other is left alone:
 * NCCL takes several calls of a communicator together, and on a stream that two share each would be charged with both.
 *
 * The calls run when the group ends, so events are recorded then: before NCCL, and our kernels, get any of them, and when all
 * have been launched. Meanwhile the plugin is asked about one after the other in this thread, and says which rank it means. Two
 * that it could mean are not timed.
 */
#ifndef DYN_GROUPS_H
#define DYN_GROUPS_H

#include "forward.h"

/* In a group: a call that begins. key: as dyn_passage_enter's. */
void dyn_grouped_add(void *comm, void *stream, uint64_t key);
/* In a group something goes that was called: it is left alone. */
void dyn_grouped_spoil(void);
/* The outermost group ends, before anything of it is given to anybody; nothing runs where it is simulated. captured: a call of it is known to be. */
void dyn_grouped_begin(bool simulated, bool captured);
/* All is launched. */
void dyn_grouped_end(int result);

/* While it ends: of a communicator. NULL: it is not timed. */
struct dyn_timed *dyn_grouped_timed(const void *comm);
/* Likewise, of the rank's call. False: there is none, or two. */
bool dyn_grouped_about(uint32_t nRanks, int rank, int collective, struct dyn_about *about);

#endif
