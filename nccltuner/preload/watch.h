/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that are timed one by one. Events must be recorded before a call and behind it, and only inside of a call does
 * the plugin learn which bucket it is of. So it says in one call that the next one like it is to be timed, and the
 * preload library looks before each call whether it is one of those. Like it: of the same communicator, the same function
 * and a size of the same power of two; which is the same on all ranks, if the program's calls are.
 *
 * A key that nobody needs any more costs a probe and no sample; the plugin takes it away in the call that was timed for
 * nothing. A list that is full, or two threads that race for a cell, cost a sample: nothing here chooses.
 */
#ifndef DYN_WATCH_H
#define DYN_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DYN_WATCH_CELLS 1024
#define DYN_WATCH_REACH 8 /* cells that a key may lie in */
#define DYN_WATCH_COMM ((UINT64_C(1) << 48) - 1) /* addresses of a process: 47 bits */

struct dyn_watch_list {
  atomic_int used; /* cells; 0: no call need look */
  atomic_uint_fast64_t cells[DYN_WATCH_CELLS];
};

/* kind: ncclFunc_t + 1, or another number up to 15; elementBytes is a power of two, or 0 where it is not known: then elements are counted, which
 * parts sizes as well. Gives 0 for an empty call, which no list has. */
static inline uint64_t dyn_watch_key(const void *comm, unsigned kind, uint64_t count, unsigned elementBytes) {
  uint64_t bytes = count * (elementBytes ? elementBytes : 1);
  if (comm == NULL || bytes == 0) return 0;
  uint64_t log2Bytes = 63 - (uint64_t)__builtin_clzll(bytes);
  return ((uint64_t)(uintptr_t)comm & DYN_WATCH_COMM) | (uint64_t)kind << 48 | log2Bytes << 52;
}

static inline unsigned dyn_watch_kind(uint64_t key) { return (unsigned)(key >> 48) & 15; }

static inline unsigned dyn_watch_place(uint64_t key) {
  return (unsigned)(key * UINT64_C(0x9E3779B97F4A7C15) >> 54);
}

/* The cell that has the key, or with key 0 one that is free, among those where home may lie; NULL: none. */
static inline atomic_uint_fast64_t *dyn_watch_cell(struct dyn_watch_list *list, uint64_t home, uint64_t key) {
  for (unsigned i = 0, at = dyn_watch_place(home); i < DYN_WATCH_REACH; i++) {
    atomic_uint_fast64_t *cell = &list->cells[(at + i) % DYN_WATCH_CELLS];
    if (atomic_load_explicit(cell, memory_order_relaxed) == key) return cell;
  }
  return NULL;
}

static inline bool dyn_watch_has(struct dyn_watch_list *list, uint64_t key) {
  if (key == 0 || atomic_load_explicit(&list->used, memory_order_relaxed) <= 0) return false;
  return dyn_watch_cell(list, key, key) != NULL;
}

/* True: it was not there, and now is. */
static inline bool dyn_watch_add(struct dyn_watch_list *list, uint64_t key) {
  if (key == 0 || dyn_watch_cell(list, key, key) != NULL) return false;
  atomic_uint_fast64_t *cell = dyn_watch_cell(list, key, 0);
  uint_fast64_t none = 0;
  if (cell == NULL || !atomic_compare_exchange_strong(cell, &none, key)) return false;
  atomic_fetch_add_explicit(&list->used, 1, memory_order_relaxed);
  return true;
}

/* True: it was there, and is not any more. */
static inline bool dyn_watch_remove(struct dyn_watch_list *list, uint64_t key) {
  atomic_uint_fast64_t *cell = key == 0 ? NULL : dyn_watch_cell(list, key, key);
  uint_fast64_t it = key;
  if (cell == NULL || !atomic_compare_exchange_strong(cell, &it, 0)) return false;
  atomic_fetch_sub_explicit(&list->used, 1, memory_order_relaxed);
  return true;
}

/* A communicator goes; NULL: all of them. */
static inline void dyn_watch_forget(struct dyn_watch_list *list, const void *comm) {
  if (atomic_load_explicit(&list->used, memory_order_relaxed) <= 0) return;
  for (unsigned i = 0; i < DYN_WATCH_CELLS; i++) {
    uint64_t key = atomic_load_explicit(&list->cells[i], memory_order_relaxed);
    if (key != 0 && (comm == NULL || (key & DYN_WATCH_COMM) == ((uint64_t)(uintptr_t)comm & DYN_WATCH_COMM)))
      dyn_watch_remove(list, key);
  }
}

/* Communicators none of whose calls is sampled now, though another one's of the process may be: one that makes no more calls stays in its window.
 * Of two that have one cell the latter has it, and calls of the other are timed for nothing. */
#define DYN_RESTS_CELLS 64
struct dyn_rest_list { atomic_uintptr_t cells[DYN_RESTS_CELLS]; };

static inline atomic_uintptr_t *dyn_rest_cell(struct dyn_rest_list *list, const void *comm) {
  return &list->cells[(uint64_t)(uintptr_t)comm * UINT64_C(0x9E3779B97F4A7C15) >> 58];
}

static inline bool dyn_rest_has(struct dyn_rest_list *list, const void *comm) {
  return atomic_load_explicit(dyn_rest_cell(list, comm), memory_order_relaxed) == (uintptr_t)comm;
}

static inline void dyn_rest_add(struct dyn_rest_list *list, const void *comm) {
  if (!dyn_rest_has(list, comm)) atomic_store_explicit(dyn_rest_cell(list, comm), (uintptr_t)comm, memory_order_relaxed);
}

static inline void dyn_rest_remove(struct dyn_rest_list *list, const void *comm) {
  uintptr_t it = (uintptr_t)comm;
  if (comm != NULL && dyn_rest_has(list, comm)) atomic_compare_exchange_strong(dyn_rest_cell(list, comm), &it, 0);
}

#endif
