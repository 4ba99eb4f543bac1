/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread of the carrier's own that launches cards' kernels, by turns. Who has CUDA's lock keeps it away for as long as the GPU waits, so
 * it is no thread of NCCL's: one of these moves what all contexts of type Proxy put, which may be what the GPU waits for, and from 2.32 on
 * asks contexts of type GDAKI for progress besides (docs/design/carrier.md, decision 31).
 */
#ifndef DYN_NIC_LAUNCHER_H
#define DYN_NIC_LAUNCHER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct nic_launcher {
  pthread_t thread;
  bool isThere;
  atomic_bool stops;
  bool (*turn)(void *of); /* false: nothing is on the GPU, or expected there; the next one may come later */
  void *of;
};

/* False: there is no thread to be had. */
bool nic_launcher_start(struct nic_launcher *launcher, bool (*turn)(void *of), void *of);
/* Behind its last turn; none that was not started, either. */
void nic_launcher_stop(struct nic_launcher *launcher);

#endif
