/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks of several hosts ask for GIN: whether all begin, and whether one of them has died (docs/design.md, decision 30).
 */
#include <stdio.h>
#include <string.h>

#include "speaker.h"

/* Under lock. */
static struct speaker *speaker_of(const struct dyn_fence *fence) {
  struct speaker *s = dyn_speakers;
  while (s != NULL && &s->rank.fence != fence) s = s->next;
  return s;
}

uint32_t dyn_hosts_gin(struct dyn_fence *fence, uint8_t id[128]) {
  pthread_mutex_lock(&dyn_speakers_lock);
  const struct speaker *s = speaker_of(fence);
  uint32_t verdict = s == NULL ? DYN_ALL_DECLINE : s->rank.verdict;
  if (verdict == DYN_ALL_BEGIN) memcpy(id, s->rank.gin.id, sizeof s->rank.gin.id);
  pthread_mutex_unlock(&dyn_speakers_lock);
  return verdict;
}

void dyn_hosts_decline(struct dyn_fence *fence) {
  pthread_mutex_lock(&dyn_speakers_lock);
  struct speaker *s = speaker_of(fence);
  if (s != NULL) s->rank.place.gin = false; /* also where it has yet to speak */
  if (s != NULL && s->spoke) dyn_hosts_rank_decline(&s->rank);
  pthread_mutex_unlock(&dyn_speakers_lock);
}

/* The hub's process has a rank (hub.h): it has gone with it. */
static bool has_lost_hub(const struct speaker *s) { return s->rank.together && s->rank.place.others != NULL && (s->over || s->away); }

/* Not waited for: a thread that forks has the lock meanwhile, with the program's own handlers, and who watches over peers asks again. */
bool dyn_hosts_gone(uint64_t commId, uint32_t rank, char *why, size_t bytes) {
  bool gone = false;
  if (pthread_mutex_trylock(&dyn_speakers_lock) != 0) return false;
  for (const struct speaker *s = dyn_speakers; s != NULL && !gone; s = s->next) {
    if (s->rank.place.commId != commId || s->rank.place.rank != rank) continue;
    gone = s->rank.gone != 0 || has_lost_hub(s);
    if (s->rank.gone != 0) snprintf(why, bytes, "rank %u, on another host, is gone", s->rank.gone - 1);
    else if (gone) snprintf(why, bytes, "the process that made this communicator's id, on another host, is gone");
  }
  pthread_mutex_unlock(&dyn_speakers_lock);
  return gone;
}
