/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels ask of the machine; test/machine.h has the same for threads of a CPU.
 */
#ifndef DYN_MACHINE_CUH
#define DYN_MACHINE_CUH

#include <cstdint>

#include "call.h"

namespace dyn {

constexpr unsigned kSpins = 0xfff; /* looks at a line between two looks at the clock, less one: a power of two less one */

/* What the stream did before is over and seen. A kernel may be launched before that (launch.c), to be in its place when its
 * turn comes. */
__device__ __forceinline__ void awaitStream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A line's threads, and words of 8 bytes of each. All threads of a warp come to these together. */
constexpr int kWarp = 32, kLineLanes = DYN_LINE_THREADS, kLineWords = 2;

/* A line's threads go on together: a line is whole because one instruction stores it, and one loads it. What came before,
 * the short last pack of a buffer for one, may have parted them. */
__device__ __forceinline__ void joinLine() { __syncwarp(((1u << kLineLanes) - 1) << (threadIdx.x % kWarp / kLineLanes * kLineLanes)); }

__device__ __forceinline__ void storePiece(char *line, const uint2 (&words)[2], uint32_t number) {
  const unsigned lane = threadIdx.x % kLineLanes;
  const uint2 second = lane == kLineLanes - 1 ? make_uint2(number, number) : words[1];
  joinLine();
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(line + lane * 16), "r"(words[0].x), "r"(words[0].y), "r"(second.x),
               "r"(second.y) : "memory");
}
/* False: this thread sees that it is not the line of this number. Of a line's threads one does. */
__device__ __forceinline__ bool loadPiece(const char *line, uint2 (&words)[2], uint32_t number) {
  const unsigned lane = threadIdx.x % kLineLanes;
  joinLine();
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words[0].x), "=r"(words[0].y), "=r"(words[1].x), "=r"(words[1].y)
               : "l"(line + lane * 16) : "memory");
  return lane != kLineLanes - 1 || (words[1].x == number && words[1].y == number);
}
/* Bits that any thread of the warp has. */
__device__ __forceinline__ uint32_t bitsOfWarp(uint32_t bits) { return __reduce_or_sync(0xffffffffu, bits); }

/* Words of host memory, whole. */
__device__ __forceinline__ uint32_t loadHost(const uint32_t *at) { return *(const volatile uint32_t *)at; }
/* Two words that stand behind each other, at a multiple of 8 bytes: a warp's threads, which come here together, have the same ones. */
__device__ __forceinline__ uint2 loadBoth(const uint32_t *at) {
  uint2 both;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(both.x), "=r"(both.y) : "l"(at) : "memory");
  return both;
}
__device__ __forceinline__ void storeHost(uint64_t *at, uint64_t value) { *(volatile uint64_t *)at = value; }
__device__ __forceinline__ void storeHost(uint32_t *at, uint32_t value) { *(volatile uint32_t *)at = value; }

/* 16 bytes by one instruction each, whichever of them are then looked at. */
__device__ __forceinline__ uint4 loadWord(const uint4 *at) {
  uint4 word;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w) : "l"(at) : "memory");
  return word;
}
__device__ __forceinline__ void storeWord(uint4 *at, const uint4 &word) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w) : "memory");
}

/* What this thread wrote, or saw others of its block write, is seen by who loads the value: in PTX's memory model a barrier of the block
 * and a release behind it are links of one chain, as are an acquire and a barrier behind it, and one thread's fence speaks for all. */
__device__ __forceinline__ void storeRelease(uint32_t *at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t loadAcquire(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void storeRelease(uint64_t *at, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ uint64_t loadAcquire(const uint64_t *at) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
/* Of this GPU's alone. What was there before. */
__device__ __forceinline__ uint32_t addOne(uint32_t *at) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
  return before;
}
/* Likewise, for others to look at, with nothing in order behind it. */
__device__ __forceinline__ void countOne(uint32_t *at) { asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory"); }

__device__ __forceinline__ uint64_t globalNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* Of a block, for one of its threads. */
__device__ __forceinline__ uint64_t *ownTimes() {
  __shared__ uint64_t times[2];
  return times;
}

/* Of a block, for all of its threads. */
template <typename T>
__device__ __forceinline__ T &inBlock() {
  __shared__ T it;
  return it;
}

/* Whether it is true of any thread of the block. All come here, and what they wrote before is seen by all of them behind it. */
__device__ __forceinline__ bool anyOfBlock(bool own) { return __syncthreads_or(own) != 0; }

__device__ __forceinline__ int lowestBit(uint32_t word) { return __ffs((int)word) - 1; }
__device__ __forceinline__ float inverseRoot(float x) { return rsqrtf(x); }

/* What all threads of the block have, added up: the same bits in each of them and in every run, since who adds what to what
 * is fixed. All threads of the block come here, which are whole warps. */
__device__ __forceinline__ float blockSum(float own) {
  __shared__ float warps[DYN_KERNEL_THREADS / 32];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) own += __shfl_xor_sync(0xffffffffu, own, apart);
  __syncthreads(); /* everybody has read the sums of the call before */
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  float sum = warps[0];
  for (unsigned w = 1; w < blockDim.x / 32; w++) sum += warps[w];
  return sum;
}

}  // namespace dyn

#endif
