/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.28 and 2.29: the first that tells the tuner which communicator it is.
 */
#include "nccl_tuner_abi.h"

static int init(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
                struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants) {
  (void)domains, (void)constants;
  *context = dyn_comm_claim(context, 1, commId, nRanks, nNodes, log);
  return DYN_NCCL_SUCCESS;
}

static int get_coll_info(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int regBuff, int *nChannels) {
  (void)numPipeOps, (void)regBuff; /* regBuff differs between ranks: a choice that looked at it would, too */
  if (context) dyn_choose(context, collective, nBytes, (float *)costs, numAlgo, numProto, nChannels);
  return dyn_tuner_result(context);
}

static int finalize(void *context) {
  dyn_comm_release_tuner(context);
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5 = {DYN_TUNER_NAME, init, get_coll_info, finalize};
