/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include "../places.h"
#include "../say.h"
#include "kernel.h"

/* What tests plant. 10: kernels that are asked for are not heard of; 11: graphs are not. 12: contexts of a communicator that one was refused keep their places,
 * 13: and those that were left behind. */
#ifndef CARRIER_MISTAKE
#define CARRIER_MISTAKE 0
#endif

enum { HANDLE_WORDS = 6 }; /* of NCCL's ncclGinProxyGpuCtx_t, up to `signals`: the same in 2.28.9 and 2.30.7, and no shorter in any */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nic_place *all; /* of cards that are there, or are being made */

static void hold(void) { pthread_mutex_lock(&lock); }
static void let(void) { pthread_mutex_unlock(&lock); }

/* In that context, which lives. What its communicator left behind for ever, for graphs that are gone by now, puts nothing any more. */
static bool is_beside(const struct nic_place *own, const struct carrier_home *home) {
  return own->carrier->home.context == home->context && own->carrier->home.id == home->id &&
         (CARRIER_MISTAKE == 13 || own->captured == NULL || __atomic_load_n(own->captured, __ATOMIC_ACQUIRE) != DYN_EXPECTED_NOTHING);
}

bool nic_place_take(struct nic_place *place, unsigned *taken, unsigned *most) {
  *most = dyn_carrier_most() / place->carrier->sharing;
  *taken = 0;
  hold();
  for (const struct nic_place *own = all; own != NULL; own = own->next)
    if (is_beside(own, &place->carrier->home)) *taken += own->blocks;
  const bool fits = *taken + place->blocks <= *most;
  if (fits) {
    place->next = all;
    all = place;
  }
  let();
  return fits;
}

void nic_place_leave(struct nic_place *place) {
  hold();
  for (struct nic_place **at = &all; *at != NULL; at = &(*at)->next)
    if (*at == place) {
      *at = place->next;
      break;
    }
  let();
}

void nic_place_name(struct nic_place *place, const void *handle) {
  hold();
  place->handle = handle;
  place->captured = place->carrier->instance->expected.captured;
  let();
}

void nic_places_renounce(const struct carrier_instance *instance) {
  hold();
  for (struct nic_place **at = &all; *at != NULL;) {
    if (CARRIER_MISTAKE != 12 && (*at)->carrier->instance == instance) *at = (*at)->next;
    else at = &(*at)->next;
  }
  let();
}

unsigned nic_beside(const struct carrier_home *home) {
  unsigned cards = 0;
  hold();
  for (const struct nic_place *own = all; own != NULL; own = own->next)
    if (is_beside(own, home)) cards += own->cards;
  let();
  return cards;
}

/* ---- who announces kernels ---- */

/* NCCL makes contexts of type Proxy by itself, and tells of none. What it hands its device code names where its signals lie, which it registered here. */
static bool has_signals(const struct carrier *c, const uint64_t *words) {
  for (int n = 0; n < CARRIER_MAX_REGIONS; n++) {
    const struct carrier_region *region = atomic_load(&c->regions[n]);
    for (int i = 0; region != NULL && region->type == NCCL_PTR_CUDA && i < HANDLE_WORDS; i++)
      if (words[i] >= region->data && words[i] - region->data < region->parts[c->rank].bytes) return true;
  }
  return false;
}

static bool any_fed(void) {
  for (const struct nic_place *own = all; own != NULL; own = own->next)
    if (own->fed) return true;
  return false;
}

/* Under the lock. */
static const struct nic_place *find_named(const void *handle) {
  for (const struct nic_place *own = all; own != NULL; own = own->next)
    if (handle == NULL || own->handle == handle) return own;
  return NULL;
}
static const struct nic_place *find_fed(const struct carrier_home *home, const uint64_t *words) {
  for (const struct nic_place *own = all; own != NULL; own = own->next)
    if (own->fed && is_beside(own, home) && has_signals(own->carrier, words)) return own;
  return NULL;
}

/* In the current context. */
static bool read_words(const void *handle, struct carrier_home *home, uint64_t *words) {
  struct carrier_entered entered;
  if (handle == NULL || !carrier_home_here(home) || !carrier_enter(home, &entered)) return false;
  const bool fine = nic_read(words, (carrier_address)(uintptr_t)handle, HANDLE_WORDS * sizeof *words) == 0;
  carrier_leave(&entered);
  return fine;
}

__attribute__((visibility("default"))) dyn_carrier_expected_of dynamicclCarrierExpected;
bool dynamicclCarrierExpected(const void *handle, struct dyn_carrier_expected *expected) {
  static uint32_t nobodys;
  uint64_t words[HANDLE_WORDS];
  struct carrier_home home;
  hold();
  const struct nic_place *own = find_named(handle);
  const bool may = own == NULL && any_fed();
  let();
  const bool reads = may && read_words(handle, &home, words); /* nobody is to wait for CUDA meanwhile */
  hold();
  own = reads ? find_fed(&home, words) : find_named(handle);
  if (own != NULL) *expected = own->carrier->instance->expected;
  let();
  if (CARRIER_MISTAKE == 10 && own != NULL) expected->asked = &nobodys;
  if (CARRIER_MISTAKE == 11 && own != NULL) expected->captured = &nobodys;
  return own != NULL;
}
