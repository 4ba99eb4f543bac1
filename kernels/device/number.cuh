/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's element types and operators. Floats of 16 and 8 bits are added up as float, in the order of ranks on every rank, so
 * all ranks get the same bits; integers of 8 bits as int, so that an average does not overflow on its way.
 */
#ifndef DYN_NUMBER_CUH
#define DYN_NUMBER_CUH

#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace dyn {

/* The same bits. */
template <typename To, typename From>
__device__ __forceinline__ To as(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "of the same size");
  To to;
  memcpy((void *)&to, &from, sizeof to);
  return to;
}

enum class Op { sum, prod, max, min, avg }; /* ncclRedOp_t */

/* What is added up of the two types that are added up mostly is widened and rounded two at a time, in 32 bits: element by element takes
 * twice as many instructions. */
struct NoPairs {
  static constexpr bool kPairs = false;
};

template <typename T>
struct Number : NoPairs { // double, float and the integers of 32 and 64 bits
  using Wide = T;
  static __device__ Wide up(T x) { return x; }
  static __device__ T down(Wide x) { return x; }
};
template <>
struct Number<int8_t> : NoPairs {
  using Wide = int32_t;
  static __device__ Wide up(int8_t x) { return x; }
  static __device__ int8_t down(Wide x) { return (int8_t)x; }
};
template <>
struct Number<uint8_t> : NoPairs {
  using Wide = uint32_t;
  static __device__ Wide up(uint8_t x) { return x; }
  static __device__ uint8_t down(Wide x) { return (uint8_t)x; }
};
template <>
struct Number<__half> {
  using Wide = float;
  static __device__ Wide up(__half x) { return __half2float(x); }
  static __device__ __half down(Wide x) { return __float2half_rn(x); }
  static constexpr bool kPairs = true;
  static __device__ float2 up(uint32_t pair) { return __half22float2(as<__half2>(pair)); }
  static __device__ uint32_t down(float low, float high) { return as<uint32_t>(__floats2half2_rn(low, high)); }
};
template <>
struct Number<__nv_bfloat16> {
  using Wide = float;
  static __device__ Wide up(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 down(Wide x) { return __float2bfloat16_rn(x); }
  static constexpr bool kPairs = true;
  static __device__ float2 up(uint32_t pair) { return make_float2(as<float>(pair << 16), as<float>(pair & 0xffff0000u)); }
  static __device__ uint32_t down(float low, float high) { return as<uint32_t>(__floats2bfloat162_rn(low, high)); }
};
template <>
struct Number<__nv_fp8_e4m3> : NoPairs {
  using Wide = float;
  static __device__ Wide up(__nv_fp8_e4m3 x) { return (float)x; }
  static __device__ __nv_fp8_e4m3 down(Wide x) { return __nv_fp8_e4m3(x); }
};
template <>
struct Number<__nv_fp8_e5m2> : NoPairs {
  using Wide = float;
  static __device__ Wide up(__nv_fp8_e5m2 x) { return (float)x; }
  static __device__ __nv_fp8_e5m2 down(Wide x) { return __nv_fp8_e5m2(x); }
};

template <typename Wide>
__device__ __forceinline__ bool isNaN(Wide) { return false; }
template <>
__device__ __forceinline__ bool isNaN(float x) { return x != x; }
template <>
__device__ __forceinline__ bool isNaN(double x) { return x != x; }

/* The operator is an argument and no template's: every thread takes the same branch, and there is a fifth of the kernels.
 * Of a number and NaN min and max are the number, as NCCL's are: so nothing gets lost in whatever order ranks come. */
template <typename Wide>
__device__ __forceinline__ Wide combine(Op op, Wide a, Wide b) {
  switch (op) {
    case Op::prod: return a * b;
    case Op::min: return b < a || isNaN(a) ? b : a;
    case Op::max: return a < b || isNaN(a) ? b : a;
    default: return a + b;
  }
}

/* What is left to do once all ranks' parts are combined. */
template <typename Wide>
__device__ __forceinline__ Wide finish(Op op, Wide a, int nRanks) {
  return op == Op::avg ? a / (Wide)nRanks : a;
}

}  // namespace dyn

#endif
