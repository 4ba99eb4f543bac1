/* SPDX-License-Identifier: Apache-2.0
 *
 * carrier_test behind     what NCCL's thread puts while the program has CUDA's lock and its GPU waits for it
 * carrier_test announced  the same where nobody put for long, and a kernel was announced
 * carrier_test full       more at once than a queue of the card has places for
 * carrier_test reset      the program destroys its CUDA context before NCCL has done with it
 * All where the kernel that plays the network card is there.
 */
#ifndef CARRIER_TEST_BEHIND_H
#define CARRIER_TEST_BEHIND_H

void play_behind(void);
void play_announced(void);
void play_full(void);
void play_reset(void);

#endif
