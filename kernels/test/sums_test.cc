/* SPDX-License-Identifier: Apache-2.0
 *
 * What sums promise whatever kernel runs (../device), of all types and operators: results within the bound of rounding.h from a
 * reference in double, integers, min and max exact; and the same bits on all ranks and from all kernels, so that moving from
 * one to another changes nothing. Unlike collectives_test, nothing here knows an order.
 */
#include <limits>
#include <type_traits>

#include "../device/all_reduce_bulk.cuh"
#include "../device/parts_bulk.cuh"
#include "../device/reduce_scatter.cuh"
#include "../types.h"
#include "ranks.h"
#include "rounding.h"

constexpr size_t kPart = 96, kMost = kPart * kMaxRanks, kBefore = 16, kRoom = 8 * kMost + 2 * kBefore; /* elements, bytes */

enum Type {
#define TYPE_OF(NAME, TYPE) k_##NAME,
  DYN_TYPES(TYPE_OF) kTypes
};
enum Kind { kOneShot, kTwoShot, kBulk, kReduceScatter, kReduceScatterBulk, kKinds };
static const char *const kindNames[kKinds] = {"one shot", "two shots", "bulk", "ReduceScatter", "ReduceScatter in bulk"};

/* One call, the same on all ranks. Calls of a group have the same values, one of each kind. */
struct Step {
  uint64_t group, seed;
  Kind kind;
  int type;
  Op op;
  unsigned blocks;
  size_t part, count, shift; /* count: of AllReduce, whose last part may be shorter */
  bool inPlace;
};
static bool scatters(const Step &s) { return s.kind >= kReduceScatter; }

static Step stepOf(uint64_t seed, uint64_t n, int nRanks) {
  Step s;
  s.group = n / kKinds, s.kind = (Kind)(n % kKinds);
  uint64_t r = seed ^ s.group * 0xD1342543DE82EF95u;
  s.type = (int)((seed + s.group) % kTypes), s.op = (Op)((seed + s.group) / kTypes % 5); /* 60 groups have all of both */
  s.part = 1 + next(&r) % (next(&r) % 4 == 0 ? kPart : 12);
  const bool whole = next(&r) % 2; /* packs are */
  if (whole) s.part = (s.part + 15) / 16 * 16;
  s.count = s.part * nRanks - (whole ? 0 : next(&r) % s.part);
  s.seed = next(&r);
  r ^= n;
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.shift = whole && next(&r) % 4 ? 0 : next(&r) % 3;
  s.inPlace = next(&r) % 2;
  return s;
}

/* Integers add up, and are multiplied, without an overflow of the wide type. */
template <typename T>
static T valueOf(const Step &s, int rank, size_t i) {
  if constexpr (std::is_integral<T>::value) {
    constexpr int wide = std::numeric_limits<typename Number<T>::Wide>::digits, own = std::numeric_limits<T>::digits;
    const int bits = s.op == Op::prod ? wide / 8 : own < wide - 3 ? own : wide - 3;
    const uint64_t x = mixed(s.seed + (uint64_t)rank * 1000003 + i * 7919), size = (x >> 1 & (((uint64_t)1 << bits) - 1)) + (s.op == Op::prod);
    return std::is_signed<T>::value && x & 1 ? (T)(0 - size) : (T)size;
  } else {
    return roundingValue<T>(s.op, s.seed, rank, i);
  }
}

/* What is exact: integers modulo their size, as the sum of a type that holds all of it. */
template <typename T>
static T wholeOf(const Step &s, int nRanks, size_t i) {
  T least = valueOf<T>(s, 0, i), largest = least;
  uint64_t sum = 0, product = 1;
  for (int r = 0; r < nRanks; r++) {
    const T x = valueOf<T>(s, r, i);
    least = x < least ? x : least, largest = x > largest ? x : largest;
    sum += (uint64_t)x, product *= (uint64_t)x;
  }
  switch (s.op) {
    case Op::min: return least;
    case Op::max: return largest;
    case Op::prod: return (T)product;
    case Op::avg: return std::is_signed<T>::value ? (T)((int64_t)sum / nRanks) : (T)(sum / (uint64_t)nRanks);
    default: return (T)sum;
  }
}

template <typename T>
static bool right(const Step &s, int nRanks, size_t i, T got) {
  if constexpr (std::is_integral<T>::value) return got == wholeOf<T>(s, nRanks, i);
  else return within<T>(exactOf<T>(s.op, nRanks, [&](int r) { return valueOf<T>(s, r, i); }), got);
}

static uint64_t digest(const void *at, size_t bytes) { /* FNV-1a; never 0 */
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)at)[i]) * 0x100000001b3u;
  return h | 1;
}

/* What all who have number k of a group's results must have had: part k, or behind the parts AllReduce's whole result. */
static bool agrees(World &w, const Step &s, int k, uint64_t digest) {
  static std::vector<std::atomic<uint64_t>> seen((w.calls / kKinds + 1) * (kMaxRanks + 1));
  uint64_t first = 0;
  return seen[s.group * (kMaxRanks + 1) + k].compare_exchange_strong(first, digest) || first == digest;
}

template <typename T>
static void check(World &w, const Step &s, int rank, const T *out) {
  const size_t count = scatters(s) ? s.part : s.count, skip = scatters(s) ? rank * s.part : 0;
  uint64_t off = 0, differ = 0;
  for (size_t i = 0; i < count; i++) off += !right<T>(s, w.nRanks, skip + i, out[i]);
  for (int k = 0; k < w.nRanks; k++) {
    const size_t first = k * s.part;
    if (first >= skip && first + s.part <= skip + count) differ += !agrees(w, s, k, digest(out + (first - skip), s.part * sizeof(T)));
  }
  if (!scatters(s)) differ += !agrees(w, s, w.nRanks, digest(out, count * sizeof(T)));
  w.compared += count;
  if (off + differ > 0 && w.wrong.fetch_add(off + differ) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, type %d, operator %d, %zu elements, %u blocks%s: %lu out of bounds, %lu parts unlike other ranks' or kernels'\n",
            kindNames[s.kind], rank, w.nRanks, s.type, (int)s.op, count, s.blocks, s.inPlace ? ", in place" : "", off, differ);
}

template <typename T>
static void launch(const Step &s, const Call &c, const Bulk &b) {
  switch (s.kind) {
    case kOneShot: allReduceOneShot<T>(c); break;
    case kTwoShot: allReduceTwoShot<T>(c); break;
    case kBulk: allReduceBulk<T>(c, b); break;
    case kReduceScatter: reduceScatter<T>(c); break;
    default: reduceScatterBulk<T>(c, b);
  }
}

template <typename T>
static void play(World &w, const Step &s, int rank, bool first) {
  T *in = (T *)(w.buffers[0][rank].get() + kBefore) + s.shift, *out = (T *)(w.buffers[1][rank].get() + kBefore) + s.shift;
  if (s.inPlace) out = in + (scatters(s) ? rank * s.part : 0);
  inRank(w, rank, first, s.blocks,
         [&] {
           const size_t sent = scatters(s) ? s.part * w.nRanks : s.count;
           memset(w.buffers[1][rank].get(), 0xa5, kRoom);
           for (size_t i = 0; i < sent; i++) in[i] = valueOf<T>(s, rank, i);
         },
         [&](const Domain &d) { launch<T>(s, {in, out, scatters(s) ? s.part : s.count, (int32_t)s.op, 0, w.stamps[rank].data(), d}, bulkOf(w, rank)); },
         [&] { check<T>(w, s, rank, out); });
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  const Step s = stepOf(w.seed, n, w.nRanks);
  switch (s.type) {
#define PLAY(NAME, TYPE) case k_##NAME: play<TYPE>(w, s, rank, first); break;
    DYN_TYPES(PLAY)
  }
}

static const Size size = {dyn_lines(kMost * 8) + 2 * kMaxRanks + 1, kPart / 12, kRoom}; /* in bulk, in many rounds */

int main(int argc, char **argv) { return runAll(argc, argv, size, playCall, nullptr, {2, 3, 4, 5, 6, 7, 8}); }
