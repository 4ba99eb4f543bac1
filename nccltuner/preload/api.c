/* SPDX-License-Identifier: Apache-2.0 */
#include "dynamiccl.h"

#include "../abi.h"
#include "device.h"

int dynamicclVersion(void) { return DYNAMICCL_API_VERSION; }

int dynamicclHasKernels(void *comm) { return dyn_device_has(comm); }

int dynamicclAllReduceAddRmsNorm(const void *input, void *residual, const void *weight, void *output, size_t tokens, size_t width,
                                 float epsilon, int datatype, void *comm, void *stream) {
  struct dyn_norm norm = {input, residual, weight, output, tokens, width, epsilon, datatype, stream};
  return dyn_device_rms_norm(comm, &norm);
}

_Static_assert(DYNAMICCL_LSA == DYN_PATH_LSA && DYNAMICCL_GIN == DYN_PATH_GIN, "ways are paths");

int dynamicclHasAllToAllv(void *comm, int way) { return dyn_device_can_exchange(comm, way); }

int dynamicclAllToAllv(const void *send, const size_t *sendCounts, const size_t *sendOffsets, void *recv, const size_t *recvCounts, const size_t *recvOffsets,
                       int datatype, int way, void *comm, void *stream) {
  struct dyn_exchange exchange = {send, sendCounts, sendOffsets, recv, recvCounts, recvOffsets, datatype, way, stream, NULL};
  return dyn_device_exchange(comm, &exchange);
}
