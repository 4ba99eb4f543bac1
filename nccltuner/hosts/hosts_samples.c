/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"
#include "speaker.h"

static bool tells(const struct speaker *s, const struct dyn_sample *of) {
  return s->rank.elsewhere && of->commId == s->rank.place.commId && of->rank == (int32_t)s->rank.place.rank;
}
static bool is_wanted(const struct dyn_sample *sample) {
  for (const struct speaker *s = dyn_speakers; s != NULL; s = s->next)
    if (tells(s, sample)) return true;
  return false;
}

/* A connection that takes no more at once has none of them. */
static void tell(struct speaker *s, enum dyn_hosts_kind kind, const struct dyn_sample *samples, unsigned n) {
  struct dyn_sample its[DYN_HOSTS_LOOK];
  uint32_t count = 0;
  for (unsigned i = 0; i < n; i++)
    if (tells(s, &samples[i])) its[count++] = samples[i];
  if (!s->over && !s->broken && s->spoke && s->wire.numOut == 0) dyn_hosts_rank_tell(&s->rank, kind, its, count);
  else dyn_hosts_lose(count);
}

void dyn_speakers_exchange(bool looks) {
  struct dyn_sample samples[DYN_HOSTS_LOOK];
  unsigned calls = 0;
  bool any = false;
  for (const struct speaker *s = dyn_speakers; s != NULL; s = s->next) any |= s->rank.elsewhere;
  unsigned n = dyn_hosts_exchange(any ? is_wanted : NULL, looks ? samples : NULL, &calls);
  for (struct speaker *s = dyn_speakers; n > 0 && s != NULL; s = s->next) {
    tell(s, DYN_HOSTS_SAMPLES, samples, calls);
    tell(s, DYN_HOSTS_TRIPS, samples + calls, n - calls);
  }
}
