/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the peers' windows lie in this process's address space, as NCCL has mapped them for its own kernels.
 */
#ifndef DYN_PEERS_H
#define DYN_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "../../kernels/device/call.h"

struct dyn_peers {
  uint64_t before; /* bytes of the memory in which the window lies, before it: a peer's window may lie further on in its memory */
  uint64_t reach;  /* bytes of every rank's memory that are mapped */
  char *base[DYN_KERNEL_MAX_RANKS]; /* where that memory begins, of every rank */
};

/* Where a window of so many bytes was just registered. False: it cannot be known, or not all of it. Copies from the GPU, so never
 * while calls wait. */
bool dyn_peers_of(void *window, const void *at, uint64_t bytes, uint32_t nRanks, uint32_t rank, struct dyn_peers *peers);

#endif
