/* SPDX-License-Identifier: Apache-2.0
 *
 * How often the program called each of NCCL's functions that this library stands in front of, and how many of these calls
 * our kernels ran. A row enters the table for each name that
 * calls.c has, when the library is loaded.
 *
 * NCCL calls itself through our names in places; what is called inside of another call is not the program's.
 */
#ifndef DYN_INTERCEPTED_H
#define DYN_INTERCEPTED_H

#include <stdatomic.h>

#include "forward.h"

struct dyn_intercepted {
  const char *name;
  atomic_ullong calls, kernels;
  dyn_real real; /* NCCL's function of that name, when it has been called */
  struct dyn_intercepted *next;
} __attribute__((aligned(64))); /* a call touches one line of it */

void dyn_intercepted_add(struct dyn_intercepted *it); /* of constructors alone */

#define DYN_INTERCEPTED(NAME) \
  static struct dyn_intercepted counted_##NAME = {.name = #NAME}; \
  __attribute__((constructor)) static void add_##NAME(void) { dyn_intercepted_add(&counted_##NAME); }

static inline unsigned dyn_intercepted_enter(struct dyn_intercepted *it) {
  if (dyn_thread.nested == 0) atomic_fetch_add_explicit(&it->calls, 1, memory_order_relaxed);
  return dyn_thread.nested++;
}
static inline void dyn_intercepted_leave(const unsigned *outer) { dyn_thread.nested = *outer; }

/* First in a function of this name; it leaves by itself. */
#define DYN_COUNT(NAME) \
  unsigned outer_##NAME __attribute__((cleanup(dyn_intercepted_leave), unused)) = dyn_intercepted_enter(&counted_##NAME)

static inline void dyn_intercepted_kernel(struct dyn_intercepted *it) { atomic_fetch_add_explicit(&it->kernels, 1, memory_order_relaxed); }

#endif
