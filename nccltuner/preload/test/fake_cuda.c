/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 that knows which streams are captured.
 */
#include "fake.h"

__attribute__((visibility("default"))) int cuStreamIsCapturing(uintptr_t stream, int *status);
int cuStreamIsCapturing(uintptr_t stream, int *status) {
  if (stream == FAKE_UNKNOWN) return 906;
  *status = stream == FAKE_CAPTURED ? 1 : stream == FAKE_INVALIDATED ? 2 : 0;
  return 0;
}
