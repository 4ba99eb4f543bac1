/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the network card in software (nic.h): its memory, its kernel's coming and going, and what NCCL's device
 * code is given (gdaki_abi.h). One for each context of a connection (port.h), made by all ranks together.
 *
 * Who calls: making, keys and freeing come from the program's threads, nic_progress from NCCL's, or with tables of version 14 from the
 * connection's own.
 *
 * The kernel is started when a doorbell is ahead of what was done, and ends when nobody has posted for a while
 * (DYNAMICCL_CARRIER_IDLE_US): cudaDeviceSynchronize and cudaFree of the program wait for all kernels. A kernel that ends
 * leaves how far it came, and the next goes on from there.
 */
#ifndef DYN_NIC_CARD_H
#define DYN_NIC_CARD_H

#include "../carrier.h"
#include "launcher.h"

enum { NIC_CARD_KEYS = 2 + CARRIER_MAX_REGIONS }; /* none, the counters, and what all ranks register, signals too */

struct nic_card;
struct nic_contexts;
struct gdaki_context;

/* What cards of a connection share. */
struct nic_port {
  struct carrier *carrier;
  int layout;                       /* of queues */
  void *stream;                     /* what is written here goes by it */
  carrier_address handles, keyLists; /* of device code */
  pthread_mutex_t lock;             /* of the list */
  struct nic_card *cards;
  struct nic_launcher launcher; /* version 14 */
  pthread_mutex_t turn;         /* of contexts, which are in no turn that is begun when they are gone from the list */
  struct nic_contexts *contexts;
};
uint32_t nic_key_of(const struct carrier_region *region);
uint32_t *nic_key_list(const struct nic_port *port, uint32_t key); /* in the GPU's memory */

/* Is the kernel there, and wanted? DYNAMICCL_CARRIER_TYPE: gdaki (this) or proxy (put.c); without it this, where the kernel is. */
bool nic_is_wanted(void);
/* NULL: it was said why. */
struct nic_card *nic_make(struct nic_port *port, int nSignals, int nCounters);
struct nic_card *nic_next(struct nic_card *card);
/* What NCCL hands its device code of this context. */
void nic_describe(const struct nic_card *card, struct gdaki_context *context);
bool nic_set_region(struct nic_card *card, const struct carrier_region *region, bool there);
void nic_progress(struct nic_card *card);
/* A queue takes no requests any more. */
bool nic_failed(struct nic_card *card);
/* Its last turn is over: its kernels may end. Of all cards that are to go together, before the first of them is freed. */
void nic_let_go(struct nic_card *card);
/* Ends the kernel. */
void nic_free(struct nic_card *card);

#endif
