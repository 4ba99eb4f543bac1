/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <stdlib.h>

#include "../../kernels/host/host.h"
#include "../plugin/ring.h"

#define MOST_HEARD 1024 /* that wait for the ring; once half of them do no more puts are taken */
#define MOST_PUTS 512   /* that wait to be sent: what kernels have left is looked at twice a second, and comes at once */

static struct dyn_ring *(*hold)(void); /* atomic; release is written before it */
static void (*release)(void);
static const struct dyn_ring *of; /* that next is a place in */
static uint64_t next;
static struct dyn_sample *heard;
static unsigned numHeard;
static struct dyn_sample *puts; /* from firstPut on, round */
static unsigned firstPut, numPuts;
static uint64_t lost; /* and not counted in the ring yet */

void dyn_hosts_samples_at(struct dyn_ring *(*holds)(void), void (*releases)(void)) {
  __atomic_store_n(&release, releases, __ATOMIC_RELAXED);
  __atomic_store_n(&hold, holds, __ATOMIC_RELEASE);
}

static bool is_of_put(const struct dyn_sample *sample) { return (sample->flags & DYN_SAMPLE_TRIP) != 0; }

void dyn_hosts_lose(uint64_t count) { lost += count; }

void dyn_hosts_hear(const struct dyn_sample *sample) {
  unsigned most = is_of_put(sample) ? MOST_HEARD / 2 : MOST_HEARD;
  if (heard == NULL) heard = malloc(MOST_HEARD * sizeof *heard);
  if (heard != NULL && numHeard < most) heard[numHeard++] = *sample;
  else lost++;
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

/* A put's other word is its peer's, so where there are too many both ranks must keep those of the same calls: of numbers with so many zeros at
 * the least there is one in 2^zeros. Timed ones have 8, or 4 where puts are timed closely (dyn_gin_one_in of kernels/gin/gin.h). */
static unsigned zeros_of(const struct dyn_sample *put) { return (unsigned)__builtin_clz((uint32_t)put->seq * 2654435769u | 1); }

/* As tuner/trip_order.go has it, which sees no more at once than what comes between two of its ticks: by number, and those of graphs behind. */
static bool is_before(const struct dyn_sample *a, const struct dyn_sample *b) {
  bool inGraph = a->flags & DYN_SAMPLE_REPLAYED, other = b->flags & DYN_SAMPLE_REPLAYED;
  return inGraph == other ? (int32_t)((uint32_t)a->seq - (uint32_t)b->seq) < 0 : other;
}

static void keep_in_order(const struct dyn_sample **some, unsigned n) {
  for (unsigned i = 1; i < n; i++) {
    const struct dyn_sample *put = some[i];
    unsigned at = i;
    for (; at > 0 && is_before(put, some[at - 1]); at--) some[at] = some[at - 1];
    some[at] = put;
  }
  for (unsigned i = 0; i < n; i++) puts[(firstPut + numPuts++) % MOST_PUTS] = *some[i];
}

/* Of so many by zeros, how many a number must have. */
static unsigned least_zeros(const unsigned by[32]) {
  unsigned least = 32, room = MOST_PUTS - numPuts;
  if (puts == NULL && (puts = malloc(MOST_PUTS * sizeof *puts)) == NULL) return least;
  while (least > 0 && by[least - 1] <= room) room -= by[--least];
  return least;
}

/* Beside the daemon that empties the ring: a cell keeps its sample until a producer comes around to it. What was there before the first look,
 * and what is so far behind that it may be overwritten, is left out; and where there is more than one look has room for all but one epoch
 * in so many: a sample that comes late is of no use, nor one of a call that other ranks leave out. Puts are kept until there is room. */
static unsigned look(const struct dyn_ring *ring, bool (*wanted)(const struct dyn_sample *), struct dyn_sample *samples) {
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE), epochs = 1;
  const struct dyn_sample *some[MOST_PUTS];
  unsigned n = 0, all = 0, byZeros[32] = {0}, numSome = 0;
  if (of != ring || head - next > DYN_RING_CELLS / 2) next = head;
  of = ring;
  uint64_t until = next;
  for (; until != head && is_filled(ring, until); until++) {
    const struct dyn_sample *cell = cell_at(ring, until);
    all += is_of_call(cell) && wanted(cell);
    if (is_of_put(cell) && wanted(cell)) byZeros[zeros_of(cell)]++;
  }
  while (all / epochs > DYN_HOSTS_LOOK) epochs *= 2;
  unsigned least = next != until ? least_zeros(byZeros) : 0;
  for (; next != until; next++) {
    const struct dyn_sample *cell = cell_at(ring, next);
    if (n < DYN_HOSTS_LOOK && is_of_call(cell) && wanted(cell) && cell->seq / DYN_EPOCH_CALLS % epochs == 0) samples[n++] = *cell;
    if (!is_of_put(cell) || !wanted(cell)) continue;
    if (zeros_of(cell) >= least && numPuts + numSome < MOST_PUTS) some[numSome++] = cell;
    else lost++;
  }
  keep_in_order(some, numSome);
  return n;
}

/* Puts for no daemon that is there: they would fill the ring, and tell a later one of what is over. */
static void store_heard(struct dyn_ring *ring) {
  static struct dyn_reader daemon;
  bool read = numHeard > 0 && dyn_ring_is_read(&daemon, ring, dyn_host_ns());
  for (unsigned i = 0; i < numHeard; i++)
    if (read || !is_of_put(&heard[i])) dyn_ring_store(ring, &heard[i]);
  numHeard = 0;
}

unsigned dyn_hosts_exchange(bool (*wanted)(const struct dyn_sample *), struct dyn_sample *samples, unsigned *calls) {
  struct dyn_ring *(*holds)(void) = __atomic_load_n(&hold, __ATOMIC_ACQUIRE);
  bool looks = wanted != NULL && samples != NULL;
  struct dyn_ring *ring = holds != NULL && (looks || numHeard > 0 || lost > 0) ? holds() : NULL;
  if (wanted == NULL) of = NULL, numPuts = 0; /* what is told while nobody wants any is not for who does later */
  *calls = 0;
  if (ring == NULL) return 0;
  store_heard(ring);
  unsigned n = *calls = looks ? look(ring, wanted, samples) : 0;
  for (unsigned i = 0; looks && i < DYN_HOSTS_PUTS && n < DYN_HOSTS_LOOK && numPuts > 0; i++, numPuts--, firstPut = (firstPut + 1) % MOST_PUTS) samples[n++] = puts[firstPut];
  if (lost > 0) __atomic_fetch_add(&ring->untold, lost, __ATOMIC_RELAXED);
  lost = 0;
  __atomic_load_n(&release, __ATOMIC_RELAXED)();
  return n;
}

void dyn_hosts_forget_samples(void) { numHeard = numPuts = 0, lost = 0; }
