/* SPDX-License-Identifier: Apache-2.0
 *
 * Registered memory: against a list that is searched from end to end, in groups and outside; and threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../forward.h"
#include "../windows.h"

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      exit(1); \
    } \
  } while (0)

#define COMMS 3
#define MOST 12 /* windows at a time, of a communicator */
#define ROOM 4096
#define SUCCESS 0
#define FAILED 3
#define IN_PROGRESS 7

__thread struct dyn_thread dyn_thread;

/* Known of windows with an even address. */
bool dyn_device_peers(const void *comm, void *window, const void *at, uint64_t bytes, struct dyn_peers *peers) {
  CHECK(comm != NULL && window != NULL);
  peers->before = (uintptr_t)at, peers->reach = bytes;
  return (uintptr_t)at % 2 == 0;
}

static uint64_t random_next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

/* What NCCL would have, in no order. */
struct known {
  uintptr_t at;
  size_t bytes;
  int flags;
  void *win; /* as the program has it */
  bool made; /* at the end of the group */
  bool used;
  uint64_t number; /* of the calls that register */
};
struct model {
  struct dyn_windows *windows;
  const void *comm;
  struct known list[MOST];
  uint64_t calls;
};

/* The last that begins before the address: windows do not overlap. */
static const struct known *known_of(const struct model *m, uintptr_t at, size_t bytes) {
  for (int i = 0; i < MOST; i++) {
    const struct known *k = &m->list[i];
    if (k->used && at >= k->at && at < k->at + k->bytes && bytes <= k->at + k->bytes - at) return k;
  }
  return NULL;
}

static void look(const struct model *m, uint64_t *seed) {
  uintptr_t at = ROOM + random_next(seed) % (4 * ROOM);
  size_t bytes = random_next(seed) % 3 ? random_next(seed) % 200 : 0;
  struct dyn_window_place place = {0};
  const struct known *k = known_of(m, at, bytes);
  bool there = k != NULL && (k->flags & DYN_WIN_COLL_SYMMETRIC);
  CHECK(dyn_windows_of(m->comm) == m->windows);
  CHECK(dyn_window_of(m->windows, (void *)at, bytes, &place) == there, "%lu of %zu bytes", (unsigned long)at, bytes);
  if (there) CHECK(place.offset == at - k->at && place.bytes == k->bytes && place.flags == k->flags && place.handle == (dyn_thread.groups ? place.handle : k->win));
  if (!there) return;
  bool known = k->win != NULL && k->at % 2 == 0 && !(k->flags & DYN_WIN_GIN_ONLY);
  CHECK(place.number == k->number && (place.peers != NULL) == known, "window %lu, %lu", (unsigned long)place.number, (unsigned long)k->number);
  if (known) CHECK(place.peers->before == k->at && place.peers->reach == k->bytes);
}

static void comes(struct model *m, uint64_t *seed) {
  struct known new = {.used = true, .at = ROOM + random_next(seed) % (4 * ROOM), .bytes = 1 + random_next(seed) % 500,
                      .flags = (int)(random_next(seed) % 8), .made = random_next(seed) % 8 != 0};
  int free = -1, result = random_next(seed) % 8 ? SUCCESS : FAILED;
  for (int i = 0; i < MOST; i++) {
    const struct known *k = &m->list[i];
    if (k->used && new.at < k->at + k->bytes && k->at < new.at + new.bytes) return; /* they overlap */
    if (!k->used) free = i;
  }
  if (free < 0) return;
  struct known *k = &m->list[free];
  *k = new;
  k->number = ++m->calls;
  k->win = dyn_thread.groups || !new.made ? NULL : (void *)k; /* as NCCL writes it: at the end of a group */
  dyn_window_comes(m->comm, (void *)new.at, new.bytes, &k->win, new.flags, result);
  if (result != SUCCESS || (!dyn_thread.groups && !new.made)) k->used = false;
}

static void goes(struct model *m, uint64_t *seed) {
  struct known *k = &m->list[random_next(seed) % MOST];
  if (!k->used || k->win == NULL) return;
  dyn_window_goes(m->comm, k->win);
  k->used = false;
}

static void ends(struct model *models, uint64_t *seed) {
  int result = random_next(seed) % 8 ? SUCCESS : FAILED;
  for (int c = 0; c < COMMS; c++)
    for (int i = 0; i < MOST; i++) {
      struct known *k = &models[c].list[i];
      if (!k->used || k->win != NULL) continue;
      if (k->made) k->win = k; /* before another one failed, too */
      if (!k->made || result != SUCCESS) k->used = false;
    }
  dyn_thread.groups = 0;
  dyn_windows_group_ended(result);
}

static void against_a_model(uint64_t seed) {
  static __thread struct model models[COMMS];
  memset(models, 0, sizeof models);
  for (int c = 0; c < COMMS; c++) {
    models[c].comm = (char *)&models[c] + 1;
    models[c].windows = dyn_windows_reserve();
    CHECK(models[c].windows != NULL && dyn_windows_of(models[c].comm) == NULL);
    dyn_windows_fill(models[c].windows, models[c].comm);
  }
  for (int n = 0; n < 40000; n++) {
    struct model *m = &models[random_next(&seed) % COMMS];
    switch (random_next(&seed) % 32) {
      case 0: case 1: case 2: comes(m, &seed); break;
      case 3: case 4: goes(m, &seed); break;
      case 5: if (!dyn_thread.groups) dyn_thread.groups = 1; else ends(models, &seed); break;
      case 6:
        if (random_next(&seed) % 64) break;
        dyn_windows_release(m->windows);
        CHECK(dyn_windows_of(m->comm) == NULL);
        m->windows = dyn_windows_reserve();
        dyn_windows_fill(m->windows, m->comm);
        memset(m->list, 0, sizeof m->list);
        m->calls = 0;
        break;
      default: look(m, &seed);
    }
  }
  if (dyn_thread.groups) ends(models, &seed);
  for (int c = 0; c < COMMS; c++) dyn_windows_release(models[c].windows);
}

/* More than there is room for, or what is made some time later: nothing is known any more, until the communicator goes. */
static void lost(void) {
  static int comm, other;
  void *win = &win;
  struct dyn_windows *w = dyn_windows_reserve();
  dyn_windows_fill(w, &comm);
  for (uintptr_t i = 1; i <= DYN_MAX_WINDOWS; i++) dyn_window_comes(&comm, (void *)(i * 16), 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  CHECK(!dyn_windows_lost(w) && dyn_windows_any(w) && dyn_window_of(w, (void *)16, 16, NULL) && dyn_window_of(w, (void *)(DYN_MAX_WINDOWS * 16), 1, NULL));
  CHECK(!dyn_window_of(w, (void *)15, 1, NULL) && !dyn_window_of(w, (void *)16, 17, NULL), "a buffer in two windows is in none");
  dyn_window_comes(&comm, (void *)8, 1, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  CHECK(dyn_windows_lost(w) && !dyn_windows_any(w) && !dyn_window_of(w, (void *)16, 16, NULL));
  dyn_window_comes(&comm, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  CHECK(!dyn_window_of(w, (void *)16, 16, NULL));
  dyn_windows_release(w);
  CHECK((w = dyn_windows_reserve()) != NULL && !dyn_windows_lost(w));
  dyn_windows_fill(w, &other);
  dyn_window_comes(&other, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, IN_PROGRESS);
  CHECK(dyn_windows_lost(w));
  dyn_windows_release(w);
  dyn_windows_fill(w = dyn_windows_reserve(), &other);
  dyn_thread.groups = 1;
  dyn_window_comes(&other, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  CHECK(!dyn_windows_lost(w) && dyn_window_of(w, (void *)16, 16, NULL));
  dyn_thread.groups = 0;
  dyn_windows_group_ended(IN_PROGRESS);
  CHECK(dyn_windows_lost(w) && !dyn_window_of(w, (void *)16, 16, NULL));
  dyn_windows_release(w);
  dyn_window_comes(&other, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  dyn_window_goes(&other, win);
  CHECK(!dyn_window_of(NULL, (void *)16, 1, NULL), "of a communicator that is not known");
}

/* Memory that NCCL gives back and takes again may be mapped anew: nobody is to go where it was. */
static void suspended(void) {
  static int comm, other;
  struct dyn_window_place place;
  void *win = &win;
  struct dyn_windows *w = dyn_windows_reserve(), *others = dyn_windows_reserve();
  dyn_windows_fill(w, &comm);
  dyn_windows_fill(others, &other);
  dyn_window_comes(&comm, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  dyn_window_comes(&comm, (void *)33, 15, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  dyn_window_comes(&other, (void *)16, 16, &win, DYN_WIN_COLL_SYMMETRIC, SUCCESS);
  dyn_windows_suspend(&comm);
  CHECK(dyn_window_of(w, (void *)16, 16, &place) && place.peers == NULL && place.number == 1, "it is registered as before");
  CHECK(dyn_window_of(others, (void *)16, 16, &place) && place.peers != NULL, "another communicator's");
  dyn_windows_resume(&comm);
  CHECK(dyn_window_of(w, (void *)16, 16, &place) && place.peers != NULL && place.peers->before == 16);
  CHECK(dyn_window_of(w, (void *)33, 15, &place) && place.peers == NULL, "which NCCL does not tell");
  dyn_windows_suspend(NULL);
  dyn_windows_resume(NULL);
  dyn_windows_release(w);
  dyn_windows_release(others);
}

static void full(void) {
  static struct dyn_windows *all[DYN_MAX_WINDOWED];
  for (int i = 0; i < DYN_MAX_WINDOWED; i++) CHECK((all[i] = dyn_windows_reserve()) != NULL);
  CHECK(dyn_windows_reserve() == NULL);
  for (int i = 0; i < DYN_MAX_WINDOWED; i++) dyn_windows_release(all[i]);
}

static void *thread(void *seed) {
  for (uint64_t n = 0; n < 4; n++) against_a_model((uintptr_t)seed * 64 + n);
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  for (uint64_t seed = 0; seed < 20; seed++) against_a_model(seed);
  lost();
  suspended();
  full();
  for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0);
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
