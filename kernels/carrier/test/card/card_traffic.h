/* SPDX-License-Identifier: Apache-2.0
 *
 * Random puts, values, signals and counters between all ranks, each of which both ends know: threads post them, two to a queue,
 * and one looks at this rank's signals and compares all data that a signal says is there. With the table of version 14 they also get
 * back what they have put.
 */
#ifndef CARRIER_TEST_CARD_TRAFFIC_H
#define CARRIER_TEST_CARD_TRAFFIC_H

#include "card_rig.h"

enum { POSTERS = 2, PLACES = 8, PLACE_BYTES = 104 << 10, MOST_BYTES = 100 << 10 };

static inline size_t traffic_bytes(void) { return (size_t)CONTEXTS * (size_t)numRanks * POSTERS * PLACES * PLACE_BYTES; }

struct traffic {
  uint64_t seed, each; /* of each poster */
  int dies;            /* -1, or the rank that kills itself, */
  uint64_t diesAt;     /* after so many of its own */
  unsigned slowUs;     /* and whose posters wait so long after each: the others are done before it dies */
  struct memory send, receive, back; /* back: version 14; what was put is got into it */
  /* Of all ranks: how many a target has checked, by context, source, target and poster. */
  atomic_uint_fast64_t (*checked)[CONTEXTS][MAX_RANKS][MAX_RANKS][POSTERS];
  atomic_uint_fast64_t posted, bytes, changed, got; /* changed: sources, as soon as that was allowed */
};

/* Before play. */
void traffic_share(struct traffic *t);
void traffic_start(struct traffic *t);
/* Until everything that lives to arrive has, who is to die has died, and all posters are done. */
void traffic_join(struct traffic *t);

#endif
