/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting samples into the ring: Dmitry Vyukov's bounded multi-producer queue. A cell's sequence number says for which
 * position it is free or filled, so producers meet in one compare-and-swap and never wait for the consumer. A header,
 * because the preload library puts samples as well and must call nothing of the plugin's.
 */
#ifndef DYN_RING_H
#define DYN_RING_H

#include <stdbool.h>
#include <string.h>

#include "../abi.h"

/* A producer tries again only when another one has moved head; so many in a row means that the memory is damaged. */
#define DYN_PUT_TRIES 1000

/* 1: stored; 0: dropped and counted, the ring is full. */
static inline int dyn_ring_store(struct dyn_ring *ring, const struct dyn_sample *sample) {
  struct dyn_sample *cells = (struct dyn_sample *)(ring + 1);
  uint64_t at = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  for (int tries = 0; tries < DYN_PUT_TRIES; tries++) {
    struct dyn_sample *cell = &cells[at & (DYN_RING_CELLS - 1)];
    int64_t ahead = (int64_t)(__atomic_load_n(&cell->cell, __ATOMIC_ACQUIRE) - at);
    if (ahead < 0) break; /* the consumer has not emptied it since the last lap: full */
    if (ahead > 0) {
      at = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
    } else if (__atomic_compare_exchange_n(&ring->head, &at, at + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      memcpy((char *)cell + sizeof cell->cell, (const char *)sample + sizeof sample->cell,
             sizeof *cell - sizeof cell->cell);
      __atomic_store_n(&cell->cell, at + 1, __ATOMIC_RELEASE);
      return 1;
    }
  }
  __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
  return 0;
}

#define DYN_READER_SILENT_NS UINT64_C(2000000000)

/* What one thread has seen of a ring's daemon. */
struct dyn_reader {
  const struct dyn_ring *of;
  uint64_t heartbeat, heardNs;
};

/* Somebody empties it. A daemon that has gone leaves a heartbeat that stands still. */
static inline bool dyn_ring_is_read(struct dyn_reader *seen, const struct dyn_ring *ring, uint64_t nowNs) {
  uint64_t beat = __atomic_load_n(&ring->header.heartbeat, __ATOMIC_RELAXED);
  if (seen->of != ring || beat != seen->heartbeat) *seen = (struct dyn_reader){ring, beat, nowNs};
  return __atomic_load_n(&ring->wantMask, __ATOMIC_RELAXED) != 0 && nowNs - seen->heardNs < DYN_READER_SILENT_NS;
}

#endif
