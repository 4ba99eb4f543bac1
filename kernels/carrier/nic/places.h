/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has cards in this process, of either type of GIN: for their places on a GPU (../places.h), and for who announces kernels.
 */
#ifndef DYN_NIC_PLACES_H
#define DYN_NIC_PLACES_H

#include "../carrier.h"

/* Of contexts of type GDAKI, or of a connection of type Proxy. */
struct nic_place {
  struct nic_place *next;
  const struct carrier *carrier;
  unsigned cards, blocks; /* blocks: of queues, of all of these cards */
  const void *handle;     /* what NCCL's device code has; NULL: nobody has it yet, or */
  bool fed;               /* the carrier is not told */
  const uint32_t *captured; /* as expected.h has it; NULL: nobody announces anything yet */
};

/* Blocks of queues stay as long as a kernel does that may put, so kernels are to find places beside all of them (docs/design/carrier.md, decision
 * 31). Ranks that share a GPU have their part of these each. False: there are too few left; *taken of `most` are others'. */
bool nic_place_take(struct nic_place *place, unsigned *taken, unsigned *most);
void nic_place_leave(struct nic_place *place); /* none that was not taken, either */
/* Who announces kernels finds it from here on. */
void nic_place_name(struct nic_place *place, const void *handle);
/* Of version 11, which has a connection for each context: one of a communicator was refused, so it has no GIN, and NCCL neither uses the contexts
 * that it has nor gives them back (ncclGinConnectOnce, ncclGinFinalize). Their places are others'. */
void nic_places_renounce(const struct carrier_instance *instance);
/* How many cards there are in this CUDA context. */
unsigned nic_beside(const struct carrier_home *home);

#endif
