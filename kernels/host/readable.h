/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether an address can be read, as the kernel of the system has it: CUDA is not asked where something is to be stopped, for who has CUDA's
 * lock may wait for that. For the device path and the carrier.
 */
#ifndef DYN_READABLE_H
#define DYN_READABLE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The call reads a set of signals, 8 bytes, and then knows nothing that is called -1; that the address is taken (mincore) would not do, for
 * the driver may keep it, for nobody to read. */
static inline bool dyn_readable(const void *at) { return syscall(SYS_rt_sigprocmask, -1, at, NULL, sizeof(uint64_t)) == 0 || errno != EFAULT; }

#endif
