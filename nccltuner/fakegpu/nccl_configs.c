/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls with a configuration, which NCCL has from 2.31 on; left out of the older stand-in.
 */
#include "nccl_fake.h"

/* ncclCollConfig_v23100 */
struct coll_config {
  size_t size;
  unsigned magic, version;
  void *ext;
  int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
  const char *algSelection;
  int forceAlgSelection, CTAPolicy;
  uint64_t userProfilerTag;
};

static ncclResult_t configured(struct ncclComm *comm, struct call call, const struct coll_config *config) {
  if (config != NULL && (config->magic != 0xcafebeef || config->size < sizeof *config || config->version < 23100 || (unsigned)config->forceAlgSelection > 1))
    return nccl_fail(ncclInvalidArgument, "ncclCollConfig_t magic mismatch");
  if (config != NULL) {
    call.selection = config->algSelection;
    call.force = config->forceAlgSelection;
  }
  return nccl_collective(comm, &call);
}

FAKEGPU_API ncclResult_t ncclAllReduceConfig(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, CUstream stream,
                                             const struct coll_config *config) {
  return configured(comm, (struct call){FUNC_ALLREDUCE, send, recv, count, type, op, 0, stream, NULL, 0}, config);
}

FAKEGPU_API ncclResult_t ncclAllGatherConfig(const void *send, void *recv, size_t count, int type, ncclComm_t comm, CUstream stream,
                                             const struct coll_config *config) {
  return configured(comm, (struct call){FUNC_ALLGATHER, send, recv, count, type, ncclSum, 0, stream, NULL, 0}, config);
}

FAKEGPU_API ncclResult_t ncclReduceScatterConfig(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, CUstream stream,
                                                 const struct coll_config *config) {
  return configured(comm, (struct call){FUNC_REDUCESCATTER, send, recv, count, type, op, 0, stream, NULL, 0}, config);
}
