/* SPDX-License-Identifier: Apache-2.0
 *
 * Values whose sums round, and how far a result may be from the exact one: for the tests on a CPU and, on GPUs, ../bench.
 *
 * What is promised: numbers of n ranks are added up in the wide type W of number.cuh (float, and double for double), in any
 * order, and rounded to the type T once, at the end. With u of W (2^-24, 2^-53), A the sum of all absolute values and
 * g = (n - 1) u / (1 - (n - 1) u), the result is then within
 *     g A                  of n - 1 additions; of a product, A is its absolute value
 *   + u |mean|             of an average's division
 *   + half an ulp of T     of what is rounded to T, where T is not W
 * of the exact one. Min and max are exact, and NaN only where all ranks have that. The reference is computed in double, from the last rank to the first, so no kernel's order is
 * copied; what it may be off itself, the same with 2^-53 for u, is added.
 */
#ifndef DYN_TEST_ROUNDING_H
#define DYN_TEST_ROUNDING_H

#include <cmath>
#include <type_traits>

#include "../device/number.cuh"

namespace dyn {

/* Bits of a significand, the smallest normal's exponent, and the exponents of values, of which 8 add up to something finite. */
template <typename T>
struct Floating;
template <>
struct Floating<__nv_fp8_e4m3> { static constexpr int kBits = 4, kLeast = -6, kFrom = -5, kTo = 4; };
template <>
struct Floating<__nv_fp8_e5m2> { static constexpr int kBits = 3, kLeast = -14, kFrom = -8, kTo = 8; };
template <>
struct Floating<__half> { static constexpr int kBits = 11, kLeast = -14, kFrom = -8, kTo = 8; };
template <>
struct Floating<__nv_bfloat16> { static constexpr int kBits = 8, kLeast = -126, kFrom = -8, kTo = 8; };
template <>
struct Floating<float> { static constexpr int kBits = 24, kLeast = -126, kFrom = -8, kTo = 8; };
template <>
struct Floating<double> { static constexpr int kBits = 53, kLeast = -1022, kFrom = -8, kTo = 8; };

__device__ inline uint64_t mixed(uint64_t z) { /* splitmix64's */
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Any sign, exponent and significand; factors are between 1/2 and 2. Of min and max some are NaN, here and there on all ranks. */
template <typename T>
__device__ inline T roundingValue(Op op, uint64_t seed, int rank, size_t i) {
  using F = Floating<T>;
  const uint64_t x = mixed(mixed(seed * 0x9E3779B97F4A7C15u + (uint64_t)rank + 1) + i * 0xD1342543DE82EF95u);
  if ((op == Op::min || op == Op::max) && ((x & 0xe00) == 0 || mixed(seed + i) % 16 == 0)) return Number<T>::down((typename Number<T>::Wide)NAN);
  const int exponent = op == Op::prod ? (int)(x & 1) - 1 : F::kFrom + (int)((x & 0xff) % (unsigned)(F::kTo - F::kFrom + 1));
  const double significand = 1 + (double)(x >> 12) / (double)((uint64_t)1 << 52);
  return Number<T>::down((typename Number<T>::Wide)std::ldexp(x & 0x100 ? -significand : significand, exponent));
}

struct Exact {
  double value, allowed; /* and how far from it a result may be */
};

__device__ inline double ofRoundings(int n, double u) { return n * u / (1 - n * u); }

/* value(rank): what each rank has. */
template <typename T, typename Value>
__device__ inline Exact exactOf(Op op, int nRanks, Value value) {
  using F = Floating<T>;
  const bool wide = std::is_same<T, typename Number<T>::Wide>::value, exact = op == Op::min || op == Op::max;
  const double own = std::ldexp(1., -53), u = std::is_same<T, double>::value ? own : std::ldexp(1., -24);
  double all = (double)Number<T>::up(value(nRanks - 1)), absolute = std::fabs(all);
  for (int r = nRanks - 2; r >= 0; r--) {
    const double x = (double)Number<T>::up(value(r));
    all = op == Op::min ? std::fmin(all, x) : op == Op::max ? std::fmax(all, x) : combine(op, all, x);
    absolute += std::fabs(x);
  }
  if (exact) return {all, 0};
  if (op == Op::prod) absolute = std::fabs(all);
  double off = (ofRoundings(nRanks - 1, u) + ofRoundings(nRanks - 1, own)) * absolute;
  if (op == Op::avg) all /= nRanks, off = off / nRanks + (u + own) * (std::fabs(all) + off / nRanks);
  if (!wide) {
    const int exponent = std::ilogb(std::fabs(all) + off); /* what is rounded may lie in the next binade */
    off += std::ldexp(1., (exponent > F::kLeast ? exponent : F::kLeast) - F::kBits);
  }
  return {all, off};
}

template <typename T>
__device__ inline bool within(const Exact &e, T got) {
  const double x = (double)Number<T>::up(got);
  return std::isnan(e.value) ? std::isnan(x) : std::fabs(x - e.value) <= e.allowed; /* else no NaN */
}

}  // namespace dyn

#endif
