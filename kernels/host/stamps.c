/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels in graphs say of their times (device/stamp.cuh), from the host's memory. A kernel may be writing while this
 * reads: a stamp counts once it is the same in two looks, half a second apart.
 */
#include "lsa.h"

static bool is(const struct tag *a, const struct tag *b) {
  return a->collective == b->collective && a->bytes == b->bytes && a->action == b->action && a->ctas == b->ctas;
}

uint32_t dyn_tag_of(struct dyn_lsa *lsa, const struct dyn_work *work, uint32_t action, unsigned ctas) {
  const struct tag tag = {work->collective, dyn_work_bytes(work, lsa->nRanks), action, ctas};
  uint32_t n = atomic_load_explicit(&lsa->numTags, memory_order_relaxed);
  for (uint32_t i = 0; i < n; i++)
    if (is(&lsa->tags[i], &tag)) return i + 1;
  if (n == MAX_TAGS) return 0;
  lsa->tags[n] = tag;
  atomic_store_explicit(&lsa->numTags, n + 1, memory_order_release);
  return n + 1;
}

static struct dyn_stamp read_stamp(const struct dyn_stamp *at) {
  return (struct dyn_stamp){__atomic_load_n(&at->word, __ATOMIC_RELAXED), __atomic_load_n(&at->beginNs, __ATOMIC_RELAXED),
                            __atomic_load_n(&at->counterNs, __ATOMIC_RELAXED), __atomic_load_n(&at->signalNs, __ATOMIC_RELAXED)};
}

static bool same(const struct dyn_stamp *a, const struct dyn_stamp *b) {
  return a->word == b->word && a->beginNs == b->beginNs && a->counterNs == b->counterNs && a->signalNs == b->signalNs;
}

static uint32_t saturated(uint64_t ns) { return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns; }

/* False: it is none. */
static bool understand(struct dyn_lsa *lsa, size_t cell, const struct dyn_stamp *s, struct dyn_replay *replay) {
  uint32_t number = (uint32_t)(s->word >> 32), tag = (uint32_t)s->word;
  if (tag == 0 || tag > atomic_load_explicit(&lsa->numTags, memory_order_acquire)) return false;
  if (!dyn_stamped(number) || number / DYN_STAMP_EVERY % DYN_STAMPS != cell) return false;
  if (s->beginNs == 0 || s->counterNs < s->beginNs || s->signalNs < s->counterNs || s->signalNs == s->beginNs) return false;
  const struct tag *of = &lsa->tags[tag - 1];
  *replay = (struct dyn_replay){number, of->collective, of->bytes, of->action, of->ctas, saturated(s->counterNs - s->beginNs), saturated(s->signalNs - s->beginNs)};
  return true;
}

size_t dyn_lsa_replays(struct dyn_lsa *lsa, struct dyn_replay *replays, size_t most) {
  size_t n = 0;
  if (atomic_load_explicit(&lsa->numTags, memory_order_acquire) == 0) return 0;
  for (size_t i = 0; i < DYN_STAMPS; i++) {
    struct dyn_stamp now = read_stamp(&lsa->scratch->stamps[i]);
    bool stays = same(&now, &lsa->seen[i]);
    lsa->seen[i] = now;
    if (!stays || now.word == lsa->told[i] || n == most) continue;
    lsa->told[i] = now.word;
    n += understand(lsa, i, &now, &replays[n]);
  }
  return n;
}
