/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels say of their times (device/stamp.cuh), from the host's memory. One in a graph may be writing while this
 * reads: its stamp counts once it is the same in two looks, half a second apart. That of a call which the host times is read behind
 * the call's end, when it is whole. Its memory is never given back (memory.c), and the tag tells whether another communicator has had
 * it since.
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

static bool in_order(const struct dyn_stamp *s) {
  return s->beginNs != 0 && s->counterNs >= s->beginNs && s->signalNs >= s->counterNs && s->signalNs != s->beginNs;
}

/* False: it is none. */
static bool understand(struct dyn_lsa *lsa, size_t cell, const struct dyn_stamp *s, struct dyn_replay *replay) {
  uint32_t number = (uint32_t)(s->word >> 32), tag = (uint32_t)s->word;
  if (tag == 0 || tag > atomic_load_explicit(&lsa->numTags, memory_order_acquire)) return false;
  if (!dyn_stamped(number) || number / DYN_STAMP_EVERY % DYN_STAMPS != cell || !in_order(s)) return false;
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

void dyn_timing_begin(struct scratch *scratch, struct dyn_timing *timing, struct dyn_call *call) {
  call->stamps = &scratch->timed[scratch->numTimed % DYN_TIMED_CALLS];
  call->tag = DYN_STAMP_TIMED | scratch->numTimed++;
  *timing = (struct dyn_timing){call->stamps, call->tag};
}

bool dyn_timing_tail(const struct dyn_timing *timing, uint32_t *ns) {
  if (timing->at == NULL) return false;
  struct dyn_stamp s = read_stamp(timing->at);
  if ((uint32_t)s.word != timing->tag || !in_order(&s)) return false;
  *ns = saturated(s.signalNs - s.counterNs);
  return true;
}
