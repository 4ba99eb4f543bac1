/* SPDX-License-Identifier: Apache-2.0
 *
 * A card (nic.h) that the host feeds: for GIN of type Proxy (put.c), so that NCCL's thread moves bytes and adds to signals without a call of
 * CUDA's, whose lock may be the program's while its kernels wait for just that (docs/design/carrier.md, decision 29). One for each connection,
 * with one block: requests and completions lie in host memory, which the GPU reads and writes. Its main queue is for copies, the side queue
 * for additions, which wait for none of these; each is done in its order.
 *
 * Launches are the affair of a thread of its own, which may be kept away by who has the lock, as NCCL's is with type GDAKI: what NCCL's
 * thread does here waits for nobody.
 */
#ifndef DYN_NIC_FEED_H
#define DYN_NIC_FEED_H

#include "../carrier.h"
#include "nic.h"

struct nic_feed;

enum { NIC_FEED_STAGED = 1024, NIC_FEED_MOST = NIC_DEPTH * NIC_FEED_STAGED /* bytes of host memory in one copy */ };

/* In the current CUDA context, of a connection whose ranks have met. NULL: there is no kernel, or no place for it, which was said. */
struct nic_feed *nic_feed_make(struct carrier *c);
/* Ends the kernel, and with it what is under way. */
void nic_feed_free(struct nic_feed *feed);

/* What follows is NCCL's thread's, but for the last. False: not now. */
bool nic_feed_has_room(struct nic_feed *feed, enum nic_side side, size_t bytes, bool host);
/* There is room. host: from is host memory, which is free again at once. Its number among those of this side. */
uint64_t nic_feed_copy(struct nic_feed *feed, carrier_address to, uint64_t from, size_t bytes, bool host);
uint64_t nic_feed_add(struct nic_feed *feed, carrier_address at, uint64_t value);
/* As mover_done. */
int nic_feed_done(struct nic_feed *feed, enum nic_side side, uint64_t number);
/* As mover_settle. */
bool nic_feed_settle(struct nic_feed *feed, uint64_t deadlineNs);

#endif
