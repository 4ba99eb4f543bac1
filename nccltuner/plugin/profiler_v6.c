/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v6, NCCL 2.29 to 2.31: adds copy-engine events, which we leave to a chained profiler.
 */
#include "profiler_shim.h"

DYN_PROFILER_FROM_V5(6);
