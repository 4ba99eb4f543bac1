/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of GIN on one communicator (DYN_GIN_* of nccltuner/abi.h) and the moves between them: gin_state.c.
 */
#ifndef DYN_GIN_STATE_H
#define DYN_GIN_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../nccltuner/abi.h"

#define DYN_GIN_MOST_DEPTH (UINT32_C(1) << 30)

struct dyn_gin_state {
  _Atomic(uint32_t) now;
  uint32_t backend, contexts; /* once granted */
  uint32_t depth;             /* likewise: entries of the shortest queue to a peer, a power of two; 0: not told */
  uint32_t *told;             /* where others read it; NULL: nowhere */
};

/* False: there is no such move, and nothing is changed. */
bool dyn_gin_move(struct dyn_gin_state *state, uint32_t to);
/* Kernels may be launched. */
bool dyn_gin_usable(const struct dyn_gin_state *state);
const char *dyn_gin_state_name(uint32_t state);
const char *dyn_gin_backend_name(uint32_t backend);

#endif
