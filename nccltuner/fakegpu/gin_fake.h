/* SPDX-License-Identifier: Apache-2.0
 *
 * GIN of the stand-ins: what libnccl's makes and the kernels in libcuda's use. A put is a copy into the peer's memory, which
 * this process has mapped, and its signal a word there that is added to; both are done when the put returns.
 */
#ifndef FAKEGPU_GIN_FAKE_H
#define FAKEGPU_GIN_FAKE_H

#include <stdint.h>

#include "../../kernels/gin/gin.h"
#include "../../kernels/host/nccl_gin.h"

enum { FAKE_GIN_CONTEXTS = 2 }; /* as many blocks of a grid run (cuda_grid.h) */
#define FAKE_GIN_SIGNALS (2 * DYN_GIN_KINDS * DYN_GIN_MAX_BLOCKS * DYN_KERNEL_MAX_RANKS) /* of a context */

struct fake_gin { /* ncclDevComm.ginHandles[0] */
  uint64_t *signals[DYN_KERNEL_MAX_RANKS]; /* of every rank: [FAKE_GIN_CONTEXTS][FAKE_GIN_SIGNALS] */
  uint64_t counters[FAKE_GIN_CONTEXTS][FAKE_GIN_SIGNALS];
  uint32_t depths[FAKE_GIN_CONTEXTS][DYN_KERNEL_MAX_RANKS]; /* of queues */
  int silent; /* its signals never arrive */
};

struct fake_window { /* ncclWindow_t */
  char *at[DYN_KERNEL_MAX_RANKS]; /* of every rank */
};

#endif
