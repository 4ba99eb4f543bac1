/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes from rank to rank in a round, and where it lies: in two buffers by turns. For tests of NCCL's own proxies.
 */
#ifndef CARRIER_TEST_PATTERNS_H
#define CARRIER_TEST_PATTERNS_H

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "proxy_rig.h"

#define CHECK(cond) \
  do { \
    if (!(cond)) fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, proxy_rank(), #cond), _exit(1); \
  } while (0)

enum { CONTEXTS = 2, PARTS = 2, MOST = 64 << 10 };

static inline uint64_t mix(uint64_t z) {
  z = (z + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  return z ^ z >> 29;
}

static inline size_t place(int ranks, unsigned context, unsigned round, int other, int part) {
  return ((((size_t)context * 2 + round % 2) * (size_t)ranks + (size_t)other) * PARTS + (size_t)part) * MOST;
}
static inline uint64_t pattern(unsigned context, unsigned round, int from, int to, int part) {
  return mix(mix(context * 64 + round * 1024u) + (uint64_t)(from * 16 + to * 2 + part));
}
static inline size_t size_of(uint64_t pattern) { return 1 + (mix(pattern) >> 20) % ((size_t)1 << (mix(pattern + 1) >> 40) % 17); }
static inline void fill(unsigned char *at, uint64_t p) {
  for (size_t i = 0; i < size_of(p); i++) at[i] = (unsigned char)(p >> i % 57);
}
static inline bool is_filled(const unsigned char *at, uint64_t p) {
  for (size_t i = 0; i < size_of(p); i++)
    if (at[i] != (unsigned char)(p >> i % 57)) return false;
  return true;
}

#endif
