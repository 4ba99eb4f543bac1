/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that NCCL 2.30.5 and later put GIN of type Proxy on, RMA v14: NCCL_RMA_PLUGIN=libnccl-net-dynamiccl-carrier.so. Read from
 * 2.30.7's source and, where 2.32.3 may differ, from its library.
 *
 * What is another way than with v11 (src/plugin/rma.cc, gin.cc, src/gin/gin_host_proxy.cc of NCCL 2.30.7):
 *   - GIN of type proxy is NCCL's alone and stands on the communicator's RMA plugin; a GIN plugin of that type is passed over.
 *     RMA is no part of the network any more, so NCCL's Socket network stays in its place.
 *   - init is called for RMA and again for GIN: two instances, each with connections of its own, and the first one only in use
 *     where NCCL's own ncclPutSignal goes to ranks that the GPU does not reach (several nodes).
 *   - Contexts are ours: a device communicator makes nContexts of them on a connection, which others share, and puts name one.
 *     Each is an order of its own (struct carrier_lane).
 *   - There are gets, and a flush, which makes what gets brought visible.
 *   - An error of test, or of a put, ends NCCL's thread for the whole communicator, and ncclCommGetAsyncError has it.
 */
#include <stdlib.h>

#include "nccl_rma_abi.h"
#include "plugin.h"
#include "say.h"

struct contexts { /* rmaCtx */
  struct carrier *c;
  int count;
  struct carrier_lane *lanes[];
};

static int rma_init(void **ctx, uint64_t commId, ncclDebugLogger_t logger) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  *ctx = NULL;
  carrier_logger(logger);
  int result = plugin_announce(&said, plugin_proxy());
  return result == ncclSuccess ? gin_init(ctx, commId, logger) : result;
}

/* One slow device on no bus, as the network's of v11, that NCCL's topology has near every GPU. */
int rma_properties(int dev, ncclNetProperties_v12_t *props) {
  static char name[] = NAME " (development only)";
  if (dev != 0) return ncclInvalidArgument;
  *props = (ncclNetProperties_v12_t){.name = name,
                                     .ptrSupport = NCCL_PTR_HOST | NCCL_PTR_CUDA, /* no DMABUF: NCCL then calls regMrSym */
                                     .speed = 1000,
                                     .maxComms = 1 << 16,
                                     .maxRecvs = 8, /* times NCCL_NET_MAX_REQUESTS: descriptors in a queue of NCCL's proxy, a power of two */
                                     .netDeviceType = NCCL_NET_DEVICE_GIN_PROXY,
                                     .netDeviceVersion = NCCL_GIN_PROXY_VERSION,
                                     .vProps = {.ndevs = 1},
                                     .maxP2pBytes = (size_t)1 << 40,
                                     .maxCollBytes = (size_t)1 << 40,
                                     .maxMultiRequestSize = 1,
                                     .railId = NCCL_NET_ID_UNDEF,
                                     .planeId = NCCL_NET_ID_UNDEF};
  return ncclSuccess;
}

static int rma_destroy(void *rmaCtx) {
  struct contexts *contexts = rmaCtx;
  for (int n = 0; contexts != NULL && n < contexts->count; n++) carrier_lane_free(contexts->lanes[n]);
  free(contexts);
  return ncclSuccess;
}

/* Every rank is connected with every other, so the stride may be any; traffic classes are a NIC's. */
static int rma_create(void *collComm, ncclRmaConfig_v14_t *config, void **rmaCtx) {
  if (config->nContexts < 1) return ncclInvalidArgument;
  struct contexts *contexts = calloc(1, sizeof *contexts + (size_t)config->nContexts * sizeof *contexts->lanes);
  if (contexts == NULL) return ncclSystemError;
  contexts->c = collComm;
  for (; contexts->count < config->nContexts; contexts->count++)
    if ((contexts->lanes[contexts->count] = carrier_lane_make(collComm)) == NULL) {
      rma_destroy(contexts);
      return ncclSystemError;
    }
  *rmaCtx = contexts;
  return ncclSuccess;
}

static int rma_register(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle) {
  struct carrier_region *region = NULL;
  int result = carrier_register(collComm, data, size, type, flags, &region);
  *mhandle = region;
  return result;
}

/* NULL: there is no such context. */
static struct carrier_lane *lane_of(void *rmaCtx, int context) {
  struct contexts *contexts = rmaCtx;
  if (context >= 0 && context < contexts->count) return contexts->lanes[context];
  carrier_warn("context %d of %d", context, contexts->count);
  return NULL;
}

static int rma_put(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle,
                   uint32_t rank, void **request) {
  struct carrier_lane *lane = lane_of(rmaCtx, context);
  if (lane == NULL) return ncclInvalidArgument;
  return carrier_put(lane, srcMhandle, srcOff, size, dstMhandle, dstOff, rank, NULL, (struct carrier_request **)request);
}

/* Every signal is a strong one, which is more than a weak one asks for. */
static int rma_put_signal(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle,
                          uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue, uint32_t signalOp,
                          bool isStrongSignal, void **request) {
  (void)isStrongSignal;
  struct carrier_lane *lane = lane_of(rmaCtx, context);
  struct ring_message message;
  int result = lane == NULL ? ncclInvalidArgument : gin_signal_of(signalMhandle, signalOff, signalValue, signalOp, &message);
  if (result != ncclSuccess) return result;
  return carrier_put(lane, srcMhandle, srcOff, size, dstMhandle, dstOff, rank, &message, (struct carrier_request **)request);
}

static int rma_get(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size, uint64_t localOff, void *localMhandle,
                   uint32_t rank, void **request) {
  struct carrier_lane *lane = lane_of(rmaCtx, context);
  if (lane == NULL) return ncclInvalidArgument;
  return carrier_get(lane, remoteMhandle, remoteOff, size, localMhandle, localOff, rank, (struct carrier_request **)request);
}

/* NCCL asks for it when gets are done, of its own rank, so that kernels see what they brought. Here that is so when their copies
 * are over, and nothing is left to do but to take one's turn. */
static int rma_flush(void *rmaCtx, int context, void *mhandle, uint32_t rank, void **request) {
  (void)mhandle;
  struct carrier_lane *lane = lane_of(rmaCtx, context);
  if (lane == NULL) return ncclInvalidArgument;
  return carrier_flush(lane, rank, (struct carrier_request **)request);
}

static int rma_progress(void *rmaCtx) {
  struct contexts *contexts = rmaCtx;
  for (int n = 0; n < contexts->count; n++) carrier_advance(contexts->lanes[n]);
  return carrier_receive(contexts->c);
}

/* From the program's threads, by ncclCommGetAsyncError: so a rank's death is heard of without a put to it. */
static int rma_error(void *rmaCtx, bool *hasError) {
  const struct contexts *contexts = rmaCtx;
  *hasError = contexts->c->failed != ncclSuccess || contexts->c->lost;
  return ncclSuccess;
}

EXPORT ncclRma_v14_t ncclRmaPlugin_v14 = {.name = NAME,
                                          .init = rma_init,
                                          .devices = one_device,
                                          .getProperties = rma_properties,
                                          .listen = gin_listen,
                                          .connect = gin_connect_proxy,
                                          .createContext = rma_create,
                                          .regMrSym = rma_register,
                                          .deregMrSym = gin_deregister,
                                          .destroyContext = rma_destroy,
                                          .closeColl = gin_close,
                                          .closeListen = gin_close_listen,
                                          .iput = rma_put,
                                          .iputSignal = rma_put_signal,
                                          .iget = rma_get,
                                          .iflush = rma_flush,
                                          .test = gin_test,
                                          .rmaProgress = rma_progress,
                                          .queryLastError = rma_error,
                                          .finalize = gin_finalize};
