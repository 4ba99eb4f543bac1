/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../places.h"
#include "../say.h"
#include "gdaki_abi.h"
#include "launches.h"
#include "queues.h"

enum {
  COUNTERS_KEY = 1,
  FIRST_KEY = NIC_CARD_KEYS - CARRIER_MAX_REGIONS,
  HELPERS = 16,            /* blocks beside those of queues, unless nic_sizes_of is told otherwise */
  SIGNALS_LEAST = 2 << 20, /* bytes: CUDA puts smaller allocations together, and peers are to map nothing else */
};

/* ---- memory ---- */

/* A piece of the one allocation; with memory 0 only its size is reckoned. */
static carrier_address take(struct nic_card *card, size_t bytes) {
  carrier_address at = card->memory + card->bytes;
  card->bytes += (bytes + 255) / 256 * 256;
  return at;
}

static void lay_out(struct nic_card *card) {
  struct nic *n = &card->nic;
  size_t ranks = (size_t)card->carrier->nRanks, queues = ranks * NIC_SIDES;
  card->bytes = 0;
#define TAKE(field, bytes) n->field = (void *)(uintptr_t)take(card, bytes)
  TAKE(control, NIC_CONTROLS * sizeof *n->control);
  TAKE(doorbells, NIC_MAX_RANKS * NIC_SIDES * sizeof *n->doorbells);
  TAKE(consumed, queues * sizeof *n->consumed);
  TAKE(usedNs, sizeof *n->usedNs);
  TAKE(launch, 2 * NIC_LAUNCHES * sizeof *n->launch);
  TAKE(jobs, ranks * sizeof *n->jobs);
  TAKE(copied, ranks * NIC_MAX_HELPERS * sizeof *n->copied);
  TAKE(keys, NIC_CARD_KEYS * ranks * sizeof *n->keys);
  TAKE(posted, queues * sizeof *n->posted);
  card->got = take(card, ranks * sizeof(uint64_t));
  card->seen = take(card, ranks * sizeof(uint64_t));
  card->queues = take(card, queues * nic_queue_bytes(card->port->layout));
  TAKE(requests, queues * NIC_DEPTH * NIC_REQUEST_BYTES);
  TAKE(completions, queues * NIC_DEPTH * NIC_COMPLETION_BYTES);
#undef TAKE
  n->nKeys = NIC_CARD_KEYS;
}

static bool fill(const struct nic_card *card, carrier_address to, const void *from, size_t bytes) {
  return !carrier_failed(nic_kernel_fill(card->kernel, to, from, bytes), "writing what a kernel is to read");
}

/* The device code has them by sides, and the kernel by peers. */
static bool fill_queues(struct nic_card *card) {
  const size_t ranks = (size_t)card->carrier->nRanks, all = ranks * NIC_SIDES, each = nic_queue_bytes(card->port->layout);
  uint8_t *queues = calloc(all, each);
  struct nic_posted *posted = calloc(all, sizeof *posted);
  bool fine = queues != NULL && posted != NULL;
  for (size_t at = 0; fine && at < all; at++) {
    const size_t peer = at / NIC_SIDES, side = at % NIC_SIDES, place = (side * ranks + peer) * each;
    const struct nic_queue_at lies = {.number = (uint32_t)at + 1, /* nicNumberOf */
                                      .requests = card->nic.requests + at * NIC_DEPTH * NIC_REQUEST_BYTES,
                                      .completions = card->nic.completions + at * NIC_DEPTH * NIC_COMPLETION_BYTES,
                                      .doorbell = card->nic.doorbells + at};
    nic_fill_queue(card->port->layout, queues + place, &lies);
    posted[at] = nic_posted_of(card->port->layout, card->queues + place, lies.doorbell);
  }
  fine = fine && fill(card, card->queues, queues, all * each) && fill(card, (carrier_address)(uintptr_t)card->nic.posted, posted, all * sizeof *posted);
  free(queues);
  free(posted);
  return fine;
}

uint32_t nic_key_of(const struct carrier_region *region) { return FIRST_KEY + region->number % CARRIER_MAX_REGIONS; }

/* A get's completion says that its bytes are here, so a flush needs no request of its own. */
void nic_describe(const struct nic_card *card, struct gdaki_context *context) {
  const size_t side = (size_t)card->carrier->nRanks * nic_queue_bytes(card->port->layout);
  const uint32_t signals = nic_key_of(card->signalRegion);
  *context = (struct gdaki_context){.queues = (void *)(uintptr_t)card->queues,
                                    .sideQueues = (void *)(uintptr_t)(card->queues + side),
                                    .counters = {(uint64_t *)(uintptr_t)card->counters, nic_key_list(card->port, COUNTERS_KEY), __builtin_bswap32(COUNTERS_KEY), 0},
                                    .signals = {(uint64_t *)(uintptr_t)card->signals, nic_key_list(card->port, signals), __builtin_bswap32(signals), 0},
                                    .sinkKey = __builtin_bswap32(NIC_CARD_KEYS),
                                    .got = (uint64_t *)(uintptr_t)card->got,
                                    .seen = (uint64_t *)(uintptr_t)card->seen};
}

/* ---- keys ---- */

static carrier_address control_at(const struct nic_card *card, int word) { return (carrier_address)(uintptr_t)(card->nic.control + word); }

static bool set_key(struct nic_card *card, uint32_t key, const struct nic_part *parts) {
  size_t ranks = (size_t)card->carrier->nRanks;
  uint32_t changes = ++card->keys;
  return fill(card, (carrier_address)(uintptr_t)(card->nic.keys + key * ranks), parts, ranks * sizeof *parts) &&
         fill(card, control_at(card, NIC_KEYS), &changes, sizeof changes);
}

bool nic_set_region(struct nic_card *card, const struct carrier_region *region, bool there) {
  struct nic_part parts[NIC_MAX_RANKS] = {{0}};
  for (int r = 0; there && r < card->carrier->nRanks; r++) parts[r] = (struct nic_part){region->parts[r].at, region->parts[r].bytes};
  return set_key(card, nic_key_of(region), parts);
}

/* From here on it hears of what is registered, and what is it knows. */
static bool join_port(struct nic_card *card) {
  struct nic_port *port = card->port;
  bool fine = true;
  pthread_mutex_lock(&port->lock);
  for (int n = 0; fine && n < CARRIER_MAX_REGIONS; n++) {
    const struct carrier_region *region = atomic_load(&card->carrier->regions[n]);
    if (region != NULL) fine = nic_set_region(card, region, true);
  }
  card->next = port->cards;
  port->cards = card;
  pthread_mutex_unlock(&port->lock);
  return fine;
}

static void leave_port(struct nic_card *card) {
  struct nic_port *port = card->port;
  pthread_mutex_lock(&port->lock);
  struct nic_card **at = &port->cards;
  while (*at != NULL && *at != card) at = &(*at)->next;
  if (*at != NULL) *at = card->next;
  pthread_mutex_unlock(&port->lock);
}

struct nic_card *nic_next(struct nic_card *card) { return card->next; }

/* ---- life ---- */

struct nic_sizes nic_sizes_of(unsigned *helpers) {
  const char *text = getenv("DYNAMICCL_CARRIER_SIZES");
  struct nic_sizes s = NIC_SIZES;
  *helpers = HELPERS;
  unsigned part = 1u << s.partBits;
  if (text == NULL || sscanf(text, "%u,%u,%u,%u", &s.warp, &s.block, &part, helpers) == 0) return s;
  s.partBits = 7;
  while (s.partBits < 31 && 2u << s.partBits <= part) s.partBits++;
  if (*helpers > NIC_MAX_HELPERS) *helpers = NIC_MAX_HELPERS;
  return s;
}

static bool make_words(const struct nic_card *card, struct carrier_instance *instance) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct dyn_carrier_expected *expected = &instance->expected;
  const size_t bytes = sizeof(uint64_t) + 2 * DYN_EXPECTED_WORDS * sizeof(uint32_t);
  if (carrier_failed(cuda->cuMemAlloc_v2(&instance->link, bytes), "memory for words") ||
      carrier_failed(nic_kernel_clear(card->kernel, instance->link, 0, bytes), "clearing words") ||
      carrier_failed(cuda->cuMemAllocHost_v2((void **)&expected->asked, 3 * sizeof *expected->asked), "memory for words of the host's"))
    return false;
  expected->launched = expected->asked + 1;
  expected->captured = expected->asked + 2;
  *expected->asked = *expected->launched = *expected->captured = 0;
  expected->ended = (uint32_t *)(uintptr_t)(instance->link + sizeof(uint64_t));
  expected->replayed = expected->ended + DYN_EXPECTED_WORDS;
  expected->lapsed = &instance->lapsed;
  return true;
}

bool nic_share_link(struct nic_card *card) {
  struct carrier_instance *instance = card->carrier->instance;
  if (instance->expected.lapsed == NULL && !make_words(card, instance)) return false;
  card->nic.linkFreeNs = (uint64_t *)(uintptr_t)instance->link;
  card->nic.launched = instance->expected.launched;
  card->nic.ended = instance->expected.ended;
  card->nic.replayed = instance->expected.replayed;
  card->asked = *instance->expected.asked;
  card->other = instance->card;
  instance->card = card;
  return true;
}

void nic_leave_link(struct nic_card *card, bool lives) {
  struct carrier_instance *instance = card->carrier->instance;
  if (card->kernel == NULL) return;
  for (struct nic_card **at = &instance->card; *at != NULL; at = &(*at)->other)
    if (*at == card) {
      *at = card->other;
      break;
    }
  nic_lapse(card, false);
  if (instance->card != NULL) return;
  if (instance->link != 0 && lives) carrier_driver(NULL)->cuMemFree_v2(instance->link);
  if (instance->expected.asked != NULL && lives) carrier_driver(NULL)->cuMemFreeHost(instance->expected.asked);
  instance->link = 0;
  instance->expected = (struct dyn_carrier_expected){0};
}

static bool make_tables(struct nic_card *card, int nSignals, int nCounters) {
  struct carrier *c = card->carrier;
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct nic_part counters[NIC_MAX_RANKS] = {{0}};
  size_t signalBytes = (size_t)nSignals * sizeof(uint64_t), counterBytes = (size_t)nCounters * sizeof(uint64_t);
  const size_t signalRoom = signalBytes + 8 > SIGNALS_LEAST ? signalBytes + 8 : SIGNALS_LEAST;
  lay_out(card);
  if (carrier_failed(cuda->cuMemAllocHost_v2((void **)&card->shared, sizeof *card->shared), "memory for doorbell records")) return false;
  memset(card->shared, 0, sizeof *card->shared);
  if (carrier_failed(cuda->cuMemAlloc_v2(&card->memory, card->bytes), "memory for queues") ||
      carrier_failed(cuda->cuMemAlloc_v2(&card->signals, signalRoom), "memory for signals") ||
      carrier_failed(cuda->cuMemAlloc_v2(&card->counters, counterBytes + 8), "memory for counters"))
    return false;
  lay_out(card);
  card->nic.report = &card->shared->report;
  card->nic.rank = c->rank;
  card->nic.nRanks = c->nRanks;
  card->nic.sizes = nic_sizes_of(&card->helpers);
  if (carrier_failed(nic_kernel_clear(card->kernel, card->memory, 0, card->bytes), "clearing queues") ||
      carrier_failed(nic_kernel_clear(card->kernel, (carrier_address)(uintptr_t)card->nic.completions, 0xff, card->memory + card->bytes - (carrier_address)(uintptr_t)card->nic.completions),
             "clearing completions") ||
      carrier_failed(nic_kernel_clear(card->kernel, card->signals, 0, signalBytes + 8), "clearing signals") ||
      carrier_failed(nic_kernel_clear(card->kernel, card->counters, 0, counterBytes + 8), "clearing counters"))
    return false;
  if (carrier_register(c, (void *)(uintptr_t)card->signals, signalBytes, NCCL_PTR_CUDA, 0, &card->signalRegion) != ncclSuccess) return false;
  counters[c->rank] = (struct nic_part){card->counters, counterBytes};
  nic_begin(card);
  return fill_queues(card) && set_key(card, COUNTERS_KEY, counters) && join_port(card);
}

bool nic_is_wanted(void) {
  if (dyn_carrier_is_proxy()) return false;
  return nic_kernel_file() != NULL || dyn_carrier_is("DYNAMICCL_CARRIER_TYPE", "gdaki"); /* then its lack is said */
}

struct nic_card *nic_make(struct nic_port *port, int nSignals, int nCounters) {
  struct carrier *c = port->carrier;
  struct carrier_entered entered;
  if (c->nRanks > NIC_MAX_RANKS) {
    carrier_warn("GIN of type GDAKI is for at most %d ranks here; DYNAMICCL_CARRIER_TYPE=proxy is for more", NIC_MAX_RANKS);
    return NULL;
  }
  struct nic_card *card = calloc(1, sizeof *card);
  if (card == NULL || !carrier_enter(&c->home, &entered)) {
    free(card);
    return NULL;
  }
  card->port = port;
  card->carrier = c;
  card->kernel = nic_kernel_make(false);
  bool fine = card->kernel != NULL && nic_share_link(card) && make_tables(card, nSignals, nCounters);
  carrier_leave(&entered);
  if (fine) return card;
  nic_free(card);
  return NULL;
}

/* Where the program has destroyed the context, all that CUDA gave went with it, what the host sees of it, too: then nothing of it is touched,
 * and what is the host's own goes all the same, from the lists of those that stay first. */
void nic_free(struct nic_card *card) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  if (card == NULL) return;
  leave_port(card);
  bool in = carrier_enter(&card->carrier->home, &entered);
  if (in) nic_stop(card);
  nic_leave_link(card, in);
  nic_kernel_free(card->kernel, in);
  if (card->signalRegion != NULL) carrier_deregister(card->carrier, card->signalRegion);
  if (in) {
    if (card->memory != 0) cuda->cuMemFree_v2(card->memory);
    if (card->signals != 0) cuda->cuMemFree_v2(card->signals);
    if (card->counters != 0) cuda->cuMemFree_v2(card->counters);
    if (card->shared != NULL) cuda->cuMemFreeHost(card->shared);
    carrier_leave(&entered);
  }
  free(card);
}
