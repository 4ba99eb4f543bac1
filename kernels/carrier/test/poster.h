/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread of a kernel does where it puts, gets, signals and flushes: the steps of NCCL's device code for GIN of type GDAKI
 * (nccl_device/gin/gdaki and doca_gpunetio/device in its include folder) on a thread of a CPU: 2.28.9's, whose queues have layout
 * 100, and 2.32.3's, with 200, where there are gets. For C and C++.
 *
 * Any number of threads post to a queue: each reserves places with an atomic addition, waits until they are free, writes its
 * requests, waits until all before them are ready, and rings. Words that the device code leaves as they were are rubbish here.
 */
#ifndef CARRIER_TEST_POSTER_H
#define CARRIER_TEST_POSTER_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../nic/gdaki_abi.h"

#ifndef POSTER_PAUSE
#define POSTER_PAUSE() ((void)0)
#endif

/* Where, in what a key (big-endian) stands for. */
struct place {
  uint64_t offset;
  uint32_t key;
};

enum { POST_NOTHING, POST_DATA, POST_VALUE, POST_GET };

struct poster_done {
  uint8_t *at;
  uint32_t number, count, bytes;
  uint64_t first; /* of requests' numbers */
  uint64_t *consumed;
};

/* A queue in either layout, as the device code sees it: words that never change as they are, others where they are. */
struct poster_queue {
  uint64_t *reserved, *ready, *doorbell;
  uint32_t shifted, shiftedBeOf[4];
  uint16_t count, mask;
  uint8_t *requests;
  struct poster_done done;
  uint64_t *got, *seen; /* 200 */
  uint32_t sinkKey;
  bool dumps;
  bool alone; /* 200: one thread's (NCCL_GIN_RESOURCE_SHARING_THREAD), who orders nothing before it rings; the test's to set */
};

#define POSTER_VIEW(v, q) \
  do { \
    (v)->reserved = &(q)->reserved, (v)->ready = &(q)->ready, (v)->doorbell = (q)->doorbell; \
    (v)->shifted = (q)->shifted, (v)->count = (q)->count, (v)->mask = (q)->mask, (v)->requests = (q)->requests; \
    memcpy((v)->shiftedBeOf, (q)->shiftedBeOf, sizeof (v)->shiftedBeOf); \
    (v)->done.at = (q)->done.at, (v)->done.number = (q)->done.number, (v)->done.count = (q)->done.count, (v)->done.bytes = (q)->done.bytes; \
    (v)->done.consumed = &(q)->done.consumed; \
  } while (0)

/* side: that of counters. */
static inline struct poster_queue poster_queue_of(int layout, const struct gdaki_context *context, int peer, bool side) {
  void *queues = side ? context->sideQueues : context->queues;
  struct poster_queue v;
  memset(&v, 0, sizeof v);
  v.sinkKey = context->sinkKey;
  if (layout == GDAKI_200) {
    struct gdaki_queue200 *q = (struct gdaki_queue200 *)queues + peer;
    POSTER_VIEW(&v, q);
    v.done.first = q->done.reserved;
    v.got = context->got + peer, v.seen = context->seen + peer, v.dumps = context->dumps != 0;
  } else {
    struct gdaki_queue100 *q = (struct gdaki_queue100 *)queues + peer;
    POSTER_VIEW(&v, q);
  }
  return v;
}

struct posting {
  struct poster_queue *queue, *side; /* side: only with a counter */
  int what;
  struct place to, from; /* of a get: from the queue's peer to this rank */
  uint64_t bytes, most; /* most: of one request; NCCL has 1 GiB */
  uint64_t value;       /* of 1, 2, 4 or 8 bytes */
  bool signals, counts;
  struct place signal, counter;
  uint64_t add;
  uint32_t sinkKey;
  void (*reserved)(const struct posting *p, uint64_t first, uint32_t count); /* NULL, or told before anybody can see it */
  void *owner;
};

static inline uint64_t poster_load(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

static inline void poster_raise(uint64_t *at, uint64_t value) {
  uint64_t seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (seen < value && !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
}

/* A GPU's thread spins; here others are to have the CPU. */
static inline void poster_rest(unsigned *vain) {
  if (++*vain > 3) usleep(*vain < 16 ? 20 : 100);
  else sched_yield();
}

/* Is it what the completion of request `index` looks like? GPUs before sm_90 look at its number, too: here some do. */
static inline bool poster_is_done(const struct poster_done *c, uint64_t index, uint32_t word) {
  const bool owner = (word >> 24 & 1) == (((index + c->first) & c->count) != 0);
  return owner && (index % 2 == 0 || __builtin_bswap32(word) >> 16 == (index & 0xffff));
}

/* Until request `index` is done. False: badly, which the device code does not tell anybody. */
static inline bool poster_await(struct poster_done *c, uint64_t index) {
  const uint32_t *last = (const uint32_t *)(const void *)(c->at + (size_t)(((index + c->first) & (c->count - 1)) + 1) * c->bytes) - 1;
  for (unsigned vain = 0;; poster_rest(&vain)) {
    POSTER_PAUSE();
    const uint64_t known = poster_load(c->consumed);
    if (index < known) return true;
    const uint32_t word = __atomic_load_n(last, __ATOMIC_ACQUIRE);
    if (index >= known + c->count || !poster_is_done(c, index, word)) continue;
    if (word >> 28 == GDAKI_DONE_BADLY) return false;
    poster_raise(c->consumed, index + 1);
    return true;
  }
}

static inline uint64_t poster_reserve(struct poster_queue *q, uint32_t count) {
  uint64_t first = __atomic_fetch_add(q->reserved, count, __ATOMIC_RELAXED), last = first + count - 1;
  if (last >= q->count) poster_await(&q->done, last - q->count);
  return first;
}

/* Segments of 16 bytes, each in one store on a GPU. */
static inline void poster_write(struct poster_queue *q, uint64_t index, uint32_t *words, int segments) {
  uint8_t *at = q->requests + (size_t)(index & q->mask) * 4 * GDAKI_WORDS;
  for (int i = 0; i < 2 * segments; i++) {
    uint64_t half;
    memcpy(&half, words + 2 * i, sizeof half);
    POSTER_PAUSE();
    __atomic_store_n((uint64_t *)(void *)at + i, half, __ATOMIC_RELAXED);
  }
}

static inline void poster_words(uint32_t *words, uint64_t value) {
  words[0] = __builtin_bswap32((uint32_t)(value >> 32));
  words[1] = __builtin_bswap32((uint32_t)value);
}

static inline void poster_head(const struct poster_queue *q, uint32_t *words, uint64_t index, uint32_t opcode, int segments) {
  for (int i = 0; i < GDAKI_WORDS; i++) words[i] = 0xdeadbeef;
  words[GDAKI_OPCODE] = __builtin_bswap32((uint32_t)(uint16_t)index << 8 | opcode);
  words[1] = segments == 2 ? __builtin_bswap32(q->shifted | 2) : q->shiftedBeOf[segments - 1];
}

static inline void poster_remote(uint32_t *words, struct place to) {
  poster_words(words + GDAKI_REMOTE, to.offset);
  words[GDAKI_REMOTE_KEY] = to.key;
}

static inline void poster_nop(struct poster_queue *q, uint64_t index) {
  uint32_t words[GDAKI_WORDS];
  poster_head(q, words, index, GDAKI_NOP, 1);
  poster_write(q, index, words, 1);
}

static inline void poster_move(struct poster_queue *q, uint64_t index, uint32_t opcode, struct place remote, struct place local, uint32_t bytes) {
  uint32_t words[GDAKI_WORDS];
  poster_head(q, words, index, opcode, 3);
  poster_remote(words, remote);
  words[GDAKI_BYTES] = __builtin_bswap32(bytes);
  words[GDAKI_LOCAL_KEY] = local.key;
  poster_words(words + GDAKI_LOCAL, local.offset);
  poster_write(q, index, words, 3);
}

static inline void poster_data(struct poster_queue *q, uint64_t index, struct place to, struct place from, uint32_t bytes) {
  poster_move(q, index, GDAKI_WRITE, to, from, bytes);
}

static inline void poster_get(struct poster_queue *q, uint64_t index, struct place to, struct place from, uint32_t bytes) {
  poster_move(q, index, GDAKI_READ, from, to, bytes);
}

/* One byte, behind gets: on a NIC what they brought is there when it is done. */
static inline void poster_dump(struct poster_queue *q, uint64_t index) {
  uint32_t words[GDAKI_WORDS];
  poster_head(q, words, index, GDAKI_DUMP, 2);
  words[1] = q->shiftedBeOf[1];
  words[4] = __builtin_bswap32(1);
  words[5] = q->sinkKey;
  poster_words(words + 6, 0);
  poster_write(q, index, words, 2);
}

/* The value is written as its type is, behind the rest. */
static inline void poster_value(struct poster_queue *q, uint64_t index, struct place to, uint64_t value, uint32_t bytes) {
  uint32_t words[GDAKI_WORDS], *at = (uint32_t *)(void *)(q->requests + (size_t)(index & q->mask) * 4 * GDAKI_WORDS);
  poster_head(q, words, index, GDAKI_WRITE, 3);
  poster_remote(words, to);
  poster_write(q, index, words, 2);
  __atomic_store_n(at + GDAKI_BYTES, __builtin_bswap32(bytes | GDAKI_INLINE), __ATOMIC_RELAXED);
  POSTER_PAUSE();
  if (bytes == 1) __atomic_store_n((uint8_t *)(at + GDAKI_LOCAL_KEY), (uint8_t)value, __ATOMIC_RELAXED);
  else if (bytes == 2) __atomic_store_n((uint16_t *)(void *)(at + GDAKI_LOCAL_KEY), (uint16_t)value, __ATOMIC_RELAXED);
  else __atomic_store_n(at + GDAKI_LOCAL_KEY, (uint32_t)value, __ATOMIC_RELAXED);
  if (bytes == 8) __atomic_store_n(at + GDAKI_LOCAL, (uint32_t)(value >> 32), __ATOMIC_RELAXED);
}

static inline void poster_add(struct poster_queue *q, uint64_t index, struct place to, uint64_t add, uint32_t sinkKey) {
  uint32_t words[GDAKI_WORDS];
  poster_head(q, words, index, GDAKI_FETCH_ADD, 4);
  poster_remote(words, to);
  poster_words(words + GDAKI_ADDEND, add);
  poster_words(words + GDAKI_ADDEND + 2, add);
  words[12] = __builtin_bswap32(8);
  words[13] = sinkKey;
  words[14] = words[15] = 0;
  poster_write(q, index, words, 4);
}

static inline void poster_wait(struct poster_queue *q, uint64_t index, uint64_t awaited, uint32_t completions) {
  uint32_t words[GDAKI_WORDS];
  poster_head(q, words, index, GDAKI_WAIT, 2);
  words[GDAKI_WAIT_INDEX] = __builtin_bswap32((uint32_t)awaited);
  words[GDAKI_WAIT_QUEUE] = __builtin_bswap32(completions);
  poster_write(q, index, words, 2);
}

/* With a release of the GPU in front, unless the queue is one thread's. */
static inline void poster_ready(struct poster_queue *q, uint64_t first, uint32_t count) {
  for (unsigned vain = 0; poster_load(q->ready) != first;) poster_rest(&vain);
  POSTER_PAUSE();
  __atomic_store_n(q->ready, first + count, q->alone ? __ATOMIC_RELAXED : __ATOMIC_RELEASE);
}

static inline void poster_ring(struct poster_queue *q, uint64_t until) {
  POSTER_PAUSE();
  poster_raise(q->doorbell, until);
}

/* Until all is done that was reserved, and what gets brought is there. p: as for post, whose `reserved` is told of what it posts. */
static inline bool poster_flush_as(struct poster_queue *q, const struct posting *p) {
  uint64_t last = __atomic_load_n(q->reserved, __ATOMIC_RELAXED);
  if (last == 0) return true;
  last--;
  if (q->dumps && poster_load(q->got) > poster_load(q->seen)) {
    last = poster_reserve(q, 1);
    if (p != NULL && p->reserved != NULL) p->reserved(p, last, 1);
    poster_dump(q, last);
    poster_ready(q, last, 1);
    poster_ring(q, last + 1);
    poster_raise(q->seen, last + 1);
  }
  return poster_await(&q->done, last);
}

static inline bool poster_flush(struct poster_queue *q) { return poster_flush_as(q, NULL); }

static inline struct place poster_behind(struct place p, uint64_t bytes) {
  p.offset += bytes;
  return p;
}

/* The number of its first request in the main queue. */
static inline uint64_t post(const struct posting *p) {
  struct poster_queue *q = p->queue;
  const bool moves = p->what == POST_DATA || p->what == POST_GET;
  uint64_t chunks = !moves ? p->what == POST_VALUE : p->bytes == 0 ? 1 : (p->bytes + p->most - 1) / p->most;
  uint32_t count = (uint32_t)chunks + p->signals;
  uint64_t first = poster_reserve(q, count), last = first + count - 1;
  if (p->reserved != NULL) p->reserved(p, first, count);
  if (q->alone) poster_ready(q, first, count); /* nothing keeps it behind what is written below */
  for (uint64_t i = 0; i < chunks; i++) {
    uint64_t at = i * p->most, left = p->bytes - at;
    const uint32_t bytes = (uint32_t)(left < p->most ? left : p->most);
    if (p->what == POST_VALUE) poster_value(q, first, p->to, p->value, (uint32_t)p->bytes);
    else if (left == 0) poster_nop(q, first + i);
    else if (p->what == POST_GET) poster_get(q, first + i, poster_behind(p->to, at), poster_behind(p->from, at), bytes);
    else poster_data(q, first + i, poster_behind(p->to, at), poster_behind(p->from, at), bytes);
  }
  if (p->signals) poster_add(q, last, p->signal, p->add, p->sinkKey);
  if (!q->alone) poster_ready(q, first, count);
  if (p->counts) {
    uint64_t side = poster_reserve(p->side, 2);
    poster_wait(p->side, side, last, q->done.number);
    poster_add(p->side, side + 1, p->counter, 1, p->sinkKey);
    poster_ready(p->side, side, 2);
    poster_ring(q, last + 1);
    poster_ring(p->side, side + 2);
  } else {
    poster_ring(q, last + 1);
  }
  if (p->what == POST_GET && q->got != NULL) poster_raise(q->got, last + 1);
  return first;
}

#endif
