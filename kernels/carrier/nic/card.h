/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the network card in software (nic.h): its memory, its kernel's coming and going, and what NCCL's device
 * code is given (gdaki_abi.h). One for each context of a communicator, made by all ranks together.
 *
 * Who calls: making, keys and freeing come from the program's threads, nic_progress from NCCL's.
 *
 * The kernel is started when a doorbell is ahead of what was done, and ends when nobody has posted for a while
 * (DYNAMICCL_CARRIER_IDLE_US): cudaDeviceSynchronize and cudaFree of the program wait for all kernels. A kernel that ends
 * leaves how far it came, and the next goes on from there.
 */
#ifndef DYN_NIC_CARD_H
#define DYN_NIC_CARD_H

#include "../carrier.h"

struct nic_card;

/* Is the kernel there, and wanted? DYNAMICCL_CARRIER_TYPE: gdaki (this) or proxy (put.c); without it this, where the kernel is. */
bool nic_is_wanted(void);
/* NULL: it was said why. */
struct nic_card *nic_make(struct carrier *c, int nSignals, int nCounters);
/* What NCCL hands its device code: of a context, and of registered memory, which may be used from here on. */
void *nic_context(struct nic_card *card);
void *nic_memory(struct nic_card *card, const struct carrier_region *region);
void nic_forget(struct nic_card *card, const struct carrier_region *region);
void nic_progress(struct nic_card *card);
/* A queue takes no requests any more. */
bool nic_failed(struct nic_card *card);
/* Ends the kernel. */
void nic_free(struct nic_card *card);

#endif
