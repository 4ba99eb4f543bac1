/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hub: what ranks hear about GIN, and which calls they count by it, so where in the program an epoch is: every other call of it is an
 * AllToAll. Included by it.
 */
#ifndef DYN_HUB_GIN_H
#define DYN_HUB_GIN_H

static uint32_t patience; /* how seldom a rank stops waiting for the word about GIN */

static bool counts(const struct rank *r) { return r->speaks.fence.exchanges == DYN_ALL_BEGIN; }
static bool settled(const struct rank *r) { return r->speaks.fence.exchanges != DYN_ALL_UNDECIDED; }

/* As plugin/gin.c. False: NCCL is still making the communicator, and the program calls nothing. */
static bool has_comm(struct rank *r) {
  uint32_t word = r->speaks.verdict;
  if (settled(r)) return true;
  if (word == DYN_ALL_UNDECIDED && !one_in(calm ? 30 : patience)) return false;
  if (word == DYN_ALL_UNDECIDED && r->connection >= 0) dyn_hosts_rank_decline(&r->speaks);
  r->speaks.place.gin &= word == DYN_ALL_BEGIN;
  r->speaks.fence.exchanges = word == DYN_ALL_BEGIN ? DYN_ALL_BEGIN : DYN_ALL_DECLINE;
  return true;
}

/* In which half epochs of one that counts all calls is the epoch of this one. */
static uint64_t first_half(const struct rank *r) { return counts(r) ? r->epoch : 2 * r->epoch; }
static uint64_t last_half(const struct rank *r) { return first_half(r) + !counts(r); }

static bool all_count_alike(void) {
  for (int i = 0; i < numRanks; i++)
    if (!settled(&ranks[i]) || counts(&ranks[i]) != counts(&ranks[0])) return false;
  return true;
}

static void check_verdict(const struct dyn_hosts_message *m, const struct dyn_hosts_gin *gin) {
  bool all = m->refusal == DYN_REFUSED_NOT;
  begins += all && verdict == 0;
  for (int i = 0; i < numRanks && all && verdict == 0; i++)
    if (!ranks[i].wanted || ranks[i].declined) violated("GIN begins on all ranks, and one does not want it");
  if (all && memcmp(gin->id, memories[0].record.ginId, sizeof gin->id) != 0) violated("GIN begins with another id than rank 0's");
  if (verdict != 0 && verdict != 1 + m->refusal) violated("ranks hear different words about GIN");
  verdict = 1 + m->refusal;
}
static void check_gone(struct rank *r) {
  if (r->gone) return; /* said again to who has come back */
  r->gone = true;
  if (r->said || r->unseenNs == 0 || nowNs - r->unseenNs < DYN_HOSTS_GONE_NS) violated("a rank is said to have gone that has not");
  goings++;
}

#endif
