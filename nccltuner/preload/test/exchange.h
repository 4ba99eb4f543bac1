/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of AllToAllv, as all ranks know it: how many elements go from each rank to each other one, where they lie, and what
 * they are. Included behind a rig, of which it takes rank, numRanks, CHECK and random_of.
 */
#ifndef DYN_TEST_EXCHANGE_H
#define DYN_TEST_EXCHANGE_H

#define MOST_PARTS 8

struct exchange {
  uint64_t seed;
  size_t most; /* elements of a part */
  size_t sendCounts[MOST_PARTS], sendOffsets[MOST_PARTS], recvCounts[MOST_PARTS], recvOffsets[MOST_PARTS];
};

/* Now and then none. */
static inline size_t exchange_count(const struct exchange *x, int from, int to) {
  uint64_t r = random_of(x->seed + (uint64_t)(from * MOST_PARTS + to) * 7919);
  return (r & 3) == 0 ? 0 : (r >> 8) % ((r >> 4 & 7) == 0 ? x->most : 90);
}

/* Parts lie one behind the other, with elements of nobody between. */
static inline void exchange_make(struct exchange *x, uint64_t seed, size_t most) {
  *x = (struct exchange){.seed = seed, .most = most};
  size_t out = 0, in = 0;
  for (int r = 0; r < numRanks; r++) {
    x->sendCounts[r] = exchange_count(x, rank, r), x->sendOffsets[r] = out;
    x->recvCounts[r] = exchange_count(x, r, rank), x->recvOffsets[r] = in;
    out += x->sendCounts[r] + (size_t)r % 3;
    in += x->recvCounts[r] + (size_t)r % 3;
  }
}

static inline float exchange_value(const struct exchange *x, int from, int to, size_t i) {
  return (float)(random_of(x->seed * 31 + (uint64_t)(from * MOST_PARTS + to) * 104729 + i) >> 30 & 0xffff);
}

static inline size_t exchange_end(const struct exchange *x) { return x->recvOffsets[numRanks - 1] + x->recvCounts[numRanks - 1]; }

static inline void exchange_fill(const struct exchange *x, float *send, float *recv) {
  for (int r = 0; r < numRanks; r++)
    for (size_t i = 0; i < x->sendCounts[r]; i++) send[x->sendOffsets[r] + i] = exchange_value(x, rank, r, i);
  for (size_t i = 0; i <= exchange_end(x); i++) recv[i] = -1;
}

/* Of a result, and of what lies between its parts. */
static inline void exchange_compare(const struct exchange *x, const float *recv) {
  for (int r = 0; r < numRanks; r++) {
    for (size_t i = 0; i < x->recvCounts[r]; i++) {
      float want = exchange_value(x, r, rank, i), got = recv[x->recvOffsets[r] + i];
      CHECK(got == want, "seed %llu: element %zu of %zu of rank %d is %g and not %g", (unsigned long long)x->seed, i, x->recvCounts[r], r, got, want);
    }
    size_t behind = r + 1 < numRanks ? x->recvOffsets[r + 1] : exchange_end(x) + 1;
    for (size_t i = x->recvOffsets[r] + x->recvCounts[r]; i < behind; i++) CHECK(recv[i] == -1, "seed %llu: behind rank %d's part", (unsigned long long)x->seed, r);
  }
}

#endif
