/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of all of NCCL's types, reckoned without the kernels' code: small whole numbers, whose sums no type but the
 * narrowest floats rounds.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rig.h"

/* In the order of ncclDataType_t: bits of exponent and mantissa, none for integers. */
static const struct { const char *name; size_t bytes; int exponent, mantissa; } types[NUM_TYPES] = {
    {"int8", 1, 0, 0},   {"uint8", 1, 0, 0},   {"int32", 4, 0, 0},    {"uint32", 4, 0, 0},
    {"int64", 8, 0, 0},  {"uint64", 8, 0, 0},  {"half", 2, 5, 10},    {"float", 4, 8, 23},
    {"double", 8, 11, 52}, {"bfloat16", 2, 8, 7}, {"fp8e4m3", 1, 4, 3}, {"fp8e5m2", 1, 5, 2}};

enum { ONE_SHOT, TWO_SHOT, BULK, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST, NUM_KINDS };
static const char *const kinds[NUM_KINDS] = {"oneShot",   "twoShot",  "bulk",     "reduceScatter",
                                             "allGather", "allToAll", "broadcast"};
enum { SUM, PROD, MAX, MIN, AVG, NUM_OPS };

static uint64_t mixed(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static struct step step_of(uint64_t seed, int nRanks) {
  uint64_t r = mixed(seed);
  struct step s = {.seed = r};
  s.kind = (int)((r = mixed(r)) % NUM_KINDS);
  s.type = (int)((r = mixed(r)) % NUM_TYPES);
  s.op = (int)((r = mixed(r)) % NUM_OPS);
  s.root = (int)((r = mixed(r)) % (uint64_t)nRanks);
  s.stream = (int)((r = mixed(r)) % STREAMS);
  s.inPlace = (int)((r = mixed(r)) % 2);
  s.shift = (r = mixed(r)) % 3;
  s.grid = 1 + (unsigned)((r = mixed(r)) % 64);
  s.block = 1 + (unsigned)((r = mixed(r)) % DYN_KERNEL_THREADS);
  if ((r = mixed(r)) % 4 == 0) s.grid = s.block = 1;
  size_t most = (r = mixed(r)) % 6 == 0 ? MOST : 200;
  s.count = 1 + (r = mixed(r)) % most;
  return s;
}

void steps_of(struct step *steps, uint64_t seed, int nRanks) {
  for (int i = 0; i < MAX_CALLS; i++) steps[i] = step_of(seed * 1000003 + (uint64_t)i, nRanks);
}

size_t type_bytes(int type) { return types[type].bytes; }

const char *kernel_name(const struct step *s) {
  static _Thread_local char name[64];
  if (s->kind >= ALL_GATHER) return kinds[s->kind];
  snprintf(name, sizeof name, "%s_%s", kinds[s->kind], types[s->type].name);
  return name;
}

size_t step_sent(const struct step *s, int nRanks) {
  return s->kind == REDUCE_SCATTER || s->kind == ALL_TO_ALL ? s->count * (size_t)nRanks : s->count;
}
size_t step_got(const struct step *s, int nRanks) {
  return s->kind == ALL_GATHER || s->kind == ALL_TO_ALL ? s->count * (size_t)nRanks : s->count;
}

/* To nearest, ties to even, as conversions round; x is neither negative nor beyond the type. */
static size_t encode(int type, double x, void *out) {
  uint64_t bits = (uint64_t)x; /* an integer's average drops its rest */
  int exponent, m = types[type].mantissa;
  if (m > 0 && x > 0) {
    frexp(x, &exponent);
    uint64_t q = (uint64_t)rint(ldexp(x, m + 1 - exponent)); /* with its first bit; a carry goes into the exponent */
    uint64_t bias = ((uint64_t)1 << (types[type].exponent - 1)) - 1;
    bits = (((uint64_t)(exponent - 1) + bias) << m) + (q - ((uint64_t)1 << m));
  }
  memcpy(out, &bits, types[type].bytes); /* the lowest bytes come first here */
  return types[type].bytes;
}

/* The ranks' values of an element differ, and their sum is a multiple of their number. */
static double value(const struct step *s, int nRanks, int rank, size_t i) {
  uint64_t r = mixed(s->seed + i);
  return (double)(r & 1) + 2 * (double)((r / 2 + (uint64_t)rank) % (uint64_t)nRanks);
}

size_t step_value(const struct step *s, int nRanks, int rank, size_t i, void *out) {
  return encode(s->type, value(s, nRanks, rank, i), out);
}

static double reduced(const struct step *s, int nRanks, size_t i) {
  double all = value(s, nRanks, 0, i);
  for (int r = 1; r < nRanks; r++) {
    double one = value(s, nRanks, r, i);
    if (s->op == PROD) all *= one;
    else if (s->op == MAX) all = fmax(all, one);
    else if (s->op == MIN) all = fmin(all, one);
    else all += one;
  }
  return s->op == AVG ? all / nRanks : all;
}

size_t step_wanted(const struct step *s, int nRanks, int rank, size_t i, void *out) {
  size_t mine = (size_t)rank * s->count;
  switch (s->kind) {
    case REDUCE_SCATTER: return encode(s->type, reduced(s, nRanks, mine + i), out);
    case ALL_GATHER: return encode(s->type, value(s, nRanks, (int)(i / s->count), i % s->count), out);
    case ALL_TO_ALL: return encode(s->type, value(s, nRanks, (int)(i / s->count), mine + i % s->count), out);
    case BROADCAST: return encode(s->type, value(s, nRanks, s->root, i), out);
    default: return encode(s->type, reduced(s, nRanks, i), out);
  }
}
