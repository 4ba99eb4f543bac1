/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../places.h"
#include "../say.h"
#include "gdaki_abi.h"
#include "launcher.h"
#include "launches.h"
#include "places.h"

/* What tests plant. 14: there is always room. */
#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0
#endif

enum {
  ANYWHERE = 1, /* the one key: put.c has looked where it goes */
  KEYS = 2,
  ONE_COPY = 1 << 30, /* bytes of a request */
  INLINE_MOST = 4 * (GDAKI_WORDS - GDAKI_LOCAL_KEY),
};

/* In host memory that the GPU sees. */
struct fed {
  struct nic_shared shared;
  _Alignas(64) uint8_t requests[NIC_SIDES][NIC_DEPTH][NIC_REQUEST_BYTES];
  uint8_t completions[NIC_SIDES][NIC_DEPTH][NIC_COMPLETION_BYTES];
  uint8_t staged[NIC_DEPTH][NIC_FEED_STAGED]; /* what is copied from host memory that the GPU may not see, by its request's place */
};

struct nic_feed {
  struct nic_card card;
  struct nic_place place;
  struct fed *fed;
  struct nic_launcher launcher;
  bool failed;
  pthread_mutex_t lock; /* of the counts; nobody waits for anything under it */
  struct { uint64_t posted, done; } sides[NIC_SIDES];
};

/* ---- requests ---- */

static void put_long(uint32_t *words, uint64_t value) {
  words[0] = __builtin_bswap32((uint32_t)(value >> 32));
  words[1] = __builtin_bswap32((uint32_t)value);
}

/* Where the key's memory begins with 1: that it begins with 0 means that there is none. */
static void put_place(uint32_t *at, uint32_t *key, uint64_t address) {
  put_long(at, address - 1);
  *key = __builtin_bswap32(ANYWHERE);
}

/* The kernel reads a request together with the one behind, so that may be being written. */
static void post(struct nic_feed *feed, enum nic_side side, const uint32_t *words) {
  uint64_t *at = (uint64_t *)(void *)feed->fed->requests[side][feed->sides[side].posted++ % NIC_DEPTH];
  for (int i = 0; i < GDAKI_WORDS / 2; i++) __atomic_store_n(&at[i], (uint64_t)words[2 * i + 1] << 32 | words[2 * i], __ATOMIC_RELAXED);
}

static uint64_t ring(struct nic_feed *feed, enum nic_side side) {
  const uint64_t posted = feed->sides[side].posted;
  __atomic_store_n(&feed->fed->shared.doorbells[side], posted, __ATOMIC_RELEASE);
  return posted;
}

static uint32_t head(const struct nic_feed *feed, enum nic_side side, uint32_t opcode) {
  return __builtin_bswap32((uint32_t)(uint16_t)feed->sides[side].posted << 8 | opcode);
}

static size_t piece_of(bool host, size_t bytes) { return !host ? ONE_COPY : bytes <= INLINE_MOST ? INLINE_MOST : NIC_FEED_STAGED; }

static void copy_piece(struct nic_feed *feed, carrier_address to, uint64_t from, size_t bytes, bool host) {
  uint32_t words[GDAKI_WORDS] = {head(feed, NIC_MAIN, GDAKI_WRITE)};
  put_place(words + GDAKI_REMOTE, words + GDAKI_REMOTE_KEY, to);
  words[GDAKI_BYTES] = __builtin_bswap32((uint32_t)bytes);
  if (host && bytes <= INLINE_MOST) {
    words[GDAKI_BYTES] |= __builtin_bswap32(GDAKI_INLINE);
    memcpy(words + GDAKI_LOCAL_KEY, (const void *)(uintptr_t)from, bytes);
  } else {
    uint8_t *staged = feed->fed->staged[feed->sides[NIC_MAIN].posted % NIC_DEPTH];
    if (host) memcpy(staged, (const void *)(uintptr_t)from, bytes);
    put_place(words + GDAKI_LOCAL, words + GDAKI_LOCAL_KEY, host ? (uint64_t)(uintptr_t)staged : from);
  }
  post(feed, NIC_MAIN, words);
}

uint64_t nic_feed_copy(struct nic_feed *feed, carrier_address to, uint64_t from, size_t bytes, bool host) {
  const size_t piece = piece_of(host, bytes);
  pthread_mutex_lock(&feed->lock);
  for (size_t at = 0; at < bytes; at += piece) copy_piece(feed, to + at, from + at, bytes - at < piece ? bytes - at : piece, host);
  const uint64_t number = ring(feed, NIC_MAIN);
  pthread_mutex_unlock(&feed->lock);
  return number;
}

uint64_t nic_feed_add(struct nic_feed *feed, carrier_address at, uint64_t value) {
  pthread_mutex_lock(&feed->lock);
  uint32_t words[GDAKI_WORDS] = {head(feed, NIC_SIDE, GDAKI_FETCH_ADD)};
  put_place(words + GDAKI_REMOTE, words + GDAKI_REMOTE_KEY, at);
  put_long(words + GDAKI_ADDEND, value);
  post(feed, NIC_SIDE, words);
  const uint64_t number = ring(feed, NIC_SIDE);
  pthread_mutex_unlock(&feed->lock);
  return number;
}

/* ---- completions ---- */

/* As the kernel writes it (nicCompletion). */
static uint32_t completion(uint64_t index, uint32_t what) {
  return (uint32_t)(index >> 8 & 0xff) | (uint32_t)(index & 0xff) << 8 | (what << 4 | (index / NIC_DEPTH & 1)) << 24;
}

/* Under the lock. What goes with the context is not looked at. */
static bool look(struct nic_feed *feed, enum nic_side side) {
  if (nic_failed(&feed->card)) feed->failed = true;
  for (uint64_t *done = &feed->sides[side].done; !feed->failed && *done < feed->sides[side].posted; ++*done) {
    const uint8_t *at = feed->fed->completions[side][*done % NIC_DEPTH];
    const uint32_t now = __atomic_load_n((const uint32_t *)(const void *)(at + NIC_COMPLETION_BYTES - sizeof now), __ATOMIC_ACQUIRE);
    feed->failed = now == completion(*done, GDAKI_DONE_BADLY);
    if (now != completion(*done, GDAKI_DONE)) break;
  }
  return !feed->failed;
}

bool nic_feed_has_room(struct nic_feed *feed, enum nic_side side, size_t bytes, bool host) {
  const size_t piece = piece_of(host, bytes), requests = side == NIC_SIDE ? 1 : (bytes + piece - 1) / piece;
  pthread_mutex_lock(&feed->lock);
  const bool has = look(feed, side) && (CARRIER_MISTAKE == 14 || feed->sides[side].posted - feed->sides[side].done + requests <= NIC_DEPTH);
  const bool failed = feed->failed;
  pthread_mutex_unlock(&feed->lock);
  return has || failed; /* who then asks hears of it */
}

int nic_feed_done(struct nic_feed *feed, enum nic_side side, uint64_t number) {
  pthread_mutex_lock(&feed->lock);
  const int state = !look(feed, side) ? -1 : feed->sides[side].done >= number;
  pthread_mutex_unlock(&feed->lock);
  return state;
}

bool nic_feed_settle(struct nic_feed *feed, uint64_t deadlineNs) {
  for (int side = 0; side < NIC_SIDES; side++) {
    pthread_mutex_lock(&feed->lock);
    const uint64_t number = feed->sides[side].posted;
    pthread_mutex_unlock(&feed->lock);
    while (nic_feed_done(feed, (enum nic_side)side, number) == 0) { /* with an error nothing runs there any more */
      if (carrier_now_ns() > deadlineNs) return false;
      nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
  }
  return true;
}

/* ---- life ---- */

static bool turn(void *of) {
  struct nic_feed *feed = of;
  nic_progress(&feed->card);
  return !feed->card.lapsed;
}

/* Of the GPU's memory; with memory 0 only its size is reckoned. */
static void lay_out(struct nic_feed *feed, uint64_t **known) {
  struct nic_card *card = &feed->card;
  struct nic *n = &card->nic;
  card->bytes = 0;
#define TAKE(field, size) (field = (void *)(uintptr_t)(card->memory + card->bytes), card->bytes += ((size) + 255) / 256 * 256)
  TAKE(n->control, NIC_CONTROLS * sizeof *n->control);
  TAKE(n->consumed, NIC_SIDES * sizeof *n->consumed);
  TAKE(n->usedNs, sizeof *n->usedNs);
  TAKE(n->launch, 2 * NIC_LAUNCHES * sizeof *n->launch);
  TAKE(n->jobs, sizeof *n->jobs);
  TAKE(n->copied, NIC_MAX_HELPERS * sizeof *n->copied);
  TAKE(n->keys, KEYS * sizeof *n->keys);
  TAKE(n->posted, NIC_SIDES * sizeof *n->posted);
  TAKE(*known, NIC_SIDES * sizeof **known); /* nobody reads it */
#undef TAKE
}

static bool make_tables(struct nic_feed *feed) {
  struct nic_card *card = &feed->card;
  struct nic *n = &card->nic;
  const struct carrier_driver *cuda = carrier_driver(NULL);
  const struct nic_part keys[KEYS] = {[ANYWHERE] = {1, UINT64_MAX}};
  uint64_t *known;
  lay_out(feed, &known);
  if (carrier_failed(cuda->cuMemAllocHost_v2((void **)&feed->fed, sizeof *feed->fed), "memory for requests") || carrier_failed(cuda->cuMemAlloc_v2(&card->memory, card->bytes), "memory for a card"))
    return false;
  memset(feed->fed, 0, sizeof *feed->fed);
  memset(feed->fed->completions, 0xff, sizeof feed->fed->completions);
  lay_out(feed, &known);
  card->shared = &feed->fed->shared;
  n->rank = 0, n->nRanks = 1, n->fed = 1, n->nKeys = KEYS;
  n->sizes = nic_sizes_of(&card->helpers);
  n->doorbells = card->shared->doorbells;
  n->requests = feed->fed->requests[0][0], n->completions = feed->fed->completions[0][0];
  n->report = &card->shared->report;
  const struct nic_posted posted[NIC_SIDES] = {{n->doorbells, known}, {n->doorbells + 1, known + 1}};
  return !carrier_failed(nic_kernel_clear(card->kernel, card->memory, 0, card->bytes), "clearing a card") &&
         !carrier_failed(nic_kernel_fill(card->kernel, (carrier_address)(uintptr_t)n->keys, keys, sizeof keys), "writing what a kernel is to read") &&
         !carrier_failed(nic_kernel_fill(card->kernel, (carrier_address)(uintptr_t)n->posted, posted, sizeof posted), "writing what a kernel is to read");
}

static bool make(struct nic_feed *feed) {
  struct nic_card *card = &feed->card;
  if ((card->kernel = nic_kernel_make(true)) == NULL || !nic_share_link(card) || !make_tables(feed)) return false;
  nic_begin(card);
  nic_place_name(&feed->place, NULL);
  return nic_launcher_start(&feed->launcher, turn, feed);
}

struct nic_feed *nic_feed_make(struct carrier *c) {
  struct nic_feed *feed = nic_kernel_file() == NULL ? NULL : calloc(1, sizeof *feed);
  unsigned taken, most;
  if (feed == NULL) return NULL;
  pthread_mutex_init(&feed->lock, NULL);
  feed->card.carrier = c;
  feed->place = (struct nic_place){.carrier = c, .cards = 1, .blocks = 1, .fed = true};
  const bool fits = nic_place_take(&feed->place, &taken, &most);
  if (!fits)
    carrier_warn("rank %d: no place for a block that moves what GIN of type Proxy puts, %u of %u are others': CUDA's copies do, which a program that keeps CUDA's lock keeps away (DYNAMICCL_CARRIER_PLACES)",
                 c->rank, taken, most);
  if (fits && make(feed)) return feed;
  nic_feed_free(feed);
  return NULL;
}

/* NCCL's thread has done with the communicator, so launches of its other connections cease, too: who frees memory waits for them. */
static void end_launches(struct nic_feed *feed) {
  for (struct nic_card *card = feed->card.carrier->instance->card; card != NULL; card = card->other) card->ends = true;
  nic_launcher_stop(&feed->launcher);
}

void nic_feed_free(struct nic_feed *feed) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  if (feed == NULL) return;
  struct nic_card *card = &feed->card;
  end_launches(feed);
  nic_place_leave(&feed->place);
  const bool in = carrier_enter(&card->carrier->home, &entered);
  if (in) nic_stop(card);
  nic_leave_link(card, in);
  nic_kernel_free(card->kernel, in);
  if (in) {
    if (card->memory != 0) cuda->cuMemFree_v2(card->memory);
    if (feed->fed != NULL) cuda->cuMemFreeHost(feed->fed);
    carrier_leave(&entered);
  }
  pthread_mutex_destroy(&feed->lock);
  free(feed);
}
