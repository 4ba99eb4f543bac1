/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of one actor. A rank's step is dyn_epoch_step of the shipped epoch.h on this state's words; what surrounds
 * it (copying the plan in two halves, then publishing the position) mirrors tuner.c.
 */
#include "model.h"

#include <string.h>

#include "../epoch.h"

enum model_publisher_mistake model_mistake;

static uint64_t word(const uint8_t packed[2]) { return (uint64_t)packed[0] << 8 | packed[1]; }

static void pack(uint8_t packed[2], uint64_t w) {
  packed[0] = (uint8_t)(w >> 8);
  packed[1] = (uint8_t)w;
}

void model_init(struct model_state *s, const struct model_config *config) {
  memset(s, 0, sizeof *s);
  memset(s->decidedSlot, 255, sizeof s->decidedSlot);
  memset(s->decidedVersion, 255, sizeof s->decidedVersion);
  s->publisher.version = 1;
  if (config->publications == 0) s->publisher.phase = PUBLISHER_DONE;
}

int model_actors(const struct model_config *config) { return 2 * config->ranks + 1; }

/* ---- a rank ---- */

static void unpack_machine(struct dyn_epoch *m, const struct model_rank *r) {
  *m = (struct dyn_epoch){.pc = r->pc,
                          .tries = r->tries,
                          .index = r->index,
                          .mayChange = r->flags & 1,
                          .broken = r->flags >> 1 & 1,
                          .current = r->current,
                          .want = r->want,
                          .slot = r->resolved,
                          .epoch = r->epoch,
                          .frontier = word(r->frontier),
                          .entry = word(r->entry),
                          .limit = r->limit};
}

static void pack_machine(struct model_rank *r, const struct dyn_epoch *m) {
  r->pc = (uint8_t)m->pc;
  r->tries = (uint8_t)m->tries;
  r->index = (uint8_t)m->index;
  r->flags = (uint8_t)(m->mayChange | m->broken << 1);
  r->current = m->current;
  r->want = m->want;
  r->resolved = m->slot;
  r->limit = (uint8_t)m->limit;
  pack(r->frontier, m->frontier);
  pack(r->entry, m->entry);
}

static void clear_machine(struct model_rank *r) {
  struct dyn_epoch m;
  dyn_epoch_begin(&m, r->epoch);
  pack_machine(r, &m);
}

/* A register that is written before it is read again says nothing: clearing it joins states that differ in nothing
 * else. tries is kept, since the check is also that it never runs out. */
static void clear_dead_registers(struct dyn_epoch *m) {
  struct dyn_epoch live = {.pc = m->pc, .tries = m->tries, .epoch = m->epoch, .broken = m->broken};
  if (m->pc != DYN_AT_FRONTIER && m->pc != DYN_AT_END) live.frontier = m->frontier;
  if (m->pc == DYN_AT_SCAN || m->pc == DYN_AT_ROOM) live.index = m->index;
  if (m->pc == DYN_AT_NEWEST) live.current = m->current;
  if (m->pc >= DYN_AT_LIMIT && m->pc <= DYN_AT_COMMIT_CHANGE) live.want = m->want;
  if (m->pc == DYN_AT_ROOM) live.limit = m->limit;
  if (m->pc == DYN_AT_RECHECK || m->pc == DYN_AT_SWAP_ENTRY) live.entry = m->entry;
  if (m->pc == DYN_AT_END) live.slot = m->slot;
  *m = live;
}

static bool enter(struct model_state *s, const struct model_config *config, struct model_rank *r, const char **wrong) {
  uint64_t frontier = word(s->frontier), newest = word(s->newest), changes[MODEL_LOG], positions[MODEL_RANKS];
  uint32_t joined = s->joined, veto = s->veto;
  for (int i = 0; i < MODEL_LOG; i++) changes[i] = word(s->changes[i]);
  for (int i = 0; i < MODEL_RANKS; i++) positions[i] = word(s->positions[i]);
  struct dyn_epoch_memory memory = {.frontier = &frontier, .changes = changes, .newest = &newest,
                                    .positions = positions, .joined = &joined, .veto = &veto,
                                    .positionStride = 1, .nRanks = (uint32_t)config->ranks};
  struct dyn_epoch machine;
  unpack_machine(&machine, r);
  bool end = dyn_epoch_step(&machine, &memory);
  clear_dead_registers(&machine);
  pack_machine(r, &machine);
  pack(s->frontier, frontier);
  for (int i = 0; i < DYN_LOG_LENGTH; i++) pack(s->changes[i], changes[i]);
  if (machine.broken) *wrong = "a rank took the record for broken, or needed more tries than promised";
  return end;
}

static void resolve(struct model_state *s, struct model_rank *r, const char **wrong) {
  if (s->decidedSlot[r->epoch] == 255) s->decidedSlot[r->epoch] = r->resolved;
  if (s->decidedSlot[r->epoch] != r->resolved) *wrong = "two ranks resolved one epoch to different plan buffers";
  if (s->veto && r->resolved) *wrong = "a plan came into force in spite of a veto";
}

static void adopt(struct model_state *s, struct model_rank *r, const char **wrong) {
  if (s->decidedVersion[r->epoch] == 255) s->decidedVersion[r->epoch] = r->version;
  if (s->decidedVersion[r->epoch] != r->version) *wrong = "two ranks run one epoch by different contents of a buffer";
  if (r->version && !(s->published >> r->version & 1)) *wrong = "a rank adopted a plan that was never published";
}

static bool rank_step(struct model_state *s, const struct model_config *config, int rank, const char **wrong) {
  struct model_rank *r = &s->ranks[rank];
  switch (r->phase) {
  case RANK_JOINING:
    if (rank < config->vetoes) s->veto = 1;
    s->joined++;
    r->epoch = 1;
    r->phase = RANK_ENTERING;
    clear_machine(r);
    return true;
  case RANK_ENTERING:
    if (!enter(s, config, r, wrong)) return true;
    resolve(s, r, wrong);
    r->phase = r->resolved == r->slot ? RANK_PUBLISHING : r->resolved ? RANK_COPYING_FIRST : RANK_PUBLISHING;
    r->slot = r->resolved;
    if (r->slot == 0) r->version = 0;
    clear_machine(r);
    if (r->phase == RANK_PUBLISHING) adopt(s, r, wrong);
    return true;
  case RANK_COPYING_FIRST:
    r->firstHalf = s->content[r->slot - 1][0];
    r->phase = RANK_COPYING_SECOND;
    return true;
  case RANK_COPYING_SECOND:
    r->version = s->content[r->slot - 1][1];
    if (r->firstHalf != r->version) *wrong = "a plan buffer was rewritten while a rank copied it";
    r->firstHalf = 0;
    adopt(s, r, wrong);
    r->phase = RANK_PUBLISHING;
    return true;
  case RANK_PUBLISHING:
    pack(s->positions[rank], dyn_epoch_position(r->epoch, r->slot));
    r->phase = r->epoch == config->epochs ? RANK_DONE : RANK_ENTERING;
    r->epoch++;
    if (r->phase == RANK_DONE) memset(r, 0, sizeof *r), r->phase = RANK_DONE;
    return true;
  default:
    return false;
  }
}

/* ---- the publisher: decision 4, one access a step ---- */

static int free_buffer(const struct model_publisher *p, const struct model_config *config) {
  for (int b = 0; b < config->buffers; b++) {
    if (p->newest == b + 1) continue;
    if (!(p->used >> b & 1)) return b;
    if (p->named >> b & 1) continue;
    if (model_mistake != PUBLISHER_IGNORES_STALLED && p->frontier[0] <= p->superseded[b][0]) continue;
    return b;
  }
  return -1;
}

static void look_again(struct model_publisher *p) {
  p->phase = PUBLISHER_AT_FRONTIER;
  p->index = p->named = p->buffer = 0;
  p->slowest = 255;
  p->frontier[0] = p->frontier[1] = 0;
}

static bool publisher_step(struct model_state *s, const struct model_config *config) {
  struct model_publisher *p = &s->publisher;
  switch (p->phase) {
  case PUBLISHER_AT_FRONTIER: {
    look_again(p);
    int fresh = free_buffer(p, config);
    if (fresh >= 0 && !(p->used >> fresh & 1)) { /* nobody knows it yet: no need to look, nor to write in two steps */
      s->content[fresh][0] = s->content[fresh][1] = p->version;
      p->buffer = (uint8_t)fresh;
      p->phase = PUBLISHER_AT_NEWEST;
      return true;
    }
    memcpy(p->frontier, s->frontier, 2);
    p->phase = PUBLISHER_AT_POSITIONS;
    return true;
  }
  case PUBLISHER_AT_POSITIONS: {
    const uint8_t *position = s->positions[p->index];
    if (position[0] < p->slowest) p->slowest = position[0];
    if (position[1]) p->named |= (uint8_t)(1 << (position[1] - 1));
    if (++p->index == config->ranks) {
      p->index = 0;
      p->phase = PUBLISHER_AT_LOG;
    }
    return true;
  }
  case PUBLISHER_AT_LOG: {
    const uint8_t *change = s->changes[(p->frontier[1] + 256 - p->index) % DYN_LOG_LENGTH];
    if (change[1] && model_mistake != PUBLISHER_IGNORES_LOG) p->named |= (uint8_t)(1 << (change[1] - 1));
    if (change[0] > p->slowest && ++p->index < DYN_LOG_LENGTH) return true;
    int b = free_buffer(p, config);
    look_again(p);
    if (b < 0) return true;
    p->buffer = (uint8_t)b;
    p->phase = PUBLISHER_AT_FIRST_HALF;
    return true;
  }
  case PUBLISHER_AT_FIRST_HALF:
    s->content[p->buffer][0] = p->version;
    p->phase = PUBLISHER_AT_SECOND_HALF;
    return true;
  case PUBLISHER_AT_SECOND_HALF:
    s->content[p->buffer][1] = p->version;
    p->phase = PUBLISHER_AT_NEWEST;
    return true;
  case PUBLISHER_AT_NEWEST:
    s->newest[0] = p->version;
    s->newest[1] = (uint8_t)(p->buffer + 1);
    s->published |= (uint8_t)(1 << p->version);
    p->phase = PUBLISHER_AT_SUPERSEDED;
    return true;
  case PUBLISHER_AT_SUPERSEDED:
    if (p->newest) memcpy(p->superseded[p->newest - 1], s->frontier, 2);
    p->used |= (uint8_t)(1 << p->buffer);
    p->newest = (uint8_t)(p->buffer + 1);
    look_again(p);
    if (p->version++ == config->publications) memset(p, 0, sizeof *p), p->phase = PUBLISHER_DONE;
    return true;
  default:
    return false;
  }
}

/* What was decided for an epoch matters while somebody may still resolve it. */
static void forget_history(struct model_state *s, const struct model_config *config) {
  int slowest = MODEL_EPOCHS;
  for (int i = 0; i < config->ranks; i++) {
    const struct model_rank *r = &s->ranks[i];
    if (r->phase != RANK_DONE && r->phase != RANK_CRASHED && r->epoch < slowest) slowest = r->epoch;
  }
  for (int e = 0; e < slowest; e++) s->decidedSlot[e] = s->decidedVersion[e] = 255;
}

bool model_step(struct model_state *s, const struct model_config *config, int actor, const char **wrong) {
  *wrong = NULL;
  if (actor < config->ranks) {
    bool moved = rank_step(s, config, actor, wrong);
    forget_history(s, config);
    return moved;
  }
  if (actor == config->ranks) return publisher_step(s, config);
  struct model_rank *r = &s->ranks[actor - config->ranks - 1];
  if (s->crashes == config->crashes || r->phase == RANK_DONE || r->phase == RANK_CRASHED) return false;
  memset(r, 0, sizeof *r);
  r->phase = RANK_CRASHED;
  s->crashes++;
  forget_history(s, config);
  return true;
}

int model_solo(struct model_state s, const struct model_config *config, int rank) {
  const char *wrong = NULL;
  int limit = config->epochs * 64;
  for (int steps = 0; steps <= limit; steps++) {
    if (s.ranks[rank].phase == RANK_DONE || s.ranks[rank].phase == RANK_CRASHED) return steps;
    model_step(&s, config, rank, &wrong);
  }
  return -1;
}
