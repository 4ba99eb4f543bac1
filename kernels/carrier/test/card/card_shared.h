/* SPDX-License-Identifier: Apache-2.0
 *
 * What the table of version 14 alone has: a connection that device communicators share, and what it refuses.
 */
#ifndef CARRIER_TEST_CARD_SHARED_H
#define CARRIER_TEST_CARD_SHARED_H

void play_shared(void);
void play_unfit(void);

#endif
