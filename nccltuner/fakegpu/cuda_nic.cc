/* SPDX-License-Identifier: Apache-2.0
 *
 * The carrier's network card in software (kernels/carrier/nic), from its own source. It is no kernel like the others: it runs
 * until nobody has posted to it for a while or it is told to end, and needs all of its threads at once. The one that watches is one
 * thread here.
 */
#define NIC_MUTATE 0
#include "../../kernels/carrier/nic/nic.cu"
#include "../../kernels/carrier/test/nic_grid.h"

#include <cstdlib>

#include "cuda_kernels.h"

enum { HELPERS = 2 }; /* blocks; the host asks for more, and the kernel makes do with those that are there */

const char nic_kernel_name[] = "dynamicclCarrierNic", nic_fed_name[] = "dynamicclCarrierFed", nic_watch_name[] = "dynamicclCarrierWatch";

/* By a stream's thread, which ends with the process. */
void nic_run(const struct nic *nic) {
  static thread_local dyn::NicCrew *crew;
  if (crew == nullptr && (crew = (dyn::NicCrew *)calloc(1, sizeof *crew)) == nullptr) abort();
  if (!dyn::nicRunGrid(*crew, nic->fed ? dynamicclCarrierFed : dynamicclCarrierNic, *nic, nic->alone ? 0 : HELPERS)) abort(); /* a test's machine is out of threads */
}

void nic_watch(const struct nic *nic) { dynamicclCarrierWatch(*nic); }
