/* SPDX-License-Identifier: Apache-2.0 */
#include "card_shared.h"

#include <dlfcn.h>

#include "card_rig.h"

static void *connect_alone(void *instance) {
  void *handles[1] = {shared->handles[0]}, *listener, *coll;
  CHECK(gdaki->listen(instance, 0, handles[0], &listener) == 0 && gdaki->connect(instance, handles, 1, 0, listener, &coll) == 0 && gdaki->closeListen(listener) == 0);
  return coll;
}

/* Where the next of several connections fails NCCL closes none, and unloads the library (ncclGinHostFinalize of 2.30.7): no thread is in it then. */
static void half_connected(void) {
  initialise();
  connect_alone(comm.ginInstance);
  CHECK(gdaki->finalize(comm.ginInstance) == 0);
  void *library = dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != NULL && dlclose(library) == 0 && dlclose(library) == 0 && dlopen(getenv("CARRIER"), RTLD_NOW | RTLD_NOLOAD) == NULL);
  usleep(100000);
}

/* Several connections of a communicator (NCCL_GIN_NCONNECTIONS), each with a thread of its own, of which any may be the first to see that faults are others. */
static void several(void) {
  enum { CONNECTIONS = 3 };
  void *colls[CONNECTIONS], *contexts[CONNECTIONS];
  ncclNetDeviceHandle_v11_t *device;
  ncclGinConfig_v14_t config = {8, 8, 1, 0, -1, GDAKI_BACKEND, 1};
  initialise();
  for (int n = 0; n < CONNECTIONS; n++) {
    colls[n] = connect_alone(comm.ginInstance);
    CHECK(gdaki->createContext(colls[n], &config, &contexts[n], &device) == 0, "%s", lastWarning);
  }
  for (int n = 0; n < 20; n++) {
    write_faults(n % 2 == 0 ? "latency_us 10\ngbs 5\n" : NULL);
    usleep(45000);
  }
  for (int n = 0; n < CONNECTIONS; n++) CHECK(gdaki->destroyContext(contexts[n]) == 0 && gdaki->closeColl(colls[n]) == 0);
  CHECK(gdaki->finalize(comm.ginInstance) == 0);
}

/* A communicator goes, by ncclCommAbort, with contexts of device communicators that nobody has destroyed; nor does NCCL from 2.30 on. Nothing looks at them
 * any more, and they have no place. */
static void abandoned(void) {
  struct dyn_carrier_expected expected;
  ncclNetDeviceHandle_v11_t *device;
  ncclGinConfig_v14_t config = {8, 8, 3, 0, -1, GDAKI_BACKEND, 1};
  void *ginContext;
  initialise();
  void *coll = connect_alone(comm.ginInstance);
  for (int n = 0; n < 2; n++) CHECK(gdaki->createContext(coll, &config, &ginContext, &device) == 0, "%s", lastWarning);
  void *const handle = device->handle;
  CHECK(cards_find_expected(handle, &expected));
  usleep(5000); /* their kernels came */
  CHECK(gdaki->closeColl(coll) == 0 && gdaki->finalize(comm.ginInstance) == 0);
  CHECK(!cards_find_expected(handle, &expected), "contexts of a communicator that is gone are found");
  initialise();
  coll = connect_alone(comm.ginInstance);
  CHECK(gdaki->createContext(coll, &config, &ginContext, &device) == 0, "those of one that is gone have places: %s", lastWarning);
  CHECK(gdaki->destroyContext(ginContext) == 0 && gdaki->closeColl(coll) == 0 && gdaki->finalize(comm.ginInstance) == 0);
}

/* A connection is shared: a device communicator comes and goes, which knows memory that was registered before it and
 * of which others hear what is registered after; a signal may be anywhere in memory; and a get that does not lie within it is an
 * error of its context alone. */
static void shared_connection(void) {
  ncclNetDeviceHandle_v11_t *device;
  ncclGinConfig_v14_t config = {8, 8, 3, 0, -1, GDAKI_BACKEND, 2};
  cards_begin_small();
  const int other = 1 - rank;
  for (uint64_t round = 1; round <= 3; round++) {
    void *ginContext;
    meet();
    CHECK(gdaki->createContext(cards[0].coll, &config, &ginContext, &device) == 0, "%s", lastWarning);
    if (round > 1) cards_turn(); /* its kernels came */
    CHECK(gdaki->destroyContext(ginContext) == 0);
    struct posting p = card_put(0, other, &near, 0, &far, 0, 20000), get = card_get(1, other, &near, 100, &far, 1 << 19, 30000);
    p.signals = true, p.add = round;
    p.signal = (struct place){BYTES - 8, far.device[0]->keys[other]};
    post(&p), post(&get);
    CHECK(poster_flush(p.queue) && poster_flush(get.queue) && memcmp(far.at + (1 << 19), near.at + 100, 30000) == 0, "round %lu", (long)round);
    const uint64_t wanted = round * (round + 1) / 2;
    for (uint64_t from = ms_now(); poster_load((uint64_t *)(void *)(far.at + BYTES - 8)) < wanted; usleep(50)) CHECK(ms_now() - from < 20000, "a signal in memory");
    CHECK(memcmp(far.at, near.at, 20000) == 0 && !card_failed(0) && !card_failed(1));
  }
  meet();
  struct posting get = card_get(0, other, &near, BYTES - 63, &far, BYTES / 4, 64);
  post(&get);
  poster_flush(get.queue);
  await_error(0);
  CHECK(!card_failed(1) && far.at[BYTES / 4] == 0 && far.at[BYTES / 4 + 63] == 0);
  meet();
  cards_finish();
}

/* What NCCL may ask of version 14 and not get: an error, which says why, and nothing is left of it. */
static void unfit(void) {
  static const ncclGinConfig_v14_t asked[] = {{8, 8, 1, 0, -1, 1, 1}, {8, 8, 1, 0, -1, 3, 1}, {8, 8, 1, 513, -1, 2, 1}, {8, 8, 0, 0, -1, 2, 1}};
  static const char *const why[] = {"before 2.30.5", "than 2.32 does", "deeper than the card's", "too few"};
  cards_begin();
  for (int i = 0; i < 4; i++) {
    ncclGinConfig_v14_t config = asked[i];
    void *ginContext = NULL;
    ncclNetDeviceHandle_v11_t *device = NULL;
    CHECK(gdaki->createContext(cards[0].coll, &config, &ginContext, &device) == ncclInvalidUsage && ginContext == NULL && device == NULL);
    CHECK(strstr(lastWarning, why[i]) != NULL, "%s", lastWarning);
  }
  setenv("DYNAMICCL_CARRIER_TYPE", "proxy", 1); /* then NCCL goes on without */
  const int before = atomic_load(&warnings);
  void *instance = NULL;
  CHECK(gdaki->init(&instance, 7, NULL) != 0 && instance == NULL && atomic_load(&warnings) == before);
  cards_finish();
}

void play_shared(void) {
  quiet = 1;
  setenv("DYNAMICCL_CARRIER_IDLE_US", "300", 0);
  play("shared", 2, -1, shared_connection);
}

void play_several(void) {
  quiet = 1;
  play("several", 1, -1, several);
}

void play_left(void) {
  quiet = 1;
  play("half connected", 1, -1, half_connected);
  setenv("DYNAMICCL_CARRIER_PLACES", "8", 1);
  play("abandoned", 1, -1, abandoned);
}

void play_unfit(void) {
  quiet = 1;
  play("unfit", 1, -1, unfit);
}
