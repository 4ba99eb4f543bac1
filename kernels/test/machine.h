/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../device on threads of a CPU: what machine.cuh has for a GPU, and a grid. A thread of a grid is a thread
 * here, so blocks have few of them. Stores of 16 bytes are two of 8, with anything between them.
 */
#ifndef DYN_TEST_MACHINE_H
#define DYN_TEST_MACHINE_H

#include <atomic>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <sched.h>
#include <unistd.h>

#include <vector_functions.h>
#include <vector_types.h>

#undef __launch_bounds__
#undef __grid_constant__
#define __launch_bounds__(...)
#define __grid_constant__

struct Index { unsigned x; };
extern thread_local Index threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads(); /* of the block */
float *blockShared(); /* of the block: a number for each of its threads */

#ifdef DYN_KERNEL_MUTATE
/* As 0, by who runs the kernels and tests something else: nobody stands still, and a wait that lasts leaves the CPU to
 * others. */
inline void perhapsWait() {}
inline void letOthersRun() {
  static thread_local unsigned looks;
  if (++looks % 64 == 0) usleep(20);
  else sched_yield();
}
#else
/* Now and then a thread stands still here. */
void perhapsWait();
inline void letOthersRun() { sched_yield(); }

/* Number of the mistake that is planted (line.cuh); 0: none. */
extern int planted;
#define DYN_KERNEL_MUTATE planted
#endif

namespace dyn {

constexpr unsigned kSpins = 0;

inline std::atomic<uint64_t> *half(const void *at, int i) { return (std::atomic<uint64_t> *)const_cast<void *>(at) + i; }

inline void storeWords(void *at, uint4 w) {
  perhapsWait();
  half(at, 0)->store(w.x | (uint64_t)w.y << 32, std::memory_order_relaxed);
  perhapsWait();
  half(at, 1)->store(w.z | (uint64_t)w.w << 32, std::memory_order_relaxed);
}
inline uint4 loadWords(const void *at) {
  uint64_t second = half(at, 1)->load(std::memory_order_relaxed);
  perhapsWait();
  uint64_t first = half(at, 0)->load(std::memory_order_relaxed);
  return make_uint4((uint32_t)first, (uint32_t)(first >> 32), (uint32_t)second, (uint32_t)(second >> 32));
}

inline uint32_t loadHost(const uint32_t *at) { return ((const std::atomic<uint32_t> *)at)->load(std::memory_order_relaxed); }
inline void storeHost(uint64_t *at, uint64_t value) { ((std::atomic<uint64_t> *)at)->store(value, std::memory_order_relaxed); }
inline void storeRelease(uint32_t *at, uint32_t value) {
  perhapsWait();
  ((std::atomic<uint32_t> *)at)->store(value, std::memory_order_release);
}
inline uint32_t loadAcquire(const uint32_t *at) {
  perhapsWait();
  return ((const std::atomic<uint32_t> *)at)->load(std::memory_order_acquire);
}

inline uint64_t globalNs() {
  letOthersRun();
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

inline float inverseRoot(float x) { return 1 / std::sqrt(x); }

inline float blockSum(float own) {
  float *parts = blockShared(), sum = 0;
  __syncthreads();
  parts[threadIdx.x] = own;
  perhapsWait();
  __syncthreads();
  for (unsigned t = 0; t < blockDim.x; t++) sum += parts[t];
  return sum;
}

}  // namespace dyn

#endif
