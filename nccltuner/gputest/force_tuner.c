/* SPDX-License-Identifier: Apache-2.0
 *
 * An NCCL tuner that answers what the sweep asks for and nothing else, with a profiler beside it that says what ran:
 * NCCL caps channels and may leave a forced choice aside, so a sweep that only trusts its own wish measures fiction.
 * Load the same file as NCCL_TUNER_PLUGIN and NCCL_PROFILER_PLUGIN.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../plugin/nccl_profiler_abi.h"
#include "../plugin/nccl_tuner_abi.h"
#include "sweep.h"

static const float kIgnored = -1.0f; /* NCCL_ALGO_PROTO_IGNORE */
static struct sweep_shared *shared;
static struct sweep_rank *self;

/* NULL memory means pass-through: a plugin must not fail a program that was started without the sweep. */
static void attach(void) {
  const char *path = getenv(SWEEP_PATH_ENV), *rank = getenv(SWEEP_RANK_ENV);
  if (shared || !path || !rank) return;
  int index = atoi(rank);
  if (index < 0 || index >= SWEEP_MAX_RANKS) return;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return;
  shared = at;
  self = &shared->ranks[index];
}

static void force(float *costs, int numAlgo, int numProto, int *nChannels) {
  if (!shared) return;
  int a = __atomic_load_n(&shared->algorithm, __ATOMIC_ACQUIRE), p = shared->protocol;
  if (a < 0) return;
  if (a >= numAlgo || p >= numProto || costs[a * numProto + p] == kIgnored) {
    __atomic_store_n(&self->refused, 1, __ATOMIC_RELEASE);
    return;
  }
  costs[a * numProto + p] = 0.0f;
  *nChannels = shared->channels;
}

static int init_old(size_t nRanks, size_t nNodes, dyn_logger log, void **context) {
  (void)nRanks, (void)nNodes, (void)log;
  attach();
  *context = NULL;
  return DYN_NCCL_SUCCESS;
}

static int init_v5(void **context, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log,
                   struct dyn_nccl_nvl_domain_info_v5 *domains, struct dyn_nccl_tuner_constants_v5 *constants) {
  (void)commId, (void)domains, (void)constants;
  return init_old(nRanks, nNodes, log, context);
}

static int answer_v3(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                     int numProto, int *nChannels) {
  (void)context, (void)collective, (void)nBytes;
  if (numPipeOps > 0) force((float *)costs, numAlgo, numProto, nChannels); /* 0: NCCL only weighs symmetric kernels */
  return DYN_NCCL_SUCCESS;
}

static int answer(void *context, int collective, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                  int numProto, int regBuff, int *nChannels) {
  (void)regBuff;
  return answer_v3(context, collective, nBytes, numPipeOps, costs, numAlgo, numProto, nChannels);
}

static int done(void *context) {
  (void)context;
  return DYN_NCCL_SUCCESS;
}

extern const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4;
extern const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5;
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3 = {"forced", init_old, answer_v3, done};
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4 = {"forced", init_old, answer, done};
DYN_TUNER_EXPORT const struct dyn_nccl_tuner_v5 ncclTunerPlugin_v5 = {"forced", init_v5, answer, done};

static int profiler_init(void **context, uint64_t commId, int *eActivationMask, const char *commName, int nNodes,
                         int nranks, int rank, dyn_nccl_logger logfn) {
  (void)commId, (void)commName, (void)nNodes, (void)nranks, (void)rank, (void)logfn;
  attach();
  *context = NULL;
  *eActivationMask = 0; /* the sweep switches Coll on for its check and off for everything that is timed */
  if (self) self->mask = eActivationMask;
  return DYN_NCCL_SUCCESS;
}

static int start_event(void *context, void **eHandle, ncclProfilerEventDescr_v5_t *d) {
  (void)context;
  *eHandle = NULL;
  if (!self || d->type != ncclProfileColl) return DYN_NCCL_SUCCESS;
  snprintf(self->algorithm, sizeof self->algorithm, "%s", d->coll.algo ? d->coll.algo : "");
  snprintf(self->protocol, sizeof self->protocol, "%s", d->coll.proto ? d->coll.proto : "");
  self->channels = d->coll.nChannels;
  __atomic_fetch_add(&self->calls, 1, __ATOMIC_RELEASE);
  return DYN_NCCL_SUCCESS;
}

static int stop_event(void *eHandle) {
  (void)eHandle;
  return DYN_NCCL_SUCCESS;
}

static int record_state(void *eHandle, int eState, ncclProfilerEventStateArgs_v5_t *eStateArgs) {
  (void)eHandle, (void)eState, (void)eStateArgs;
  return DYN_NCCL_SUCCESS;
}

extern const ncclProfiler_v5_t ncclProfiler_v5;
DYN_TUNER_EXPORT const ncclProfiler_v5_t ncclProfiler_v5 = {"forced", profiler_init, start_event, stop_event,
                                                            record_state, done};
