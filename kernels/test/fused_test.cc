/* SPDX-License-Identifier: Apache-2.0
 *
 * AllReduce with residual and normalisation on threads of a CPU (ranks.h), between plain AllReduces in the same scratch
 * memory: few and many rows, of any width and alignment, in place or not. Every element of residual and output is compared
 * bit by bit with what the separate steps would round to.
 */
#include <cmath>

#include "../device/all_reduce_rms_norm.cuh"
#include "ranks.h"

constexpr size_t kMostRows = 7, kMostWidth = 300, kGuard = 8;
enum { kIn, kOut, kResidual, kWeight }; /* buffers */

enum class Type { f16, bf16, f32, count };
enum class Kind { oneShot, twoShot, fused };
static const char *const kindNames[] = {"one shot", "two shots", "fused"};

/* One call, the same on all ranks. */
struct Step {
  Kind kind;
  Type type;
  unsigned blocks;
  size_t rows, width, shift[kBuffers]; /* elements */
  bool inPlace;
  float epsilon;
  uint64_t seed;
};

static Step stepOf(uint64_t seed, uint64_t n) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  uint64_t kind = next(&r) % 8;
  s.kind = kind == 0 ? Kind::oneShot : kind == 1 ? Kind::twoShot : Kind::fused;
  s.type = (Type)(next(&r) % (int)Type::count);
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.rows = 1 + next(&r) % kMostRows;
  s.width = 1 + next(&r) % (next(&r) % 4 == 0 ? kMostWidth : 40);
  if (next(&r) % 2) s.width = (s.width + 3) / 4 * 4; /* rows that begin at packs, as most do */
  for (size_t &shift : s.shift) shift = next(&r) % 2 ? 0 : next(&r) % 4;
  s.inPlace = next(&r) % 2;
  s.epsilon = next(&r) % 2 ? 1e-5f : 0.5f;
  s.seed = next(&r);
  /* As the host launches it. */
  if (s.kind == Kind::fused && s.blocks > s.rows) s.blocks = (unsigned)s.rows;
  return s;
}

/* What a rank's buffer holds: values of several magnitudes, so that sums round, and the order of ranks shows. */
template <typename T>
static T valueOf(const Step &s, int rank, int buffer, size_t i) {
  uint64_t r = s.seed + (uint64_t)rank * 1000003 + (uint64_t)buffer * 10007 + i * 7919;
  uint64_t x = next(&r);
  return Number<T>::down(std::ldexp((float)(x >> 20 & 0x1fffff) / 65536 - 16, -(int)(x & 7)));
}

template <typename T>
static float wide(T x) { return Number<T>::up(x); }

/* What a plain AllReduce leaves. */
template <typename T>
static T sumOf(const Step &s, int nRanks, size_t i) {
  float sum = wide(valueOf<T>(s, 0, kIn, i));
  for (int r = 1; r < nRanks; r++) sum += wide(valueOf<T>(s, r, kIn, i));
  return Number<T>::down(sum);
}

/* One row after the other: the residual, its squares in the order in which two threads add up lines, the output. */
template <typename T>
static void wanted(const Step &s, int nRanks, int rank, std::vector<T> &residual, std::vector<T> &out) {
  const size_t pack = 8 / sizeof(T);
  for (size_t row = 0; row < s.rows; row++) {
    float squares[kBlockThreads] = {}, all = 0;
    for (size_t i = 0, at = row * s.width; i < s.width; i++, at++) {
      residual[at] = Number<T>::down(wide(sumOf<T>(s, nRanks, at)) + wide(valueOf<T>(s, rank, kResidual, at)));
      squares[i / pack / kLinePacks % kBlockThreads] += wide(residual[at]) * wide(residual[at]);
    }
    for (float q : squares) all += q;
    const float scale = 1 / std::sqrt(all / (float)s.width + s.epsilon);
    for (size_t i = 0, at = row * s.width; i < s.width; i++, at++)
      out[at] = Number<T>::down(wide(Number<T>::down(wide(residual[at]) * scale)) * wide(valueOf<T>(s, rank, kWeight, i)));
  }
}

template <typename T>
static uint64_t differ(const T *have, const std::vector<T> &want) {
  const unsigned char *before = (const unsigned char *)have, *behind = (const unsigned char *)(have + want.size());
  uint64_t wrong = 0;
  for (size_t i = 0; i < want.size(); i++) wrong += memcmp(&want[i], &have[i], sizeof(T)) != 0;
  for (size_t i = 1; i <= kGuard; i++) wrong += before[-(int)i] != 0xa5 || behind[i - 1] != 0xa5;
  return wrong;
}

/* The steps' buffers in a rank's memory. */
template <typename T>
struct Buffers {
  T *at[kBuffers];
  Buffers(World &w, const Step &s, int rank) {
    for (int b = 0; b < kBuffers; b++) at[b] = (T *)(w.buffers[b][rank].get() + 2 * kGuard) + s.shift[b];
    if (s.inPlace) at[kOut] = at[kIn];
  }
};

template <typename T>
static void fill(World &w, const Step &s, int rank, const Buffers<T> &b) {
  for (auto &buffer : w.buffers) memset(buffer[rank].get(), 0xa5, w.size.room);
  for (int k : {(int)kIn, (int)kResidual})
    for (size_t i = 0; i < s.rows * s.width; i++) b.at[k][i] = valueOf<T>(s, rank, k, i);
  for (size_t i = 0; i < s.width; i++) b.at[kWeight][i] = valueOf<T>(s, rank, kWeight, i);
}

template <typename T>
static void check(World &w, const Step &s, int rank, const Buffers<T> &b) {
  const size_t elements = s.rows * s.width;
  std::vector<T> residual(elements), out(elements), weight(s.width);
  for (size_t i = 0; i < s.width; i++) weight[i] = valueOf<T>(s, rank, kWeight, i);
  if (s.kind == Kind::fused) {
    wanted(s, w.nRanks, rank, residual, out);
  } else {
    for (size_t i = 0; i < elements; i++) residual[i] = valueOf<T>(s, rank, kResidual, i), out[i] = sumOf<T>(s, w.nRanks, i);
  }
  uint64_t ofResidual = differ(b.at[kResidual], residual), ofOut = differ(b.at[kOut], out), wrong = ofResidual + ofOut + differ(b.at[kWeight], weight);
  if (wrong > 0 && w.wrong.fetch_add(wrong) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, type %d, %zu rows of %zu, %u blocks%s: %lu wrong, %lu of the residual, %lu of the output\n", kindNames[(int)s.kind],
            rank, w.nRanks, (int)s.type, s.rows, s.width, s.blocks, s.inPlace ? ", in place" : "", wrong, ofResidual, ofOut);
  w.compared += 2 * elements;
}

template <typename T>
static void play(World &w, const Step &s, int rank, bool first) {
  const Buffers<T> b(w, s, rank);
  inRank(w, rank, first, s.blocks, [&] { fill(w, s, rank, b); },
         [&](const Domain &d) {
           const Call c = {b.at[kIn], b.at[kOut], s.rows * s.width, (int32_t)Op::sum, 0, nullptr, d};
           if (s.kind == Kind::oneShot) allReduceOneShot<T>(c);
           else if (s.kind == Kind::twoShot) allReduceTwoShot<T>(c);
           else allReduceAddRmsNorm<T>(c, {b.at[kResidual], b.at[kWeight], s.width, s.epsilon, 0});
         },
         [&] { check(w, s, rank, b); });
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  Step s = stepOf(w.seed, n);
  switch (s.type) {
    case Type::f16: play<__half>(w, s, rank, first); break;
    case Type::bf16: play<__nv_bfloat16>(w, s, rank, first); break;
    default: play<float>(w, s, rank, first); break;
  }
}

/* Room for the largest call, also in two shots. */
static const Size size = {dyn_row_lines(kMostRows, (kMostWidth + 3) * sizeof(float)) + 2 * kMaxRanks, 1, 4 * kGuard + kMostRows * (kMostWidth + 8) * sizeof(float)};

int main(int argc, char **argv) { return runAll(argc, argv, size, playCall, nullptr); }
