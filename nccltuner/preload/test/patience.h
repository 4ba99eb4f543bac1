/* SPDX-License-Identifier: Apache-2.0
 *
 * How long tests wait for what comes at once, or never.
 */
#ifndef DYN_TEST_PATIENCE_H
#define DYN_TEST_PATIENCE_H

#include <stdlib.h>

/* Seconds: five times what is plenty on a quiet machine, for others may keep it busy. Where a mistake is planted, TEST_ALARM_S, no longer than
 * that: what does not come then is found. */
static inline unsigned in_vain_s(unsigned plenty) { return getenv("TEST_ALARM_S") == NULL ? 5 * plenty : plenty; }
/* Of a whole rank process, where a planted mistake has ranks wait for one that has found it. */
static inline unsigned rank_hangs_s(void) { return getenv("TEST_ALARM_S") == NULL ? 300 : (unsigned)atoi(getenv("TEST_ALARM_S")); }

#endif
