/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of nic.cu as CUDA's driver has it. In the current context.
 */
#ifndef DYN_NIC_KERNEL_H
#define DYN_NIC_KERNEL_H

#include <stdatomic.h>

#include "../driver.h"
#include "nic.h"

struct nic_kernel;

/* Where the fatbin is; NULL: there is none. */
const char *nic_kernel_file(void);
/* NULL: it was said why. */
struct nic_kernel *nic_kernel_make(bool fed); /* by the host (nic.h) */
/* All four are done when they return; results are CUDA's. */
int nic_read(void *to, carrier_address from, size_t bytes);
int nic_write(void *stream, carrier_address to, const void *from, size_t bytes);
int nic_kernel_fill(struct nic_kernel *kernel, carrier_address to, const void *from, size_t bytes);
int nic_kernel_clear(struct nic_kernel *kernel, carrier_address at, unsigned char byte, size_t bytes);
/* The watch, the card behind it, and both again, without blocks that only help (nic_watch.cuh). */
bool nic_kernel_start(struct nic_kernel *kernel, const struct nic *nic, unsigned blocks);
/* *broken: what CUDA says is an error. */
bool nic_kernel_ended(struct nic_kernel *kernel, atomic_bool *broken);
/* True: a look at such memory of the GPU's is over, and to (page-locked) has what it saw; false: one is under way. */
bool nic_kernel_looked(struct nic_kernel *kernel, void *to, carrier_address from, size_t bytes, atomic_bool *broken);
/* Waits for it. lives: the context, without which there is nothing to wait for. */
void nic_kernel_free(struct nic_kernel *kernel, bool lives);

#endif
