/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that are timed, and the ring that their samples go to.
 */
#ifndef DYN_LSA_RING_H
#define DYN_LSA_RING_H

#include "lsa_steps.h"

static struct dyn_ring *ring;
static uint64_t taken; /* samples of the ring */

static inline void open_ring(void) {
  ring = calloc(1, sizeof *ring + DYN_RING_CELLS * sizeof(struct dyn_sample));
  CHECK(ring != NULL);
  for (uint64_t i = 0; i < DYN_RING_CELLS; i++) ((struct dyn_sample *)(ring + 1))[i].cell = i;
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = ring;
  pthread_mutex_unlock(&preload->roundLock);
}

static inline void time_calls(bool on) {
  sampled = on;
  atomic_store(&preload->timing, on);
}

/* No stream's first call is timed; the next ones are. */
static inline void know(CUstream stream) {
  struct step s = {.collective = ALL_REDUCE, .count = 10, .stream = stream};
  int (*inside)(void) = fake->inside;
  planned = 0;
  fake->inside = succeed;
  time_calls(true);
  CHECK(issue(&s, 0, COMM) == 0);
  time_calls(false);
  fake->inside = inside;
}

/* Of which the ring has every one. */
static inline const struct dyn_sample *next_sample(void) {
  for (int i = 0; i < 50000 && __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == taken; i++) usleep(100);
  const struct dyn_sample *s = (const struct dyn_sample *)(ring + 1) + taken;
  for (int i = 0; i < 50000 && __atomic_load_n(&s->cell, __ATOMIC_ACQUIRE) != taken + 1; i++) usleep(100);
  CHECK(s->cell == taken + 1, "no sample of call %u", asked);
  taken++;
  return s;
}

#endif
