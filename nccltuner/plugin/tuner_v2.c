/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.21. It names no communicator and has no profiler that could, so nobody can prove that all ranks answer alike:
 * every communicator runs NCCL's own choices (docs/design.md, decision 8).
 */
#include "comm.h"
#include "nccl_tuner_abi.h"

static int init(size_t nRanks, size_t nNodes, dyn_logger log, void **context) {
  (void)nRanks, (void)nNodes;
  *context = NULL;
  dyn_say_why_once(log, DYN_LOG_INFO, "this NCCL speaks tuner v2, which names no communicator: running plain NCCL; tuning "
               "needs NCCL 2.28, or 2.27 with DynamICCL's profiler");
  dyn_why_tell(0, true);
  return DYN_NCCL_SUCCESS;
}

static int get_coll_info(void *context, int collective, size_t nBytes, int collNetSupport, int nvlsSupport,
                         int numPipeOps, int *algorithm, int *protocol, int *nChannels) {
  (void)context, (void)collective, (void)nBytes, (void)collNetSupport, (void)nvlsSupport, (void)numPipeOps;
  (void)algorithm, (void)protocol, (void)nChannels;
  return DYN_NCCL_SUCCESS;
}

static int destroy(void *context) {
  (void)context;
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v2 ncclTunerPlugin_v2;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v2 ncclTunerPlugin_v2 = {DYN_TUNER_NAME, init, get_coll_info, destroy};
