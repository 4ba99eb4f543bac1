/* SPDX-License-Identifier: Apache-2.0
 *
 * The two tables that NCCL 2.28.9 looks for, v11: libnccl-net-dynamiccl-carrier.so with NCCL_NET_PLUGIN=dynamiccl-carrier. NCCL's own GIN
 * proxy then carries what kernels put, signal and flush from process to process of this host, without a NIC. For development
 * and tests: it refuses to start without DYNAMICCL_CARRIER=1. From 2.30.5 on NCCL takes other tables: plugin_rma.c, plugin_gin.c.
 *
 * Why there is a network table (src/plugin/net.cc of NCCL 2.28.9): ncclNetPluginLoad drops a library without ncclNetPlugin_v*,
 * whatever else it has; ncclNetPluginInit disables the GIN table together with a net table whose init fails or that has no
 * device; ncclNetPluginAssignToComm takes GIN from the plugin that the communicator's network comes from, and from no other.
 * So NCCL's Socket network and our GIN exclude each other, and Socket's table is no symbol that one could hand on. The one
 * device here is in the topology, since ncclGinConnectOnce wants a network device near the GPU; it is slow, on no PCI bus and
 * without GPU memory, so that NCCL never prefers it to what it has within a host (NVLink, PCIe, shared memory), and whoever
 * needs it all the same (more than one host; P2P and SHM disabled) is told so by listen.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic/gdaki_abi.h"
#include "nic/kernel.h"
#include "nic/places.h"
#include "nic/port.h"
#include "places.h"
#include "plugin.h"
#include "say.h"
#include "wire.h"

/* Streams beyond the queues that CUDA gives a program, 8 where the variable is not set, share one, and a launch of ours that comes to
 * stand behind the program's waits for what waits for us: for ever. Half of what README names is what ranks under MPS can have. */
enum { LEAST_QUEUES = 16 };
static bool has_queues(void) {
  const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return text != NULL && atoi(text) >= LEAST_QUEUES;
}

const char *plugin_proxy(void) { return nic_kernel_file() != NULL ? "a kernel that the host feeds" : "copies that the host drives"; }

int plugin_announce(atomic_flag *said, const char *by) {
  if (!dyn_carrier_is_wanted()) {
    carrier_warn("not started: it is for development and tests; DYNAMICCL_CARRIER=1 says that this is meant");
    return ncclInvalidUsage;
  }
  if (!has_queues()) {
    carrier_warn("not started: with less than %d of CUDA's queues its kernels may come to stand behind the program's, which wait for them; export CUDA_DEVICE_MAX_CONNECTIONS=32", LEAST_QUEUES);
    return ncclInvalidUsage;
  }
  if (!atomic_flag_test_and_set(said))
    carrier_warn("development only: GIN between processes of this host, by %s; it is no network for anything else", by);
  return ncclSuccess;
}

/* ---- the network, which carries nothing ---- */

static int net_init(void **ctx, uint64_t commId, void *config, ncclDebugLogger_t logger, void *profiler) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  (void)commId, (void)config, (void)profiler;
  *ctx = NULL;
  carrier_logger(logger);
  return plugin_announce(&said, nic_is_wanted() ? "a kernel that plays the network card" : plugin_proxy());
}

int one_device(int *ndev) {
  *ndev = 1;
  return ncclSuccess;
}

static int properties(int dev, ncclNetProperties_v11_t *props) {
  static char name[] = NAME " (development only)";
  if (dev != 0) return ncclInvalidArgument;
  *props = (ncclNetProperties_v11_t){.name = name,
                                     .ptrSupport = NCCL_PTR_HOST,
                                     .speed = 1000,
                                     .maxComms = 1 << 16,
                                     .maxRecvs = 1,
                                     .netDeviceType = NCCL_NET_DEVICE_HOST,
                                     .vProps = {.ndevs = 1},
                                     .maxP2pBytes = (size_t)1 << 40,
                                     .maxCollBytes = (size_t)1 << 40,
                                     .maxMultiRequestSize = 1};
  return ncclSuccess;
}

static int refuse(void) {
  carrier_warn("carries GIN alone: NCCL's own traffic needs P2P or shared memory, so one host, and neither NCCL_P2P_DISABLE nor NCCL_SHM_DISABLE");
  return ncclInvalidUsage;
}
static int net_listen(void *ctx, int dev, void *handle, void **listenComm) {
  (void)ctx, (void)dev, (void)handle, (void)listenComm;
  return refuse();
}
static int net_connect(void *ctx, int dev, void *handle, void **sendComm, void **sendDevComm) {
  (void)ctx, (void)dev, (void)handle, (void)sendComm, (void)sendDevComm;
  return refuse();
}
static int net_close(void *comm) {
  (void)comm;
  return ncclSuccess;
}

/* What only a connection reaches is NULL. */
EXPORT ncclNet_v11_t ncclNetPlugin_v11 = {.name = NAME,
                                          .init = net_init,
                                          .devices = one_device,
                                          .getProperties = properties,
                                          .listen = net_listen,
                                          .connect = net_connect,
                                          .closeSend = net_close,
                                          .closeRecv = net_close,
                                          .closeListen = net_close,
                                          .finalize = net_close};

/* ---- GIN ---- */

struct listener {
  struct carrier_instance *instance;
  int fd;
};

/* Called twice for a program's first communicator and once for others, so what connect gets as its context may be the first
 * call's or NULL; what listen gets is the second's. */
int gin_init(void **ctx, uint64_t commId, ncclDebugLogger_t logger) {
  (void)commId;
  *ctx = NULL;
  carrier_logger(logger);
  if (!dyn_carrier_is_wanted() || !has_queues()) return ncclInvalidUsage; /* the network has said so */
  struct carrier_instance *instance = calloc(1, sizeof *instance);
  if (instance == NULL) return ncclSystemError;
  pthread_mutex_init(&instance->lock, NULL);
  if (!carrier_faults_read(&instance->faults)) {
    free(instance);
    return ncclInvalidUsage;
  }
  *ctx = instance;
  return ncclSuccess;
}

static int gin_properties(int dev, ncclNetProperties_v11_t *props) {
  int result = properties(dev, props);
  if (result != ncclSuccess) return result;
  props->netDeviceType = nic_is_wanted() ? NCCL_NET_DEVICE_GIN_GDAKI : NCCL_NET_DEVICE_GIN_PROXY;
  props->netDeviceVersion = nic_is_wanted() ? NCCL_GIN_GDAKI_VERSION : NCCL_GIN_PROXY_VERSION;
  props->ptrSupport = NCCL_PTR_HOST | NCCL_PTR_CUDA; /* no DMABUF: NCCL then calls regMrSym */
  props->maxRecvs = 8; /* times NCCL_NET_MAX_REQUESTS: descriptors in a queue of NCCL's proxy, a power of two */
  return ncclSuccess;
}

int gin_listen(void *ctx, int dev, void *handle, void **listenComm) {
  (void)dev;
  _Static_assert(sizeof(struct wire_handle) <= NCCL_NET_HANDLE_MAXSIZE, "NCCL passes on so much");
  struct listener *listener = calloc(1, sizeof *listener);
  if (ctx == NULL || listener == NULL || (listener->fd = wire_listen(handle)) < 0) {
    free(listener);
    return ncclSystemError;
  }
  listener->instance = ctx;
  *listenComm = listener;
  return ncclSuccess;
}

static int connect_as(void *handles[], int nranks, int rank, void *listenComm, bool proxy, void **collComm) {
  struct listener *listener = listenComm;
  return carrier_connect(listener->instance, handles, nranks, rank, listener->fd, proxy, (struct carrier **)collComm);
}

int gin_connect_proxy(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm) {
  (void)ctx;
  return connect_as(handles, nranks, rank, listenComm, true, collComm);
}

int gin_connect_port(void *ctx, void *handles[], int nranks, int rank, void *listenComm, int layout, void **collComm) {
  struct carrier *c = NULL;
  int result = connect_as(handles, nranks, rank, listenComm, false, (void **)&c);
  (void)ctx;
  if (result != ncclSuccess) return result;
  if ((c->port = nic_open(c, layout)) == NULL) {
    carrier_close(c);
    return ncclSystemError;
  }
  *collComm = c;
  return ncclSuccess;
}

/* A connection is a context, to which a lane belongs with the proxy. */
static int gin_connect_context(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm) {
  if (nic_is_wanted()) return gin_connect_port(ctx, handles, nranks, rank, listenComm, GDAKI_100, collComm);
  int result = gin_connect_proxy(ctx, handles, nranks, rank, listenComm, collComm);
  if (result != ncclSuccess || carrier_lane_make(*collComm) != NULL) return result;
  carrier_close(*collComm);
  *collComm = NULL;
  return ncclSystemError;
}

static struct carrier_lane *lane_of(void *collComm) { return ((struct carrier *)collComm)->lanes; }

int gin_register(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **ginHandle) {
  struct carrier *c = collComm;
  struct carrier_region *region = NULL;
  int result = carrier_register(c, data, size, type, flags, &region);
  *mhandle = *ginHandle = region;
  if (result != ncclSuccess || c->port == NULL) return result;
  if ((*ginHandle = nic_memory(c->port, region)) != NULL) return ncclSuccess;
  carrier_deregister(c, region);
  *mhandle = NULL;
  return ncclSystemError;
}

int gin_deregister(void *collComm, void *mhandle) {
  struct carrier *c = collComm;
  if (mhandle == NULL) return ncclSuccess;
  if (c->port != NULL) nic_forget(c->port, mhandle);
  return carrier_deregister(c, mhandle);
}

/* Of type GDAKI alone: with the proxy contexts are NCCL's own. */
static int gin_context(void *collComm, int nSignals, int nCounters, void **ginCtx, void **devHandle) {
  struct carrier *c = collComm;
  if (c->port == NULL) return ncclSystemError;
  if ((c->contexts = nic_contexts_make(c->port, 1, nSignals, nCounters)) == NULL) {
    nic_places_renounce(c->instance);
    return ncclSystemError;
  }
  *ginCtx = c;
  *devHandle = nic_contexts_handle(c->contexts);
  return ncclSuccess;
}

static int gin_context_end(void *ginCtx) {
  struct carrier *c = ginCtx;
  if (c == NULL) return ncclSuccess;
  nic_contexts_free(c->contexts);
  c->contexts = NULL;
  return ncclSuccess;
}

/* A rank that died is an error even if nothing is on its way to it: who waits for a signal of its waits for ever. */
static int gin_last_error(void *ginCtx, bool *hasError) {
  struct carrier *c = ginCtx;
  *hasError = c->lost || (c->contexts != NULL && nic_contexts_failed(c->contexts));
  return ncclSuccess;
}

int gin_close(void *collComm) {
  struct carrier *c = collComm;
  if (c == NULL) return ncclSuccess;
  nic_close(c->port);
  carrier_close(c);
  return ncclSuccess;
}

int gin_close_listen(void *listenComm) {
  struct listener *listener = listenComm;
  if (listener == NULL) return ncclSuccess;
  close(listener->fd);
  free(listener);
  return ncclSuccess;
}

static int gin_put(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
                   void **request) {
  return carrier_put(lane_of(collComm), srcMhandle, srcOff, size, dstMhandle, dstOff, rank, NULL, (struct carrier_request **)request);
}

int gin_signal_of(const struct carrier_region *signals, uint64_t offset, uint64_t value, uint32_t op, struct ring_message *message) {
  if (signals == NULL || (op != NCCL_NET_SIGNAL_OP_INC && op != NCCL_NET_SIGNAL_OP_ADD)) {
    carrier_warn("a signal of kind %u", op);
    return ncclInvalidArgument;
  }
  *message = (struct ring_message){.offset = offset, .value = op == NCCL_NET_SIGNAL_OP_INC ? 1 : value, .region = signals->number};
  return ncclSuccess;
}

static int gin_put_signal(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff, void *dstMhandle,
                          uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue, uint32_t signalOp,
                          void **request) {
  struct ring_message message;
  int result = gin_signal_of(signalMhandle, signalOff, signalValue, signalOp, &message);
  if (result != ncclSuccess) return result;
  return carrier_put(lane_of(collComm), srcMhandle, srcOff, size, dstMhandle, dstOff, rank, &message, (struct carrier_request **)request);
}

int gin_test(void *collComm, void *request, int *done) {
  (void)collComm;
  return carrier_test(request, done);
}

static int gin_progress(void *collComm) {
  struct carrier *c = collComm;
  if (c->port == NULL) {
    carrier_advance(lane_of(c));
    return carrier_receive(c);
  }
  if (c->contexts != NULL) nic_contexts_progress(c->contexts);
  return ncclSuccess; /* NCCL's thread would end with an error, and starts the kernel; NCCL asks for errors besides */
}

int gin_finalize(void *ctx) {
  struct carrier_instance *instance = ctx;
  if (instance == NULL) return ncclSuccess;
  for (struct carrier_gone *gone = instance->said, *next; gone != NULL; gone = next) {
    next = gone->next;
    free(gone);
  }
  pthread_mutex_destroy(&instance->lock);
  free(instance);
  return ncclSuccess;
}

EXPORT ncclGin_v11_t ncclGinPlugin_v11 = {.name = NAME,
                                          .init = gin_init,
                                          .devices = one_device,
                                          .getProperties = gin_properties,
                                          .listen = gin_listen,
                                          .connect = gin_connect_context,
                                          .createContext = gin_context,
                                          .regMrSym = gin_register,
                                          .deregMrSym = gin_deregister,
                                          .destroyContext = gin_context_end,
                                          .closeColl = gin_close,
                                          .closeListen = gin_close_listen,
                                          .iput = gin_put,
                                          .iputSignal = gin_put_signal,
                                          .test = gin_test,
                                          .ginProgress = gin_progress,
                                          .queryLastError = gin_last_error,
                                          .finalize = gin_finalize};
