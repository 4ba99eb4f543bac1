/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hosts: what calls took on another host than rank 0's comes into rank 0's ring, once and in order, beside daemons that empty rings.
 */
#ifndef DYN_HOSTS_TEST_SAMPLES_H
#define DYN_HOSTS_TEST_SAMPLES_H

#include "../../plugin/ring.h"
#include "hosts_rig.h"

static struct { uint64_t tail; } daemons[RANKS]; /* of each rank's ring */
static uint64_t seen[RANKS]; /* by rank 0's: the next call that a rank is to tell of */

static void make_rings(void) {
  size_t bytes = sizeof(struct dyn_ring) + DYN_RING_CELLS * sizeof(struct dyn_sample);
  for (int r = 0; r < RANKS; r++) {
    rings[r] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(rings[r] != MAP_FAILED);
    for (uint64_t i = 0; i < DYN_RING_CELLS; i++) ((struct dyn_sample *)(rings[r] + 1))[i].cell = i;
    daemons[r].tail = 0;
    seen[r] = 0;
  }
}

static bool drain(int r, struct dyn_sample *sample) {
  struct dyn_sample *cell = (struct dyn_sample *)(rings[r] + 1) + daemons[r].tail % DYN_RING_CELLS;
  if (LOAD(cell->cell) != daemons[r].tail + 1) return false;
  *sample = *cell;
  STORE(cell->cell, daemons[r].tail + DYN_RING_CELLS);
  daemons[r].tail++;
  return true;
}

static struct dyn_sample sample_of(int r, uint64_t seq) {
  return (struct dyn_sample){.commId = 100, .seq = seq, .rank = r, .signalNs = (uint32_t)(seq * 10 + (uint64_t)r), .flags = DYN_SAMPLE_EVENT_TIMED};
}

/* A call of each rank's, and what is of no call or of another communicator. */
static void call(uint64_t seq) {
  static const uint16_t none[] = {DYN_SAMPLE_CAPTURED | DYN_SAMPLE_UNTIMED, DYN_SAMPLE_REPLAYED, DYN_SAMPLE_UNTIMED, DYN_SAMPLE_UNJOINED};
  struct dyn_sample drained;
  for (int r = 0; r < 4; r++) {
    struct dyn_sample sample = sample_of(r, seq), other = sample;
    CHECK(dyn_ring_store(rings[r], &sample));
    other.seq = 1 << 30;
    if (seq % 5 == 0) other.commId = 999;
    else other.flags = none[seq % 4];
    if (seq % 3 == 0) CHECK(dyn_ring_store(rings[r], &other));
    while (r != 0 && seq % 7 < 4 && drain(r, &drained)) continue; /* sooner or later than it is told */
  }
}

/* What rank 0's daemon finds; from: calls before may be missing. How many calls of others. */
static int find(uint64_t from) {
  struct dyn_sample sample;
  int n = 0;
  while (drain(0, &sample)) {
    if (sample.rank == 0) continue;
    CHECK(sample.rank == 1 || sample.rank == 3);
    CHECK(sample.commId == 100 && sample.signalNs == (uint32_t)(sample.seq * 10 + (uint64_t)sample.rank));
    CHECK(sample.seq >= seen[sample.rank] && (sample.seq == seen[sample.rank] || seen[sample.rank] <= from));
    seen[sample.rank] = sample.seq + 1;
    n++;
  }
  return n;
}
static bool all_seen(uint64_t until, uint64_t from) {
  find(from);
  return seen[1] == until && seen[3] == until;
}

static void samples(void) {
  struct dyn_sample drained;
  uint64_t seq = 0;
  make_rings();
  start(4, 2, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  settle();
  for (; seen[1] == 0 || seen[3] == 0; seq++) { /* the first look leaves out what was there */
    call(seq);
    nap(5 * MS);
    find(seq);
    CHECK(seq < 1000);
  }
  for (int i = 0; i < 500; i++) {
    call(seq++);
    if (i % 8 == 7) AWAIT(all_seen(seq, 0), 3000);
  }
  AWAIT(all_seen(seq, 0), 3000);

  halt(1); /* it is so far behind that what it would read is written anew */
  uint64_t before = seq;
  for (int i = 0; i < DYN_RING_CELLS; i++) {
    struct dyn_sample sample = sample_of(1, seq++);
    CHECK(dyn_ring_store(rings[1], &sample) && drain(1, &drained));
    while (drain(1, &drained)) continue;
  }
  kill(shared->pids[1], SIGCONT);
  nap(100 * MS);
  find(seq);
  CHECK(seen[1] == before && seen[3] == before);
  for (int i = 0; i < 30; i++, seq++) call(seq), nap(2 * MS);
  AWAIT(all_seen(seq, seq), 3000);

  struct dyn_sample own = sample_of(0, 0); /* nobody empties rank 0's ring: it goes on, and what there is no room for is counted */
  while (dyn_ring_store(rings[0], &own)) continue;
  uint64_t dropped = LOAD(rings[0]->dropped);
  for (int r = 1; r < 4; r += 2) own = sample_of(r, seq), CHECK(dyn_ring_store(rings[r], &own));
  seq++;
  AWAIT(LOAD(rings[0]->dropped) == dropped + 2, 3000);
  find(0);
  settle();
  for (int i = 0; i < 30; i++, seq++) call(seq), nap(2 * MS);
  AWAIT(all_seen(seq, seq), 3000);
  stop();
  memset(rings, 0, sizeof rings);
}

/* Beside calls of another communicator, which nobody wants elsewhere, and more of them than one look has room for. */
static bool hears_beside_others(void) {
  struct dyn_sample drained, other = sample_of(1, 0);
  uint64_t seq = 0, most = 0, heard = 0;
  other.commId = 999;
  make_rings();
  start(4, 2, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  settle();
  for (uint64_t until = now() + 1500 * MS; now() < until; nap(30 * MS)) {
    for (int i = 0; i < 300; i++) {
      struct dyn_sample sample = sample_of(1, seq);
      if (i % 10 == 0) seq++;
      CHECK(dyn_ring_store(rings[1], i % 10 == 0 ? &sample : &other));
    }
    while (drain(1, &drained)) continue;
    heard += (uint64_t)find(~UINT64_C(0));
    if (seen[1] > 0 && seq - seen[1] > most) most = seq - seen[1];
  }
  stop();
  memset(rings, 0, sizeof rings);
  return most < 300 && heard > seq * 2 / 3;
}
/* Who has little of the processor hears little, for a while. */
static void busy(void) {
  bool heard = false;
  for (uint64_t i = 0; i < patience() && !heard; i++) heard = hears_beside_others();
  CHECK(heard);
}

/* A thread that has much to hear looks at what was told no more often than one that has nothing: what there is room for is of a second. */
static void ring_often(void) {
  unsigned char id[DYN_ID_BYTES];
  while (!LOAD(shared->now)) nap(MS);
  int before = LOAD(shared->holds[self]);
  uint64_t began = now();
  for (int i = 0; i < 400; i++) {
    plain_id(id);
    dyn_hosts_mark(id);
    nap(MS);
  }
  STORE(shared->done, (int)((now() - began) / MS));
  CHECK(LOAD(shared->holds[self]) - before <= shared->done / TICK_MS + 2);
  CHECK(LOAD(shared->holds[self]) - before > 5);
}
static void rung(void) {
  start(3, 3, 1, 1, ring_often);
  AWAIT(all_met(), 5000);
  settle();
  STORE(shared->now, 1);
  AWAIT(LOAD(shared->done), 5000);
  settle();
  stop();
}

/* What a process has lost its child has not. */
static void lost_in_parent(void) {
  struct dyn_sample told[DYN_HOSTS_LOOK];
  unsigned char id[DYN_ID_BYTES];
  unsigned calls;
  int status;
  make_rings();
  self = 0;
  plain_id(id);
  dyn_hosts_mark(id);
  dyn_hosts_samples_at(own_ring, give_back);
  dyn_hosts_lose(3);
  pid_t grandchild = fork();
  if (grandchild == 0) {
    dyn_hosts_lose(1);
    CHECK(dyn_hosts_exchange(NULL, told, &calls) == 0 && LOAD(rings[0]->untold) == 1);
    exit(0);
  }
  CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
  CHECK(dyn_hosts_exchange(NULL, told, &calls) == 0 && LOAD(rings[0]->untold) == 1 + 3);
}
static void lost_forked(void) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    lost_in_parent();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

#endif
