/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiler v5, NCCL 2.28: API events (with graphCaptured) above Coll; the type is 64 bits wide.
 */
#include "profiler_shim.h"

DYN_PROFILER_FROM_V5(5);
