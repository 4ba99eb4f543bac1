/* SPDX-License-Identifier: Apache-2.0
 *
 * Queues in either layout (gdaki_abi.h), as the host makes them, and what the card's kernel looks at in them: two words, wherever
 * these lie, so that one kernel serves both. For C and C++.
 */
#ifndef DYN_NIC_QUEUES_H
#define DYN_NIC_QUEUES_H

#include <string.h>

#include "gdaki_abi.h"
#include "nic.h"

static inline size_t nic_queue_bytes(int layout) { return layout == GDAKI_200 ? sizeof(struct gdaki_queue200) : sizeof(struct gdaki_queue100); }

/* One of them. Requests and completions are where the kernel has them, and all words are those of the first request. */
struct nic_queue_at {
  uint32_t number;
  uint8_t *requests, *completions;
  uint64_t *doorbell;
};

#define NIC_FILL_QUEUE(q, from, segments) \
  do { \
    memset(q, 0, sizeof *(q)); \
    (q)->number = (q)->done.number = (from)->number; \
    (q)->shifted = (from)->number << 8; \
    (q)->shiftedBe = __builtin_bswap32((from)->number << 8); \
    for (uint32_t s = 1; s <= (segments); s++) (q)->shiftedBeOf[s - 1] = __builtin_bswap32((from)->number << 8 | s); \
    (q)->count = NIC_DEPTH; \
    (q)->mask = NIC_DEPTH - 1; \
    (q)->requests = (from)->requests; \
    (q)->doorbell = (from)->doorbell; \
    (q)->done.at = (from)->completions; \
    (q)->done.count = NIC_DEPTH; \
    (q)->done.mask = NIC_DEPTH - 1; \
    (q)->done.bytes = NIC_COMPLETION_BYTES; \
    (q)->ringer = GDAKI_RING_FOR_PROXY; \
    (q)->memory = (q)->done.memory = GDAKI_MEMORY_OF_GPU; \
  } while (0)

static inline void nic_fill_queue(int layout, void *queue, const struct nic_queue_at *at) {
  struct gdaki_queue100 *old = (struct gdaki_queue100 *)queue;
  struct gdaki_queue200 *now = (struct gdaki_queue200 *)queue;
  if (layout == GDAKI_200) NIC_FILL_QUEUE(now, at, 5);
  else NIC_FILL_QUEUE(old, at, 4);
}

/* What a queue of that layout, at that address, is looked at by. In 2.28.9 the count of what is ready has a release of the GPU in
 * front of it, and the doorbell comes a fence later. In 2.32.3 a program may say that a queue is a thread's, or a block's, alone
 * (ncclGinResourceSharingMode): then what is ready has no release of the GPU, or none at all, and only the doorbell has. Of other
 * queues the doorbell comes at once behind what is ready. */
static inline struct nic_posted nic_posted_of(int layout, uint64_t queue, uint64_t *doorbell) {
  struct nic_posted p;
  p.rung = layout == GDAKI_200 ? doorbell : (uint64_t *)(uintptr_t)(queue + offsetof(struct gdaki_queue100, ready));
  p.known = (uint64_t *)(uintptr_t)(queue + (layout == GDAKI_200 ? offsetof(struct gdaki_queue200, done) + offsetof(struct gdaki_completions200, consumed)
                                                                 : offsetof(struct gdaki_queue100, done) + offsetof(struct gdaki_completions100, consumed)));
  return p;
}

#endif
