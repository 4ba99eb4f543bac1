/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL has from 2.28 on; left out of the older stand-in.
 */
#include "nccl_fake.h"

FAKEGPU_API ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, int type, ncclComm_t comm,
                                      CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_ALLTOALL, send, recv, count, type, ncclSum, 0, stream, NULL, 0});
}
