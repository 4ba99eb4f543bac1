/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection with GIN of type GDAKI: the memory that is registered on it, by the handles that device code has, and the contexts
 * that a device communicator has on it, each of which has a card of its own (card.h). Tables of version 11 have one context on a
 * connection; with that of version 14 several device communicators share one, each with as many contexts as it asks for.
 *
 * Who calls: all but nic_contexts_progress and nic_contexts_failed come from the program's threads, and the lists of cards are
 * these threads' affair alone. Kernels are launched by NCCL's thread with version 11, where it has no other contexts to move; with version 14
 * by the connection's (launcher.h), and NCCL need not ask for progress.
 */
#ifndef DYN_NIC_PORT_H
#define DYN_NIC_PORT_H

#include "card.h"

/* layout: of the queues, GDAKI_100 or GDAKI_200. NULL: it was said why. */
struct nic_port *nic_open(struct carrier *c, int layout);
/* Behind all its contexts. */
void nic_close(struct nic_port *port);

/* What NCCL hands its device code for registered memory, which may be used from here on. NULL: it was said why. */
void *nic_memory(struct nic_port *port, const struct carrier_region *region);
void nic_forget(struct nic_port *port, const struct carrier_region *region);

/* Made by all ranks together. Each context has so many signals and counters. NULL: it was said why. */
struct nic_contexts *nic_contexts_make(struct nic_port *port, int count, int nSignals, int nCounters);
void nic_contexts_free(struct nic_contexts *contexts);
/* What NCCL is given, which is theirs. */
ncclNetDeviceHandle_v11_t *nic_contexts_handle(struct nic_contexts *contexts);
/* Version 11. */
void nic_contexts_progress(struct nic_contexts *contexts);
/* A queue of one of them takes no requests any more. */
bool nic_contexts_failed(struct nic_contexts *contexts);

#endif
