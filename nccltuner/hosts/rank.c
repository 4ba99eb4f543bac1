/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include <stddef.h>
#include <string.h>

#include "../plugin/datatype.h"
#include "../plugin/marks.h"
#include "../plugin/plan.h"

#define NS_PER_MS UINT64_C(1000000)
#define BUSY_MS 20     /* a rank has not come yet to where the plan before begins */
#define REFUSED_MS 500 /* other reasons do not pass by themselves, but they pass */

/* ---- what this rank allows ---- */

static struct dyn_hosts_word word_of(const struct dyn_hosts_rank *r) {
  struct dyn_hosts_word word = {.flags = __atomic_load_n(&r->place.self->flags, __ATOMIC_RELAXED), .ncclVersion = r->place.self->ncclVersion};
  if (__atomic_load_n(&r->place.record->veto, __ATOMIC_RELAXED)) word.flags |= DYN_RANK_VETO;
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) word.marks[c][b] = __atomic_load_n(&r->place.self->marks[c][b], __ATOMIC_RELAXED);
  return word;
}

static bool adds_up(int collective) { return collective == DYN_REDUCE || collective == DYN_REDUCE_SCATTER || collective == DYN_ALL_REDUCE; }

/* A kernel over GIN this rank must have: what is promised has no other way. Who does not count AllToAll has marked nothing of it. */
static uint32_t refusal_of_gin(const struct dyn_hosts_word *word, int collective, int bucket, uint32_t action) {
  uint32_t backend = action >> DYN_ACTION_BACKEND_SHIFT & 15, marks = word->marks[collective][bucket];
  if ((collective >= DYN_NUM_ASKED && collective != DYN_ALL_TO_ALL) || action >> DYN_ACTION_ALGO_SHIFT & 15 || (backend != DYN_BACKEND_GDAKI && backend != DYN_BACKEND_PROXY)) return DYN_REFUSED_UNFIT;
  if (word->flags & DYN_RANK_FIXED_NUMERICS && adds_up(collective)) return DYN_REFUSED_USER;
  bool some = (action >> DYN_ACTION_CONTEXTS_SHIFT & (DYN_GIN_FLAT - 1)) != 0; /* of its contexts, which all ranks are to take alike */
  bool has = marks & DYN_MARKS_SEEN && marks >> (DYN_MARKS_GIN_SHIFT + backend) & 1 && (!some || marks & DYN_MARKS_CONTEXTS);
  return has || DYN_RANK_MUTATE == DYN_RANK_MUTATE_GIN ? DYN_REFUSED_NOT : DYN_REFUSED_MARKS;
}

/* Ranks give an AllGather the plan's number of channels all or none, for it counts as a choice of its own: so who cannot tell it from broadcasts
 * of a group (plugin/everywhere.h) promises none. That is settled when a rank joins. */
static bool is_number_of_gathers(int collective, uint32_t action) { return collective == DYN_ALL_GATHER && (action >> DYN_ACTION_CHANNELS_SHIFT & 255) != 0; }

/* What has not been asked yet NCCL allows on all ranks or on none, by its own word (decision 7). */
static uint32_t refusal_of_action(const struct dyn_hosts_word *word, int collective, int bucket, uint32_t action) {
  uint32_t algorithm = action >> DYN_ACTION_ALGO_SHIFT & 15, protocol = action >> DYN_ACTION_PROTO_SHIFT & 15, marks = word->marks[collective][bucket];
  if (action == 0) return DYN_REFUSED_NOT;
  if ((action & 15) == DYN_PATH_GIN) return refusal_of_gin(word, collective, bucket, action);
  if ((action & 15) != DYN_PATH_COLLECTIVE || collective >= DYN_NUM_ASKED || algorithm >= DYN_MARKS_ALGORITHMS || protocol >= DYN_MARKS_PROTOCOLS) return DYN_REFUSED_UNFIT;
  if (word->flags & DYN_RANK_FIXED_NUMERICS && adds_up(collective)) return DYN_REFUSED_USER;
  if (is_number_of_gathers(collective, action) && !(word->flags & DYN_RANK_ALONE_GATHERS) && DYN_RANK_MUTATE != DYN_RANK_MUTATE_GATHERS) return DYN_REFUSED_MARKS;
  if (DYN_RANK_MUTATE == DYN_RANK_MUTATE_MARKS || !(marks & DYN_MARKS_SEEN)) return DYN_REFUSED_NOT;
  return marks >> (DYN_MARKS_PROTOCOLS * algorithm + protocol) & 1 ? DYN_REFUSED_NOT : DYN_REFUSED_MARKS;
}

static uint32_t refusal_of(const struct dyn_hosts_rank *r, const struct dyn_plan *plan) {
  struct dyn_hosts_word word = word_of(r);
  if (DYN_RANK_MUTATE != DYN_RANK_MUTATE_UNFIT && !dyn_plan_valid(plan)) return DYN_REFUSED_UNFIT;
  if (word.flags & DYN_RANK_VETO) return DYN_REFUSED_USER;
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) {
      const struct dyn_entry *entry = &plan->entries[plan->index[c][b] % DYN_NUM_ENTRIES];
      if (plan->index[c][b] == 0) continue;
      if (entry->numTrials > 0 && word.flags & (DYN_RANK_NO_EXPLORE | DYN_RANK_NO_PROFILER)) return DYN_REFUSED_USER;
      uint32_t refusal = refusal_of_action(&word, c, b, entry->base);
      for (uint32_t i = 0; refusal == DYN_REFUSED_NOT && i < entry->numTrials && i < DYN_NUM_TRIALS; i++)
        refusal = refusal_of_action(&word, c, b, entry->trials[i]);
      if (refusal != DYN_REFUSED_NOT) return refusal;
    }
  return DYN_REFUSED_NOT;
}

/* ---- to the hub ---- */

static void say(const struct dyn_hosts_rank *r, struct dyn_hosts_message message, const void *payload) {
  message.version = DYN_HOSTS_VERSION;
  message.bytes = dyn_hosts_bytes(message.kind);
  message.commId = r->place.commId;
  message.nRanks = r->place.nRanks;
  message.rank = r->place.rank;
  message.entered = __atomic_load_n(&r->fence.entered, __ATOMIC_SEQ_CST);
  r->send(r->to, &message, payload);
}

static void say_wish(const struct dyn_hosts_rank *r) {
  struct dyn_hosts_gin gin = {0};
  if (r->place.gin && r->place.rank == 0) memcpy(gin.id, r->place.record->ginId, sizeof gin.id);
  say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_WISH, .refusal = r->place.gin ? DYN_REFUSED_NOT : DYN_REFUSED_USER}, &gin);
}

void dyn_hosts_rank_greet(struct dyn_hosts_rank *r) {
  r->proposing = r->toldOnce = false;
  say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_HELLO, .nonce = r->place.nonce, .host = r->place.host, .count = r->place.record->epochCalls,
                                    .question = dyn_fence_raised_at(&r->fence) != 0 ? r->question : 0}, NULL);
  say_wish(r);
}

void dyn_hosts_rank_bye(const struct dyn_hosts_rank *r) { say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_BYE}, NULL); }

void dyn_hosts_rank_decline(struct dyn_hosts_rank *r) {
  r->place.gin = false;
  say_wish(r);
}

/* The daemon writes a buffer anew only once another one is the newest: so if this one is the newest before and after, what was read is whole.
 * Where a processor reads ahead of its program the checksum says so, in which the version has a part. */
static bool read_newest(const struct dyn_record *record, uint64_t newest, struct dyn_plan *plan) {
  uint32_t slot = newest & 255;
  if (slot == 0 || slot > DYN_NUM_PLANS) return false;
  memcpy(plan, &record->plans[slot - 1], sizeof *plan);
  if (DYN_RANK_MUTATE == DYN_RANK_MUTATE_STALE) return true;
  __atomic_signal_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&record->newest, __ATOMIC_ACQUIRE) == newest && plan->version == newest >> 8 && dyn_plan_valid(plan);
}

static void propose_newest(struct dyn_hosts_rank *r, uint64_t nowNs) {
  struct dyn_plan plan;
  uint64_t newest = __atomic_load_n(&r->place.record->newest, __ATOMIC_ACQUIRE), version = newest >> 8;
  if (!dyn_fence_is_down(&r->fence)) return; /* it would refuse itself: it has not been told of the one before, or has not begun it */
  if (version == 0 || version == r->committed || r->proposing || (version == r->proposed && nowNs < r->againNs)) return;
  if (!read_newest(r->place.record, newest, &plan)) return;
  r->proposing = true;
  r->proposed = version;
  __atomic_store_n(&r->place.record->proposed, version, __ATOMIC_RELEASE);
  say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_PROPOSE}, &plan);
}

void dyn_hosts_rank_tick(struct dyn_hosts_rank *r, uint64_t nowNs) {
  if (!r->together) return;
  struct dyn_hosts_word word = word_of(r);
  if (!r->toldOnce || memcmp(&word, &r->told, sizeof word) != 0) {
    r->told = word;
    r->toldOnce = true;
    say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_TELL}, &word);
  }
  if (r->place.rank == 0) propose_newest(r, nowNs);
}

void dyn_hosts_rank_tell(struct dyn_hosts_rank *r, enum dyn_hosts_kind kind, const struct dyn_sample *samples, uint32_t count) {
  for (uint32_t at = 0, n; at < count; at += n) {
    struct dyn_hosts_samples some = {0};
    n = count - at < DYN_HOSTS_SAMPLES_AT_ONCE ? count - at : DYN_HOSTS_SAMPLES_AT_ONCE;
    memcpy(some.samples, samples + at, n * sizeof *samples);
    say(r, (struct dyn_hosts_message){.kind = kind, .count = n}, &some);
  }
}

/* ---- from the hub ---- */

/* Of all ranks of this host the one that is furthest: none takes back that they have met, or that one has parted. */
static void set_hosts(const struct dyn_hosts_rank *r, uint32_t hosts) {
  uint32_t now = __atomic_load_n(&r->place.record->hosts, __ATOMIC_RELAXED);
  _Static_assert(DYN_HOSTS_ONE < DYN_HOSTS_APART && DYN_HOSTS_APART < DYN_HOSTS_MET && DYN_HOSTS_MET < DYN_HOSTS_PARTED, "in this order");
  while (now < hosts && !__atomic_compare_exchange_n(&r->place.record->hosts, &now, hosts, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
}

void dyn_hosts_rank_apart(struct dyn_hosts_rank *r) { set_hosts(r, DYN_HOSTS_APART); }

/* On rank 0's host only that one says so, once it knows what the others allow: its daemon plans. */
static bool met(struct dyn_hosts_rank *r, uint32_t hostRanks, uint64_t firstHost) {
  if (hostRanks == 0 || hostRanks > r->place.nRanks) return false;
  r->together = true;
  if (hostRanks == r->place.nRanks) return true; /* one host: the record suffices */
  r->place.others = (struct dyn_rank *)(r->place.record + 1) + hostRanks;
  r->elsewhere = r->place.host != firstHost;
  __atomic_store_n(&r->place.record->hostRanks, hostRanks, __ATOMIC_RELEASE);
  if (r->elsewhere) set_hosts(r, DYN_HOSTS_MET);
  return true;
}

static void hear_others(struct dyn_hosts_rank *r, const struct dyn_hosts_word *word) {
  struct dyn_rank *others = r->place.others;
  if (others == NULL || r->place.rank != 0) return;
  others->ncclVersion = word->ncclVersion;
  __atomic_store_n(&others->flags, word->flags, __ATOMIC_RELAXED);
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++)
    for (int b = 0; b < DYN_NUM_BUCKETS; b++) __atomic_store_n(&others->marks[c][b], word->marks[c][b], __ATOMIC_RELAXED);
  set_hosts(r, DYN_HOSTS_MET);
}

/* As if the rank were of this process. Puts come as such: who has room for calls alone goes by the message. */
static bool hear_samples(const struct dyn_hosts_rank *r, const struct dyn_hosts_message *m, const struct dyn_hosts_samples *all) {
  if (r->place.rank != 0 || m->rank == 0 || m->rank >= r->place.nRanks || m->count > DYN_HOSTS_SAMPLES_AT_ONCE) return false;
  for (uint32_t i = 0; i < m->count && r->hear != NULL; i++) {
    struct dyn_sample sample = all->samples[i];
    if (((sample.flags & DYN_SAMPLE_TRIP) != 0) != (m->kind == DYN_HOSTS_TRIPS)) continue;
    sample.commId = r->place.commId;
    sample.rank = (int32_t)m->rank;
    r->hear(&sample);
  }
  return true;
}

static bool hear_verdict(struct dyn_hosts_rank *r, uint32_t refusal, const struct dyn_hosts_gin *gin) {
  if (r->verdict != DYN_ALL_UNDECIDED) return true; /* said again to who has come back */
  r->verdict = refusal == DYN_REFUSED_NOT ? DYN_ALL_BEGIN : DYN_ALL_DECLINE;
  r->gin = *gin;
  return true;
}

static bool hear_gone(struct dyn_hosts_rank *r, uint32_t rank) {
  if (rank >= r->place.nRanks) return false;
  if (rank != r->place.rank && r->gone == 0) r->gone = 1 + rank;
  return true;
}

/* Where the plan begins is a number of calls, so nothing is promised before it is settled which calls this rank counts. */
static void prepare(struct dyn_hosts_rank *r, uint64_t epoch, uint64_t question, const struct dyn_plan *plan) {
  uint32_t refusal = DYN_REFUSED_BUSY, exchanges = __atomic_load_n(&r->fence.exchanges, __ATOMIC_ACQUIRE);
  bool settled = exchanges != DYN_ALL_UNDECIDED || DYN_RANK_MUTATE == DYN_RANK_MUTATE_EXCHANGES;
  if (settled && dyn_fence_is_down(&r->fence)) {
    refusal = refusal_of(r, plan);
    if (refusal == DYN_REFUSED_NOT) {
      memcpy(&r->fence.plan, plan, sizeof *plan);
      r->question = question;
      dyn_fence_raise(&r->fence, epoch);
      if (dyn_fence_late(&r->fence, epoch)) {
        dyn_fence_lower(&r->fence);
        refusal = DYN_REFUSED_LATE;
      }
    }
  }
  say(r, (struct dyn_hosts_message){.kind = DYN_HOSTS_ANSWER, .question = question, .refusal = refusal, .count = exchanges}, NULL);
}

static void hear_refusal(struct dyn_hosts_rank *r, const struct dyn_hosts_message *m, uint64_t nowNs) {
  uint64_t waitMs = m->refusal == DYN_REFUSED_LATE ? 0 : m->refusal == DYN_REFUSED_BUSY ? BUSY_MS : REFUSED_MS;
  r->againNs = nowNs + waitMs * NS_PER_MS;
  __atomic_store_n(&r->place.record->refuser, m->rank, __ATOMIC_RELAXED);
}

static void decided(struct dyn_hosts_rank *r, const struct dyn_hosts_message *m, uint64_t nowNs) {
  uint64_t epoch = m->question == r->question ? dyn_fence_raised_at(&r->fence) : 0;
  if (epoch != 0 && m->refusal == DYN_REFUSED_NOT) {
    r->committed = r->fence.plan.version;
    dyn_fence_open(&r->fence, epoch);
  } else if (epoch != 0) {
    dyn_fence_lower(&r->fence);
  }
  if (!r->proposing) return;
  r->proposing = false;
  if (m->refusal != DYN_REFUSED_NOT) hear_refusal(r, m, nowNs);
  __atomic_store_n(&r->place.record->refusal, m->refusal, __ATOMIC_RELEASE);
}

bool dyn_hosts_rank_take(struct dyn_hosts_rank *r, const struct dyn_hosts_message *m, const void *payload, uint64_t nowNs) {
  if (m->commId != r->place.commId || m->nRanks != r->place.nRanks) return false;
  switch (m->kind) {
  case DYN_HOSTS_TOGETHER: return met(r, m->count, m->host);
  case DYN_HOSTS_OTHERS: hear_others(r, payload); return true;
  case DYN_HOSTS_PREPARE: prepare(r, m->epoch, m->question, payload); return true;
  case DYN_HOSTS_DECIDE: decided(r, m, nowNs); return true;
  case DYN_HOSTS_VERDICT: return hear_verdict(r, m->refusal, payload);
  case DYN_HOSTS_GONE: return hear_gone(r, m->rank);
  case DYN_HOSTS_SAMPLES:
  case DYN_HOSTS_TRIPS: return hear_samples(r, m, payload);
  default: return false;
  }
}

/* A raised fence stays up: the hub may have decided, and says so when this rank is back. */
void dyn_hosts_rank_cut(struct dyn_hosts_rank *r) {
  r->proposing = false;
  if (DYN_RANK_MUTATE == DYN_RANK_MUTATE_LOSES && dyn_fence_raised_at(&r->fence) != 0) dyn_fence_lower(&r->fence);
}

void dyn_hosts_rank_parted(struct dyn_hosts_rank *r) {
  uint64_t epoch = dyn_fence_raised_at(&r->fence);
  if (epoch != 0) dyn_fence_lose(&r->fence, epoch);
  if (r->verdict == DYN_ALL_UNDECIDED) r->verdict = DYN_ALL_DECLINE;
  set_hosts(r, r->together ? DYN_HOSTS_PARTED : DYN_HOSTS_APART);
}
