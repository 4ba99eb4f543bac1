/* SPDX-License-Identifier: Apache-2.0
 *
 * What moves bytes or changes signals on the GPU, for one connection or context of a communicator. All that the rest of the carrier asks
 * of CUDA while data moves is here. Where the carrier's kernel is there it asks nothing: the kernel moves (nic/feed.h), and nobody waits for
 * CUDA's lock.
 *
 * A mover is an order: of two puts, the later is never done before the earlier; and so of two adds. One thread at a time.
 */
#ifndef DYN_CARRIER_MOVER_H
#define DYN_CARRIER_MOVER_H

#include "driver.h"

struct mover;
struct move; /* one transfer under way */

/* In the current CUDA context, which it keeps using. NULL: why not was said. Each kind has a stream of its own: a signal does
 * not wait for copies that come the other way. */
enum mover_kind { MOVER_PUTS, MOVER_ADDS };
struct nic_feed;
struct mover *mover_make(enum mover_kind kind, struct nic_feed *feed); /* feed: of the connection, or NULL */
/* False: later. An addition has no bytes. */
bool mover_has_room(struct mover *mover, size_t bytes, bool host);
/* There is room. NULL: it was said why. host: from is host memory, which is free again at once. The bytes are not 0. */
struct move *mover_put(struct mover *mover, carrier_address to, uint64_t from, size_t bytes, bool host);
/* 1: all bytes can be seen by everybody, 0: not yet; the move is gone after 1. -1: CUDA failed, which was said. */
int mover_done(struct mover *mover, struct move *move);
/* Adds to 64 bits of this GPU, atomically, adds of one mover in their order; released to the system. False: it was said why. */
bool mover_add(struct mover *mover, carrier_address at, uint64_t value);
/* In any thread. False: by then (carrier_now_ns) not all is over that was under way; what is asked for later is not waited for. */
bool mover_settle(struct mover *mover, uint64_t deadlineNs);
/* Waits for what is under way, which is this GPU's own. */
void mover_free(struct mover *mover);

#endif
