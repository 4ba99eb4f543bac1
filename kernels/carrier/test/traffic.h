/* SPDX-License-Identifier: Apache-2.0
 *
 * Random puts and signals between all ranks, each of which both ends know: a thread plays NCCL's GIN proxy and sends them, and
 * the rank's own looks at its signals as a kernel does and compares all data that a signal says is there.
 */
#ifndef CARRIER_TEST_TRAFFIC_H
#define CARRIER_TEST_TRAFFIC_H

#include "rig.h"

enum { SLOTS = 32, MOST_BYTES = 64 << 10, SLOT_BYTES = MOST_BYTES + (8 << 10), EACH = 16 /* of so many at least one signals */ };

static inline size_t traffic_bytes(void) { return (size_t)CONTEXTS * (size_t)numRanks * SLOTS * SLOT_BYTES; }

struct traffic {
  uint64_t seed;
  uint64_t each;     /* of each context, from each rank to each */
  int dies;          /* -1, or the rank that kills itself, */
  uint64_t diesAt;   /* after so many of its own */
  unsigned slowUs;   /* and whose proxy takes so much longer for each turn: the others are done before it dies */
  atomic_int stop;   /* the proxy thread shall end */
  atomic_uint_fast64_t puts, signals, done, failed;
};

void traffic_start(struct traffic *t, pthread_t *thread);
/* Until everything that lives to arrive has, and who is to die has died; it was compared. */
void traffic_check(struct traffic *t);

#endif
