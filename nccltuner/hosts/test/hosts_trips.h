/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hosts: what puts over GIN took on another host than rank 0's comes into rank 0's ring, behind what calls took; of too many, all ranks
 * tell of the same.
 */
#ifndef DYN_HOSTS_TEST_TRIPS_H
#define DYN_HOSTS_TEST_TRIPS_H

#include "hosts_samples.h"

#define NUMBERS (1 << 20)
#define EVERY 16 /* DYN_GIN_TRIP_CLOSELY */

static unsigned char came[RANKS][NUMBERS]; /* by rank 0's daemon: puts by the number of their call */
static uint64_t newest[RANKS][2];          /* the last one, of calls and in graphs */
static int back;                           /* that came behind a later one */

static uint64_t timed_from(uint64_t number) { /* dyn_gin_one_in of kernels/gin/gin.h */
  while ((uint32_t)number * 2654435769u >= UINT32_MAX / EVERY) number++;
  return number;
}

static struct dyn_sample put_of(int r, uint64_t number, int peer) {
  return (struct dyn_sample){.commId = 100, .seq = number, .rank = r, .peer = (uint8_t)peer, .signalNs = (uint32_t)(number * 10 + (uint64_t)r), .counterNs = (uint32_t)number, .nRanks = 4,
                             .protocol = 3, .action = DYN_PATH_GIN | 4 << DYN_ACTION_CHANNELS_SHIFT, .flags = DYN_SAMPLE_GIN | DYN_SAMPLE_TRIP | (number % 2 ? DYN_SAMPLE_REPLAYED : 0)};
}

static void tell_put(int r, uint64_t number) {
  struct dyn_sample put = put_of(r, number, r - 1), other = put, drained;
  other.commId = 999;
  CHECK(number < NUMBERS && dyn_ring_store(rings[r], &put) && dyn_ring_store(rings[r], &other));
  while (drain(r, &drained)) continue;
}

/* Puts of so many calls, each rank's to the one before it, as kernels have left them, in whichever order; and as many of another communicator's,
 * which nobody wants. The number behind them. */
static uint64_t tell_puts(uint64_t number, int calls) {
  static uint64_t numbers[4096];
  for (int i = 0; i < calls; i++) numbers[i] = i == 0 ? timed_from(number) : timed_from(numbers[i - 1] + 1);
  for (int i = 0; i < calls; i++) tell_put(1, numbers[i]), tell_put(3, numbers[calls - 1 - i]);
  return numbers[calls - 1] + 1;
}

/* What rank 0's daemon finds of puts. How many of calls are beside them. */
static int find_puts(void) {
  struct dyn_sample sample;
  int calls = 0;
  STORE(rings[0]->header.heartbeat, rings[0]->header.heartbeat + 1);
  while (drain(0, &sample)) {
    int r = sample.rank;
    if (!(sample.flags & DYN_SAMPLE_TRIP)) {
      CHECK(sample.flags == DYN_SAMPLE_EVENT_TIMED && (r == 1 || r == 3));
      seen[r] = sample.seq + 1;
      calls++;
      continue;
    }
    struct dyn_sample put = put_of(r, sample.seq, r - 1);
    CHECK((r == 1 || r == 3) && sample.seq < NUMBERS && !came[r][sample.seq]);
    put.cell = sample.cell;
    CHECK(memcmp(&sample, &put, sizeof put) == 0);
    uint64_t *last = &newest[r][(sample.flags & DYN_SAMPLE_REPLAYED) != 0];
    back += sample.seq < *last;
    *last = sample.seq;
    came[r][sample.seq] = 1;
  }
  return calls;
}
static int num_came(int r, uint64_t from, uint64_t until) {
  int n = 0;
  for (find_puts(); from < until; from++) n += came[r][from];
  return n;
}

/* All ranks are heard of from here on. */
static uint64_t begin_puts(void) {
  uint64_t number = 0;
  memset(came, 0, sizeof came);
  memset(newest, 0, sizeof newest);
  make_rings();
  STORE(rings[0]->wantMask, 1);
  start(4, 2, 1, -1, NULL);
  AWAIT(all_met(), 5000);
  settle();
  for (uint64_t until = now() + 3000 * MS * patience(); num_came(1, 0, number) == 0 || num_came(3, 0, number) == 0; nap(5 * MS)) {
    CHECK(now() < until);
    number = tell_puts(number, 1);
  }
  nap(100 * MS);
  find_puts();
  return number;
}
static void end_puts(void) {
  stop();
  memset(rings, 0, sizeof rings);
}

/* Word by word: what is told of puts has places of its own on the way, so a call is none, and a put no call; nobody tells for rank 0. */
static struct dyn_sample word;
static int words;
static void hear_word(const struct dyn_sample *sample) {
  word = *sample;
  words++;
}
static void tell_words(void) {
  struct dyn_hosts_rank r = {.place = {.commId = 100, .nRanks = 4}, .hear = hear_word};
  struct dyn_hosts_samples some = {.samples = {put_of(7, 8, 2), put_of(7, 9, 2), sample_of(7, 10)}};
  struct dyn_hosts_message m = {.commId = 100, .nRanks = 4, .kind = DYN_HOSTS_TRIPS, .count = 3, .rank = 1};
  some.samples[1].commId = 999;
  CHECK(dyn_hosts_rank_take(&r, &m, &some, 1) && words == 2 && word.commId == 100 && word.rank == 1 && word.seq == 9 && word.peer == 2);
  m.kind = DYN_HOSTS_SAMPLES;
  CHECK(dyn_hosts_rank_take(&r, &m, &some, 1) && words == 3 && word.rank == 1 && word.seq == 10);
  m.kind = DYN_HOSTS_TRIPS;
  for (m.rank = 0; m.rank < 5; m.rank += 4) CHECK(!dyn_hosts_rank_take(&r, &m, &some, 1));
  m = (struct dyn_hosts_message){.commId = 100, .nRanks = 4, .kind = DYN_HOSTS_TRIPS, .count = DYN_HOSTS_SAMPLES_AT_ONCE + 1, .rank = 1};
  CHECK(!dyn_hosts_rank_take(&r, &m, &some, 1) && words == 3);
}

static void trips(void) {
  tell_words();
  uint64_t number = begin_puts(), from = number;
  number = tell_puts(number, 200);
  AWAIT(num_came(1, from, number) == 200 && num_came(3, from, number) == 200, 3000);
  CHECK(LOAD(rings[0]->untold) + LOAD(rings[1]->untold) + LOAD(rings[3]->untold) == 0);

  uint64_t seq = seen[1] = seen[3] = 0; /* calls among them, as many as a look has room for: puts leave out none */
  halt(1);
  for (; seq < DYN_HOSTS_LOOK; seq++) {
    struct dyn_sample sample = sample_of(1, seq);
    CHECK(dyn_ring_store(rings[1], &sample));
    number = tell_puts(number, 5);
  }
  kill(shared->pids[1], SIGCONT);
  int calls = 0;
  AWAIT((calls += find_puts()) == DYN_HOSTS_LOOK, 3000);
  AWAIT(num_came(1, from, number) == 200 + 5 * DYN_HOSTS_LOOK, 3000);
  AWAIT(num_came(3, from, number) > 200 + 4 * DYN_HOSTS_LOOK, 3000);
  nap(300 * MS);

  for (int burst = 0; burst < 4; burst++) { /* more than there is room for, as one look of each rank finds it */
    uint64_t lost = LOAD(rings[1]->untold), lost3 = LOAD(rings[3]->untold);
    const int all = 4000;
    int both = 0, one = 0;
    halt(1);
    halt(3);
    from = number;
    back = 0;
    number = tell_puts(number, all);
    kill(shared->pids[1], SIGCONT);
    kill(shared->pids[3], SIGCONT);
    AWAIT(num_came(1, from, number) + (int)(LOAD(rings[1]->untold) - lost) == all, 3000);
    AWAIT(num_came(3, from, number) + (int)(LOAD(rings[3]->untold) - lost3) == all, 3000);
    for (uint64_t i = from; i < number; i++) both += came[1][i] & came[3][i], one += came[1][i] | came[3][i];
    CHECK(both == one && both > 150 && both <= 512 && back == 0);
  }
  end_puts();
}

/* Its daemon has gone: calls go into the ring as ever, and no put, until another one has come. */
static void trips_unread(void) {
  uint64_t number = begin_puts(), head = LOAD(rings[0]->head);
  for (int i = 0; i < 10; i++) number = tell_puts(number, 2), nap(10 * MS);
  AWAIT(LOAD(rings[0]->head) > head, 3000);
  nap(DYN_READER_SILENT_NS + 100 * MS);
  head = LOAD(rings[0]->head);
  number = tell_puts(number, 50);
  struct dyn_sample sample = sample_of(1, 7);
  CHECK(dyn_ring_store(rings[1], &sample));
  AWAIT(LOAD(rings[0]->head) > head, 3000);
  nap(200 * MS);
  CHECK(LOAD(rings[0]->head) == head + 1);
  find_puts();
  uint64_t from = number;
  number = tell_puts(number, 50);
  AWAIT(num_came(1, from, number) == 50 && num_came(3, from, number) == 50, 3000);
  end_puts();
}

/* Beside as many calls as there is room for: these come as if there were no puts, which have what is left. */
static bool hears_calls_first(void) {
  uint64_t number = begin_puts(), seq = 0, most = 0, heard = 0, from = number;
  seen[1] = seen[3] = 0;
  for (uint64_t until = now() + 1500 * MS; now() < until; nap(10 * MS)) {
    for (int i = 0; i < 60; i++, seq++) {
      struct dyn_sample sample = sample_of(1, seq);
      CHECK(dyn_ring_store(rings[1], &sample));
    }
    number = tell_puts(number, 30);
    heard += (uint64_t)find_puts();
    if (seen[1] > 0 && seq - seen[1] > most) most = seq - seen[1];
  }
  const bool some = num_came(1, from, number) > 50;
  end_puts();
  return most < 600 && heard > seq / 2 && some;
}
static void trips_busy(void) {
  bool hears = false;
  for (uint64_t i = 0; i < patience() && !hears; i++) hears = hears_calls_first();
  CHECK(hears);
}

/* Rank 0's process is stopped: what it finds then is more than it has room for, half of which is for calls; and what is lost is counted. */
static void trips_lost(void) {
  uint64_t number = begin_puts(), from = number;
  seen[1] = 0;
  halt(0);
  for (int i = 0; i < 40; i++) {
    number = tell_puts(number, 40);
    find_puts(); /* it lives */
    nap(25 * MS);
  }
  struct dyn_sample sample = sample_of(1, 7);
  CHECK(dyn_ring_store(rings[1], &sample));
  nap(50 * MS);
  kill(shared->pids[0], SIGCONT);
  AWAIT(num_came(1, from, number) + num_came(3, from, number) + (int)(LOAD(rings[0]->untold) + LOAD(rings[1]->untold) + LOAD(rings[3]->untold)) == 3200, 3000);
  CHECK(LOAD(rings[0]->untold) > 0 && seen[1] == 8);
  end_puts();
}

#endif
