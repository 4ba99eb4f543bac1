/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines: 8 bytes of data with a flag for each half, written in one store of 16 bytes into a peer's memory. A half is
 * written and read whole (8 aligned bytes), so a reader that sees both flags has all of the data: no fence, no barrier, and
 * the data is there as soon as its flag is. The price is twice the bytes. NCCL's LL protocol is the same
 * (union ncclLLFifoLine, src/include/device.h).
 */
#ifndef DYN_LINE_CUH
#define DYN_LINE_CUH

#include <cstddef>
#include <cstdint>

#include "call.h"

#ifdef __CUDACC__
#include "machine.cuh"
#else
#include "../test/machine.h"
#endif

/* Only the test on a CPU has another number here: each plants one mistake that it has to find. */
#ifndef DYN_KERNEL_MUTATE
#define DYN_KERNEL_MUTATE 0
#endif
#define DYN_KERNEL_MUTATE_ONE_HALF 1    /* all calls share one half of the scratch memory */
#define DYN_KERNEL_MUTATE_OWN_COUNTER 2 /* a block counts up its own counter alone */
#define DYN_KERNEL_MUTATE_ONE_FLAG 3    /* the second flag of a line is not looked at */
#define DYN_KERNEL_MUTATE_ORDER 4       /* a rank adds up its own part first */
#define DYN_KERNEL_MUTATE_UNHEARD 5     /* a broadcast's root waits for nobody */
#define DYN_KERNEL_MUTATE_HASTE 6       /* a block goes on when its first threads are through a barrier */
#define DYN_KERNEL_MUTATE_BULK_HALF 7   /* all calls in bulk share one half of their memory */
#define DYN_KERNEL_MUTATE_OWN_SQUARES 8 /* a thread normalises by the squares that it added up itself */
#define DYN_KERNEL_MUTATE_CLOSE_ROWS 9  /* rows begin where the one before ends, be it inside of a line */

namespace dyn {

constexpr int kLineBytes = DYN_LINE_BYTES, kLineData = DYN_LINE_DATA;

__device__ __forceinline__ void storeLine(void *at, uint2 data, uint32_t flag) { storeWords(at, make_uint4(data.x, flag, data.y, flag)); }

/* True: both halves are of this flag. */
__device__ __forceinline__ bool isWhole(uint4 line, uint32_t flag) {
  return line.y == flag && (line.w == flag || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_ONE_FLAG);
}
__device__ __forceinline__ uint2 dataOf(uint4 line) { return make_uint2(line.x, line.z); }

/* Elements that go together: 8 bytes, as much as a line has, or 16. */
template <typename T, typename Bits = uint2>
union Pack {
  static constexpr int kElements = (int)(sizeof(Bits) / sizeof(T));
  Bits bits;
  T elements[kElements];
  __device__ Pack() : bits() {}
};

template <typename T, typename Bits>
__device__ __forceinline__ Pack<T, Bits> packOf(Bits bits) {
  Pack<T, Bits> p;
  p.bits = bits;
  return p;
}

/* Of the last pack of a buffer what is there, and zeros. A buffer may begin anywhere that its type may; aligned: at a
 * multiple of a pack's bytes. */
template <typename Bits = uint2, typename T>
__device__ __forceinline__ Pack<T, Bits> loadPack(const T *buffer, size_t pack, size_t count, bool aligned) {
  Pack<T, Bits> p;
  size_t at = pack * p.kElements;
  if (aligned && at + p.kElements <= count) {
    p.bits = *(const Bits *)(buffer + at);
    return p;
  }
#pragma unroll
  for (int i = 0; i < p.kElements; i++)
    if (at + i < count) p.elements[i] = buffer[at + i];
  return p;
}

template <typename T, typename Bits>
__device__ __forceinline__ void storePack(T *buffer, size_t pack, size_t count, bool aligned, const Pack<T, Bits> &p) {
  size_t at = pack * p.kElements;
  if (aligned && at + p.kElements <= count) {
    *(Bits *)(buffer + at) = p.bits;
    return;
  }
#pragma unroll
  for (int i = 0; i < p.kElements; i++)
    if (at + i < count) buffer[at + i] = p.elements[i];
}

}  // namespace dyn

#endif
