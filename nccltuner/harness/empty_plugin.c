/* SPDX-License-Identifier: Apache-2.0
 *
 * A tuner that does nothing (v5 and v6): what getCollInfo costs at the least, for comparison. No profiler.
 */
#include "../plugin/nccl_tuner_abi.h"

static int init(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
                struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants) {
  (void)commId, (void)nRanks, (void)nNodes, (void)log, (void)domains, (void)constants;
  *context = NULL;
  return 0;
}

static int get_coll_info(void *context, int func, size_t bytes, int numPipeOps, float **costs, int numAlgo,
                         int numProto, int regBuff, int *nChannels) {
  (void)context, (void)func, (void)bytes, (void)numPipeOps, (void)costs, (void)numAlgo, (void)numProto, (void)regBuff;
  (void)nChannels;
  return 0;
}

static int finalize(void *context) {
  (void)context;
  return 0;
}

DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5 = {"Empty", init, get_coll_info, finalize};
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6 = {"Empty", init, get_coll_info, finalize, NULL};
