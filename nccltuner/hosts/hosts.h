/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement among several hosts, as part of the preload library: a thread of its own per process speaks for the ranks that the process has
 * (rank.h) and is the hub of the communicators whose id it made (hub.h). It runs once a communicator over several nodes is there.
 */
#ifndef DYN_HOSTS_H
#define DYN_HOSTS_H

#include "ids.h"
#include "rank.h"

typedef void (*dyn_hosts_logger)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);

/* For the plugin. */
struct dyn_hosts_calls {
  /* The rank has registered in its record. place: nonce is found here. NULL: where its ranks meet is not known. The fence is the rank's until leave. */
  struct dyn_fence *(*begin)(const struct dyn_hosts_place *place, dyn_hosts_logger log);
  void (*leave)(struct dyn_fence *fence);
  /* DYN_ALL_*: whether all ranks make GIN's own communicator, with that id. Waits for nothing. */
  uint32_t (*gin)(struct dyn_fence *fence, uint8_t id[128]);
  /* This rank has waited long enough, and does not. */
  void (*decline)(struct dyn_fence *fence);
};

/* Of the program's ncclGetUniqueId. */
void dyn_hosts_mark(void *id);

/* For the calls of this rank to come and go with it. */
struct dyn_fence *dyn_hosts_begin(const struct dyn_hosts_place *place, const struct dyn_root *root, dyn_hosts_logger log);
void dyn_hosts_leave(struct dyn_fence *fence);
uint32_t dyn_hosts_gin(struct dyn_fence *fence, uint8_t id[128]);
void dyn_hosts_decline(struct dyn_fence *fence);
/* Whether one of the communicator's ranks on other hosts has gone for good, as this rank knows; why: which one. In any thread. */
bool dyn_hosts_gone(uint64_t commId, uint32_t rank, char *why, size_t bytes);

#endif
