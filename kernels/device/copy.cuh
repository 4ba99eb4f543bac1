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

struct Two {
  uint4 first, second;
};
/* The 16 bytes that begin at this one of the first. It is the same for all words of a copy, so no thread takes another branch. */
__device__ __forceinline__ uint4 across(const Two &words, uint32_t place) {
  const auto shifted = [&](uint32_t low, uint32_t high) { return (uint32_t)(((uint64_t)high << 32 | low) >> (place % 4 * 8)); };
  const bool two = place & 8, one = place & 4; /* parts of 4 bytes to leave out */
  const uint4 &x = words.first, &y = words.second;
  const uint32_t a = two ? x.z : x.x, b = two ? x.w : x.y, c = two ? y.x : x.z, d = two ? y.y : x.w, e = two ? y.z : y.x, f = two ? y.w : y.y;
  const uint32_t p = one ? b : a, q = one ? c : b, r = one ? d : c, s = one ? e : d, t = one ? f : e;
  return make_uint4(shifted(p, q), shifted(q, r), shifted(r, s), shifted(s, t));
}

/* made(load(i)) to word i, for all of them, by the block's threads. Who has fewer loads the last word again, so that no load waits
 * for another. */
template <int kAtOnce, typename Load, typename Made>
__device__ __forceinline__ void eachWord(uint4 *to, uint32_t words, Load load, Made made) {
  const uint32_t threads = blockDim.x;
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < words; i += kAtOnce * threads) {
    decltype(load(i)) loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) loaded[u] = load(i + u * threads < words ? i + u * threads : words - 1);
#pragma unroll
    for (int u = 0; u < kAtOnce; u++)
      if (i + u * threads < words) storeWord(to + i + u * threads, made(loaded[u]));
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
  if (place == 0 || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_UNSHIFTED)
    eachWord<8>(first, words, [&](uint32_t i) { return loadWord(source + i); }, [](const uint4 &word) { return word; });
  else
    eachWord<4>(first, words, [&](uint32_t i) { return Two{loadWord(source + i), loadWord(source + i + 1)}; }, [&](const Two &two) { return across(two, place); });
  const uint32_t between = words * kWordBytes, edges = bytes - between;
#pragma unroll 1
  for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < edges; i += blockDim.x) { /* of few words the last warps have none */
    const uint32_t at = i < head ? i : i + between;
    to[at] = from[at];
  }
}

}  // namespace dyn

#endif
