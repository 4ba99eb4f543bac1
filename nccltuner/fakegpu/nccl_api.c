/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of nccl.h.
 */
#include "nccl_fake.h"

FAKEGPU_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_BROADCAST, send, recv, count, type, ncclSum, root, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
                                    ncclComm_t comm, CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_REDUCE, send, recv, count, type, op, root, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, int type, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_ALLGATHER, send, recv, count, type, ncclSum, 0, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                                           ncclComm_t comm, CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_REDUCESCATTER, send, recv, count, type, op, 0, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_ALLREDUCE, send, recv, count, type, op, 0, stream, NULL, 0});
}
