/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream seems to get a place in the GPU's front end with its first work, on one of two sides by turns, and streams that are no more stay
 * counted. Where one waits on the side of the one that computes, each kernel there begins 1 us later: a backward pass with NCCL beside it is 2%
 * longer. One turn of ours had a program's streams change sides, two or four or eight left them (docs/design/kernels.md, decision 34).
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
