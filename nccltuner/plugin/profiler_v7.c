/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v7, NCCL 2.32: adds userTag, kernelVariant and KernelPhase events, which we leave to a chained profiler.
 */
#include "profiler_shim.h"

DYN_PROFILER_FROM_V5(7);
