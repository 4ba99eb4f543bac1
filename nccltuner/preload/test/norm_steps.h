/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of AllReduce with residual and normalisation (dynamiccl.h) of a rank (lsa_rig.h), and every element of what they give.
 */
#ifndef DYN_NORM_STEPS_H
#define DYN_NORM_STEPS_H

#include "lsa_rig.h"

#include <math.h>

enum { HALF = 6, FLOAT32 = 7, BFLOAT16 = 9 };
#define MOST 40000 /* elements of a buffer */
#define STREAMS 2

enum { IN, OUT, RESIDUAL, WEIGHT, BUFFERS };
static CUstream streams[STREAMS];
static void *memory[BUFFERS];

/* A call, the same on all ranks. */
struct step {
  int type;
  size_t tokens, width, shift[BUFFERS]; /* elements */
  bool inPlace;
  CUstream stream;
  uint64_t seed;
};

static inline struct step step_of(uint64_t n) {
  static const int types[] = {HALF, FLOAT32, BFLOAT16};
  uint64_t r = random_of(n);
  struct step s = {.type = types[r % 3], .tokens = 1 + (r >> 8) % 9, .width = 1 + (r >> 16) % (r >> 32 & 3 ? 40 : 900), .inPlace = r >> 40 & 1,
                   .stream = streams[(r >> 41) % STREAMS], .seed = r};
  for (int b = 0; b < BUFFERS; b++) s.shift[b] = r >> 44 & 1 ? 0 : r >> (48 + 2 * b) & 3;
  if (s.inPlace) s.shift[OUT] = s.shift[IN];
  return s;
}

static inline size_t size_of(int type) { return type == FLOAT32 ? 4 : 2; }

static inline uint16_t bfloat16_of(float x) { /* to the nearest, ties to even; no NaN comes here */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float rounded(int type, float x) {
  uint32_t bits = (uint32_t)bfloat16_of(x) << 16;
  if (type == HALF) return (float)(_Float16)x;
  if (type == BFLOAT16) memcpy(&x, &bits, sizeof x);
  return x;
}

static inline void *at(const struct step *s, int buffer, size_t i) {
  return (char *)memory[buffer == OUT && s->inPlace ? IN : buffer] + (s->shift[buffer] + i) * size_of(s->type);
}

static inline void put(const struct step *s, int buffer, size_t i, float x) {
  _Float16 half = (_Float16)x;
  uint16_t bfloat16 = bfloat16_of(x);
  memcpy(at(s, buffer, i), s->type == FLOAT32 ? (void *)&x : s->type == HALF ? (void *)&half : (void *)&bfloat16, size_of(s->type));
}

static inline float get(const struct step *s, int buffer, size_t i) {
  float x = 0;
  _Float16 half;
  uint32_t bits = 0;
  memcpy(s->type == FLOAT32 ? (void *)&x : s->type == HALF ? (void *)&half : (char *)&bits + 2, at(s, buffer, i), size_of(s->type));
  if (s->type == BFLOAT16) memcpy(&x, &bits, sizeof x);
  return s->type == HALF ? (float)half : x;
}

/* Small whole numbers, whose sums and squares are exact in any order; what comes of the root is rounded. */
static inline float value_of(const struct step *s, int ofRank, int buffer, size_t i) {
  return (float)(random_of(s->seed + (uint64_t)ofRank * 977 + (uint64_t)buffer * 31337 + i) >> 20 & 15) - 8;
}

static inline void fill(const struct step *s) {
  size_t elements = s->tokens * s->width;
  for (size_t i = 0; i <= elements; i++) put(s, OUT, i, -99);
  for (size_t i = 0; i < elements; i++) put(s, IN, i, value_of(s, rank, IN, i));
  for (size_t i = 0; i < elements; i++) put(s, RESIDUAL, i, value_of(s, rank, RESIDUAL, i));
  put(s, RESIDUAL, elements, -99);
  for (size_t i = 0; i < s->width; i++) put(s, WEIGHT, i, value_of(s, 0, WEIGHT, i));
}

static inline float residual_of(const struct step *s, size_t i) {
  float sum = value_of(s, rank, RESIDUAL, i);
  for (int r = 0; r < numRanks; r++) sum += value_of(s, r, IN, i);
  return sum;
}

static inline void compare(const struct step *s) {
  for (size_t t = 0; t < s->tokens; t++) {
    float squares = 0;
    for (size_t i = t * s->width; i < (t + 1) * s->width; i++) squares += residual_of(s, i) * residual_of(s, i);
    const float scale = 1 / sqrtf(squares / (float)s->width + 0.5f);
    for (size_t i = t * s->width; i < (t + 1) * s->width; i++) {
      float residual = residual_of(s, i), out = rounded(s->type, rounded(s->type, residual * scale) * value_of(s, 0, WEIGHT, i % s->width));
      CHECK(get(s, RESIDUAL, i) == residual && get(s, OUT, i) == out, "type %d, %zu x %zu: element %zu is %g and %g, not %g and %g", s->type,
            s->tokens, s->width, i, get(s, RESIDUAL, i), get(s, OUT, i), residual, out);
    }
  }
  CHECK(get(s, OUT, s->tokens * s->width) == rounded(s->type, -99) && get(s, RESIDUAL, s->tokens * s->width) == rounded(s->type, -99), "behind");
}

#endif
