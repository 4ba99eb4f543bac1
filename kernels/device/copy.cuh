/* SPDX-License-Identifier: Apache-2.0
 *
 * A block copies bytes from anywhere to anywhere, a word of 16 at a time, written where words begin. Where those of the source
 * begin elsewhere, each is put together from the two that it lies across: neighbours read them as well, so they come once from
 * memory. No word that sticks out of the source is read; what is left at both ends goes byte by byte, all of it at once.
 */
#ifndef DYN_COPY_CUH
#define DYN_COPY_CUH

#include "share.cuh"

namespace dyn {

using Byte = uint8_t;
constexpr uint32_t kWordBytes = sizeof(uint4);

/* 16 bytes from a place on in two words, fewer than 16 behind the first's beginning. The place is the same for all words of a
 * copy, so no thread takes another branch. */
__device__ __forceinline__ uint4 across(const uint4 &first, const uint4 &second, uint32_t place) {
  const auto shifted = [&](uint32_t low, uint32_t high) { return (uint32_t)(((uint64_t)high << 32 | low) >> (place % 4 * 8)); };
  const bool two = place & 8, one = place & 4; /* parts of 4 bytes to leave out */
  const uint32_t a = two ? first.z : first.x, b = two ? first.w : first.y, c = two ? second.x : first.z, d = two ? second.y : first.w,
                 e = two ? second.z : second.x, f = two ? second.w : second.y;
  const uint32_t p = one ? b : a, q = one ? c : b, r = one ? d : c, s = one ? e : d, t = one ? f : e;
  return make_uint4(shifted(p, q), shifted(q, r), shifted(r, s), shifted(s, t));
}

/* to[i] = load(i) of all words, by the block's threads. */
template <int kAtOnce, typename Load>
__device__ __forceinline__ void eachWord(uint4 *to, uint32_t words, Load load) {
  const uint32_t threads = blockDim.x;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < words; i += kAtOnce * threads) {
    uint4 loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; u++)
      if (i + u * threads < words) loaded[u] = load(i + u * threads);
#pragma unroll
    for (int u = 0; u < kAtOnce; u++)
      if (i + u * threads < words) to[i + u * threads] = loaded[u];
  }
}

/* They do not overlap. All that copies shares this: a kernel is fetched anew by each call. */
__attribute__((noinline)) inline __device__ void copyBytes(Byte *to, const Byte *from, uint32_t bytes) {
  const uint32_t place = (uint32_t)((size_t)from - (size_t)to) % kWordBytes; /* of a word in the source's two */
  uint32_t head = (0 - (uint32_t)(size_t)to) % kWordBytes;
  if (head < place) head += kWordBytes; /* the first of the two would begin before the source */
  if (head > bytes) head = bytes;
  const uint32_t whole = (bytes - head + place) / kWordBytes, words = place == 0 || whole == 0 ? whole : whole - 1;
  uint4 *const first = (uint4 *)(to + head);
  const uint4 *const source = (const uint4 *)(from + head - place);
  if (place == 0 || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_UNSHIFTED) eachWord<8>(first, words, [&](uint32_t i) { return source[i]; });
  else eachWord<4>(first, words, [&](uint32_t i) { return across(source[i], source[i + 1], place); });
  const uint32_t between = words * kWordBytes, edges = bytes - between;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < edges; i += blockDim.x) {
    const uint32_t at = i < head ? i : i + between;
    to[at] = from[at];
  }
}

}  // namespace dyn

#endif
