/* SPDX-License-Identifier: Apache-2.0
 *
 * A tuner that answers nothing, and writes to the descriptor ASKED_FD a line for each question: collective (ncclFunc_t), bytes, numPipeOps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../plugin/nccl_tuner_abi.h"

static int ask(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo, int numProto, int regBuff, int *nChannels) {
  (void)context, (void)costs, (void)numAlgo, (void)numProto, (void)regBuff, (void)nChannels;
  const char *fd = getenv("ASKED_FD");
  if (fd) dprintf(atoi(fd), "%d %zu %d\n", collective, nBytes, numPipeOps);
  return DYN_NCCL_SUCCESS;
}
static int init(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log, struct dyn_nccl_nvl_domain_info_v5 *domains,
                struct dyn_nccl_tuner_constants_v5 *constants) {
  (void)commId, (void)nRanks, (void)nNodes, (void)log, (void)domains, (void)constants;
  *context = NULL;
  return DYN_NCCL_SUCCESS;
}
static int end(void *context) {
  (void)context;
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5;
extern const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5 = {"asked", init, ask, end};
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v6 ncclTunerPlugin_v6 = {"asked", init, ask, end, NULL};
