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

/* 16 bytes, of which each aligned 8 arrive whole. */
__device__ __forceinline__ void storeWords(void *at, uint4 w) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
}
__device__ __forceinline__ uint4 loadWords(const void *at) {
  uint4 w;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(at) : "memory");
  return w;
}

/* Words of host memory, whole. */
__device__ __forceinline__ uint32_t loadHost(const uint32_t *at) { return *(const volatile uint32_t *)at; }
__device__ __forceinline__ void storeHost(uint64_t *at, uint64_t value) { *(volatile uint64_t *)at = value; }

/* What this thread wrote, or saw others of its block write, is seen by who loads the value. */
__device__ __forceinline__ void storeRelease(uint32_t *at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t loadAcquire(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

__device__ __forceinline__ uint64_t globalNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

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
