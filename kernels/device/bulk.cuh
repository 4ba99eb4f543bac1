/* SPDX-License-Identifier: Apache-2.0
 *
 * For sizes at which twice the bytes would hurt: 16 bytes at a time without flags, and barriers. All that crosses a link is
 * written, nothing is read from a peer: a write waits for nobody. Block b of every rank has the same share of every part, so
 * blocks wait for their likes alone.
 *
 * Memory has two halves, which calls use by turns like those of lines. Why two suffice: a peer writes into this rank's half in
 * call e + 2 when its kernel e + 1 is over, which waited for this rank's kernel e + 1 (domain.cuh), so this rank's kernel e
 * was over and had read the half to its end. Whatever the kernels, sizes and numbers of blocks of the three calls.
 */
#ifndef DYN_BULK_CUH
#define DYN_BULK_CUH

#include "all_reduce.cuh"

namespace dyn {

using Bulk = ::dyn_bulk;
constexpr size_t kBulkBytes = DYN_BULK_BYTES;

/* Of a rank's memory, the half of this call: 2 * nRanks times b.packs. */
__device__ __forceinline__ uint4 *half(const Domain &d, const Bulk &b, int of, uint32_t call) {
  uint32_t h = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_BULK_HALF ? 0 : call & 1;
  return (uint4 *)b.memory[of] + h * (2 * d.nRanks * b.packs);
}

/* load and store a thread's packs of so many. Several are loaded before the first is stored, or a thread would wait for one
 * after the other: the compiler may not move a load before a store, for all it knows to the same place. */
template <typename Load, typename Store>
__device__ __forceinline__ void eachPack(size_t packs, Load load, Store store) {
  constexpr int kAtOnce = 4;
  const size_t stride = packStride();
  size_t i = firstPack();
  for (; i + (kAtOnce - 1) * stride < packs; i += kAtOnce * stride) {
    uint4 loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) loaded[u] = load(i + u * stride);
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) store(i + u * stride, loaded[u]);
  }
  for (; i < packs; i += stride) store(i, load(i));
}

/* Packs of a part that are there: the last part may be shorter, or nothing. */
__device__ __forceinline__ size_t packsIn(size_t packs, size_t part, int of) {
  size_t from = of * part;
  return from >= packs ? 0 : packs - from < part ? packs - from : part;
}

/* Every rank's block of this number has come, and what it wrote before is seen behind. Each block numbers its own barriers:
 * the same on all ranks, and nobody is further ahead than by one, however long a block had nothing to do. */
__device__ __forceinline__ void blockBarrier(const Domain &d, const Bulk &b, uint32_t call, uint32_t number) {
  __syncthreads();
  for (int r = (int)threadIdx.x; r < d.nRanks; r += (int)blockDim.x) {
    if (r == d.rank) continue;
    storeRelease(&b.flags[r][blockIdx.x * kMaxRanks + d.rank], number);
    const uint32_t *come = &b.flags[d.rank][blockIdx.x * kMaxRanks + r];
    uint64_t since = 0;
    for (unsigned spins = 0; (int32_t)(loadAcquire(come) - number) < 0;)
      if ((++spins & kSpins) == 0 && !goOn(d, r, call, &since)) break;
  }
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_HASTE) __syncthreads();
}

}  // namespace dyn

#endif
