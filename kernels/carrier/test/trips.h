/* SPDX-License-Identifier: Apache-2.0
 *
 * What version 14 alone has: gets and flushes, signals in windows, and NCCL's second thread with connections of its own.
 */
#ifndef CARRIER_TEST_TRIPS_H
#define CARRIER_TEST_TRIPS_H

#include "rig.h"

void rma_there_and_back(uint64_t seed, uint64_t gets);
void rma_refusals(void);

#endif
