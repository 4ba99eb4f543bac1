/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of calls that are timed one by one, against a list that is searched from end to end; and threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../watch.h"

#define CHECK(cond) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
      exit(1); \
    } \
  } while (0)

#define COMMS 8
#define KEYS (COMMS * 5 * 48)

static struct dyn_watch_list list;

static uint64_t random_next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

static void *comm_of(unsigned i) { return (void *)(uintptr_t)(0x7f0000001000u + UINT64_C(0x10000) * (i + 1)); }

static uint64_t key_of(unsigned i) {
  return dyn_watch_key(comm_of(i % COMMS), 1 + i / COMMS % 5, UINT64_C(1) << i / (5 * COMMS), 1);
}

static void keys(void) {
  for (unsigned i = 0; i < KEYS; i++) {
    CHECK(key_of(i) != 0);
    for (unsigned k = 0; k < i; k++) CHECK(key_of(i) != key_of(k));
  }
  CHECK(dyn_watch_key(NULL, 1, 1, 1) == 0 && dyn_watch_key(&list, 1, 0, 8) == 0);
  CHECK(dyn_watch_key(&list, 1, 3, 8) == dyn_watch_key(&list, 1, 31, 1));
  CHECK(dyn_watch_key(&list, 1, 4, 8) != dyn_watch_key(&list, 1, 31, 1));
}

/* A key that is there is found until it is taken away, also where its neighbours came and went; only a full
 * neighbourhood refuses. */
static void against_a_model(uint64_t seed) {
  static bool there[KEYS];
  int number = 0, refused = 0;
  for (int round = 0; round < 200000; round++) {
    unsigned i = (unsigned)(random_next(&seed) % KEYS);
    uint64_t key = key_of(i);
    CHECK(dyn_watch_has(&list, key) == there[i]);
    switch (random_next(&seed) % 64) {
      case 0:
        dyn_watch_forget(&list, comm_of(i % COMMS));
        for (unsigned k = i % COMMS; k < KEYS; k += COMMS) number -= there[k], there[k] = false;
        break;
      case 1 ... 24:
        CHECK(dyn_watch_remove(&list, key) == there[i]);
        number -= there[i];
        there[i] = false;
        break;
      default: {
        bool added = dyn_watch_add(&list, key);
        CHECK(!added || !there[i]);
        refused += !added && !there[i];
        number += added;
        there[i] |= added;
      }
    }
    CHECK(atomic_load(&list.used) == number);
  }
  dyn_watch_forget(&list, NULL);
  CHECK(atomic_load(&list.used) == 0);
  for (int i = 0; i < DYN_WATCH_CELLS; i++) CHECK(atomic_load(&list.cells[i]) == 0);
  memset(there, 0, sizeof there);
  printf("{\"watch\":\"model\",\"refused\":%d}\n", refused);
}

/* As many as programs have find room. */
static void room(void) {
  int refused = 0;
  for (unsigned i = 0; i < 400; i++) refused += !dyn_watch_add(&list, key_of(i));
  dyn_watch_forget(&list, NULL);
  CHECK(refused == 0);
}

/* Each thread has a communicator of its own; they share cells. */
static void *caller(void *number) {
  unsigned mine = (unsigned)(uintptr_t)number;
  uint64_t seed = mine;
  for (int round = 0; round < 200000; round++) {
    uint64_t key = key_of(mine + COMMS * (unsigned)(random_next(&seed) % (KEYS / COMMS)));
    bool added = dyn_watch_add(&list, key);
    CHECK(!added || dyn_watch_has(&list, key));
    CHECK(dyn_watch_remove(&list, key) == added && !dyn_watch_has(&list, key));
  }
  return NULL;
}

static void threads(void) {
  pthread_t thread[COMMS];
  for (unsigned i = 0; i < COMMS; i++) CHECK(pthread_create(&thread[i], NULL, caller, (void *)(uintptr_t)i) == 0);
  for (unsigned i = 0; i < COMMS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  CHECK(atomic_load(&list.used) == 0);
}

int main(void) {
  const char *seed = getenv("TEST_SEED");
  keys();
  room();
  for (uint64_t i = 0; i < 3; i++) against_a_model((seed != NULL ? strtoull(seed, NULL, 10) : 1) + i);
  threads();
  printf("{\"watch\":\"ok\"}\n");
  return 0;
}
