/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.30.7's own way to GIN of type GDAKI over the carrier's card, without a GPU: it finds and loads the plugin (src/plugin/gin.cc),
 * connects, makes contexts and runs its thread (src/gin/gin_host.cc), all from a source tree. Rank processes, whose kernels are
 * threads that post as its device code does (poster.h).
 *   make -C kernels/carrier proxy NCCL_TREE=DIR; then, with the environment of card_test: gdaki_test RANKS ROUNDS
 * Each round, on each context and to each rank: a put with a counter and a signal, and a get of what was put, behind it. A device
 * communicator of other contexts comes and goes beside them.
 */
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "comm.h"
#include "gin.h"
#include "gin/gin_host.h"
#include "nccl_device/gin/gdaki/gin_gdaki_device_host_common.h"
#include "proxy_rig.h"
#include "rma.h"

#include "../poster.h"

#define CHECK(cond) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, proxy_rank(), #cond); \
      _exit(1); \
    } \
  } while (0)

enum { CONTEXTS = 3, BYTES = 40000 };
static unsigned rounds;

struct Window {
  unsigned char *at;
  void *host[NCCL_GIN_MAX_CONNECTIONS], *device[NCCL_GIN_MAX_CONNECTIONS];
  const ncclGinGdakiMemHandle *handle() const { return (const ncclGinGdakiMemHandle *)device[0]; }
};
static Window sent, received, fetched;

static ncclDevComm make_device(ncclComm *comm, int contexts) {
  ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclDevComm device = {};
  wants.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  wants.ginContextCount = contexts;
  wants.ginSignalCount = proxy_ranks();
  wants.ginCounterCount = proxy_ranks();
  CHECK(ncclGinDevCommSetup(comm, &wants, &device) == ncclSuccess);
  CHECK((int)device.ginContextCount == contexts && device.ginNetDeviceTypes[0] == NCCL_NET_DEVICE_GIN_GDAKI);
  return device;
}

static size_t place(int context, int rank) { return ((size_t)context * proxy_ranks() + rank) * BYTES; }

static void kernel(const ncclDevComm *device, int context) {
  const ncclGinGdakiGPUContext *gpu = (const ncclGinGdakiGPUContext *)device->ginHandles[0] + context;
  std::vector<poster_queue> queues, sides;
  for (int r = 0; r < proxy_ranks(); r++) {
    queues.push_back(poster_queue_of(GDAKI_200, (const gdaki_context *)gpu, r, false));
    sides.push_back(poster_queue_of(GDAKI_200, (const gdaki_context *)gpu, r, true));
    queues[r].dumps = true; /* this NCCL's device code has no other flush */
  }
  for (unsigned round = 1; round <= rounds; round++)
    for (int to = 0; to < proxy_ranks(); to++) {
      posting p = {}, g = {};
      const size_t own = place(context, to), there = place(context, proxy_rank());
      memset(sent.at + own, (int)round, BYTES);
      p.queue = g.queue = &queues[to], p.side = &sides[to], p.what = POST_DATA, g.what = POST_GET, p.bytes = g.bytes = BYTES - round % 100, p.most = g.most = 1 << 30;
      p.from = {own, sent.handle()->lkey}, p.to = {there, received.handle()->rkeys[to]};
      g.from = p.to, g.to = {own, fetched.handle()->lkey};
      p.signals = p.counts = true, p.add = 1, p.sinkKey = gpu->sink_buffer_lkey;
      p.signal = {sizeof(uint64_t) * (gpu->signals_table.offset + proxy_rank()), gpu->signals_table.rkeys[to]};
      p.counter = {sizeof(uint64_t) * (gpu->counters_table.offset + to), gpu->counters_table.rkeys[proxy_rank()]};
      post(&p), post(&g);
      CHECK(poster_flush(&queues[to]));
      for (size_t i = 0; i < p.bytes; i++) CHECK(fetched.at[own + i] == (unsigned char)round);
      while (poster_load(&gpu->counters_table.buffer[to]) < round) usleep(20);
      while (poster_load(&gpu->signals_table.buffer[to]) < round) usleep(20); /* that rank's, as far as it has come */
      for (size_t i = 0; i < BYTES - 100; i++) CHECK(received.at[own + i] == (unsigned char)round || received.at[own + i] == (unsigned char)(round + 1));
    }
}

static void story() {
  auto comm = (ncclComm *)calloc(1, sizeof(ncclComm));
  comm->sharedRes = (ncclSharedResources *)calloc(1, sizeof(ncclSharedResources));
  comm->nRanks = proxy_ranks();
  comm->rank = proxy_rank();
  comm->compCap = 90;
  comm->config.trafficClass = NCCL_CONFIG_UNDEF_INT;
  for (const char *name : {"NCCL_RMA_PLUGIN", "NCCL_GIN_PLUGIN"}) setenv(name, getenv("CARRIER"), 1);
  CHECK(ncclRmaInit(comm) == ncclSuccess && ncclGinInit(comm) == ncclSuccess);
  ncclGinState &state = comm->sharedRes->ginState;
  CHECK(strcmp(state.ncclGin->name, "dynamiccl-carrier") == 0 && state.ginType == NCCL_GIN_TYPE_GDAKI && state.ginVersion == 14);
  CHECK(state.supportsStrongSignals && state.supportsVASignals);
  comm->globalGinSupport = NCCL_GIN_CONNECTION_FULL; /* as initTransportsRank finds out */
  comm->symmetricSupport = true;
  CHECK(ncclGinConnectOnce(comm) == ncclSuccess && state.ginCommCount == 1);
  Window *const windows[] = {&sent, &received, &fetched};
  const size_t bytes = place(CONTEXTS, 0);
  for (Window *w : windows) {
    w->at = (unsigned char *)proxy_memory(bytes, 1);
    if (w == &sent) CHECK(ncclGinRegister(comm, w->at, bytes, w->host, w->device, 0, false, NCCL_PTR_CUDA) == ncclSuccess); /* before there are contexts */
  }
  ncclDevComm device = make_device(comm, CONTEXTS);
  for (Window *w : windows)
    if (w != &sent) CHECK(ncclGinRegister(comm, w->at, bytes, w->host, w->device, NCCL_WIN_STRICT_ORDERING, false, NCCL_PTR_CUDA) == ncclSuccess);
  proxy_meet();
  std::thread kernels[CONTEXTS];
  for (int n = 0; n < CONTEXTS; n++) kernels[n] = std::thread(kernel, &device, n);
  for (int n = 1; n <= 3; n++) {
    ncclDevComm other = make_device(comm, n);
    proxy_meet();
    CHECK(ncclGinDevCommFree(comm, &other) == ncclSuccess);
  }
  for (auto &k : kernels) k.join();
  proxy_meet();
  bool error = true;
  CHECK(ncclGinQueryLastError(&state, &error) == ncclSuccess && !error && state.asyncResult == ncclSuccess);
  for (Window *w : windows) CHECK(ncclGinDeregister(comm, w->host) == ncclSuccess);
  CHECK(ncclGinDevCommFree(comm, &device) == ncclSuccess && ncclGinHostFinalize(comm) == ncclSuccess);
  CHECK(ncclGinFinalize(comm) == ncclSuccess && ncclRmaFinalize(comm) == ncclSuccess);
}

int main(int count, char **arguments) {
  rounds = count > 2 ? (unsigned)atoi(arguments[2]) : 200;
  proxy_play(count > 1 ? atoi(arguments[1]) : 2, -1, story);
  printf("GDAKI of NCCL %d: %s ranks, %u rounds on %d contexts: right\n", NCCL_VERSION_CODE, count > 1 ? arguments[1] : "2", rounds, CONTEXTS);
}
