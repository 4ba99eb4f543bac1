/* SPDX-License-Identifier: Apache-2.0
 *
 * What the carrier is told by who launches kernels that put: that one is coming, that it was launched, and that it has ended. So a watch of
 * the carrier's is on the GPU when the program's kernel begins to put (nic/nic_watch.cuh), for by then nobody may be able to launch one: a
 * launch of the program's may keep CUDA's lock until the GPU has gone on, and that goes on when the carrier does. PyTorch's DDP stood still so.
 *
 * One that is only coming keeps no kernel on the GPU: who has the lock, and waits until the GPU is idle, may be what it has to wait for.
 */
#ifndef DYN_CARRIER_EXPECTED_H
#define DYN_CARRIER_EXPECTED_H

#include <stdint.h>

/* Where they are counted, as long as the device communicator lives. All wrap. */
struct dyn_carrier_expected {
  uint32_t *asked;    /* host memory: kernels that are to be launched: added to before, and again behind a launch that was kept for long */
  uint32_t *launched; /* host memory: that were launched, behind it */
  uint32_t *ended;    /* GPU memory: added to by each of these at its end, or where it gives up; a word of theirs stands behind it */
  const uint32_t *lapsed; /* host memory: of how many of its cards none is on the GPU, behind an addition to asked: 0 soon, before the launch */
};

/* False: no device communicator of this carrier's has this handle (ncclDevComm.ginHandles), or its GIN is of type Proxy. */
#define DYN_CARRIER_EXPECTED "dynamicclCarrierExpected"
typedef _Bool dyn_carrier_expected_of(const void *handle, struct dyn_carrier_expected *expected);

#endif
