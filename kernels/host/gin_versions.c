/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of NCCL for a device communicator, and what was granted, where its versions differ (nccl_gin.h).
 *   2.28.9 has one backend on a communicator, which cannot be asked for, and makes as many contexts as NCCL_GIN_NCONTEXTS says
 *     (4), whatever is asked for. Signals are asked for directly, not by a list of requirements, in which they are forgotten
 *     (deepCopyDevCommRequirements), and begin where those of the device communicator before end.
 *   2.32.3 connects a communicator by every backend that all its ranks have (ncclGinConnectOnce), registers windows with each
 *     (ncclGinRegister), and each device communicator names its own (ncclGinDevCommSetup). Contexts are as many as asked for,
 *     up to a multiple of the connections, which all ranks have to ask for alike and NCCL_GIN_NCONTEXTS says nothing of, and
 *     signals begin at 0.
 */
#include <limits.h>

#include "gin_life.h"

uint32_t dyn_gin_backend_of(int type) {
  return type == DYN_NCCL_GIN_GDAKI ? DYN_BACKEND_GDAKI : type == DYN_NCCL_GIN_PROXY ? DYN_BACKEND_PROXY : DYN_GIN_NO_BACKEND;
}

/* Of several types it is none. */
static uint32_t backend_of_all(const uint8_t *types, int count) {
  for (int i = 1; i < count; i++)
    if (types[i] != types[0]) return DYN_GIN_NO_BACKEND;
  return dyn_gin_backend_of(types[0]);
}

int dyn_gin_types(const struct dyn_gin_nccl *nccl, void *comm, size_t *count, int types[DYN_GIN_LIVES]) {
  static const int known[DYN_GIN_LIVES] = {DYN_NCCL_GIN_GDAKI, DYN_NCCL_GIN_PROXY};
  *count = 0;
  if (nccl->version == 22809) {
    types[(*count)++] = DYN_NCCL_GIN_ANY;
    return DYN_NCCL_SUCCESS;
  }
  struct dyn_nccl_properties_23203 has = {.size = sizeof has, .magic = DYN_NCCL_MAGIC, .version = 23203};
  int result = nccl->ncclCommQueryProperties(comm, &has);
  for (int i = 0; i < DYN_GIN_LIVES && result == DYN_NCCL_SUCCESS; i++)
    if (has.ginSupport[known[i]]) types[(*count)++] = known[i];
  return result;
}

static int ask_22809(const struct dyn_gin_nccl *nccl, void *comm, const struct dyn_gin_wants *wants, union dyn_nccl_dev_comm *device) {
  const struct dyn_nccl_requirements_22809 asked = {
      .ginForceEnable = true, .ginContextCount = wants->contexts, .ginSignalCount = wants->signals, .ginCounterCount = wants->counters};
  return nccl->ncclDevCommCreate(comm, &asked, device);
}

/* Signals have to be strong ones, which stand behind all puts before them (gin/net.cuh), and need not lie in windows. */
static int ask_23203(const struct dyn_gin_nccl *nccl, void *comm, const struct dyn_gin_wants *wants, union dyn_nccl_dev_comm *device) {
  const struct dyn_nccl_requirements_23203 asked = {
      .size = sizeof asked, .magic = DYN_NCCL_MAGIC, .version = 23203, .ginContextCount = wants->contexts, .ginSignalCount = wants->signals,
      .ginCounterCount = wants->counters, .ginConnectionType = DYN_NCCL_GIN_FULL, .ginTrafficClass = INT_MIN, .ginStrongSignalsRequired = true,
      .ginCustomStride = 1, .ginType = wants->type};
  return nccl->ncclDevCommCreate(comm, &asked, device);
}

int dyn_gin_ask(const struct dyn_gin_nccl *nccl, void *comm, const struct dyn_gin_wants *wants, union dyn_nccl_dev_comm *device) {
  return (nccl->version == 22809 ? ask_22809 : ask_23203)(nccl, comm, wants, device);
}

static int least(int a, int b) { return a < b ? a : b; }

/* As NCCL reads numbers. 2.28.9 reads this one by itself. */
uint32_t dyn_gin_own_contexts(void) {
  const char *text = getenv("NCCL_GIN_NCONTEXTS");
  char *end = NULL;
  long long n = text == NULL ? 0 : strtoll(text, &end, 0);
  return n >= 1 && n <= DYN_GIN_MAX_CONTEXTS && *end == '\0' ? (uint32_t)n : 0;
}

static int contexts_of(const struct dyn_offer *offer) { return offer->contexts > 0 ? (int)offer->contexts : DYN_GIN_MAX_CONTEXTS; }

bool dyn_gin_can_agree(int version, const struct dyn_offer *offers, uint32_t nRanks) {
  int here = 0; /* of ranks on other hosts nothing is known */
  for (uint32_t r = 0; r < nRanks && version == 22809; r++) {
    if (offers[r].pid == 0) continue;
    if (here != 0 && contexts_of(&offers[r]) != here) return false;
    here = contexts_of(&offers[r]);
  }
  return true;
}

int dyn_gin_least_contexts(const struct dyn_offer *offers, uint32_t nRanks) {
  int contexts = DYN_GIN_MAX_CONTEXTS;
  for (uint32_t r = 0; r < nRanks; r++) contexts = least(contexts, contexts_of(&offers[r]));
  return contexts;
}

struct dyn_gin_granted dyn_gin_granted(int version, const union dyn_nccl_dev_comm *device) {
  const struct dyn_nccl_dev_comm_22809 *old = &device->v22809;
  const struct dyn_nccl_dev_comm_23203 *d = &device->v23203;
  if (version == 22809)
    return (struct dyn_gin_granted){.rank = old->rank, .nRanks = old->nRanks, .lsaRank = old->lsaRank, .lsaSize = old->lsaSize, .contexts = old->ginContextCount,
                                    .signals = old->ginSignalCount, .counters = old->ginCounterCount, .backend = backend_of_all(old->ginTypes, least(old->ginContextCount, 4))};
  return (struct dyn_gin_granted){.rank = d->rank, .nRanks = d->nRanks, .lsaRank = d->lsaRank, .lsaSize = d->lsaSize, .contexts = d->ginContextCount,
                                  .signals = d->ginSignalCount, .counters = d->ginCounterCount, .backend = backend_of_all(d->ginNetDeviceTypes, least(d->ginConnectionCount, 4))};
}

void *dyn_gin_handle(int version, const union dyn_nccl_dev_comm *device) {
  return version == 22809 ? device->v22809.ginHandles[0] : device->v23203.ginHandles[0];
}
