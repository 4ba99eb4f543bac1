/* SPDX-License-Identifier: Apache-2.0 */
#include "dynamiccl.h"

#include "device.h"

int dynamicclVersion(void) { return DYNAMICCL_API_VERSION; }

int dynamicclHasKernels(void *comm) { return dyn_device_has(comm); }

int dynamicclAllReduceAddRmsNorm(const void *input, void *residual, const void *weight, void *output, size_t tokens, size_t width,
                                 float epsilon, int datatype, void *comm, void *stream) {
  struct dyn_norm norm = {input, residual, weight, output, tokens, width, epsilon, datatype, stream};
  return dyn_device_rms_norm(comm, &norm);
}
