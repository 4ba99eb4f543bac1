/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that NCCL 2.30.5 and later take GIN of type GDAKI from, v14: NCCL_GIN_PLUGIN=libnccl-net-dynamiccl-carrier.so. Read from
 * 2.30.7's source (src/plugin/gin.cc, src/gin/gin_host.cc) and 2.32.3's library and headers. Type Proxy is NCCL's alone there, over
 * the table of plugin_rma.c, and 2.32.3 has both types on one communicator, GDAKI first (ncclGinSetDefaultBackend).
 *
 * What is another way than with v11:
 *   - Nothing but type GDAKI is taken from a GIN plugin, so where that is not there or not wanted init says no, and NCCL goes on.
 *   - A connection is shared by device communicators, each of which makes contexts on it, any number at once: ginCtx is those of
 *     one. Memory is registered on the connection, with one handle for all of them (nic/port.h).
 *   - Queues have layout 200, and there are gets.
 *   - In 2.32.3 one thread of NCCL's moves what contexts of type Proxy put and asks those of type GDAKI for progress, so nothing here is
 *     done by it that could wait.
 */
#include <stdlib.h>

#include "nccl_gin_abi.h"
#include "nic/gdaki_abi.h"
#include "nic/nic.h"
#include "nic/port.h"
#include "plugin.h"
#include "say.h"

struct granted { /* ginCtx */
  struct carrier *c;
  struct nic_contexts *contexts;
};

static int gdaki_init(void **ctx, uint64_t commId, ncclDebugLogger_t logger) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  *ctx = NULL;
  carrier_logger(logger);
  if (!nic_is_wanted()) return ncclInvalidUsage; /* the proxy is there all the same */
  int result = plugin_announce(&said, "a kernel that plays the network card");
  return result == ncclSuccess ? gin_init(ctx, commId, logger) : result;
}

/* Every signal waits for all puts before it, and may be anywhere in registered memory. */
static int gdaki_gin_properties(ncclGinProperties_v14_t *props) {
  *props = (ncclGinProperties_v14_t){.supportsStrongSignals = true, .supportsVASignals = true};
  return ncclSuccess;
}

static int gdaki_properties(int dev, ncclNetProperties_v12_t *props) {
  int result = rma_properties(dev, props);
  if (result != ncclSuccess) return result;
  props->netDeviceType = NCCL_NET_DEVICE_GIN_GDAKI;
  props->netDeviceVersion = GDAKI_200;
  return ncclSuccess;
}

static int gdaki_connect(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm) {
  return gin_connect_port(ctx, handles, nranks, rank, listenComm, GDAKI_200, collComm);
}

/* Why it cannot be done; NULL: it can. Who asks for a deep queue may post so much without looking for room. */
static const char *refusal(const ncclGinConfig_v14_t *config) {
  if (config->nContexts < 1 || config->nSignals < 0 || config->nCounters < 0) return "a context, signals or counters too few";
  if (config->backendVersion != GDAKI_BACKEND) return "kernels that were compiled with a version of NCCL before 2.30.5, or with one that asks for more than 2.32 does";
  if (config->queueDepth > NIC_DEPTH) return "a queue that is deeper than the card's";
  return NULL;
}

static int gdaki_create(void *collComm, ncclGinConfig_v14_t *config, void **ginCtx, ncclNetDeviceHandle_v11_t **devHandle) {
  const char *why = refusal(config);
  if (why != NULL) {
    carrier_warn("GIN of type GDAKI: %s: contexts %d, signals %d, counters %d, version %d, depth %d", why, config->nContexts, config->nSignals, config->nCounters,
                 config->backendVersion, config->queueDepth);
    return ncclInvalidUsage;
  }
  struct granted *granted = calloc(1, sizeof *granted);
  if (granted == NULL) return ncclSystemError;
  granted->c = collComm;
  granted->contexts = nic_contexts_make(granted->c->port, config->nContexts, config->nSignals, config->nCounters);
  if (granted->contexts == NULL) {
    free(granted);
    return ncclSystemError;
  }
  *ginCtx = granted;
  *devHandle = nic_contexts_handle(granted->contexts);
  return ncclSuccess;
}

static int gdaki_destroy(void *ginCtx) {
  struct granted *granted = ginCtx;
  if (granted == NULL) return ncclSuccess;
  nic_contexts_free(granted->contexts);
  free(granted);
  return ncclSuccess;
}

/* The connection's own thread launches kernels (nic/launcher.h), and no handle asks for progress. */
static int gdaki_progress(void *ginCtx) {
  (void)ginCtx;
  return ncclSuccess;
}

static int gdaki_error(void *ginCtx, bool *hasError) {
  struct granted *granted = ginCtx;
  *hasError = granted->c->lost || nic_contexts_failed(granted->contexts);
  return ncclSuccess;
}

EXPORT ncclGin_v14_t ncclGinPlugin_v14 = {.name = NAME,
                                          .init = gdaki_init,
                                          .devices = one_device,
                                          .getGinProperties = gdaki_gin_properties,
                                          .getProperties = gdaki_properties,
                                          .listen = gin_listen,
                                          .connect = gdaki_connect,
                                          .createContext = gdaki_create,
                                          .regMrSym = gin_register,
                                          .deregMrSym = gin_deregister,
                                          .destroyContext = gdaki_destroy,
                                          .closeColl = gin_close,
                                          .closeListen = gin_close_listen,
                                          .ginProgress = gdaki_progress,
                                          .queryLastError = gdaki_error,
                                          .finalize = gin_finalize};
