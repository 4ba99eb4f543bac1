/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of kernels that CUDA graphs ran: what they stamped (kernels/host/stamps.c), put into the plugin's ring twice a
 * second while a daemon reads it.
 */
#include "../plugin/ring.h"
#include "device.h"

#define AT_ONCE 1024 /* as many as kernels leave (DYN_STAMPS): none has to wait for the next look, when it may be gone */
#define SILENT_NS UINT64_C(2000000000)

extern struct dyn_preload dynamiccl_preload;

static struct dyn_sample sample_of(const struct dyn_lsa *lsa, const struct dyn_replay *r) {
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

/* In the thread that watches over peers. A daemon that has gone leaves a heartbeat that stands still. */
static void look(struct dyn_lsa *lsa) {
  static struct dyn_replay replays[AT_ONCE];
  static uint64_t heartbeat, heardNs;
  static const struct dyn_ring *of;
  size_t n = dyn_lsa_replays(lsa, replays, AT_ONCE); /* also where nobody reads: what is old is of no use later */
  if (n == 0) return;
  pthread_mutex_lock(&dynamiccl_preload.roundLock);
  struct dyn_ring *ring = dynamiccl_preload.ring;
  if (ring != NULL) {
    uint64_t beat = __atomic_load_n(&ring->header.heartbeat, __ATOMIC_RELAXED);
    if (of != ring || beat != heartbeat) heardNs = dyn_host_ns();
    of = ring;
    heartbeat = beat;
    bool read = __atomic_load_n(&ring->wantMask, __ATOMIC_RELAXED) != 0 && dyn_host_ns() - heardNs < SILENT_NS;
    for (size_t i = 0; i < n && read; i++) {
      struct dyn_sample sample = sample_of(lsa, &replays[i]);
      dyn_ring_store(ring, &sample);
    }
  }
  pthread_mutex_unlock(&dynamiccl_preload.roundLock);
}

__attribute__((constructor)) static void begin(void) { dyn_lsa_look = look; }
