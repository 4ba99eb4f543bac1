/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that destroys its CUDA context, with cudaDeviceReset, before NCCL's communicator.
 */
#ifndef CARRIER_TEST_CARD_RESET_H
#define CARRIER_TEST_CARD_RESET_H

void play_reset(void);

#endif
