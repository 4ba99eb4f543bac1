/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../device on threads of a CPU: what machine.cuh has for a GPU, and a grid. A thread of a grid is a thread
 * here, so blocks have few of them. A line's words are stored and loaded one by one, with anything between them, the number last and first.
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

/* A GPU must have no calls. Here they cost nothing that shows, and compiling without them takes a quarter longer. */
#undef __forceinline__
#define __forceinline__ inline

struct Index { unsigned x; };
extern thread_local Index threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads(); /* of the block */
float *blockShared(); /* of the block: a number for each of its threads */
constexpr unsigned kBlockBytes = 512;
void *blockMemory(); /* of the block: so many bytes */

#ifdef DYN_KERNEL_MUTATE
/* As 0, by who runs the kernels and tests something else: nobody stands still, and who waits leaves the CPU to others. */
inline void perhapsWait() {}
void letOthersRun();
void tells(); /* others, who may wait for it */
#else
/* Now and then a thread stands still here. */
void perhapsWait();
/* Who has looked in vain so often in one call has nobody to wait for who comes soon: a planted mistake, most likely. */
inline thread_local unsigned looks;
inline void letOthersRun() {
  if (++looks < 2000) sched_yield();
  else usleep(1000);
}

inline void tells() {}

/* Number of the mistake that is planted (line.cuh); 0: none. */
extern int planted;
#define DYN_KERNEL_MUTATE planted
#endif

namespace dyn {

constexpr unsigned kSpins = 0;

inline std::atomic<uint64_t> *half(const void *at, int i) { return (std::atomic<uint64_t> *)const_cast<void *>(at) + i; }

/* A line has one thread here, and a warp too. */
constexpr int kWarp = 1, kLineLanes = 1, kLineWords = 16;

inline void storePiece(char *line, const uint2 (&words)[kLineWords], uint32_t number) {
  for (int w = 0; w + 1 < kLineWords; w++) {
    perhapsWait();
    half(line, w)->store(words[w].x | (uint64_t)words[w].y << 32, std::memory_order_relaxed);
  }
  perhapsWait();
  tells();
  half(line, kLineWords - 1)->store(number | (uint64_t)number << 32, std::memory_order_release);
}
inline bool loadPiece(const char *line, uint2 (&words)[kLineWords], uint32_t number) {
  const bool whole = half(line, kLineWords - 1)->load(std::memory_order_acquire) == (number | (uint64_t)number << 32);
  perhapsWait();
  for (int w = 0; w + 1 < kLineWords; w++) {
    const uint64_t word = half(line, w)->load(std::memory_order_relaxed);
    words[w] = make_uint2((uint32_t)word, (uint32_t)(word >> 32));
  }
  return whole;
}
inline uint32_t bitsOfWarp(uint32_t bits) { return bits; }

inline void awaitStream() {}

inline uint32_t loadHost(const uint32_t *at) { return ((const std::atomic<uint32_t> *)at)->load(std::memory_order_relaxed); }
inline uint2 loadBoth(const uint32_t *at) { return make_uint2(loadHost(at), loadHost(at + 1)); }
inline void storeHost(uint64_t *at, uint64_t value) { ((std::atomic<uint64_t> *)at)->store(value, std::memory_order_relaxed); }
inline void storeHost(uint32_t *at, uint32_t value) { ((std::atomic<uint32_t> *)at)->store(value, std::memory_order_relaxed); }
inline uint4 loadWord(const uint4 *at) { return *at; }
inline void storeWord(uint4 *at, const uint4 &word) { *at = word; }
inline void storeRelease(uint32_t *at, uint32_t value) {
  perhapsWait();
  tells();
  ((std::atomic<uint32_t> *)at)->store(value, std::memory_order_release);
}
inline uint32_t loadAcquire(const uint32_t *at) {
  perhapsWait();
  return ((const std::atomic<uint32_t> *)at)->load(std::memory_order_acquire);
}
inline void storeRelease(uint64_t *at, uint64_t value) {
  perhapsWait();
  tells();
  ((std::atomic<uint64_t> *)at)->store(value, std::memory_order_release);
}
inline uint64_t loadAcquire(const uint64_t *at) {
  perhapsWait();
  return ((const std::atomic<uint64_t> *)at)->load(std::memory_order_acquire);
}
inline void countOne(uint32_t *at) { __atomic_fetch_add(at, 1, __ATOMIC_RELAXED); }
inline uint32_t addOne(uint32_t *at) {
  perhapsWait();
  tells();
  return ((std::atomic<uint32_t> *)at)->fetch_add(1, std::memory_order_acq_rel);
}

inline uint64_t globalNs() {
  letOthersRun();
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

inline uint64_t *ownTimes() {
  static thread_local uint64_t times[2];
  return times;
}

template <typename T>
T &inBlock() {
  static_assert(sizeof(T) <= kBlockBytes, "more than a block has");
  return *(T *)blockMemory();
}

inline int lowestBit(uint32_t word) { return __builtin_ctz(word); }
inline float inverseRoot(float x) { return 1 / std::sqrt(x); }

inline bool anyOfBlock(bool own) {
  float *of = blockShared();
  bool any = false;
  __syncthreads();
  of[threadIdx.x] = own;
  __syncthreads();
  for (unsigned t = 0; t < blockDim.x; t++) any |= of[t] != 0;
  return any;
}

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
