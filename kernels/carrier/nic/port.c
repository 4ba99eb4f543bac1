/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include <stdio.h>
#include <stdlib.h>

#include "../say.h"
#include "gdaki_abi.h"
#include "kernel.h"
#include "launches.h"
#include "places.h"

struct nic_contexts {
  struct nic_contexts *next; /* of the port */
  struct nic_place place;
  struct nic_port *port;
  carrier_address array; /* of the device code's */
  ncclNetDeviceHandle_v11_t handle;
  int wanted, count; /* count: of cards that are made */
  struct nic_card *cards[];
};

static bool fill(const struct nic_port *port, carrier_address to, const void *from, size_t bytes) {
  return !carrier_failed(nic_write(port->stream, to, from, bytes), "writing what a kernel is to read");
}

/* ---- memory ---- */

/* A key is the same number on all ranks and in all cards: whose memory it stands for, a queue says, and where that is, the card. So
 * what device code reads never changes. */
static bool fill_keys(struct nic_port *port) {
  size_t ranks = (size_t)port->carrier->nRanks;
  struct gdaki_memory *handles = calloc(NIC_CARD_KEYS, sizeof *handles);
  uint32_t *lists = calloc(NIC_CARD_KEYS * ranks, sizeof *lists);
  bool fine = handles != NULL && lists != NULL;
  for (uint32_t key = 0; fine && key < NIC_CARD_KEYS; key++) {
    handles[key] = (struct gdaki_memory){nic_key_list(port, key), __builtin_bswap32(key)};
    for (size_t r = 0; r < ranks; r++) lists[key * ranks + r] = __builtin_bswap32(key);
  }
  fine = fine && fill(port, port->handles, handles, NIC_CARD_KEYS * sizeof *handles) && fill(port, port->keyLists, lists, NIC_CARD_KEYS * ranks * sizeof *lists);
  free(handles);
  free(lists);
  return fine;
}

uint32_t *nic_key_list(const struct nic_port *port, uint32_t key) {
  return (uint32_t *)(uintptr_t)(port->keyLists + (size_t)key * (size_t)port->carrier->nRanks * sizeof(uint32_t));
}

static bool make_tables(struct nic_port *port) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  const size_t handles = NIC_CARD_KEYS * sizeof(struct gdaki_memory), lists = NIC_CARD_KEYS * (size_t)port->carrier->nRanks * sizeof(uint32_t);
  if (carrier_failed(cuda->cuStreamCreateWithPriority(&port->stream, CARRIER_STREAM_NON_BLOCKING, 0), "cuStreamCreateWithPriority") ||
      carrier_failed(cuda->cuMemAlloc_v2(&port->handles, handles + lists), "memory for keys"))
    return false;
  port->keyLists = port->handles + handles;
  return fill_keys(port);
}

/* What NCCL's thread does with version 11. */
static bool turn(void *of) {
  struct nic_port *port = of;
  bool any = false;
  pthread_mutex_lock(&port->turn);
  for (struct nic_contexts *contexts = port->contexts; contexts != NULL; contexts = contexts->next) {
    nic_contexts_progress(contexts);
    for (int n = 0; n < contexts->count; n++) any = any || !contexts->cards[n]->lapsed;
  }
  pthread_mutex_unlock(&port->turn);
  return any;
}

struct nic_port *nic_open(struct carrier *c, int layout) {
  struct carrier_entered entered;
  struct nic_port *port = calloc(1, sizeof *port);
  if (port == NULL || !carrier_enter(&c->home, &entered)) {
    free(port);
    return NULL;
  }
  port->carrier = c;
  port->layout = layout;
  pthread_mutex_init(&port->lock, NULL);
  pthread_mutex_init(&port->turn, NULL);
  bool fine = make_tables(port);
  carrier_leave(&entered);
  if (fine) return port;
  nic_close(port);
  return NULL;
}

/* NCCL 2.30.7 destroys no contexts that the program has left, whose communicator it aborts. What they have stays, for kernels of the program may look
 * at it; their own end, for whatever these put, and nobody looks for them in a communicator that is gone. In their context. */
static void abandon(struct nic_contexts *contexts) {
  for (; contexts != NULL; contexts = contexts->next)
    for (int n = 0; n < contexts->count; n++) nic_let_go(contexts->cards[n]), nic_stop(contexts->cards[n]);
}

void nic_close(struct nic_port *port) {
  const struct carrier_driver *cuda = carrier_driver(NULL);
  struct carrier_entered entered;
  if (port == NULL) return;
  nic_launcher_stop(&port->launcher);
  for (struct nic_contexts *contexts = port->contexts; contexts != NULL; contexts = contexts->next) nic_place_leave(&contexts->place);
  if (carrier_enter(&port->carrier->home, &entered)) {
    abandon(port->contexts);
    if (port->stream != NULL) cuda->cuStreamDestroy_v2(port->stream);
    if (port->handles != 0) cuda->cuMemFree_v2(port->handles);
    carrier_leave(&entered);
  }
  pthread_mutex_destroy(&port->lock);
  pthread_mutex_destroy(&port->turn);
  free(port);
}

static bool set_regions(struct nic_port *port, const struct carrier_region *region, bool there) {
  bool fine = true;
  struct carrier_entered entered;
  if (!carrier_enter(&port->carrier->home, &entered)) return false;
  pthread_mutex_lock(&port->lock);
  for (struct nic_card *card = port->cards; card != NULL; card = nic_next(card)) fine = nic_set_region(card, region, there) && fine;
  pthread_mutex_unlock(&port->lock);
  carrier_leave(&entered);
  return fine;
}

void *nic_memory(struct nic_port *port, const struct carrier_region *region) {
  if (!set_regions(port, region, true)) return NULL;
  return (void *)(uintptr_t)(port->handles + nic_key_of(region) * sizeof(struct gdaki_memory));
}

void nic_forget(struct nic_port *port, const struct carrier_region *region) { set_regions(port, region, false); }

/* ---- contexts ---- */

static bool enlist_within(struct nic_contexts *contexts, char why[CARRIER_WHY]) {
  unsigned taken, most;
  if (nic_place_take(&contexts->place, &taken, &most)) return true;
  snprintf(why, CARRIER_WHY, "rank %d: %u blocks for %d contexts are more than may stay on a GPU beside programs, %u, of which others have %u (NCCL_GIN_NCONTEXTS, NCCL_SYM_GIN_KERNELS_ENABLE=0, DYNAMICCL_CARRIER_PLACES)",
           contexts->port->carrier->rank, contexts->place.blocks, contexts->wanted, most, taken);
  return false;
}

static bool make_cards(struct nic_contexts *contexts, int count, int nSignals, int nCounters) {
  for (; contexts->count < count; contexts->count++)
    if ((contexts->cards[contexts->count] = nic_make(contexts->port, nSignals, nCounters)) == NULL) return false;
  return true;
}

static bool describe(struct nic_contexts *contexts) {
  struct gdaki_context *array = calloc((size_t)contexts->count, sizeof *array);
  const size_t bytes = (size_t)contexts->count * sizeof *array;
  struct carrier_entered entered;
  if (array == NULL || !carrier_enter(&contexts->port->carrier->home, &entered)) {
    free(array);
    return false;
  }
  for (int n = 0; n < contexts->count; n++) nic_describe(contexts->cards[n], &array[n]);
  bool fine = !carrier_failed(carrier_driver(NULL)->cuMemAlloc_v2(&contexts->array, bytes), "memory for contexts") && fill(contexts->port, contexts->array, array, bytes);
  carrier_leave(&entered);
  free(array);
  return fine;
}

/* The thread comes with the first ones: NCCL closes no connections where one of several fails, and unloads the library. False: there is none to be had. */
static bool enter_turns(struct nic_contexts *contexts) {
  struct nic_port *port = contexts->port;
  pthread_mutex_lock(&port->turn);
  const bool fine = port->layout == GDAKI_100 || port->launcher.isThere || nic_launcher_start(&port->launcher, turn, port);
  if (fine) contexts->next = port->contexts, port->contexts = contexts;
  else carrier_warn("rank %d: no thread to launch kernels from", port->carrier->rank);
  pthread_mutex_unlock(&port->turn);
  return fine;
}

static void leave_turns(const struct nic_contexts *contexts) {
  struct nic_port *port = contexts->port;
  pthread_mutex_lock(&port->turn);
  for (struct nic_contexts **at = &port->contexts; *at != NULL; at = &(*at)->next)
    if (*at == contexts) {
      *at = contexts->next;
      break;
    }
  pthread_mutex_unlock(&port->turn);
}

struct nic_contexts *nic_contexts_make(struct nic_port *port, int count, int nSignals, int nCounters) {
  struct nic_contexts *contexts = calloc(1, sizeof *contexts + (size_t)count * sizeof *contexts->cards);
  if (contexts == NULL) return NULL;
  char why[CARRIER_WHY];
  contexts->port = port, contexts->wanted = count;
  contexts->place = (struct nic_place){.carrier = port->carrier, .cards = (unsigned)count, .blocks = (unsigned)(count * port->carrier->nRanks)};
  if (!carrier_agree(port->carrier, "contexts", enlist_within(contexts, why) ? NULL : why) || !make_cards(contexts, count, nSignals, nCounters) || !describe(contexts)) {
    nic_contexts_free(contexts);
    return NULL;
  }
  contexts->handle = (ncclNetDeviceHandle_v11_t){.netDeviceType = NCCL_NET_DEVICE_GIN_GDAKI,
                                                 .netDeviceVersion = port->layout,
                                                 .handle = (void *)(uintptr_t)contexts->array,
                                                 .needsProxyProgress = port->layout == GDAKI_100};
  nic_place_name(&contexts->place, contexts->handle.handle);
  if (enter_turns(contexts)) return contexts;
  nic_contexts_free(contexts);
  return NULL;
}

void nic_contexts_free(struct nic_contexts *contexts) {
  struct carrier_entered entered;
  if (contexts == NULL) return;
  leave_turns(contexts);
  nic_place_leave(&contexts->place);
  for (int n = 0; n < contexts->count; n++) nic_let_go(contexts->cards[n]);
  for (int n = 0; n < contexts->count; n++) nic_free(contexts->cards[n]);
  if (contexts->array != 0 && carrier_enter(&contexts->port->carrier->home, &entered)) {
    carrier_driver(NULL)->cuMemFree_v2(contexts->array);
    carrier_leave(&entered);
  }
  free(contexts);
}

ncclNetDeviceHandle_v11_t *nic_contexts_handle(struct nic_contexts *contexts) { return &contexts->handle; }

void nic_contexts_progress(struct nic_contexts *contexts) {
  for (int n = 0; n < contexts->count; n++) nic_progress(contexts->cards[n]);
}

bool nic_contexts_failed(struct nic_contexts *contexts) {
  for (int n = 0; n < contexts->count; n++)
    if (nic_failed(contexts->cards[n])) return true;
  return false;
}
