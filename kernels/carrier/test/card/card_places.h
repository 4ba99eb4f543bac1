/* SPDX-License-Identifier: Apache-2.0
 *
 * How many blocks all cards of a process have on a GPU, and who is refused.
 */
#ifndef CARRIER_TEST_CARD_PLACES_H
#define CARRIER_TEST_CARD_PLACES_H

void play_crowd(void);
void play_sharing(void); /* with oneGpu */

#endif
