/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams on which a group has sends and receives beside a collective of ours of the same communicator. NCCL has all streams of a
 * communicator in a group wait for each other, before and behind what it runs (ncclLaunchPrepare and ncclLaunchFinish, src/enqueue.cc), and
 * programs count on it; what we launch is no part of that.
 */
#ifndef DYN_BESIDE_H
#define DYN_BESIDE_H

#include <stdbool.h>

#include "../../kernels/host/host.h"

struct dyn_beside {
  unsigned n, room;
  void **streams; /* each once; the memory stays for the next group */
};

/* False: there is no memory. */
bool dyn_beside_add(struct dyn_beside *beside, void *stream);
/* What comes on this stream waits for all of those, or they for it. ncclResult_t. */
int dyn_beside_first(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream);
int dyn_beside_then(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream);

#endif
