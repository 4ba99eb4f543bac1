/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <stdlib.h>
#include <string.h>

#include "../plugin/ring.h"

#define MOST_HEARD 1024 /* that wait for the ring */

static struct dyn_ring *(*hold)(void); /* atomic; release is written before it */
static void (*release)(void);
static const struct dyn_ring *of; /* that next is a place in */
static uint64_t next;
static struct dyn_sample *heard;
static unsigned numHeard;

void dyn_hosts_samples_at(struct dyn_ring *(*holds)(void), void (*releases)(void)) {
  __atomic_store_n(&release, releases, __ATOMIC_RELAXED);
  __atomic_store_n(&hold, holds, __ATOMIC_RELEASE);
}

void dyn_hosts_hear(const struct dyn_sample *sample) {
  if (heard == NULL) heard = malloc(MOST_HEARD * sizeof *heard);
  if (heard != NULL && numHeard < MOST_HEARD) heard[numHeard++] = *sample;
}

/* Whether it says what a call took; calls in graphs have no number of the communicator's. */
static bool is_of_call(const struct dyn_sample *sample) {
  const unsigned none = DYN_SAMPLE_UNJOINED | DYN_SAMPLE_CAPTURED | DYN_SAMPLE_REPLAYED | DYN_SAMPLE_TRIP;
  return (sample->flags & none) == 0 && (!(sample->flags & DYN_SAMPLE_UNTIMED) || sample->flags & DYN_SAMPLE_EVENT_TIMED);
}

/* Beside the daemon that empties the ring: a cell keeps its sample until a producer comes around to it. What was there before the first look,
 * and what is so far behind that it may be overwritten, is left out. */
static unsigned look(const struct dyn_ring *ring, struct dyn_sample *samples) {
  const struct dyn_sample *cells = (const struct dyn_sample *)(ring + 1);
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
  unsigned n = 0;
  if (of != ring || head - next > DYN_RING_CELLS / 2) next = head;
  of = ring;
  for (; n < DYN_HOSTS_LOOK && next != head; next++) {
    const struct dyn_sample *cell = &cells[next & (DYN_RING_CELLS - 1)];
    uint64_t state = __atomic_load_n(&cell->cell, __ATOMIC_ACQUIRE);
    if (state != next + 1 && state != next + DYN_RING_CELLS) break; /* it is being filled */
    memcpy(&samples[n], cell, sizeof *cell);
    n += is_of_call(&samples[n]);
  }
  return n;
}

unsigned dyn_hosts_exchange(bool tells, struct dyn_sample samples[DYN_HOSTS_LOOK]) {
  struct dyn_ring *(*holds)(void) = __atomic_load_n(&hold, __ATOMIC_ACQUIRE);
  struct dyn_ring *ring = holds != NULL && (tells || numHeard > 0) ? holds() : NULL;
  if (ring == NULL) return 0;
  for (unsigned i = 0; i < numHeard; i++) dyn_ring_store(ring, &heard[i]);
  numHeard = 0;
  unsigned n = tells ? look(ring, samples) : 0;
  __atomic_load_n(&release, __ATOMIC_RELAXED)();
  return n;
}

void dyn_hosts_forget_samples(void) { numHeard = 0; }
