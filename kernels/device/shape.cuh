/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call looks like, known to the compiler. A kernel of a few microseconds is fetched anew by every call, so what most
 * calls run must be short: buffers of whole, aligned packs, and few ranks. All others take a longer way.
 */
#ifndef DYN_SHAPE_CUH
#define DYN_SHAPE_CUH

#include <type_traits>

#include "domain.cuh"
#include "number.cuh"

namespace dyn {

template <bool kWholePacks, int kMostRanks>
struct Shape {
  static constexpr bool kWhole = kWholePacks;
  static constexpr int kRanks = kMostRanks;
};

/* Types of activations and gradients, and what only copies. */
template <typename T>
constexpr bool kCommon = std::is_same<T, __nv_bfloat16>::value || std::is_same<T, __half>::value || std::is_same<T, float>::value || std::is_same<T, uint8_t>::value;

/* body(shape), of the shape that a call of this type has. Common types have one more, for the
 * compiler's sake. */
template <typename T, typename Body>
__device__ __forceinline__ void inShape(const Domain &d, bool whole, Body body) {
  constexpr bool kFew = kCommon<T>;
  if (!whole) body(Shape<false, kMaxRanks>());
  else if (kFew && d.nRanks <= 4) body(Shape<true, kFew ? 4 : kMaxRanks>());
  else body(Shape<true, kMaxRanks>());
}

/* Of the last pack of a buffer, or of one that is not aligned, what is there, and zeros. Kept out of what calls run mostly. */
template <typename Bits, typename T>
__attribute__((noinline)) __device__ Bits loadSlowly(const T *at, size_t count) {
  Pack<T, Bits> p;
#pragma unroll 1
  for (size_t i = 0; i < p.kElements && i < count; i++) p.elements[i] = at[i];
  return p.bits;
}
template <typename T, typename Bits>
__attribute__((noinline)) __device__ void storeSlowly(T *at, size_t count, Bits bits) {
  const Pack<T, Bits> p = packOf<T>(bits);
#pragma unroll 1
  for (size_t i = 0; i < p.kElements && i < count; i++) at[i] = p.elements[i];
}

/* A buffer of count elements. It may begin anywhere that its type may, where packs are not whole. */
template <class S, typename T, typename Bits = uint2>
struct Buffer {
  using P = Pack<T, Bits>;
  T *at;
  size_t count;
  __device__ Buffer(const void *at, size_t count) : at((T *)at), count(count) {}
  /* What is behind so many packs of it. */
  __device__ __forceinline__ Buffer behind(size_t packs) const { return Buffer(at + packs * P::kElements, count - packs * P::kElements); }
  __device__ bool direct(size_t first) const { return S::kWhole || (((size_t)at & (sizeof(Bits) - 1)) == 0 && first + P::kElements <= count); }

  __device__ __forceinline__ Bits load(size_t pack) const {
    const size_t first = pack * P::kElements;
    if (direct(first)) return *(const Bits *)(at + first);
    return loadSlowly<Bits>(at + first, count - first);
  }
  __device__ __forceinline__ void store(size_t pack, Bits bits) const {
    const size_t first = pack * P::kElements;
    if (direct(first)) *(Bits *)(at + first) = bits;
    else storeSlowly(at + first, count - first, bits);
  }

  /* This thread's piece of line i; zeros behind the end. */
  __device__ __forceinline__ Piece loadLine(size_t i) const {
    Piece piece;
#pragma unroll
    for (int w = 0; w < kLineWords; w++) {
      const size_t pack = packAt(i, w);
      piece.words[w] = make_uint2(0, 0);
      if (isData(w) && pack * P::kElements < count) piece.words[w] = load(pack);
    }
    return piece;
  }
  __device__ __forceinline__ void storeLine(size_t i, const Piece &piece) const {
#pragma unroll
    for (int w = 0; w < kLineWords; w++) {
      const size_t pack = packAt(i, w);
      if (isData(w) && pack * P::kElements < count) store(pack, piece.words[w]);
    }
  }
};

}  // namespace dyn

#endif
