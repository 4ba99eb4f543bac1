/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <stdlib.h>

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

static const struct dyn_sample *cell_at(const struct dyn_ring *ring, uint64_t at) { return (const struct dyn_sample *)(ring + 1) + (at & (DYN_RING_CELLS - 1)); }

static bool is_filled(const struct dyn_ring *ring, uint64_t at) {
  uint64_t state = __atomic_load_n(&cell_at(ring, at)->cell, __ATOMIC_ACQUIRE);
  return state == at + 1 || state == at + DYN_RING_CELLS;
}

/* Beside the daemon that empties the ring: a cell keeps its sample until a producer comes around to it. What was there before the first look,
 * and what is so far behind that it may be overwritten, is left out; and where there is more than one look has room for all but one epoch
 * in so many: a sample that comes late is of no use, nor one of a call that other ranks leave out. */
static unsigned look(const struct dyn_ring *ring, bool (*wanted)(const struct dyn_sample *), struct dyn_sample *samples) {
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE), epochs = 1;
  unsigned n = 0, all = 0;
  if (of != ring || head - next > DYN_RING_CELLS / 2) next = head;
  of = ring;
  uint64_t until = next;
  for (; until != head && is_filled(ring, until); until++) all += is_of_call(cell_at(ring, until)) && wanted(cell_at(ring, until));
  while (all / epochs > DYN_HOSTS_LOOK) epochs *= 2;
  for (; next != until; next++) {
    const struct dyn_sample *cell = cell_at(ring, next);
    if (n < DYN_HOSTS_LOOK && is_of_call(cell) && wanted(cell) && cell->seq / DYN_EPOCH_CALLS % epochs == 0) samples[n++] = *cell;
  }
  return n;
}

unsigned dyn_hosts_exchange(bool (*wanted)(const struct dyn_sample *), struct dyn_sample samples[DYN_HOSTS_LOOK]) {
  struct dyn_ring *(*holds)(void) = __atomic_load_n(&hold, __ATOMIC_ACQUIRE);
  struct dyn_ring *ring = holds != NULL && (wanted != NULL || numHeard > 0) ? holds() : NULL;
  if (wanted == NULL) of = NULL; /* what is told while nobody wants any is not for who does later */
  if (ring == NULL) return 0;
  for (unsigned i = 0; i < numHeard; i++) dyn_ring_store(ring, &heard[i]);
  numHeard = 0;
  unsigned n = wanted != NULL ? look(ring, wanted, samples) : 0;
  __atomic_load_n(&release, __ATOMIC_RELAXED)();
  return n;
}

void dyn_hosts_forget_samples(void) { numHeard = 0; }
