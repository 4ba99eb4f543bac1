/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills inputs and compares every element of every result, on the GPU. Values are chosen so that results are exact in
 * their type in whatever order NCCL combines them: what is not equal is wrong.
 *  - Collectives that copy: random bits, compared as bits.
 *  - Sum, min, max: integers of so few bits that 16 of them add up exactly (half: 11 bits of significand, bfloat16: 8). Floats
 *    of 8 bits have 4 and 3: eight ranks have something, the others zeros.
 *  - Prod: powers of two, at most four ranks contribute a factor of 2. Avg: see canAverage.
 * Outputs are poisoned before the call, so that one that was not written is seen, and 128 bytes on either side of an
 * output are watched.
 */
#ifndef DYN_MIX_VERIFY_H
#define DYN_MIX_VERIFY_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "mix.h"

// Floats of 8 bits come last: not every GPU has them (options.float8).
enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kHalf, kBfloat16, kFloat, kDouble, kE4m3, kE5m2, kTypes };
enum Op { kSum, kProd, kMin, kMax, kAvg, kOps };
static const ncclDataType_t kNcclTypes[kTypes] = {
    ncclInt8,    ncclUint8,    ncclInt32,   ncclUint32,  ncclInt64,          ncclUint64,
    ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64, (ncclDataType_t)10, (ncclDataType_t)11};  // 10, 11: named from 2.24 on
static const char *const kTypeNames[kTypes] = {"int8",     "uint8", "int32",  "uint32",  "int64",  "uint64", "half",
                                               "bfloat16", "float", "double", "fp8e4m3", "fp8e5m2"};
static const ncclRedOp_t kNcclOps[kOps] = {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg};
static const char *const kOpNames[kOps] = {"sum", "prod", "min", "max", "avg"};

static const int kGuardBytes = 128;
static const int kKeptErrors = 8;
enum Mismatch { kBitsDiffer, kValuesDiffer, kGuardTouched, kInputChanged };

struct MixError {
  unsigned call, replay;
  int mismatch;
  uint64_t index, expected, got;  // kValuesDiffer: the bits of doubles; else raw bits
};
struct MixErrors {                // pinned host memory: the host looks at it without waiting for anything
  unsigned long long wrong;
  MixError first[kKeptErrors];
};

// One rank's view of one call.
struct Spec {
  char *send, *recv, *low, *high;  // low and high: where the output's buffer begins and ends; the guards lie outside
  const unsigned *replay;  // device memory, counts a graph's replays: values differ from one to the next; or null
  MixErrors *errors;
  size_t count;  // as the NCCL call gets it
  size_t sendCount, recvCount, poisonCount;  // elements of this rank
  unsigned seed, call;
  int n, me, root, peerFrom;  // peerFrom: kSendRecv, the rank that this one gets from
  unsigned char kind, type, op, inPlace, checkInput;
};

static __host__ __device__ size_t sizeOf(int type) {
  switch (type) {
    case kInt8:
    case kUint8:
    case kE4m3:
    case kE5m2: return 1;
    case kHalf:
    case kBfloat16: return 2;
    case kInt32:
    case kUint32:
    case kFloat: return 4;
    default: return 8;
  }
}

static __device__ bool isUnsigned(int type) { return type == kUint8 || type == kUint32 || type == kUint64; }

static __host__ __device__ bool copies(int kind) {
  return kind != kAllReduce && kind != kReduceScatter && kind != kReduce;
}

// NCCL multiplies floats by 1/n before it adds them, exact for powers of two; integers it divides at the end, exact for
// multiples of n, of which int8 has room for 8 ranks. Alone in its communicator a rank of NCCL 2.28.9 (no more of 2.30.7) leaves
// out the last elements of floats where count / blocks, rounded down, is a multiple of 16 bytes: src/device/onerank.cu gives
// each block alignUp(nElts / bn, EltPerPack) of them, with no tuner asked.
static bool canAverage(int type, int n) { return type >= kHalf ? n > 1 && (n & (n - 1)) == 0 : n <= 8; }

static __device__ uint64_t randomBits(unsigned seed, int rank, uint64_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)seed << 32 | (unsigned)(rank + 1) * 0x85ebca6bu);
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

static __device__ int64_t summand(int type, int op, int n, int rank, uint64_t bits) {
  if (op == kProd) {
    const int64_t v = rank < 4 && (bits & 1) ? 2 : 1;
    return !isUnsigned(type) && (bits & 2) ? -v : v;
  }
  if (op == kAvg && type < kHalf) return n * ((int64_t)(bits & 3) - (isUnsigned(type) ? 0 : 2));
  if (type == kE4m3 || type == kE5m2) {
    if (rank >= 8) return 0;
    return type == kE4m3 ? (int64_t)(bits & 3) - 2 : (int64_t)(bits & 1) - (int64_t)(bits >> 1 & 1);
  }
  int width = 4;
  switch (type) {
    case kInt32:
    case kUint32: width = 27; break;
    case kInt64:
    case kUint64:
    case kDouble: width = 45; break;
    case kHalf: width = 7; break;
    case kBfloat16: width = 5; break;
    case kFloat: width = 20; break;
  }
  const int64_t v = bits & ((1ull << width) - 1);
  return isUnsigned(type) ? v : v - (1ll << (width - 1));
}

static __device__ void storeBits(char *p, int type, uint64_t i, uint64_t bits) {
  switch (sizeOf(type)) {
    case 1: ((uint8_t *)p)[i] = (uint8_t)bits; break;
    case 2: ((uint16_t *)p)[i] = (uint16_t)bits; break;
    case 4: ((uint32_t *)p)[i] = (uint32_t)bits; break;
    default: ((uint64_t *)p)[i] = bits;
  }
}

static __device__ uint64_t loadBits(const char *p, int type, uint64_t i) {
  switch (sizeOf(type)) {
    case 1: return ((const uint8_t *)p)[i];
    case 2: return ((const uint16_t *)p)[i];
    case 4: return ((const uint32_t *)p)[i];
    default: return ((const uint64_t *)p)[i];
  }
}

static __device__ uint64_t maskOf(int type) { return ~0ull >> (64 - 8 * sizeOf(type)); }

static __device__ void storeNumber(char *p, int type, uint64_t i, int64_t v) {
  switch (type) {
    case kHalf: ((__half *)p)[i] = __float2half_rn((float)v); break;
    case kBfloat16: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)v); break;
    case kFloat: ((float *)p)[i] = (float)v; break;
    case kDouble: ((double *)p)[i] = (double)v; break;
    case kE4m3: ((__nv_fp8_e4m3 *)p)[i] = __nv_fp8_e4m3((float)v); break;
    case kE5m2: ((__nv_fp8_e5m2 *)p)[i] = __nv_fp8_e5m2((float)v); break;
    default: storeBits(p, type, i, (uint64_t)v);
  }
}

static __device__ double loadNumber(const char *p, int type, uint64_t i) {
  switch (type) {
    case kInt8: return ((const int8_t *)p)[i];
    case kUint8: return ((const uint8_t *)p)[i];
    case kInt32: return ((const int32_t *)p)[i];
    case kUint32: return ((const uint32_t *)p)[i];
    case kInt64: return (double)((const int64_t *)p)[i];  // at most 2^49: exact
    case kUint64: return (double)((const uint64_t *)p)[i];
    case kHalf: return __half2float(((const __half *)p)[i]);
    case kBfloat16: return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    case kFloat: return ((const float *)p)[i];
    case kE4m3: return (float)((const __nv_fp8_e4m3 *)p)[i];
    case kE5m2: return (float)((const __nv_fp8_e5m2 *)p)[i];
    default: return ((const double *)p)[i];
  }
}

static __device__ void storeInput(const Spec &s, unsigned seed, uint64_t i) {
  const uint64_t bits = randomBits(seed, s.me, i);
  if (copies(s.kind))
    storeBits(s.send, s.type, i, bits);
  else
    storeNumber(s.send, s.type, i, summand(s.type, s.op, s.n, s.me, bits));
}

static __device__ uint64_t expectedBits(const Spec &s, unsigned seed, uint64_t i) {
  switch (s.kind) {
    case kAllGather: return randomBits(seed, i / s.count, i % s.count);
    case kAllToAll: return randomBits(seed, i / s.count, s.me * s.count + i % s.count);
    case kSendRecv: return randomBits(seed, s.peerFrom, i);
    default: return randomBits(seed, s.root, i);
  }
}

static __device__ double expectedNumber(const Spec &s, unsigned seed, uint64_t i) {
  if (s.kind == kReduceScatter) i += s.me * s.count;
  int64_t all = 0;
  for (int r = 0; r < s.n; r++) {
    const int64_t v = summand(s.type, s.op, s.n, r, randomBits(seed, r, i));
    if (r == 0)
      all = v;
    else if (s.op == kProd)
      all *= v;
    else if (s.op == kMin)
      all = v < all ? v : all;
    else if (s.op == kMax)
      all = v > all ? v : all;
    else
      all += v;
  }
  return s.op == kAvg ? (double)all / s.n : (double)all;
}

static __device__ void report(const Spec &s, int mismatch, uint64_t index, uint64_t expected, uint64_t got) {
  const unsigned long long k = atomicAdd_system(&s.errors->wrong, 1ull);
  if (k < kKeptErrors) s.errors->first[k] = MixError{s.call, s.replay ? *s.replay : 0, mismatch, index, expected, got};
}

static __device__ unsigned seedOf(const Spec &s) { return s.replay ? s.seed + *s.replay * 0x9e3779b9u : s.seed; }

__global__ void mixFill(Spec s) {
  const unsigned seed = seedOf(s);
  const uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, step = gridDim.x * (uint64_t)blockDim.x;
  // AllGather in place: the input lies in the output, the rest of which is poisoned.
  const uint64_t own = s.inPlace && s.kind == kAllGather ? s.me * s.count : 0, ownCount = s.inPlace ? s.sendCount : 0;
  for (uint64_t i = first; i < s.sendCount; i += step) storeInput(s, seed, i);
  for (uint64_t i = first; i < s.poisonCount; i += step)
    if (i < own || i >= own + ownCount) storeBits(s.recv, s.type, i, 0x5a5a5a5a5a5a5a5au);
  for (uint64_t i = first; i < kGuardBytes; i += step) s.low[-1 - (int64_t)i] = s.high[i] = (char)(0xa0 + i % 16);
}

__global__ void mixCheck(Spec s) {
  const unsigned seed = seedOf(s);
  const uint64_t first = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x, step = gridDim.x * (uint64_t)blockDim.x;
  for (uint64_t i = first; i < s.recvCount; i += step) {
    if (copies(s.kind)) {
      const uint64_t expected = expectedBits(s, seed, i) & maskOf(s.type), got = loadBits(s.recv, s.type, i);
      if (got != expected) report(s, kBitsDiffer, i, expected, got);
    } else {
      const double expected = expectedNumber(s, seed, i), got = loadNumber(s.recv, s.type, i);
      if (!(got == expected)) report(s, kValuesDiffer, i, __double_as_longlong(expected), __double_as_longlong(got));
    }
  }
  for (uint64_t i = first; s.checkInput && i < s.sendCount; i += step) {
    const uint64_t bits = randomBits(seed, s.me, i);
    if (copies(s.kind)) {
      const uint64_t got = loadBits(s.send, s.type, i);
      if (got != (bits & maskOf(s.type))) report(s, kInputChanged, i, bits & maskOf(s.type), got);
    } else if (loadNumber(s.send, s.type, i) != (double)summand(s.type, s.op, s.n, s.me, bits)) {
      report(s, kInputChanged, i, 0, loadBits(s.send, s.type, i));
    }
  }
  for (uint64_t i = first; i < kGuardBytes; i += step) {
    const unsigned char expected = 0xa0 + i % 16, before = s.low[-1 - (int64_t)i], after = s.high[i];
    if (before != expected) report(s, kGuardTouched, i, expected, before);
    if (after != expected) report(s, kGuardTouched, kGuardBytes + i, expected, after);
  }
}

// Makes a result wrong: --spoil proves that wrong ones are noticed.
__global__ void mixSpoil(char *byte) { *byte ^= 1; }

__global__ void mixBump(unsigned *replay) { ++*replay; }

// Keeps a stream busy until the host says go, or for `ns` at most, so that a mistake of the test cannot hang it.
__global__ void mixStall(volatile int *go, uint64_t ns) {
  const uint64_t begin = clock64();
  while (!*go && (uint64_t)clock64() - begin < ns * 2) __nanosleep(1000);  // at 2 GHz; slower clocks stall longer
}

static unsigned gridFor(size_t elements) {
  const size_t blocks = (elements + 255) / 256;
  return blocks < 1 ? 1 : blocks > 1024 ? 1024 : (unsigned)blocks;
}

#endif
