/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.30 on: v5 and a say in the chunk size, which we leave to NCCL.
 *
 * From 2.31 on one collective asks up to three times (src/tuning/tuning.cc and src/scheduler/symmetric_sched.cc). On
 * 2.32.3, for every sum of AllReduce and ReduceScatter, and AllGather: first for a symmetric kernel, with every entry
 * marked -1; then whether to fall back from it; then in ncclGetAlgoInfo, as always. The first two have numPipeOps 0 and for
 * AllGather and ReduceScatter the bytes of one rank's part in cells of 1 KiB. With NCCL_SYM_NOWIN_ENABLE=1 an answer of LL
 * to the second runs NCCL's device kernel and the third is never asked: 4x H200, AllReduce 1 KiB 4.7 us. Without it the
 * answer has no part in what runs. In a group the third may come all the same: it is then a call of its own, on every
 * rank alike. numPipeOps is the same on every rank and at least 1 in a real call (enqueue.cc, nTasksPerChannel).
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
  (void)regBuff; /* it differs between ranks: a choice that looked at it would, too */
  if (!context) return DYN_NCCL_SUCCESS;
  if (numPipeOps > 0)
    dyn_choose(context, collective, nBytes, (float *)costs, numAlgo, numProto, nChannels);
  else
    dyn_choose_device(context, collective, nBytes, (float *)costs, numAlgo, numProto);
  return dyn_tuner_result(context);
}

static int finalize(void *context) {
  dyn_comm_release_tuner(context);
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6 = {DYN_TUNER_NAME, init, get_coll_info, finalize,
                                                                      NULL};
