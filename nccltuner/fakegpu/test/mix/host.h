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
static inline void __nanosleep(unsigned ns) { usleep(ns / 1000); }
static inline void cudaGraphSetConditional(cudaGraphConditionalHandle, unsigned) {}

#endif
