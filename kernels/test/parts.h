/* SPDX-License-Identifier: Apache-2.0
 *
 * A call in which each rank sends each other one another number of bytes, often none, from and to anywhere, as all ranks know
 * it; and what has to come of it, with what lies between parts. Included behind ranks.h.
 */
#ifndef DYN_TEST_PARTS_H
#define DYN_TEST_PARTS_H

#include "../device/parts_differ.cuh"

constexpr size_t kGap = 24;

struct Exchange {
  uint64_t seed;
  size_t most; /* bytes of a part */
  int shape;   /* 0 to 7 */
  bool alike;  /* all parts are of one size, and lie behind each other */
};

/* Bytes that go from one rank to another. */
static size_t bytesOf(const Exchange &x, int from, int to) {
  uint64_t r = x.alike ? x.seed : x.seed + (uint64_t)(from * kMaxRanks + to) * 1000003, v = next(&r);
  if (x.alike) return 1 + (v >> 8) % (x.shape == 0 ? x.most : 60);
  const bool few = x.shape == 5 || x.shape == 6;
  const bool pair = x.shape == 6 ? from + to == 1 : (from + to) % 4 == 3; /* neighbours; ranks of one node with those of another */
  if (x.shape == 7 || (few && !pair) || (v & 3) == 0) return 0; /* 7: nobody has anything */
  return (v >> 8) % ((v & 0xf0) == 0 || few ? x.most : 60);
}
/* Where it lies: behind those of ranks before it, with a gap between them where parts differ. */
static size_t placeOf(const Exchange &x, int rank, int of, bool sends) {
  size_t at = 0;
  for (int r = 0; r < of; r++) at += (sends ? bytesOf(x, rank, r) : bytesOf(x, r, rank)) + (x.alike ? 0 : (x.seed >> r) % kGap);
  return at;
}
static uint8_t valueOf(const Exchange &x, int from, int to, size_t i) {
  uint64_t r = x.seed + (uint64_t)(from * kMaxRanks + to) * 7919 + i * 1000003;
  return (uint8_t)(next(&r) >> 11);
}

static Parts partsOf(const Exchange &x, int nRanks, int rank) {
  Parts p = {};
  for (int r = 0; r < nRanks; r++) {
    p.sendBytes[r] = bytesOf(x, rank, r), p.sendAt[r] = placeOf(x, rank, r, true);
    p.recvBytes[r] = bytesOf(x, r, rank), p.recvAt[r] = placeOf(x, rank, r, false);
  }
  return p;
}

static void fillParts(const Exchange &x, int nRanks, int rank, uint8_t *in) {
  const Parts p = partsOf(x, nRanks, rank);
  for (int r = 0; r < nRanks; r++)
    for (size_t i = 0; i < p.sendBytes[r]; i++) in[p.sendAt[r] + i] = valueOf(x, rank, r, i);
}

/* Wrong bytes of a buffer that was 0xa5 from before its beginning to behind its end; p: what the rank was to get. Counts what
 * it looked at. */
static uint64_t partsDiffer(const Exchange &x, const Parts &p, int nRanks, int rank, const uint8_t *out, std::atomic<uint64_t> &compared) {
  std::vector<uint8_t> want(placeOf(x, rank, nRanks, false) + kGap / 2, 0xa5);
  uint64_t wrong = 0;
  for (int r = 0; r < nRanks; r++)
    for (size_t i = 0; i < p.recvBytes[r]; i++) want[p.recvAt[r] + i] = valueOf(x, r, rank, i);
  for (size_t i = 0; i < want.size(); i++) wrong += want[i] != out[i];
  for (size_t i = 1; i <= kGap / 2; i++) wrong += out[-(int)i] != 0xa5;
  compared += want.size();
  return wrong;
}

#endif
