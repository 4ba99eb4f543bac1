/* SPDX-License-Identifier: Apache-2.0
 *
 * Adding up what came of several, pack by pack.
 */
#ifndef DYN_GIN_SUM_CUH
#define DYN_GIN_SUM_CUH

#include "../device/shape.cuh"

namespace dyn {

/* Pack of so many, which of(i) gives, added up in their order, in float or wider, and rounded once. own: which of them is this rank's. */
template <typename T, typename Of>
__device__ __forceinline__ uint4 ginSumOf(int many, int own, Op op, Of of) {
  using N = Number<T>;
  constexpr int kElements = Pack<T, uint4>::kElements;
  typename N::Wide sum[kElements] = {};
#pragma unroll 4
  for (int k = 0; k < many; k++) {
    const Pack<T, uint4> p = packOf<T>(of(DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ORDER ? (own + k) % many : k));
#pragma unroll
    for (int e = 0; e < kElements; e++) sum[e] = k == 0 ? N::up(p.elements[e]) : combine(op, sum[e], N::up(p.elements[e]));
  }
  Pack<T, uint4> out;
#pragma unroll
  for (int e = 0; e < kElements; e++) out.elements[e] = N::down(finish(op, sum[e], many));
  return out.bits;
}

}  // namespace dyn

#endif
