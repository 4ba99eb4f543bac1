/* SPDX-License-Identifier: Apache-2.0
 *
 * The types that there are kernels of.
 */
#ifndef DYN_TYPES_H
#define DYN_TYPES_H

/* X(name, type), in the order of ncclDataType_t */
#define DYN_TYPES(X) \
  X(int8, int8_t) X(uint8, uint8_t) X(int32, int32_t) X(uint32, uint32_t) X(int64, int64_t) X(uint64, uint64_t) \
  X(half, __half) X(float, float) X(double, double) X(bfloat16, __nv_bfloat16) \
  X(fp8e4m3, __nv_fp8_e4m3) X(fp8e5m2, __nv_fp8_e5m2)

/* Types of activations. */
#define DYN_NORM_TYPES(X) X(half, __half) X(float, float) X(bfloat16, __nv_bfloat16)

#endif
