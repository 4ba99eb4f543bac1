/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel, under a plain name for those who load it with the driver's API: KERNEL_TYPE, as in oneShot_bfloat16; those
 * that copy have no type.
 */
#ifndef DYN_KERNELS_CUH
#define DYN_KERNELS_CUH

#include "device/all_reduce_bulk.cuh"
#include "device/all_reduce_rms_norm.cuh"
#include "device/move.cuh"
#include "device/parts_bulk.cuh"
#include "device/parts_differ.cuh"
#include "device/reduce_scatter.cuh"
#include "types.h"

/* Few blocks, each alone on its multiprocessor: registers for that, or the compiler stops at half of them and spills. */
#define DYN_KERNEL extern "C" __global__ void __launch_bounds__(dyn::kThreads, 1)
#define DYN_CALL const __grid_constant__ dyn::Call c
#define DYN_BULK const __grid_constant__ dyn::Bulk b
#define DYN_PARTS const __grid_constant__ dyn::Parts p
#define DYN_TYPED(NAME, TYPE) \
  DYN_KERNEL oneShot_##NAME(DYN_CALL) { dyn::allReduceOneShot<TYPE>(c); } \
  DYN_KERNEL twoShot_##NAME(DYN_CALL) { dyn::allReduceTwoShot<TYPE>(c); } \
  DYN_KERNEL bulk_##NAME(DYN_CALL, DYN_BULK) { dyn::allReduceBulk<TYPE>(c, b); } \
  DYN_KERNEL reduceScatter_##NAME(DYN_CALL) { dyn::reduceScatter<TYPE>(c); } \
  DYN_KERNEL reduceScatterBulk_##NAME(DYN_CALL, DYN_BULK) { dyn::reduceScatterBulk<TYPE>(c, b); }
DYN_TYPES(DYN_TYPED)
DYN_KERNEL allGather(DYN_CALL) { dyn::allGather(c); }
DYN_KERNEL allGatherBulk(DYN_CALL, DYN_BULK) { dyn::allGatherBulk(c, b); }
DYN_KERNEL allToAll(DYN_CALL) { dyn::allToAll(c); }
DYN_KERNEL allToAllBulk(DYN_CALL, DYN_BULK) { dyn::allToAllBulk(c, b); }
DYN_KERNEL allToAllV(DYN_CALL, DYN_BULK, DYN_PARTS) { dyn::allToAllV(c, b, p); }
DYN_KERNEL DYN_KERNEL_LAYOUT() {}
DYN_KERNEL broadcast(DYN_CALL, int root) { dyn::broadcast(c, root); }
#define DYN_NORM(NAME, TYPE) \
  DYN_KERNEL allReduceAddRmsNorm_##NAME(DYN_CALL, const __grid_constant__ dyn::RmsNorm n) { dyn::allReduceAddRmsNorm<TYPE>(c, n); }
DYN_NORM_TYPES(DYN_NORM)
#undef DYN_NORM
#undef DYN_TYPED
#undef DYN_CALL
#undef DYN_BULK
#undef DYN_PARTS
#undef DYN_KERNEL

#endif
