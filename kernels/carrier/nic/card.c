/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../say.h"
#include "gdaki_abi.h"
#include "kernel.h"
#include "nic.h"

/* What tests plant. 4: launches go though none stands behind them. 5: one stays until it has found that none does. */
#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0
#endif

enum {
  COUNTERS_KEY = 1,
  FIRST_KEY = 2, /* of what all ranks register, signals too */
  KEYS = FIRST_KEY + CARRIER_MAX_REGIONS,
  HELPERS = 16, /* blocks beside those of queues, unless sizes() is told otherwise */
  IDLE_US = 3000,
  WATCH_US = 1000,   /* that a watch stays with nothing to do, if another launch stands behind it */
  LATE_MS = 1000,    /* since something was put: so long launches follow each other, and none goes before the next one is there */
  QUERY_MS = 20,     /* between questions whether CUDA has met an error */
};

/* In host memory that the GPU sees. */
struct shared {
  struct nic_report report;
  uint64_t doorbells[NIC_MAX_RANKS * NIC_SIDES]; /* as they were at the last look */
  uint32_t control[NIC_KEYS];                    /* what is copied to the GPU */
};

struct nic_card {
  struct carrier *carrier;
  struct nic_card *other; /* of the communicator */
  struct nic nic;
  struct nic_kernel *kernel;
  unsigned helpers; /* blocks beside those of queues */
  carrier_address memory, signals, counters;
  carrier_address handles, context; /* of device code */
  size_t bytes;
  struct carrier_region *signalRegion;
  struct shared *shared;
  uint32_t told[NIC_KEYS]; /* what the GPU was told last */
  uint32_t keys; /* changes of keys: what the kernel remembers of them is worth nothing then; the program's threads' */
  uint64_t usedNs, askedNs; /* when something was known to be done last, and when CUDA was asked */
  uint32_t used; /* the last launch that was known to do anything */
  bool runs, said; /* runs: a launch may be there */
  atomic_bool broken; /* CUDA refused something; NCCL asks in another thread */
};

/* ---- memory ---- */

static bool failed(int result, const char *what) {
  if (result != 0) carrier_warn("%s: %s", what, carrier_cuda_error(result));
  return result != 0;
}

/* A piece of the one allocation; with memory 0 only its size is reckoned. */
static carrier_address take(struct nic_card *card, size_t bytes) {
  carrier_address at = card->memory + card->bytes;
  card->bytes += (bytes + 255) / 256 * 256;
  return at;
}

struct places { carrier_address keyLists, queues; };

static struct places lay_out(struct nic_card *card) {
  struct nic *n = &card->nic;
  size_t ranks = (size_t)card->carrier->nRanks, queues = ranks * NIC_SIDES;
  struct places p;
  card->bytes = 0;
#define TAKE(field, bytes) n->field = (void *)(uintptr_t)take(card, bytes)
  TAKE(control, NIC_CONTROLS * sizeof *n->control);
  TAKE(doorbells, NIC_MAX_RANKS * NIC_SIDES * sizeof *n->doorbells);
  TAKE(consumed, queues * sizeof *n->consumed);
  TAKE(usedNs, sizeof *n->usedNs);
  TAKE(launch, NIC_LAUNCHES * sizeof *n->launch);
  TAKE(jobs, ranks * sizeof *n->jobs);
  TAKE(copied, ranks * NIC_MAX_HELPERS * sizeof *n->copied);
  TAKE(keys, KEYS * ranks * sizeof *n->keys);
  card->handles = take(card, KEYS * sizeof(struct gdaki_memory));
  p.keyLists = take(card, KEYS * ranks * sizeof(uint32_t));
  card->context = take(card, sizeof(struct gdaki_context));
  p.queues = take(card, queues * sizeof(struct gdaki_queue));
  TAKE(requests, queues * NIC_DEPTH * NIC_REQUEST_BYTES);
  TAKE(completions, queues * NIC_DEPTH * NIC_COMPLETION_BYTES);
#undef TAKE
  n->nKeys = KEYS;
  n->queues = (struct gdaki_queue *)(uintptr_t)p.queues;
  return p;
}

static bool fill(const struct nic_card *card, carrier_address to, const void *from, size_t bytes) {
  return !failed(nic_kernel_fill(card->kernel, to, from, bytes), "writing what a kernel is to read");
}

static uint32_t swapped(uint32_t word) { return __builtin_bswap32(word); }

static bool fill_keys(struct nic_card *card, const struct places *p) {
  size_t ranks = (size_t)card->carrier->nRanks;
  struct gdaki_memory *handles = calloc(KEYS, sizeof *handles);
  uint32_t *lists = calloc(KEYS * ranks, sizeof *lists);
  bool fine = handles != NULL && lists != NULL;
  for (uint32_t key = 0; fine && key < KEYS; key++) {
    handles[key] = (struct gdaki_memory){(uint32_t *)(uintptr_t)(p->keyLists + key * ranks * sizeof *lists), swapped(key)};
    for (size_t r = 0; r < ranks; r++) lists[key * ranks + r] = swapped(key); /* whose memory it is, the queue says */
  }
  fine = fine && fill(card, card->handles, handles, KEYS * sizeof *handles) && fill(card, p->keyLists, lists, KEYS * ranks * sizeof *lists);
  free(handles);
  free(lists);
  return fine;
}

static void make_queue(struct nic_card *card, struct gdaki_queue *q, int peer, int side) {
  size_t at = (size_t)(peer * NIC_SIDES + side);
  uint32_t number = (uint32_t)at + 1; /* nicNumberOf */
  *q = (struct gdaki_queue){.number = number,
                            .shifted = number << 8,
                            .shiftedBe = swapped(number << 8),
                            .count = NIC_DEPTH,
                            .mask = NIC_DEPTH - 1,
                            .requests = card->nic.requests + at * NIC_DEPTH * NIC_REQUEST_BYTES,
                            .doorbell = card->nic.doorbells + at,
                            .done = {.at = card->nic.completions + at * NIC_DEPTH * NIC_COMPLETION_BYTES,
                                     .number = number,
                                     .count = NIC_DEPTH,
                                     .mask = NIC_DEPTH - 1,
                                     .bytes = NIC_COMPLETION_BYTES,
                                     .memory = GDAKI_MEMORY_OF_GPU},
                            .ringer = GDAKI_RING_FOR_PROXY,
                            .memory = GDAKI_MEMORY_OF_GPU};
  for (uint32_t segments = 1; segments <= 4; segments++) q->shiftedBeOf[segments - 1] = swapped(number << 8 | segments);
}

static bool fill_context(struct nic_card *card, const struct places *p) {
  int ranks = card->carrier->nRanks;
  struct gdaki_queue *queues = calloc((size_t)ranks * NIC_SIDES, sizeof *queues);
  if (queues == NULL) return false;
  for (int side = 0; side < NIC_SIDES; side++)
    for (int peer = 0; peer < ranks; peer++) make_queue(card, &queues[side * ranks + peer], peer, side);
  uint32_t signalKey = FIRST_KEY + card->signalRegion->number % CARRIER_MAX_REGIONS;
  struct gdaki_queue *at = (struct gdaki_queue *)(uintptr_t)p->queues;
  struct gdaki_context context = {
      .queues = at,
      .sideQueues = at + ranks,
      .counters = {(uint64_t *)(uintptr_t)card->counters, (uint32_t *)(uintptr_t)(p->keyLists + COUNTERS_KEY * (size_t)ranks * sizeof(uint32_t)),
                   swapped(COUNTERS_KEY)},
      .signals = {(uint64_t *)(uintptr_t)card->signals, (uint32_t *)(uintptr_t)(p->keyLists + signalKey * (size_t)ranks * sizeof(uint32_t)),
                  swapped(signalKey)},
      .sinkKey = swapped(KEYS)};
  bool fine = fill(card, p->queues, queues, (size_t)ranks * NIC_SIDES * sizeof *queues) && fill(card, card->context, &context, sizeof context);
  free(queues);
  return fine;
}

/* ---- keys ---- */

static carrier_address control_at(const struct nic_card *card, int word) { return (carrier_address)(uintptr_t)(card->nic.control + word); }

static bool set_key(struct nic_card *card, uint32_t key, const struct nic_part *parts) {
  size_t ranks = (size_t)card->carrier->nRanks;
  uint32_t changes = ++card->keys;
  return fill(card, (carrier_address)(uintptr_t)(card->nic.keys + key * ranks), parts, ranks * sizeof *parts) &&
         fill(card, control_at(card, NIC_KEYS), &changes, sizeof changes);
}

static bool set_region(struct nic_card *card, const struct carrier_region *region, bool there) {
  struct nic_part parts[NIC_MAX_RANKS] = {{0}};
  for (int r = 0; there && r < card->carrier->nRanks; r++) parts[r] = (struct nic_part){region->parts[r].at, region->parts[r].bytes};
  return set_key(card, FIRST_KEY + region->number % CARRIER_MAX_REGIONS, parts);
}

void *nic_memory(struct nic_card *card, const struct carrier_region *region) {
  if (!set_region(card, region, true)) return NULL;
  return (void *)(uintptr_t)(card->handles + (FIRST_KEY + region->number % CARRIER_MAX_REGIONS) * sizeof(struct gdaki_memory));
}

void nic_forget(struct nic_card *card, const struct carrier_region *region) { set_region(card, region, false); }

/* ---- life ---- */

static uint32_t idle_looks(void) {
  const char *text = getenv("DYNAMICCL_CARRIER_IDLE_US");
  long us = text == NULL ? 0 : atol(text);
  if (us < 1 || us > 10000000) us = IDLE_US;
  return (uint32_t)us * 2; /* a look takes about 0.5 us on a GPU of 2022 */
}

/* To measure others: DYNAMICCL_CARRIER_SIZES=WARP,BLOCK,PART,HELPERS, bytes and blocks; PART counts as the power of two below. */
static struct nic_sizes sizes(unsigned *helpers) {
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

/* The contexts of a communicator share one link, so one word; the last of them gives it back. */
static bool share_link(struct nic_card *card) {
  struct carrier_instance *instance = card->carrier->instance;
  if (instance->link == 0 &&
      (failed(carrier_driver(NULL)->cuMemAlloc_v2(&instance->link, sizeof(uint64_t)), "memory for a word") ||
       failed(nic_kernel_clear(card->kernel, instance->link, 0, sizeof(uint64_t)), "clearing a word")))
    return false;
  card->nic.linkFreeNs = (uint64_t *)(uintptr_t)instance->link;
  card->other = instance->card;
  instance->card = card;
  return true;
}

static void leave_link(struct nic_card *card) {
  struct carrier_instance *instance = card->carrier->instance;
  if (card->kernel == NULL) return;
  for (struct nic_card **at = &instance->card; *at != NULL; at = &(*at)->other)
    if (*at == card) {
      *at = card->other;
      break;
    }
  if (instance->card != NULL) return;
  if (instance->link != 0) carrier_driver(NULL)->cuMemFree_v2(instance->link);
  instance->link = 0;
}

static bool make_tables(struct nic_card *card, int nSignals, int nCounters) {
  struct carrier *c = card->carrier;
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct nic_part counters[NIC_MAX_RANKS] = {{0}};
  size_t signalBytes = (size_t)nSignals * sizeof(uint64_t), counterBytes = (size_t)nCounters * sizeof(uint64_t);
  lay_out(card);
  if (failed(cuda->cuMemAllocHost_v2((void **)&card->shared, sizeof *card->shared), "memory for doorbell records")) return false;
  memset(card->shared, 0, sizeof *card->shared);
  if (failed(cuda->cuMemAlloc_v2(&card->memory, card->bytes), "memory for queues") ||
      failed(cuda->cuMemAlloc_v2(&card->signals, signalBytes + 8), "memory for signals") ||
      failed(cuda->cuMemAlloc_v2(&card->counters, counterBytes + 8), "memory for counters"))
    return false;
  struct places p = lay_out(card);
  card->nic.report = &card->shared->report;
  card->nic.rank = c->rank;
  card->nic.nRanks = c->nRanks;
  card->nic.sizes = sizes(&card->helpers);
  card->nic.watchNs = WATCH_US * 1000;
  card->nic.lateNs = LATE_MS * 1000000u;
  if (failed(nic_kernel_clear(card->kernel, card->memory, 0, card->bytes), "clearing queues") ||
      failed(nic_kernel_clear(card->kernel, (carrier_address)(uintptr_t)card->nic.completions, 0xff, card->memory + card->bytes - (carrier_address)(uintptr_t)card->nic.completions),
             "clearing completions") ||
      failed(nic_kernel_clear(card->kernel, card->signals, 0, signalBytes + 8), "clearing signals") ||
      failed(nic_kernel_clear(card->kernel, card->counters, 0, counterBytes + 8), "clearing counters"))
    return false;
  if (carrier_register(c, (void *)(uintptr_t)card->signals, signalBytes, NCCL_PTR_CUDA, 0, &card->signalRegion) != ncclSuccess) return false;
  counters[c->rank] = (struct nic_part){card->counters, counterBytes};
  card->told[NIC_IDLE_LOOKS] = ~idle_looks(); /* so that it is told */
  return fill_keys(card, &p) && fill_context(card, &p) && set_key(card, COUNTERS_KEY, counters) && set_region(card, card->signalRegion, true);
}

/* ---- progress ---- */

/* What the kernel is to be told. False: it was. */
static bool is_news(struct nic_card *card, bool stop) {
  struct carrier *c = card->carrier;
  uint32_t *now = card->shared->control;
  const struct carrier_faults *faults = &c->instance->faults;
  now[NIC_STOP] = stop;
  now[NIC_GONE] = now[NIC_DEAD] = 0;
  for (int r = 0; r < c->nRanks; r++) {
    now[NIC_GONE] |= (uint32_t)c->peers[r].gone << r;
    now[NIC_DEAD] |= (uint32_t)(faults->deadRank == r || faults->deadRank == c->rank) << r;
  }
  now[NIC_LATENCY_NS] = faults->latencyNs < UINT32_MAX ? (uint32_t)faults->latencyNs : UINT32_MAX;
  now[NIC_BYTES_PER_US] = faults->gbs == 0 ? 0 : faults->gbs < 1e-3 ? 1 : (uint32_t)(faults->gbs * 1000);
  now[NIC_IDLE_LOOKS] = idle_looks();
  return memcmp(now, card->told, sizeof card->told) != 0;
}

static bool tell(struct nic_card *card) {
  memcpy(card->told, card->shared->control, sizeof card->told);
  return fill(card, control_at(card, 0), card->shared->control, sizeof card->told);
}

/* Requests that were rung for and not done, of peers for whom anything is done. While no kernel is there to look at doorbells
 * they are copied here, again and again: posters that told the host themselves would take longer for every request. */
static bool is_behind(struct nic_card *card) {
  const struct shared *s = card->shared;
  if (!nic_kernel_looked(card->kernel, card->shared->doorbells, (carrier_address)(uintptr_t)card->nic.doorbells, sizeof s->doorbells, &card->broken)) return false;
  for (int peer = 0; peer < card->carrier->nRanks; peer++)
    for (int side = 0; side < NIC_SIDES && !(card->told[NIC_DEAD] >> peer & 1); side++)
      if (s->doorbells[peer * NIC_SIDES + side] != s->report.consumed[peer][side]) return true;
  return false;
}

static void warn_of_failure(struct nic_card *card) {
  static const char *const why[] = {"", "a put or signal is not within registered memory", "a request of a kind that is not known", "a peer is gone"};
  const struct nic_report *report = &card->shared->report;
  uint32_t failure = *(const volatile uint32_t *)&report->failed;
  if (failure == NIC_FINE || card->said) return;
  card->said = true;
  carrier_warn("rank %d to rank %u: %s: nothing more goes there on this context", card->carrier->rank, report->peer,
               why[failure < sizeof why / sizeof *why ? failure : NIC_BAD_REQUEST]);
}

static uint32_t told_of(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* The last launch does something, or something was done not long ago. */
static bool is_in_use(struct nic_card *card, uint64_t now) {
  const uint32_t used = told_of(&card->shared->report.used);
  if (used != card->used || used == card->nic.number) card->usedNs = now;
  card->used = used;
  return now - card->usedNs < LATE_MS * (uint64_t)1000000;
}

/* Launches below this one may end. */
static void let_end(struct nic_card *card, uint32_t number) { __atomic_store_n(&card->shared->report.next, number, __ATOMIC_RELEASE); }

static void start(struct nic_card *card) {
  card->nic.number++;
  card->broken = !nic_kernel_start(card->kernel, &card->nic, (unsigned)card->carrier->nRanks + card->helpers);
  card->runs = !card->broken;
  if (card->runs && CARRIER_MISTAKE != 5) let_end(card, card->nic.number + (CARRIER_MISTAKE == 4));
}

/* A launch ends only when the next one stands in the stream behind it, so where this thread is kept away for long, by who has CUDA's
 * lock, the GPU has one all the same that needs nobody to start it. As soon as a launch's watch is there the next one is made, while
 * the card is in use; then the last one may end, and doorbells are looked at here. */
void nic_progress(struct nic_card *card) {
  struct carrier_entered entered;
  const uint64_t now = carrier_now_ns();
  carrier_watch(card->carrier);
  warn_of_failure(card);
  if (card->broken) return;
  const bool isLast = told_of(&card->shared->report.begun) == card->nic.number, inUse = is_in_use(card, now), news = is_news(card, false);
  if (isLast && !inUse) let_end(card, card->nic.number + 1);
  if (card->runs && !news && !isLast && now - card->askedNs < QUERY_MS * (uint64_t)1000000) return; /* without CUDA, whose lock the program may want */
  if (!carrier_enter(card->carrier->context, &entered)) return;
  card->askedNs = now;
  if (news) card->broken = !tell(card);
  if (card->runs && nic_kernel_ended(card->kernel, &card->broken)) card->runs = false;
  if (!card->broken && (inUse ? isLast || !card->runs : !card->runs && is_behind(card))) start(card);
  carrier_leave(&entered);
}

void *nic_context(struct nic_card *card) { return (void *)(uintptr_t)card->context; }

bool nic_is_wanted(void) {
  const char *type = getenv("DYNAMICCL_CARRIER_TYPE");
  if (type != NULL && strcmp(type, "proxy") == 0) return false;
  return nic_kernel_file() != NULL || (type != NULL && strcmp(type, "gdaki") == 0); /* then its lack is said */
}

bool nic_failed(struct nic_card *card) { return card->broken || *(const volatile uint32_t *)&card->shared->report.failed != NIC_FINE; }

struct nic_card *nic_make(struct carrier *c, int nSignals, int nCounters) {
  struct carrier_entered entered;
  if (c->nRanks > NIC_MAX_RANKS) {
    carrier_warn("GIN of type GDAKI is for at most %d ranks here; DYNAMICCL_CARRIER_TYPE=proxy is for more", NIC_MAX_RANKS);
    return NULL;
  }
  struct nic_card *card = calloc(1, sizeof *card);
  if (card == NULL || !carrier_enter(c->context, &entered)) {
    free(card);
    return NULL;
  }
  card->carrier = c;
  card->kernel = nic_kernel_make();
  card->usedNs = carrier_now_ns(); /* so NCCL's thread starts it at once */
  bool fine = card->kernel != NULL && share_link(card) && make_tables(card, nSignals, nCounters);
  carrier_leave(&entered);
  if (fine) return card;
  nic_free(card);
  return NULL;
}

void nic_free(struct nic_card *card) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  if (card == NULL) return;
  /* NCCL's thread has ended: nothing comes behind any of the communicator's launches, and what is freed here waits for them all. */
  for (struct nic_card *other = card->carrier->instance->card; other != NULL; other = other->other)
    if (other->shared != NULL) let_end(other, other->nic.number + 1);
  bool in = carrier_enter(card->carrier->context, &entered);
  if (in) {
    if (card->nic.number > 0 && is_news(card, true)) tell(card);
    leave_link(card);
    nic_kernel_free(card->kernel);
    if (card->signalRegion != NULL) carrier_deregister(card->carrier, card->signalRegion);
    if (card->memory != 0) cuda->cuMemFree_v2(card->memory);
    if (card->signals != 0) cuda->cuMemFree_v2(card->signals);
    if (card->counters != 0) cuda->cuMemFree_v2(card->counters);
    if (card->shared != NULL) cuda->cuMemFreeHost(card->shared);
    carrier_leave(&entered);
  }
  free(card);
}
