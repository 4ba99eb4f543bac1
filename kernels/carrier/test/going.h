/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that goes while puts into it are made.
 */
#ifndef CARRIER_TEST_GOING_H
#define CARRIER_TEST_GOING_H

void play_going(void); /* DYNAMICCL_CARRIER_FAULTS names a file */

#endif
