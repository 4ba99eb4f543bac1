/* SPDX-License-Identifier: Apache-2.0
 *
 * What a card is (card.h), for who makes it (card.c) and for who launches its kernels (launches.c).
 */
#ifndef DYN_NIC_LAUNCHES_H
#define DYN_NIC_LAUNCHES_H

#include "card.h"
#include "kernel.h"
#include "nic.h"

/* In host memory that the GPU sees. */
struct nic_shared {
  struct nic_report report;
  uint64_t doorbells[NIC_MAX_RANKS * NIC_SIDES]; /* as they were at the last look; a feed's: as they are */
  uint32_t control[NIC_KEYS];                    /* what is copied to the GPU */
};

struct nic_card {
  struct nic_port *port; /* NULL: a feed's (feed.h) */
  struct nic_card *next; /* of the port */
  struct carrier *carrier;
  struct nic_card *other; /* of the communicator */
  struct nic nic;
  struct nic_kernel *kernel;
  unsigned helpers; /* blocks beside those of queues */
  carrier_address memory, signals, counters;
  carrier_address queues, got, seen; /* of device code; the last two 200's */
  size_t bytes;
  struct carrier_region *signalRegion;
  struct nic_shared *shared;
  uint32_t told[NIC_KEYS]; /* what the GPU was told last */
  uint32_t keys; /* changes of keys: what the kernel remembers of them is worth nothing then; the program's threads' */
  uint64_t usedNs, askedNs; /* when something was known to be done last, and when CUDA was asked */
  uint32_t used; /* the last launch that was known to do anything */
  uint32_t asked; /* of the program's kernels, when it was looked at last */
  bool runs, said; /* runs: a launch may be there */
  atomic_bool ends; /* of a feed: its communicator goes, and launches cease */
  bool lapsed; /* launches have ceased: counted in carrier_instance.lapsed, too */
  atomic_bool broken; /* CUDA refused something; NCCL asks in another thread */
};

/* card.c: the contexts of a communicator share one link, and the program's kernels that are expected on any of them: words that the last gives
 * back. lives: the CUDA context. */
bool nic_share_link(struct nic_card *card);
void nic_leave_link(struct nic_card *card, bool lives);
/* To measure others: DYNAMICCL_CARRIER_SIZES=WARP,BLOCK,PART,HELPERS, bytes and blocks; PART counts as the power of two below. */
struct nic_sizes nic_sizes_of(unsigned *helpers);

/* A card that was just made: it is launched from here on. */
void nic_begin(struct nic_card *card);
void nic_lapse(struct nic_card *card, bool lapses);
/* Its last turn is over: its kernels end. */
void nic_stop(struct nic_card *card);

#endif
