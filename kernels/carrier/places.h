/* SPDX-License-Identifier: Apache-2.0
 *
 * The carrier's places on a GPU, for itself and for who launches kernels beside it (docs/design/carrier.md, decision 31).
 */
#ifndef DYN_CARRIER_PLACES_H
#define DYN_CARRIER_PLACES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
  DYN_CARRIER_PLACES = 24,
  /* What kernels beside it are to leave, besides: NCCL's of 32 CTAs takes so many more of the 25 that ours leave each other. */
  DYN_CARRIER_MARGIN = 8,
  /* And no kernel of ours has more CTAs than that. */
  DYN_CARRIER_BESIDE = 32,
};

/* Blocks that may stay on a GPU as long as kernels of a program run, at most, each on a multiprocessor of its own. */
static inline unsigned dyn_carrier_most(void) {
  const char *text = getenv("DYNAMICCL_CARRIER_PLACES");
  const int most = text == NULL ? 0 : atoi(text);
  return most > 0 && most <= 1024 ? (unsigned)most : DYN_CARRIER_PLACES;
}

static inline bool dyn_carrier_is(const char *name, const char *value) {
  const char *text = getenv(name);
  return text != NULL && strcmp(text, value) == 0;
}
/* Who starts the program wants it, and of type Proxy alone, which has fewer blocks. */
static inline bool dyn_carrier_is_wanted(void) { return dyn_carrier_is("DYNAMICCL_CARRIER", "1"); }
static inline bool dyn_carrier_is_proxy(void) { return dyn_carrier_is("DYNAMICCL_CARRIER_TYPE", "proxy"); }

/* Multiprocessors that are not for others in this process. */
static inline unsigned dyn_carrier_takes(void) { return dyn_carrier_is_wanted() ? dyn_carrier_most() + DYN_CARRIER_MARGIN : 0; }

#endif
