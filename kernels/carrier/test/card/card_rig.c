/* SPDX-License-Identifier: Apache-2.0 */
#include "card_rig.h"

#include <dlfcn.h>
#include <time.h>

struct card cards[CONTEXTS];
int (*cudaSynchronize)(void), (*cudaFree)(uint64_t);
void (*cardsResult)(int result);
static pthread_t progressing;
static atomic_int stops, turns;

void cards_connect(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&cudaSynchronize = dlsym(driver, "cuCtxSynchronize");
  *(void **)&cudaFree = dlsym(driver, "cuMemFree_v2");
  *(void **)&cardsResult = dlsym(driver, "fakegpu_nic_result");
  CHECK(cudaSynchronize != NULL && cudaFree != NULL && cardsResult != NULL);
  for (int c = 0; c < CONTEXTS; c++) {
    void *handles[MAX_RANKS], *listener, *device;
    CHECK(gin->listen(comm.ginInstance, 0, shared->handles[rank], &listener) == 0);
    meet();
    for (int r = 0; r < numRanks; r++) handles[r] = shared->handles[r];
    CHECK(gin->connect(comm.ginContext, handles, numRanks, rank, listener, &cards[c].coll) == 0);
    CHECK(gin->createContext(cards[c].coll, CARD_SIGNALS, CARD_COUNTERS, &cards[c].ginContext, &device) == 0);
    const ncclNetDeviceHandle_v11_t *handle = device;
    CHECK(handle->netDeviceType == NCCL_NET_DEVICE_GIN_GDAKI && handle->netDeviceVersion == NCCL_GIN_GDAKI_VERSION && handle->needsProxyProgress == 1);
    cards[c].device = handle->handle;
    CHECK(gin->closeListen(listener) == 0);
    meet(); /* who is behind may still read the handles */
  }
}

static void *progress_all(void *unused) {
  while (!atomic_load(&stops)) {
    for (int c = 0; c < CONTEXTS; c++) CHECK(gin->ginProgress(cards[c].coll) == 0);
    atomic_fetch_add(&turns, 1);
    usleep(20); /* NCCL's thread does not sleep; others need the CPU here */
  }
  return unused;
}

void cards_start(void) { CHECK(pthread_create(&progressing, NULL, progress_all, NULL) == 0); }

void cards_turn(void) {
  for (int from = atomic_load(&turns); atomic_load(&turns) < from + 2;) usleep(100);
}

void cards_stop(void) {
  atomic_store(&stops, 1);
  pthread_join(progressing, NULL);
}

void cards_end(void) {
  for (int c = 0; c < CONTEXTS; c++) CHECK(gin->destroyContext(cards[c].ginContext) == 0 && gin->closeColl(cards[c].coll) == 0);
  CHECK(gin->finalize(comm.ginInstance) == 0 && gin->finalize(comm.ginContext) == 0 && net->finalize(NULL) == 0);
}

void memory_register(struct memory *m) {
  for (int c = 0; c < CONTEXTS; c++) {
    void *device;
    CHECK(gin->regMrSym(cards[c].coll, m->at, m->bytes, NCCL_PTR_CUDA, 0, &m->host[c], &device) == 0 && device != NULL && device != m->host[c]);
    m->device[c] = device;
  }
}

void memory_deregister(struct memory *m) {
  for (int c = 0; c < CONTEXTS; c++) CHECK(gin->deregMrSym(cards[c].coll, m->host[c]) == 0);
}

struct posting card_put(int context, int target, const struct memory *from, size_t fromAt, const struct memory *to, size_t toAt, size_t bytes) {
  struct gdaki_context *d = cards[context].device;
  return (struct posting){.queue = &d->queues[target],
                          .side = &d->sideQueues[target],
                          .what = POST_DATA,
                          .to = {toAt, to->device[context]->keys[target]},
                          .from = {fromAt, from->device[context]->key},
                          .bytes = bytes,
                          .most = (uint64_t)1 << 30,
                          .sinkKey = d->sinkKey};
}

void card_signal(struct posting *p, int context, int target, int signal, uint64_t add) {
  p->signals = true;
  p->add = add;
  p->signal = (struct place){sizeof(uint64_t) * (uint64_t)signal, cards[context].device->signals.keys[target]};
}

void card_count(struct posting *p, int context, int counter) {
  p->counts = true;
  p->counter = (struct place){sizeof(uint64_t) * (uint64_t)counter, cards[context].device->counters.keys[rank]};
}

uint64_t signal_value(int context, int signal) { return poster_load(&cards[context].device->signals.at[signal]); }
uint64_t counter_value(int context, int counter) { return poster_load(&cards[context].device->counters.at[counter]); }

bool card_failed(int context) {
  bool error = false;
  CHECK(gin->queryLastError(cards[context].ginContext, &error) == 0);
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
