/* SPDX-License-Identifier: Apache-2.0
 *
 * With its first work a stream gets its place in the GPU's front end, on one of two sides by turns; what has gone by since stays counted.
 * Where a stream waits for an event on the side of the one that computes, each kernel there begins 1 us later: a backward pass with NCCL
 * beside it is 2% longer. So one turn of ours would have all streams of the program change sides, and two leave them
 * (docs/design/kernels.md, decision 34).
 */
#include "turns.h"

#include "driver.h"

#define SIDES 2

bool dyn_do_on_streams(bool (*put)(void *of, void *stream), void *of) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  bool done = true;
  void *stream;
  for (int turn = 0; turn < SIDES && done; turn++) {
    if (driver->cuStreamCreate(&stream, DYN_STREAM_NON_BLOCKING) != 0) return false;
    done = put(of, stream);
    done = driver->cuStreamSynchronize(stream) == 0 && done;
    driver->cuStreamDestroy_v2(stream);
  }
  return done;
}
