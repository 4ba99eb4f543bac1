/* SPDX-License-Identifier: Apache-2.0 */
#include "card_rig.h"

#include <dlfcn.h>
#include <time.h>

struct card cards[CONTEXTS];
struct memory near, far;
int (*cudaSynchronize)(void), (*cudaFree)(uint64_t);
void (*cardsResult)(int result);
unsigned (*cardsGrid)(void);
static pthread_t progressing;
static atomic_int stops, turns;
static atomic_bool standsStill;

#define LAYOUT (gdaki != NULL ? GDAKI_200 : GDAKI_100)

static struct gdaki_context *context_of(const ncclNetDeviceHandle_v11_t *handle, int which) {
  CHECK(handle->netDeviceType == NCCL_NET_DEVICE_GIN_GDAKI && handle->netDeviceVersion == LAYOUT && handle->needsProxyProgress == (gdaki == NULL));
  return (struct gdaki_context *)handle->handle + which;
}

bool cards_connect_if(struct card *card) { return cards_connect_of(comm.ginInstance, card); }

bool cards_connect_of(void *instance, struct card *card) {
  void *handles[MAX_RANKS], *listener, *device;
  CHECK(gin->listen(instance, 0, shared->handles[rank], &listener) == 0);
  meet();
  for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
  CHECK(gin->connect(comm.ginContext, handles, numRanks, rank, listener, &card->coll) == 0);
  const bool made = gin->createContext(card->coll, CARD_SIGNALS, CARD_COUNTERS, &card->ginContext, &device) == 0;
  if (made) card->device = context_of(device, 0);
  CHECK(gin->closeListen(listener) == 0);
  meet(); /* who is behind may still read the handles */
  return made;
}

bool cards_find_expected(const void *device, struct dyn_carrier_expected *expected) {
  void *carrier = dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_NOLOAD);
  dyn_carrier_expected_of *expected_of = carrier == NULL ? NULL : (dyn_carrier_expected_of *)dlsym(carrier, DYN_CARRIER_EXPECTED);
  CHECK(expected_of != NULL);
  return expected_of(device, expected);
}

struct dyn_carrier_expected cards_expected(const struct card *card) {
  struct dyn_carrier_expected expected;
  CHECK(cards_find_expected(card->device, &expected));
  return expected;
}

void cards_connect_one(struct card *card) { CHECK(cards_connect_if(card), "%s", lastWarning); }

static void connect_gdaki(int c) {
  ncclNetDeviceHandle_v11_t *device;
  ncclGinConfig_v14_t config = {CARD_SIGNALS, CARD_COUNTERS, 1 + c, c == 0 ? 0 : 128, -1, GDAKI_BACKEND, 1};
  if (c == 0) {
    void *handles[MAX_RANKS], *listener;
    CHECK(gdaki->listen(comm.ginInstance, 0, shared->handles[rank], &listener) == 0);
    meet();
    for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
    CHECK(gdaki->connect(comm.ginContext, handles, numRanks, rank, listener, &cards[0].coll) == 0 && gdaki->closeListen(listener) == 0);
    meet();
  }
  cards[c].coll = cards[0].coll;
  CHECK(gdaki->createContext(cards[c].coll, &config, &cards[c].ginContext, &device) == 0);
  cards[c].device = context_of(device, c);
}

void cards_connect(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&cudaSynchronize = dlsym(driver, "cuCtxSynchronize");
  *(void **)&cudaFree = dlsym(driver, "cuMemFree_v2");
  *(void **)&cardsResult = dlsym(driver, "fakegpu_nic_result");
  *(void **)&cardsGrid = dlsym(driver, "fakegpu_nic_grid");
  CHECK(cudaSynchronize != NULL && cudaFree != NULL && cardsResult != NULL && cardsGrid != NULL);
  for (int c = 0; c < CONTEXTS; c++) {
    if (gdaki != NULL) connect_gdaki(c);
    else cards_connect_one(&cards[c]);
    for (int r = 0; r < numRanks; r++) {
      cards[c].queues[r] = poster_queue_of(LAYOUT, cards[c].device, r, false);
      cards[c].sideQueues[r] = poster_queue_of(LAYOUT, cards[c].device, r, true);
    }
  }
}

static void end_turn(void) {
  atomic_fetch_add(&turns, 1);
  while (atomic_load(&standsStill)) usleep(100);
}

static void *progress_all(void *unused) {
  while (!atomic_load(&stops)) {
    for (int c = 0; c < CONTEXTS; c++) CHECK(gin->ginProgress(cards[c].coll) == 0);
    end_turn();
    usleep(20); /* NCCL's thread does not sleep; others need the CPU here */
  }
  return unused;
}

/* Between its turns the carrier's thread sleeps, of which each rank has one here. */
__attribute__((visibility("default"))) int nanosleep(const struct timespec *time, struct timespec *left) {
  if (gdaki != NULL) end_turn();
  return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
}

void cards_start(void) { CHECK(gdaki != NULL || pthread_create(&progressing, NULL, progress_all, NULL) == 0); }

void cards_turn(void) {
  for (int from = atomic_load(&turns); atomic_load(&turns) < from + 2;) usleep(100);
}

void cards_pause(bool pauses) {
  const int from = atomic_load(&turns);
  atomic_store(&standsStill, pauses);
  while (pauses && atomic_load(&turns) == from) usleep(100);
}

void cards_stop(void) {
  atomic_store(&stops, 1);
  if (gdaki == NULL) pthread_join(progressing, NULL);
}

void cards_end(void) {
  if (gdaki != NULL) {
    for (int c = 0; c < CONTEXTS; c++) CHECK(gdaki->destroyContext(cards[c].ginContext) == 0);
    CHECK(gdaki->closeColl(cards[0].coll) == 0 && gdaki->finalize(comm.ginInstance) == 0);
    return;
  }
  for (int c = 0; c < CONTEXTS; c++) CHECK(gin->destroyContext(cards[c].ginContext) == 0 && gin->closeColl(cards[c].coll) == 0);
  CHECK(gin->finalize(comm.ginInstance) == 0 && gin->finalize(comm.ginContext) == 0 && net->finalize(NULL) == 0);
}

void memory_register(struct memory *m) {
  for (int c = 0; c < CONTEXTS; c++) {
    void *device = m->device[0];
    if (gdaki == NULL) CHECK(gin->regMrSym(cards[c].coll, m->at, m->bytes, NCCL_PTR_CUDA, 0, &m->host[c], &device) == 0);
    else if (c == 0) CHECK(gdaki->regMrSym(cards[0].coll, m->at, m->bytes, NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO, &m->host[0], &device) == 0);
    CHECK(device != NULL && device != m->host[c]);
    m->device[c] = device;
  }
}

void memory_deregister(struct memory *m) {
  for (int c = 0; c < CONTEXTS && gdaki == NULL; c++) CHECK(gin->deregMrSym(cards[c].coll, m->host[c]) == 0);
  if (gdaki != NULL) CHECK(gdaki->deregMrSym(cards[0].coll, m->host[0]) == 0);
}

struct posting card_put(int context, int target, const struct memory *from, size_t fromAt, const struct memory *to, size_t toAt, size_t bytes) {
  struct card *card = &cards[context];
  return (struct posting){.queue = &card->queues[target],
                          .side = &card->sideQueues[target],
                          .what = POST_DATA,
                          .to = {toAt, to->device[context]->keys[target]},
                          .from = {fromAt, from->device[context]->key},
                          .bytes = bytes,
                          .most = (uint64_t)1 << 30,
                          .sinkKey = card->device->sinkKey};
}

struct posting card_get(int context, int source, const struct memory *from, size_t fromAt, const struct memory *to, size_t toAt, size_t bytes) {
  struct posting p = card_put(context, source, to, toAt, from, fromAt, bytes);
  p.what = POST_GET;
  p.from = (struct place){fromAt, from->device[context]->keys[source]};
  p.to = (struct place){toAt, to->device[context]->key};
  return p;
}

void card_signal(struct posting *p, int context, int target, int signal, uint64_t add) {
  p->signals = true;
  p->add = add;
  p->signal = (struct place){sizeof(uint64_t) * (uint64_t)(signal + (int)cards[context].device->signals.first), cards[context].device->signals.keys[target]};
}

void card_count(struct posting *p, int context, int counter) {
  p->counts = true;
  p->counter = (struct place){sizeof(uint64_t) * (uint64_t)(counter + (int)cards[context].device->counters.first), cards[context].device->counters.keys[rank]};
}

uint64_t signal_value(int context, int signal) { return poster_load(&cards[context].device->signals.at[signal]); }
uint64_t counter_value(int context, int counter) { return poster_load(&cards[context].device->counters.at[counter]); }

bool card_failed(int context) {
  bool error = false;
  CHECK((gdaki != NULL ? gdaki->queryLastError : gin->queryLastError)(cards[context].ginContext, &error) == 0);
  return error;
}

uint64_t ms_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void await_signal(int context, int signal, uint64_t least) {
  for (uint64_t from = ms_now(); signal_value(context, signal) < least; usleep(50))
    CHECK(ms_now() - from < 20000, "context %d, signal %d: %lu of %lu", context, signal, (long)signal_value(context, signal), (long)least);
}

void await_counter(int context, int counter, uint64_t least) {
  for (uint64_t from = ms_now(); counter_value(context, counter) < least; usleep(50))
    CHECK(ms_now() - from < 20000, "context %d, counter %d: %lu of %lu", context, counter, (long)counter_value(context, counter), (long)least);
}

void await_error(int context) {
  for (uint64_t from = ms_now(); !card_failed(context); usleep(100)) CHECK(ms_now() - from < 20000, "context %d: NCCL is told of no error", context);
}

void cards_begin(void) {
  initialise();
  cards_connect();
  cards_start();
}

void cards_begin_small(void) {
  cards_begin();
  near = (struct memory){.at = device_memory(BYTES, 2), .bytes = BYTES};
  far = (struct memory){.at = device_memory(BYTES, 1), .bytes = BYTES};
  memset(near.at, 0x5a, BYTES);
  memory_register(&near);
  memory_register(&far);
  meet();
}

void cards_finish(void) {
  cards_stop();
  cards_end();
}
