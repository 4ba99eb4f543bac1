/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels on GIN tell of their puts (gin/trip.cuh), from the host's memory. As with stamps (stamps.c) a trip counts once it
 * is the same in two looks, half a second apart.
 */
#include <string.h>

#include "gin_life.h"

struct kept {
  struct dyn_gin_trip seen; /* at the last look */
  uint64_t told;            /* word */
};

struct dyn_gin_trips {
  struct dyn_gin_trip *words; /* host memory that kernels write: of every lane, [cells] */
  size_t cells;               /* of a lane */
  struct kept kept[];         /* likewise */
};

bool dyn_trips_make(struct dyn_gin_life *life, uint32_t nRanks) {
  size_t cells = (size_t)DYN_GIN_TRIPS * DYN_GIN_TRIP_BLOCKS * nRanks;
  struct dyn_gin_trips *trips = calloc(1, sizeof *trips + NUM_LANES * cells * sizeof trips->kept[0]);
  if (trips == NULL || dyn_host_driver()->cuMemAllocHost_v2((void **)&trips->words, NUM_LANES * cells * sizeof trips->words[0]) != 0) return free(trips), false;
  memset(trips->words, 0, NUM_LANES * cells * sizeof trips->words[0]);
  trips->cells = cells;
  for (int l = 0; l < NUM_LANES; l++) life->lanes[l].trips = trips->words + (size_t)l * cells;
  dyn_watch_hold();
  life->trips = trips;
  dyn_watch_go_on();
  return true;
}

void dyn_trips_free(struct dyn_gin_life *life) {
  dyn_watch_hold(); /* nobody reads them */
  struct dyn_gin_trips *trips = life->trips;
  life->trips = NULL;
  dyn_watch_go_on();
  if (trips == NULL) return;
  dyn_host_driver()->cuMemFreeHost(trips->words);
  free(trips);
}

/* False: it is none. */
static bool understand(const struct dyn_lsa *lsa, const struct dyn_gin_life *life, int lane, size_t cell, const struct dyn_gin_trip *t, struct dyn_trip *trip) {
  uint32_t number = (uint32_t)(t->word >> 32), counterNs = (uint32_t)(t->times >> 32), signalNs = (uint32_t)t->times;
  unsigned peer = cell % lsa->nRanks, block = cell / lsa->nRanks % DYN_GIN_TRIP_BLOCKS, blocks = dyn_gin_trip_blocks(t->word), contexts = dyn_gin_trip_contexts(t->word);
  if (dyn_gin_trip_place(number, true) != cell / lsa->nRanks / DYN_GIN_TRIP_BLOCKS) return false;
  if (peer == lsa->rank || block >= blocks || blocks > DYN_GIN_MAX_BLOCKS || signalNs == 0) return false;
  if (block >= contexts || contexts > life->state.contexts) return false; /* of a context its first block speaks */
  *trip = (struct dyn_trip){.number = number, .inGraph = lane == LANE_GRAPHS, .backend = life->state.backend, .context = block,
                            .peer = peer, .ctas = blocks, .contexts = contexts < blocks ? contexts : blocks, .bytes = dyn_gin_trip_bytes(t->word), .counterNs = counterNs, .signalNs = signalNs};
  return true;
}

static size_t of_life(const struct dyn_lsa *lsa, const struct dyn_gin_life *life, struct dyn_trip *out, size_t most) {
  struct dyn_gin_trips *trips = life->trips;
  size_t n = 0;
  for (size_t i = 0; trips != NULL && i < NUM_LANES * trips->cells; i++) {
    struct kept *kept = &trips->kept[i];
    struct dyn_gin_trip now = {__atomic_load_n(&trips->words[i].word, __ATOMIC_RELAXED), __atomic_load_n(&trips->words[i].times, __ATOMIC_RELAXED)};
    bool stays = now.word == kept->seen.word && now.times == kept->seen.times;
    kept->seen = now;
    if (!stays || now.word == kept->told || n == most) continue;
    kept->told = now.word;
    n += understand(lsa, life, (int)(i / trips->cells), i % trips->cells, &now, &out[n]);
  }
  return n;
}

size_t dyn_gin_trips(struct dyn_lsa *lsa, struct dyn_trip *out, size_t most) {
  const struct dyn_gin_lives *gin = lsa->gin;
  size_t n = 0;
  for (int i = 0; gin != NULL && i < DYN_GIN_LIVES; i++) n += of_life(lsa, &gin->each[i], out + n, most - n);
  return n;
}
