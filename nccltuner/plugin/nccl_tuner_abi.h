/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's tuner plugin interfaces, versions 2 to 6, written down from its public headers. Which NCCL looks for which (it
 * takes the newest that it finds, and older ones too):
 *   v2  2.21            src/include/nccl_tuner.h, v2.21.5-1       (2.19 and 2.20 know v1 only, which has no context)
 *   v3  2.22, 2.23      src/include/nccl_tuner.h, v2.22.3-1
 *   v4  2.24 to 2.27    src/include/nccl_tuner.h, v2.24.3-1; from v2.27.3-1 src/include/plugin/tuner/tuner_v4.h
 *   v5  2.28, 2.29      src/include/plugin/tuner/tuner_v5.h, v2.28.3-1
 *   v6  from 2.30       src/include/plugin/tuner/tuner_v6.h, v2.30.3-1
 * Enums are int in their ABI: ncclResult_t (0 is ncclSuccess), ncclFunc_t (src/include/nccl_common.h).
 * costs: NCCL's collCostTable is declared float** but is a float[numAlgo][numProto] (initCollCostTable,
 * src/enqueue.cc).
 */
#ifndef DYN_NCCL_TUNER_ABI_H
#define DYN_NCCL_TUNER_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "plugin.h"

#define DYN_NCCL_SUCCESS 0
#define DYN_NCCL_REMOTE_ERROR 6
#define DYN_TUNER_NAME "DynamICCL"
#define DYN_TUNER_EXPORT __attribute__((visibility("default")))

/* Only pointers to them pass through us. */
struct dyn_nccl_nvl_domain_info_v5;
struct dyn_nccl_tuner_constants_v5;

struct dyn_nccl_tuner_v2 {
  const char *name;
  int (*init)(size_t nRanks, size_t nNodes, dyn_logger log, void **context);
  int (*getCollInfo)(void *context, int collective, size_t nBytes, int collNetSupport, int nvlsSupport, int numPipeOps,
                     int *algorithm, int *protocol, int *nChannels);
  int (*destroy)(void *context);
};

struct dyn_nccl_tuner_v3 {
  const char *name;
  int (*init)(size_t nRanks, size_t nNodes, dyn_logger log, void **context);
  int (*getCollInfo)(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                     int numProto, int *nChannels);
  int (*destroy)(void *context);
};

struct dyn_nccl_tuner_v4 {
  const char *name;
  int (*init)(size_t nRanks, size_t nNodes, dyn_logger log, void **context);
  int (*getCollInfo)(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                     int numProto, int regBuff, int *nChannels);
  int (*destroy)(void *context);
};

struct dyn_nccl_tuner_v5 {
  const char *name;
  int (*init)(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
              struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants);
  int (*getCollInfo)(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                     int numProto, int regBuff, int *nChannels);
  int (*finalize)(void *context);
};

struct dyn_nccl_tuner_v6 {
  const char *name;
  int (*init)(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
              struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants);
  int (*getCollInfo)(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                     int numProto, int regBuff, int *nChannels);
  int (*finalize)(void *context);
  int (*getChunkSize)(void *context, int collective, size_t nBytes, int algorithm, int protocol, int nChannels,
                      size_t *chunkSize); /* NULL: NCCL's own */
};

/* Of getCollInfo: an error fails the call, and that is better than ranks that run it in different ways. */
static inline int dyn_tuner_result(const void *context) {
  return context && DYN_RARELY(((const struct dyn_comm *)context)->lost) ? DYN_NCCL_REMOTE_ERROR : DYN_NCCL_SUCCESS;
}

#endif
