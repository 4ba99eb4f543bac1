/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading and calling the tuner: src/plugin/tuner.cc and src/plugin/tuner/tuner_vN.cc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nccl.h"
#include "tuning.h"

#define SUBSYSTEMS (NCCL_SUBSYS_INIT | NCCL_SUBSYS_TUNING)

enum { LOAD_FAILED = -1, LOAD_READY, LOAD_SUCCESS };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int status = LOAD_READY, references, newestAbi, abi;
static void *library, *table; /* table: ncclTuner_vN_t of version abi */

void nccl_version_set(int code, int maxTunerAbi, int maxProfilerAbi) {
  nccl_version_code(code);
  /* getNcclTuner_v6 from 2.30; profiler v6 from 2.29, v7 in 2.32.3. */
  int tuner = code >= 23000 ? 6 : code >= 22100 ? 5 : 1, profiler = code >= 23200 ? 7 : code >= 22900 ? 6 : code >= 22100 ? 5 : 0;
  newestAbi = maxTunerAbi > 0 && maxTunerAbi < tuner ? maxTunerAbi : tuner;
  profiler_abi_limit(maxProfilerAbi > 0 && maxProfilerAbi < profiler ? maxProfilerAbi : profiler);
}

int tuner_load(int *loaded) {
  pthread_mutex_lock(&mutex);
  if (status == LOAD_SUCCESS) references++;
  if (status == LOAD_READY) {
    const char *name = getenv("NCCL_TUNER_PLUGIN");
    if (name != NULL)
      nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_ENV, __FILE__, __LINE__, "NCCL_TUNER_PLUGIN set by environment to %s", name);
    if (name == NULL || strcasecmp(name, "none") != 0) library = plugin_open(PLUGIN_TUNER, name);
    table = NULL;
    for (abi = newestAbi; library != NULL && table == NULL && abi >= 2; abi--) {
      char symbol[32];
      snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", abi);
      table = dlsym(library, symbol);
      if (table != NULL) break;
    }
    if (table != NULL) {
      status = LOAD_SUCCESS;
      references++;
      *loaded = 1;
      nccl_log(NCCL_LOG_INFO, SUBSYSTEMS, __FILE__, __LINE__, "TUNER/Plugin: Using %s (v%d)", tuner_name(),
               abi);
    } else {
      if (library != NULL)
        nccl_log(NCCL_LOG_INFO, SUBSYSTEMS, __FILE__, __LINE__, "External tuner plugin %s is unsupported",
                 plugin_path(PLUGIN_TUNER));
      plugin_close(PLUGIN_TUNER, library);
      library = NULL;
      abi = 0;
      status = LOAD_FAILED; /* for the life of the process */
    }
  }
  int success = status == LOAD_SUCCESS;
  pthread_mutex_unlock(&mutex);
  return success;
}

void tuner_unload(int *loaded) {
  pthread_mutex_lock(&mutex);
  if (*loaded && --references == 0) {
    nccl_log(NCCL_LOG_INFO, SUBSYSTEMS, __FILE__, __LINE__, "TUNER/Plugin: Closing tuner: '%s'", tuner_name());
    plugin_close(PLUGIN_TUNER, library);
    library = table = NULL;
    status = LOAD_READY;
    *loaded = 0;
  }
  pthread_mutex_unlock(&mutex);
}

int tuner_abi(void) { return table == NULL ? 0 : abi; }
/* The name is the first member in all versions. */
const char *tuner_name(void) { return table == NULL ? "none" : *(const char **)table; }

#define V(N) ((struct dyn_nccl_tuner_v##N *)table)

/* ncclNvlDomainInfo_v5_t and ncclTunerConstants_v5_t, src/include/plugin/tuner/tuner_v5.h */
struct dyn_nccl_nvl_domain_info_v5 { int nNvlDomains, minRanksPerNvlDomain, maxRanksPerNvlDomain; };
struct dyn_nccl_tuner_constants_v5 { double baseLatencies[7][3], hwLatencies[3][7][3], bandwidths[5][4][3]; };

int tuner_init(void **context, uint64_t commId, size_t nRanks, size_t nNodes) {
  /* One NVLink domain a node. The constants are not read back: the harness's model takes them as NCCL's defaults. */
  struct dyn_nccl_nvl_domain_info_v5 domains = {(int)nNodes, (int)(nRanks / nNodes), (int)(nRanks / nNodes)};
  struct dyn_nccl_tuner_constants_v5 constants = {0};
  switch (abi) {
    case 6: return V(6)->init(context, commId, nRanks, nNodes, nccl_log, &domains, &constants);
    case 5: return V(5)->init(context, commId, nRanks, nNodes, nccl_log, &domains, &constants);
    case 4: return V(4)->init(nRanks, nNodes, nccl_log, context);
    case 3: return V(3)->init(nRanks, nNodes, nccl_log, context);
    default: return V(2)->init(nRanks, nNodes, nccl_log, context);
  }
}

/* tuner_v2.cc: support flags read off the cost table, and the answer written into it. */
static int get_coll_info_v2(void *context, int func, size_t bytes, int numPipeOps, float *costs, int *nChannels) {
  float(*cost)[NUM_PROTOS] = (float(*)[NUM_PROTOS])costs;
  int nvls = cost[ALGO_NVLS][PROTO_SIMPLE] != -1.0f || cost[ALGO_NVLS_TREE][PROTO_SIMPLE] != -1.0f;
  int collNet = cost[ALGO_COLLNET_CHAIN][PROTO_SIMPLE] != -1.0f;
  int algo = -1, proto = -1; /* NCCL_ALGO_UNDEF, NCCL_PROTO_UNDEF */
  int result = V(2)->getCollInfo(context, func, bytes, collNet, nvls, numPipeOps, &algo, &proto, nChannels);
  if (result == 0 && algo >= 0 && algo < NUM_ALGOS && proto >= 0 && proto < NUM_PROTOS && cost[algo][proto] != -1.0f)
    cost[algo][proto] = 0.0f;
  return result;
}

int tuner_get_coll_info(void *context, int func, size_t bytes, int numPipeOps, float *costs, int regBuff,
                        int *nChannels) {
  float **c = (float **)costs; /* NCCL casts its two-dimensional array like this, enqueue.cc:1942 */
  switch (abi) {
    case 6: return V(6)->getCollInfo(context, func, bytes, numPipeOps, c, NUM_ALGOS, NUM_PROTOS, regBuff, nChannels);
    case 5: return V(5)->getCollInfo(context, func, bytes, numPipeOps, c, NUM_ALGOS, NUM_PROTOS, regBuff, nChannels);
    case 4: return V(4)->getCollInfo(context, func, bytes, numPipeOps, c, NUM_ALGOS, NUM_PROTOS, regBuff, nChannels);
    case 3: return V(3)->getCollInfo(context, func, bytes, numPipeOps, c, NUM_ALGOS, NUM_PROTOS, nChannels);
    default: return get_coll_info_v2(context, func, bytes, numPipeOps, costs, nChannels);
  }
}

int tuner_get_chunk_size(void *context, int func, size_t bytes, int algo, int proto, int nChannels, size_t *chunkSize) {
  if (abi < 6 || V(6)->getChunkSize == NULL) return 0;
  return V(6)->getChunkSize(context, func, bytes, algo, proto, nChannels, chunkSize);
}

int tuner_finalize(void *context) {
  switch (abi) {
    case 6: return V(6)->finalize(context);
    case 5: return V(5)->finalize(context);
    case 4: return V(4)->destroy(context);
    case 3: return V(3)->destroy(context);
    default: return V(2)->destroy(context);
  }
}
