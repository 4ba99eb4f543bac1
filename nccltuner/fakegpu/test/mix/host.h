/* SPDX-License-Identifier: Apache-2.0
 *
 * What translate.py has mix include in place of CUDA's runtime: its kernels are functions that one thread runs, when all that its stream had
 * before is over.
 */
#ifndef MIX_HOST_H
#define MIX_HOST_H

#include <cuda_runtime.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct MixOne {
  unsigned x;
};
static const MixOne blockIdx = {0}, threadIdx = {0}, blockDim = {1}, gridDim = {1};

static inline void mixBehind(cudaStream_t stream) { cudaStreamSynchronize(stream); }
static inline unsigned long long atomicAdd_system(unsigned long long *at, unsigned long long n) { return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST); }
static inline long long __double_as_longlong(double value) {
  long long bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static inline long long clock64() { // at 2 GHz
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (t.tv_sec * 1000000000ll + t.tv_nsec) * 2;
}

/* A kernel that asks for type and operator at each element, which takes a CPU longer than the rest: once more for each of those that are drawn. */
#define MIX_FOR(NAME, TYPE, OP) if (s.type == TYPE && s.op == OP) s.type = TYPE, s.op = OP, NAME##As(s); else
#define MIX_OFTEN(NAME) \
  static inline __attribute__((always_inline)) void NAME##As(Spec s); \
  __attribute__((flatten)) static void NAME(Spec s) { \
    MIX_FOR(NAME, kFloat, kSum) MIX_FOR(NAME, kFloat, kAvg) MIX_FOR(NAME, kBfloat16, kSum) MIX_FOR(NAME, kBfloat16, kAvg) \
    NAME##As(s); \
  } \
  static inline __attribute__((always_inline)) void NAME##As(Spec s)

static inline void __nanosleep(unsigned ns) { usleep(ns / 1000); }
static inline void cudaGraphSetConditional(cudaGraphConditionalHandle, unsigned) {}

#endif
