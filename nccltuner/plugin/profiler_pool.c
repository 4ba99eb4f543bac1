/* SPDX-License-Identifier: Apache-2.0
 *
 * Event objects and handles. Fixed tables, so that nothing is allocated after load and a handle that NCCL keeps too
 * long (it does: collApiEventHandle of 2.30.7 is stopped again by later calls) never points at freed memory.
 *
 * A slot's word holds generation, pins and references together, so that one compare-and-swap says "still the same
 * object, and I am using it". Pins are short (one call); references are what must still happen before the object is
 * finished. Whoever takes the last of both finishes it.
 */
#include "profiler.h"

#include "chain.h"

#include <pthread.h>
#include <string.h>

#define PIN (UINT64_C(1) << 20)
#define REFS(w) ((unsigned)((w) & (PIN - 1)))
#define PINS(w) ((unsigned)((w) >> 20 & 0xfff))
#define GENERATION(w) ((w) >> 32)

static struct dyn_slot slots[DYN_POOL_SLOTS];
static atomic_uint fresh;                 /* slots[0..fresh) were used at least once */
static atomic_uint_fast64_t freeHead;     /* ABA count << 32 | slot + 1 */
static atomic_uint used;
static atomic_uint_fast64_t retired[DYN_NUM_RETIRED];
static atomic_uint retiredNext;
static atomic_flag reclaiming = ATOMIC_FLAG_INIT;
atomic_uint_fast64_t dyn_collectives_started;

static struct dyn_slot *pop(void) {
  uint64_t head = atomic_load_explicit(&freeHead, memory_order_acquire);
  while ((uint32_t)head != 0) {
    struct dyn_slot *slot = &slots[(uint32_t)head - 1];
    uint64_t next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&slot->next, memory_order_relaxed);
    if (atomic_compare_exchange_weak_explicit(&freeHead, &head, next, memory_order_acq_rel, memory_order_acquire))
      return slot;
  }
  if (atomic_load_explicit(&fresh, memory_order_relaxed) >= DYN_POOL_SLOTS) return NULL;
  unsigned n = atomic_fetch_add(&fresh, 1);
  if (n < DYN_POOL_SLOTS) return &slots[n];
  atomic_store(&fresh, DYN_POOL_SLOTS); /* threads that raced past the end put it back, so that it cannot wrap */
  return NULL;
}

static void push(struct dyn_slot *slot) {
  uint64_t head = atomic_load_explicit(&freeHead, memory_order_relaxed), next;
  do {
    atomic_store_explicit(&slot->next, (uint32_t)head, memory_order_relaxed);
    next = ((head >> 32) + 1) << 32 | (uint64_t)(slot - slots + 1);
  } while (!atomic_compare_exchange_weak_explicit(&freeHead, &head, next, memory_order_release, memory_order_relaxed));
}

struct dyn_slot *dyn_slot_new(struct dyn_process *process, uint64_t owner, enum dyn_kind kind, unsigned refs) {
  struct dyn_slot *slot = pop();
  if (slot == NULL && dyn_slot_reclaim(0, DYN_AGE_LIMIT) > 0) slot = pop();
  if (slot == NULL) {
    dyn_count_dropped(process);
    return NULL;
  }
  atomic_fetch_add_explicit(&used, 1, memory_order_relaxed);
  slot->kind = (uint8_t)kind;
  slot->owner = owner;
  slot->birth = atomic_load_explicit(&dyn_collectives_started, memory_order_relaxed);
  slot->chain = NULL;
  atomic_store_explicit(&slot->stopped, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->abandoned, 0, memory_order_relaxed);
  if (kind == DYN_KIND_COLL) memset(&slot->coll, 0, sizeof slot->coll);
  else memset(&slot->part, 0, sizeof slot->part);
  uint64_t generation = GENERATION(atomic_load_explicit(&slot->word, memory_order_relaxed));
  atomic_store_explicit(&slot->word, generation << 32 | PIN | refs, memory_order_release);
  return slot;
}

void *dyn_slot_handle(const struct dyn_slot *slot) {
  uint64_t generation = GENERATION(atomic_load_explicit(&slot->word, memory_order_relaxed));
  return (void *)(uintptr_t)(DYN_HANDLE_TAG << 48 | generation << 16 | (uint64_t)(slot - slots));
}

struct dyn_slot *dyn_slot_pin(const void *handle) {
  uint64_t bits = (uintptr_t)handle, index = bits & 0xffff;
  if (bits >> 48 != DYN_HANDLE_TAG || index >= DYN_POOL_SLOTS) return NULL;
  struct dyn_slot *slot = &slots[index];
  uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
  do {
    if (GENERATION(word) != (bits >> 16 & 0xffffffff) || REFS(word) == 0) return NULL;
  } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word + PIN, memory_order_acquire,
                                                  memory_order_relaxed));
  return slot;
}

void dyn_slot_ref(struct dyn_slot *slot) { atomic_fetch_add_explicit(&slot->word, 1, memory_order_relaxed); }

unsigned dyn_slot_refs(const struct dyn_slot *slot) {
  return REFS(atomic_load_explicit(&slot->word, memory_order_acquire));
}

static void finish(struct dyn_slot *slot, uint64_t word) {
  if (slot->kind == DYN_KIND_COLL) {
    if (atomic_load_explicit(&slot->abandoned, memory_order_relaxed)) dyn_count_dropped(slot->coll.process);
    else dyn_coll_finish(slot);
  }
  /* An object that is given up before its stop would leave the chained profiler's event open for ever. */
  if (slot->chain != NULL && !atomic_load_explicit(&slot->stopped, memory_order_relaxed)) dyn_chain_stop(slot->chain);
  atomic_store_explicit(&slot->word, ((GENERATION(word) + 1) & 0xffffffff) << 32, memory_order_release);
  atomic_fetch_sub_explicit(&used, 1, memory_order_relaxed);
  push(slot);
}

void dyn_slot_unpin(struct dyn_slot *slot, unsigned drops) {
  uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed), next;
  do {
    next = word - PIN - (drops < REFS(word) ? drops : REFS(word));
  } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, next, memory_order_acq_rel,
                                                  memory_order_relaxed));
  if (REFS(next) == 0 && PINS(next) == 0) finish(slot, next);
}

void dyn_slot_retire(struct dyn_slot *slot) {
  unsigned at = atomic_fetch_add_explicit(&retiredNext, 1, memory_order_relaxed) % DYN_NUM_RETIRED;
  uint64_t old = atomic_exchange_explicit(&retired[at], (uintptr_t)dyn_slot_handle(slot), memory_order_acq_rel);
  struct dyn_slot *gone = dyn_slot_pin((void *)(uintptr_t)old);
  if (gone != NULL) dyn_slot_unpin(gone, 1);
}

/* Drops all references of a slot that we alone have pinned; 0: somebody else is using it. */
static int give_up(struct dyn_slot *slot) {
  uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
  do {
    atomic_store_explicit(&slot->abandoned, PINS(word) == 1, memory_order_relaxed);
    if (PINS(word) != 1) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word - REFS(word), memory_order_acq_rel,
                                                  memory_order_relaxed));
  return 1;
}

unsigned dyn_slot_reclaim(uint64_t owner, uint64_t minAge) {
  /* One scan at a time: when slots run out, every thread would otherwise scan at once. */
  if (owner == 0 && atomic_flag_test_and_set(&reclaiming)) return 0;
  unsigned n = atomic_load(&fresh), count = 0;
  uint64_t now = atomic_load(&dyn_collectives_started);
  for (unsigned i = 0; i < n && i < DYN_POOL_SLOTS; i++) {
    uint64_t word = atomic_load_explicit(&slots[i].word, memory_order_relaxed);
    if (REFS(word) == 0 || PINS(word) != 0) continue;
    struct dyn_slot *slot = dyn_slot_pin(dyn_slot_handle(&slots[i]));
    if (slot == NULL) continue;
    if (owner != 0 ? slot->owner == owner : now - slot->birth > minAge) count += (unsigned)give_up(slot);
    dyn_slot_unpin(slot, 0);
  }
  if (owner == 0) atomic_flag_clear(&reclaiming);
  return count;
}

unsigned dyn_slots_used(void) { return atomic_load(&used); }

/* ---- contexts: made and freed under one lock, looked up without ---- */

static struct dyn_context contexts[DYN_MAX_CONTEXTS];
static pthread_mutex_t contextLock = PTHREAD_MUTEX_INITIALIZER;
static unsigned contextHint; /* where the last one was taken or freed */

struct dyn_context *dyn_context_new(void) {
  struct dyn_context *context = NULL;
  pthread_mutex_lock(&contextLock);
  for (unsigned i = 0; i < DYN_MAX_CONTEXTS && context == NULL; i++) {
    struct dyn_context *c = &contexts[(contextHint + i) % DYN_MAX_CONTEXTS];
    uint64_t word = atomic_load(&c->word);
    if (word & 1) continue;
    memset(c, 0, sizeof *c);
    atomic_store(&c->word, word | 1);
    contextHint = (unsigned)(c - contexts);
    context = c;
  }
  pthread_mutex_unlock(&contextLock);
  return context;
}

void *dyn_context_handle(const struct dyn_context *context) {
  uint64_t generation = GENERATION(atomic_load(&context->word));
  return (void *)(uintptr_t)(DYN_CONTEXT_TAG << 48 | generation << 16 | (uint64_t)(context - contexts));
}

struct dyn_context *dyn_context_get(const void *handle) {
  uint64_t bits = (uintptr_t)handle, index = bits & 0xffff;
  if (bits >> 48 != DYN_CONTEXT_TAG || index >= DYN_MAX_CONTEXTS) return NULL;
  uint64_t word = atomic_load_explicit(&contexts[index].word, memory_order_acquire);
  return GENERATION(word) == (bits >> 16 & 0xffffffff) && (word & 1) ? &contexts[index] : NULL;
}

void *dyn_api_handle(const struct dyn_context *context, uint64_t minSeq) {
  return (void *)(uintptr_t)(DYN_API_TAG << 48 | (minSeq & 0xffffffff) << 16 | (uint64_t)(context - contexts));
}

int dyn_api_min(const struct dyn_context *context, const void *handle, uint64_t *minSeq) {
  uint64_t bits = (uintptr_t)handle, now = 0;
  if (bits >> 48 == DYN_API_TAG) {
    if ((bits & 0xffff) != (uint64_t)(context - contexts)) return 0;
    if (context->comm != NULL) now = __atomic_load_n(&context->comm->seq, __ATOMIC_RELAXED);
    *minSeq = now - (uint32_t)((uint32_t)now - (uint32_t)(bits >> 16));
    return 1;
  }
  struct dyn_slot *api = dyn_slot_pin(handle);
  if (api == NULL) return 0;
  int right = api->kind == DYN_KIND_API && api->owner == (uintptr_t)dyn_context_handle(context);
  *minSeq = api->api.minSeq;
  dyn_slot_unpin(api, 0);
  return right;
}

void dyn_context_free(struct dyn_context *context) {
  pthread_mutex_lock(&contextLock);
  uint64_t generation = GENERATION(atomic_load(&context->word));
  atomic_store(&context->word, ((generation + 1) & 0xffffffff) << 32);
  contextHint = (unsigned)(context - contexts);
  pthread_mutex_unlock(&contextLock);
}
