/* SPDX-License-Identifier: Apache-2.0
 *
 * What the table of version 14 alone has: a connection that device communicators share, what it refuses, and what
 * NCCL leaves behind with it.
 */
#ifndef CARRIER_TEST_CARD_SHARED_H
#define CARRIER_TEST_CARD_SHARED_H

void play_shared(void);
void play_left(void);
void play_several(void);
void play_unfit(void);

#endif
