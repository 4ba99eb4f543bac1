/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.22 and 2.23: as v2, no communicator is named and no profiler of that time could name it.
 */
#include "comm.h"
#include "nccl_tuner_abi.h"

static int init(size_t nRanks, size_t nNodes, dyn_logger log, void **context) {
  (void)nRanks, (void)nNodes;
  *context = NULL;
  dyn_say_why_once(log, DYN_LOG_INFO, "this NCCL speaks tuner v3, which names no communicator: running plain NCCL; tuning "
               "needs NCCL 2.28, or 2.27 with DynamICCL's profiler");
  dyn_why_tell(0, true);
  return DYN_NCCL_SUCCESS;
}

static int get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int *nChannels) {
  (void)context, (void)collective, (void)nBytes, (void)numPipeOps, (void)costs, (void)numAlgo, (void)numProto;
  (void)nChannels;
  return DYN_NCCL_SUCCESS;
}

static int destroy(void *context) {
  (void)context;
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3 = {DYN_TUNER_NAME, init, get_coll_info, destroy};
