/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that keep CUDA's lock while their GPU waits for the card, and programs that wait for their GPU while cards come and go.
 */
#ifndef CARRIER_TEST_CARD_LOCKED_H
#define CARRIER_TEST_CARD_LOCKED_H

void play_locked(void);
void play_expected(void);
void play_replayed(void);
void play_waits(void);
void play_leaves(void); /* version 14 */

#endif
