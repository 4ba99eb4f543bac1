/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples that kernels take themselves: those that CUDA graphs ran (kernels/host/stamps.c), and puts over GIN
 * (kernels/host/gin_trips.c). Put into the plugin's ring twice a second while a daemon reads it.
 */
#include "../plugin/ring.h"
#include "device.h"

#define AT_ONCE 1024 /* as many as kernels in graphs leave (DYN_STAMPS): none has to wait for the next look, when it may be gone */

static struct dyn_sample of_replay(const struct dyn_lsa *lsa, const struct dyn_replay *r) {
  return (struct dyn_sample){
      .commId = dyn_lsa_id(lsa),
      .seq = r->number,
      .bytes = r->bytes,
      .counterNs = r->counterNs,
      .signalNs = r->signalNs,
      .action = r->action,
      .rank = (int32_t)dyn_lsa_rank(lsa),
      .collective = (uint8_t)r->collective,
      .algorithm = r->action >> DYN_ACTION_ALGO_SHIFT & 15,
      .channels = (uint8_t)r->ctas,
      .flags = DYN_SAMPLE_LSA | DYN_SAMPLE_REPLAYED,
      .nRanks = (uint16_t)dyn_lsa_ranks(lsa),
  };
}

static struct dyn_sample of_trip(const struct dyn_lsa *lsa, const struct dyn_trip *t) {
  return (struct dyn_sample){
      .commId = dyn_lsa_id(lsa),
      .seq = t->number,
      .bytes = t->bytes,
      .counterNs = t->counterNs,
      .signalNs = t->signalNs,
      .action = DYN_PATH_GIN | t->contexts << DYN_ACTION_CONTEXTS_SHIFT | t->backend << DYN_ACTION_BACKEND_SHIFT | t->ctas << DYN_ACTION_CHANNELS_SHIFT,
      .rank = (int32_t)dyn_lsa_rank(lsa),
      .algorithm = (uint8_t)t->backend,
      .protocol = (uint8_t)t->context,
      .channels = (uint8_t)t->ctas,
      .flags = (uint16_t)(DYN_SAMPLE_GIN | DYN_SAMPLE_TRIP | (t->inGraph ? DYN_SAMPLE_REPLAYED : 0)),
      .nRanks = (uint16_t)dyn_lsa_ranks(lsa),
      .peer = (uint8_t)t->peer,
  };
}

/* False: the other thread of the library's keeps its round, perhaps since a driver does. Not waited for: who watches over peers is to find
 * those that die, and who ends a communicator waits for this thread. */
static bool hold_round(void) {
  for (int naps = 0; pthread_mutex_trylock(&dynamiccl_preload.roundLock) != 0; naps++) {
    if (naps == 20) return false;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return true;
}

/* In the thread that watches over peers. */
static void look(struct dyn_lsa *lsa) {
  static struct dyn_replay replays[AT_ONCE];
  static struct dyn_trip trips[AT_ONCE];
  static struct dyn_reader daemon;
  /* Also where nobody reads: what is old is of no use later. */
  size_t numReplays = dyn_lsa_replays(lsa, replays, AT_ONCE), numTrips = dyn_gin_trips(lsa, trips, AT_ONCE);
  if (numReplays + numTrips == 0 || !hold_round()) return;
  struct dyn_ring *ring = dynamiccl_preload.ring;
  if (ring != NULL && dyn_ring_is_read(&daemon, ring, dyn_host_ns())) {
    for (size_t i = 0; i < numReplays; i++) {
      struct dyn_sample sample = of_replay(lsa, &replays[i]);
      dyn_ring_store(ring, &sample);
    }
    for (size_t i = 0; i < numTrips; i++) {
      struct dyn_sample sample = of_trip(lsa, &trips[i]);
      dyn_ring_store(ring, &sample);
    }
  }
  pthread_mutex_unlock(&dynamiccl_preload.roundLock);
}

__attribute__((constructor)) static void begin(void) { dyn_lsa_look = look; }
