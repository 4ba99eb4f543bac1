/* SPDX-License-Identifier: Apache-2.0
 *
 * What the carrier is told by who launches kernels that put: that one is coming, that it was launched, and that it has ended. So a watch of
 * the carrier's is on the GPU when the program's kernel begins to put (nic/nic_watch.cuh), for by then nobody may be able to launch one: a
 * launch of the program's may keep CUDA's lock until the GPU has gone on, and that goes on when the carrier does. PyTorch's DDP stood still so.
 *
 * One that is only coming keeps no kernel on the GPU: who has the lock, and waits until the GPU is idle, may be what it has to wait for.
 *
 * Of what a CUDA graph replays nobody hears before it begins. So as long as there may be such graphs launches never cease, and one without a
 * successor stays a while; and these kernels tell of their beginning, from which on they are expected as others are.
 */
#ifndef DYN_CARRIER_EXPECTED_H
#define DYN_CARRIER_EXPECTED_H

#include <stdbool.h>
#include <stdint.h>

/* Of kernels that come one after the other, each of which counts its end by its last block, where it gives up, too, and its beginning by its first. */
enum dyn_expected_word { DYN_EXPECTED_OVER, DYN_EXPECTED_BLOCKS /* that are over, of one that is not */, DYN_EXPECTED_BEGUN, DYN_EXPECTED_WORDS = 4 };

/* Whether there may be such graphs; OVER: nor does anybody launch a kernel that puts any more, though the device communicator stays. */
enum dyn_expected_graphs { DYN_EXPECTED_NO_GRAPHS, DYN_EXPECTED_GRAPHS, DYN_EXPECTED_NOTHING };

/* Where they are counted, as long as the device communicator lives. All wrap. */
struct dyn_carrier_expected {
  uint32_t *asked;    /* host memory: kernels that are to be launched: added to before, and again behind a launch that was kept for long */
  uint32_t *launched; /* host memory: that were launched, behind it */
  uint32_t *ended;    /* GPU memory, DYN_EXPECTED_WORDS: of these, as kernels count themselves */
  uint32_t *replayed; /* likewise, of those in CUDA graphs */
  uint32_t *captured; /* host memory, dyn_expected_graphs */
  const uint32_t *lapsed; /* host memory: of how many of its cards none is on the GPU, behind an addition to asked: 0 soon, before the launch */
};

/* False: no device communicator of this carrier's has this handle (ncclDevComm.ginHandles), or CUDA's copies move (nic/feed.h). */
#define DYN_CARRIER_EXPECTED "dynamicclCarrierExpected"
typedef bool dyn_carrier_expected_of(const void *handle, struct dyn_carrier_expected *expected);

#endif
