/* SPDX-License-Identifier: Apache-2.0
 *
 * Where dozens of threads nap, look, and nap again: naps of this thread, and of all that it starts, may take so much longer. Then those of many end
 * at once, and who waits long takes less CPU from whom it waits for.
 */
#ifndef DYN_TEST_NAPS_H
#define DYN_TEST_NAPS_H

#include <sys/prctl.h>

static inline void naps_may_take(unsigned moreUs) { prctl(PR_SET_TIMERSLACK, moreUs * 1000ul); }

#endif
