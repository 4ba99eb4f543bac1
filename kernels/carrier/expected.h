/* SPDX-License-Identifier: Apache-2.0
 *
 * What the carrier is told by who launches kernels that put: that one is coming, and that it has ended. Its own kernels are on the GPU
 * from before the one until behind the other (nic/launches.c), for when the program's kernel runs nobody may be able to launch any: a
 * launch of the program's that finds CUDA's queue full keeps CUDA's lock until the GPU has gone on, and it goes on when the carrier does.
 * PyTorch's DDP stood still so.
 */
#ifndef DYN_CARRIER_EXPECTED_H
#define DYN_CARRIER_EXPECTED_H

#include <stdint.h>

/* Where they are counted. Both go on counting as long as the device communicator lives, and wrap. */
struct dyn_carrier_expected {
  uint32_t *asked;  /* host memory that the GPU sees: kernels, added to before each is launched; what could not be launched is taken back */
  uint32_t *ended;  /* GPU memory: added to by each at its end, or where it gives up */
  const uint32_t *lapsed; /* host memory: of how many of its cards none is on the GPU, behind an addition to asked: 0 soon, before the launch */
};

/* False: no device communicator of this carrier's has this handle (ncclDevComm.ginHandles), or its GIN is of type Proxy. */
#define DYN_CARRIER_EXPECTED "dynamicclCarrierExpected"
typedef _Bool dyn_carrier_expected_of(const void *handle, struct dyn_carrier_expected *expected);

#endif
