/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.24 to 2.27. The tuner is told no communicator id, but a profiler of version 4 is, in the same thread just
 * before: then it is tuned like a newer NCCL, else it passes through.
 */
#include "nccl_tuner_abi.h"

static int init(size_t nRanks, size_t nNodes, dyn_logger log, void **context) {
  *context = dyn_comm_claim(context, 0, 0, nRanks, nNodes, log);
  return DYN_NCCL_SUCCESS;
}

static int get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int regBuff, int *nChannels) {
  (void)numPipeOps, (void)regBuff; /* regBuff differs between ranks: a choice that looked at it would, too */
  if (context) dyn_choose(context, collective, nBytes, (float *)costs, numAlgo, numProto, nChannels);
  return dyn_tuner_result(context);
}

static int destroy(void *context) {
  dyn_comm_release_tuner(context);
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4 = {DYN_TUNER_NAME, init, get_coll_info, destroy};
