/* SPDX-License-Identifier: Apache-2.0 */
#include "card_traffic.h"

#include <sys/mman.h>

struct op {
  int what;
  bool signals, counts;
  size_t bytes, sourceAt, targetAt;
  uint64_t add, pattern;
};

static struct op op_of(const struct traffic *t, int context, int source, int target, int poster, uint64_t k) {
  uint64_t r = random_of(t->seed + random_of((uint64_t)(((context * MAX_RANKS + source) * MAX_RANKS + target) * POSTERS + poster) + k * 128));
  struct op op = {.pattern = random_of(r ^ 1)};
#define DRAW(n) (r = random_of(r), (size_t)(r >> 16) % (n))
  const size_t kind = DRAW(16);
  op.what = kind == 0 ? POST_NOTHING : kind < 4 ? POST_VALUE : POST_DATA;
  op.signals = op.what == POST_NOTHING || k % 4 == 3 || k + 1 == t->each || DRAW(3) == 0;
  op.counts = DRAW(4) == 0;
  op.add = DRAW(2) != 0 ? 1 : 1 + DRAW(1u << 30) * 1024;
  if (op.what == POST_VALUE) op.bytes = (size_t)1 << DRAW(4);
  if (op.what == POST_DATA && kind > 4) op.bytes = DRAW(32) == 0 ? DRAW(MOST_BYTES) : DRAW(8) == 0 ? DRAW(16384) : DRAW(600);
  const size_t place = ((size_t)poster * PLACES + k % PLACES) * PLACE_BYTES, room = PLACE_BYTES - op.bytes;
  op.sourceAt = (size_t)(context * numRanks + target) * POSTERS * PLACES * PLACE_BYTES + place + DRAW(room);
  op.targetAt = (size_t)(context * numRanks + source) * POSTERS * PLACES * PLACE_BYTES + place + DRAW(room);
  return op;
}

static uint64_t word_of(const struct op *op, size_t i) { return op->pattern + i * 0x9E3779B97F4A7C15u; }

static void fill(unsigned char *at, const struct op *op) {
  for (size_t i = 0; i < op->bytes; i += 8) {
    const uint64_t word = word_of(op, i);
    memcpy(at + i, &word, op->bytes - i < 8 ? op->bytes - i : 8);
  }
}

static bool is_filled(const unsigned char *at, const struct op *op) {
  for (size_t i = 0; i < op->bytes; i += 8) {
    const uint64_t word = word_of(op, i);
    if (memcmp(at + i, &word, op->bytes - i < 8 ? op->bytes - i : 8) != 0) return false;
  }
  return true;
}

static int number_of(int peer, int poster) { return peer * POSTERS + poster; } /* of a signal, by source; of a counter, by target */

/* ---- posters ---- */

struct poster {
  struct traffic *t;
  int context, target, number;
  uint64_t counted;
  pthread_t thread;
};

static struct poster posters[CONTEXTS][MAX_RANKS][POSTERS];
static pthread_t receiving;

/* The target may be one that died: nobody checks what it gets, and all that is asked of it must end all the same. */
static bool is_lost(const struct poster *p) { return p->target == p->t->dies && card_failed(p->context); }

static void change(struct poster *p, const struct op *op) {
  if (op->what != POST_DATA) return;
  memset(p->t->send.at + op->sourceAt, 0x77, op->bytes);
  atomic_fetch_add(&p->t->changed, 1);
}

/* Behind its put, on the same queue. */
static void get_back(struct poster *p, const struct op *op) {
  struct traffic *t = p->t;
  struct posting get = card_get(p->context, p->target, &t->receive, op->targetAt, &t->back, op->sourceAt, op->bytes);
  post(&get);
  const bool fine = poster_flush(get.queue);
  CHECK(fine || p->target == t->dies, "a flush behind a get says that something failed");
  CHECK(p->target == t->dies || is_filled(t->back.at + op->sourceAt, op), "context %d: %zu bytes were got from rank %d, and are not here", p->context, op->bytes, p->target);
  atomic_fetch_add(&t->got, 1);
}

static void post_op(struct poster *p, uint64_t k, uint64_t *luck) {
  struct traffic *t = p->t;
  const struct op op = op_of(t, p->context, rank, p->target, p->number, k);
  struct posting posting = card_put(p->context, p->target, &t->send, op.sourceAt, &t->receive, op.targetAt, op.bytes);
  posting.what = op.what;
  posting.most = 4096u << *luck % 8;
  posting.value = op.pattern;
  if (op.signals) card_signal(&posting, p->context, p->target, number_of(rank, p->number), op.add);
  if (op.counts) card_count(&posting, p->context, number_of(p->target, p->number));
  if (op.what == POST_DATA) fill(t->send.at + op.sourceAt, &op);
  post(&posting);
  p->counted += op.counts;
  atomic_fetch_add(&t->posted, 1);
  atomic_fetch_add(&t->bytes, op.bytes);
  *luck = random_of(*luck);
  if (gdaki != NULL && op.what == POST_DATA && *luck % 16 == 5) get_back(p, &op);
  if (op.counts && *luck % 2 == 0) {
    await_counter(p->context, number_of(p->target, p->number), p->counted);
    change(p, &op);
  } else if (*luck % 8 == 1) {
    const bool fine = poster_flush(posting.queue);
    CHECK(fine || p->target == t->dies, "a flush says that something failed");
    change(p, &op);
  }
}

static void *post_all(void *argument) {
  struct poster *p = argument;
  struct traffic *t = p->t;
  uint64_t luck = t->seed * 31 + (uint64_t)rank;
  for (uint64_t k = 0; k < t->each; k++) {
    while (k - atomic_load(&(*t->checked)[p->context][rank][p->target][p->number]) >= PLACES && !is_lost(p)) usleep(20);
    post_op(p, k, &luck);
    if (rank == t->dies && atomic_load(&t->posted) >= t->diesAt) die();
    if (rank == t->dies && t->slowUs > 0) usleep(t->slowUs);
  }
  poster_flush(&cards[p->context].queues[p->target]);
  await_counter(p->context, number_of(p->target, p->number), p->counted);
  return NULL;
}

/* ---- the receiver ---- */

/* What a signal of this value says: all before is there. The sum must be one that signals in their order have. */
static uint64_t check_until(struct traffic *t, int context, int source, int poster, uint64_t from, uint64_t *sum, uint64_t seen) {
  while (*sum != seen) {
    CHECK(from < t->each, "context %d: signals of rank %d: %lx is no sum of theirs", context, source, (long)seen);
    const struct op op = op_of(t, context, source, rank, poster, from);
    const unsigned char *at = t->receive.at + op.targetAt;
    CHECK(op.what == POST_VALUE ? memcmp(at, &op.pattern, op.bytes) == 0 : is_filled(at, &op),
          "context %d: put %lu of rank %d, %zu bytes: its signal is here and its data is not", context, (long)from, source, op.bytes);
    if (op.signals) *sum += op.add;
    from++;
  }
  return from;
}

static void *receive_all(void *argument) {
  struct traffic *t = argument;
  static uint64_t at[CONTEXTS][MAX_RANKS][POSTERS], sum[CONTEXTS][MAX_RANKS][POSTERS];
  const int expected = CONTEXTS * (numRanks - (t->dies >= 0)) * POSTERS;
  for (int complete = 0; complete < expected || will_die(t->dies); usleep(20)) {
    complete = 0;
    for (int c = 0; c < CONTEXTS; c++)
      for (int source = 0; source < numRanks; source++)
        for (int p = 0; p < POSTERS; p++) {
          const uint64_t seen = signal_value(c, number_of(source, p));
          uint64_t *k = &at[c][source][p];
          if (seen != sum[c][source][p]) {
            *k = check_until(t, c, source, p, *k, &sum[c][source][p], seen);
            atomic_store(&(*t->checked)[c][source][rank][p], *k);
          }
          complete += *k == t->each && source != t->dies;
        }
  }
  return NULL;
}

void traffic_share(struct traffic *t) {
  t->checked = mmap(NULL, sizeof *t->checked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(t->checked != MAP_FAILED);
}

void traffic_start(struct traffic *t) {
  t->receive = (struct memory){.at = (unsigned char *)device_memory(traffic_bytes() + 8192, 1) + 4096, .bytes = traffic_bytes()};
  t->send = (struct memory){.at = device_memory(traffic_bytes(), 2), .bytes = traffic_bytes()};
  memory_register(&t->receive);
  memory_register(&t->send);
  t->back = (struct memory){.at = device_memory(traffic_bytes(), 1), .bytes = traffic_bytes()};
  memory_register(&t->back);
  meet();
  CHECK(pthread_create(&receiving, NULL, receive_all, t) == 0);
  for (int c = 0; c < CONTEXTS; c++)
    for (int target = 0; target < numRanks; target++)
      for (int n = 0; n < POSTERS; n++) {
        struct poster *p = &posters[c][target][n];
        *p = (struct poster){.t = t, .context = c, .target = target, .number = n};
        CHECK(pthread_create(&p->thread, NULL, post_all, p) == 0);
      }
}

void traffic_join(struct traffic *t) {
  pthread_join(receiving, NULL);
  for (int c = 0; c < CONTEXTS; c++)
    for (int target = 0; target < numRanks; target++)
      for (int n = 0; n < POSTERS; n++) {
        struct poster *p = &posters[c][target][n];
        pthread_join(p->thread, NULL);
        CHECK(counter_value(c, number_of(target, n)) == p->counted, "a counter is too high");
      }
  CHECK(t->dies >= 0 || atomic_load(&t->posted) == t->each * CONTEXTS * POSTERS * (uint64_t)numRanks);
}
