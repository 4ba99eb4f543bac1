/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.30.7's own way from plugin to kernel over the carrier, without a GPU: it finds and loads the plugin (src/plugin/rma.cc,
 * gin.cc), connects, makes contexts and runs its thread (src/gin/gin_host.cc, gin_host_proxy.cc), all from a source tree. Rank
 * processes, whose kernels are threads that write descriptors as nccl_device/gin/proxy/gin_proxy.h does.
 *   make -C kernels/carrier proxy NCCL_TREE=DIR; then, with the environment of carrier_test: proxy_test RANKS ROUNDS [kill]
 * Each round: to every rank two puts, the second one with a counter and a signal, which comes behind it every other time, a value
 * of 1 to 8 bytes, a get of what the rank has sent, a flush, a signal that adds, one in a window; all is compared. More device
 * communicators come and go. kill: rank 1 ends itself half way, and the others must hear of it.
 */
#include <csignal>
#include <ctime>
#include <thread>

#include "comm.h"
#include "gin.h"
#include "gin/gin_host.h"
#include "gin/gin_host_proxy.h"
#include "nccl_device/gin/proxy/gin_proxy_device_host_common.h"
#include "patterns.h"
#include "rma.h"

enum { PUTS, ADDS, VALUES, SIGNALS, COUNTER = 7, COUNTERS, WORDS_AT = 4096 };

static unsigned rounds;
static bool kills;

struct Window {
  unsigned char *at;
  void *host[NCCL_GIN_MAX_CONNECTIONS], *device[NCCL_GIN_MAX_CONNECTIONS];
};
static Window sent, received, fetched, values;

/* One context as a kernel has it. */
struct Context {
  ncclGinProxyGpuCtx_t *gpu;
  unsigned index;

  ncclGinProxyGfd_t descriptor(unsigned op, size_t bytes) const {
    ncclGinProxyGfd_t gfd;
    memset(&gfd, 0, sizeof gfd);
    for (int q = 0; q < ncclGinProxyGfdQwords; q++) gfd.qword[q].flag.v = 1;
    gfd.qword[ncclGinProxyGfdHeader].header.version = NCCL_GIN_PROXY_GFD_VERSION;
    gfd.qword[ncclGinProxyGfdHeader].header.size = bytes;
    gfd.qword[ncclGinProxyGfdHeaderExt].headerExt.op = (uint16_t)op;
    return gfd;
  }
  void from(ncclGinProxyGfd_t &gfd, const Window &w, size_t at) const {
    gfd.qword[ncclGinProxyGfdSrcOff].srcOff.srcOff = at;
    gfd.qword[ncclGinProxyGfdSrcHandle].srcHandle.srcHandle = (uint64_t)w.device[0];
  }
  void to(ncclGinProxyGfd_t &gfd, const Window &w, size_t at) const {
    gfd.qword[ncclGinProxyGfdDstOff].dstOff.dstOff = at;
    gfd.qword[ncclGinProxyGfdDstHandle].dstHandle.dstHandle = (uint64_t)w.device[0];
  }
  void signal(ncclGinProxyGfd_t &gfd, unsigned id, uint64_t value) const {
    gfd.qword[ncclGinProxyGfdCompletion].completion.signalId = id;
    gfd.qword[ncclGinProxyGfdCompletion].completion.signalValLow = (uint16_t)value;
    gfd.qword[ncclGinProxyGfdSignalVal].signalVal.signalValLow2 = (uint16_t)(value >> 16);
    gfd.qword[ncclGinProxyGfdSignalVal].signalVal.signalValHigh = (uint32_t)(value >> 32);
  }
  void post(int peer, const ncclGinProxyGfd_t &gfd) const {
    uint32_t at = gpu->pis[peer]++;
    while (at - __atomic_load_n(&gpu->cis[peer], __ATOMIC_ACQUIRE) >= gpu->queueSize) sched_yield();
    ncclGinProxyGfd_t *slot = &gpu->queues[(size_t)peer * gpu->queueSize + at % gpu->queueSize];
    for (int q = ncclGinProxyGfdQwords - 1; q >= 0; q--) /* in any order, as on a GPU */
      __atomic_store_n(&slot->qword[q].raw, gfd.qword[q].raw, __ATOMIC_RELEASE);
  }

  void put(int peer, size_t srcAt, size_t dstAt, size_t bytes, unsigned with) const {
    auto gfd = descriptor(ncclGinProxyOpPut | with, bytes);
    from(gfd, sent, srcAt), to(gfd, received, dstAt), signal(gfd, PUTS, 0);
    gfd.qword[ncclGinProxyGfdCompletion].completion.counterId = COUNTER;
    post(peer, gfd);
  }
  void putValue(int peer, size_t dstAt, uint64_t value, size_t bytes) const {
    auto gfd = descriptor(ncclGinProxyOpPut | ncclGinProxyOpWithInline | ncclGinProxyOpWithSignalInc, bytes);
    gfd.qword[ncclGinProxyGfdInlineLow].inlineLow.inlineValLow = (uint32_t)value;
    if (bytes > 4) gfd.qword[ncclGinProxyGfdInlineLow].inlineLow.inlineValLow2 = (uint16_t)(value >> 32);
    if (bytes > 6) gfd.qword[ncclGinProxyGfdInlineHigh].inlineHigh.inlineValHigh = (uint16_t)(value >> 48);
    to(gfd, values, dstAt), signal(gfd, VALUES, 0);
    post(peer, gfd);
  }
  void get(int peer, size_t remoteAt, size_t localAt, size_t bytes) const {
    auto gfd = descriptor(ncclGinProxyOpGet, bytes);
    from(gfd, sent, remoteAt), to(gfd, fetched, localAt);
    post(peer, gfd);
  }
  void increase(int peer) const {
    auto gfd = descriptor(ncclGinProxyOpPut | ncclGinProxyOpWithSignalInc, 0);
    signal(gfd, PUTS, 0);
    post(peer, gfd);
  }
  void add(int peer, uint64_t value) const {
    auto gfd = descriptor(ncclGinProxyOpPut | ncclGinProxyOpWithSignalAdd, 0);
    signal(gfd, ADDS, value);
    post(peer, gfd);
  }
  void addInWindow(int peer, size_t at, uint64_t value) const {
    auto gfd = descriptor(ncclGinProxyOpVASignal | ncclGinProxyOpWithSignalAdd, 0);
    gfd.qword[ncclGinProxyGfdVASignalOff].vaSignalOff.vaSignalOff = at;
    gfd.qword[ncclGinProxyGfdVASignalHandle].vaSignalHandle.vaSignalHandle = (uint64_t)values.device[0];
    signal(gfd, 0, value);
    post(peer, gfd);
  }

  void wait(const void *word, uint64_t least) const {
    while (__atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE) < least) sched_yield();
  }
  void waitFor(int peer) const { /* all that was posted to it is done */
    while ((int32_t)(gpu->pis[peer] - __atomic_load_n(&gpu->cis[peer], __ATOMIC_ACQUIRE)) > 0) sched_yield();
  }
  void flush() const { /* as ncclGinApi_Wait: what was got is made visible by one to the own rank */
    for (int peer = 0; peer < proxy_ranks(); peer++) waitFor(peer);
    post(proxy_rank(), descriptor(ncclGinProxyOpFlush, 0));
    waitFor(proxy_rank());
  }
};

static size_t value_at(unsigned context, int from) { return (size_t)(context * 16 + (unsigned)from) * 8; }
static uint64_t value_of(unsigned context, unsigned round, int from) { return mix(round * 64 + context * 16 + (unsigned)from); }
static size_t value_bytes(unsigned round) { return (size_t)1 << round % 4; }

static void kernel(Context c) {
  const int self = proxy_rank(), ranks = proxy_ranks();
  const uint64_t large = 0x123456789abcu; /* all its parts count */
  for (unsigned round = 0; round < rounds; round++) {
    if (kills && self == 1 && c.index == 0 && round == rounds / 2) kill(getpid(), SIGKILL);
    const bool alone = round % 2 != 0; /* the signal follows */
    const unsigned last = ncclGinProxyOpWithCounter | (alone ? 0 : ncclGinProxyOpWithSignalInc);
    for (int to = 0; to < ranks; to++) {
      for (int part = 0; part < PARTS; part++) {
        const uint64_t p = pattern(c.index, round, self, to, part);
        const size_t from = place(ranks, c.index, round, to, part);
        fill(sent.at + from, p);
        c.put(to, from, place(ranks, c.index, round, self, part), size_of(p), part == PARTS - 1 ? last : 0);
      }
      if (alone) c.increase(to);
      c.putValue(to, value_at(c.index, self), value_of(c.index, round, self), value_bytes(round));
    }
    c.wait(&c.gpu->signals[PUTS], (uint64_t)(round + 1) * (uint64_t)ranks);
    for (int from = 0; from < ranks; from++)
      for (int part = 0; part < PARTS; part++)
        CHECK(is_filled(received.at + place(ranks, c.index, round, from, part), pattern(c.index, round, from, self, part)));
    c.wait(&c.gpu->signals[VALUES], (uint64_t)(round + 1) * (uint64_t)ranks);
    for (int from = 0; from < ranks; from++) {
      const uint64_t value = value_of(c.index, round, from);
      CHECK(memcmp(values.at + value_at(c.index, from), &value, value_bytes(round)) == 0);
    }
    for (int from = 0; from < ranks; from++) /* what it has put here it also has there */
      c.get(from, place(ranks, c.index, round, self, 0), place(ranks, c.index, round, from, 0), size_of(pattern(c.index, round, from, self, 0)));
    c.flush();
    for (int from = 0; from < ranks; from++)
      CHECK(is_filled(fetched.at + place(ranks, c.index, round, from, 0), pattern(c.index, round, from, self, 0)));
    CHECK(__atomic_load_n(&c.gpu->counters[COUNTER], __ATOMIC_ACQUIRE) == (uint64_t)(round + 1) * (uint64_t)ranks);
    for (int to = 0; to < ranks; to++) c.add(to, large), c.addInWindow(to, WORDS_AT + value_at(c.index, self), large);
    c.wait(&c.gpu->signals[ADDS], large * (round + 1) * (uint64_t)ranks);
    for (int from = 0; from < ranks; from++) c.wait(values.at + WORDS_AT + value_at(c.index, from), large * (round + 1));
  }
  CHECK(c.gpu->signals[PUTS] == (uint64_t)rounds * (uint64_t)ranks);
}

/* Beside the others, on the same connection. */
static void second_kernel(Context c) {
  for (unsigned round = 1; round <= rounds / 20 + 1; round++) {
    for (int to = 0; to < proxy_ranks(); to++) c.add(to, round);
    c.wait(&c.gpu->signals[ADDS], (uint64_t)round * (round + 1) / 2 * (uint64_t)proxy_ranks());
  }
}

static ncclComm *make_comm() {
  auto comm = (ncclComm *)calloc(1, sizeof(ncclComm));
  comm->sharedRes = (ncclSharedResources *)calloc(1, sizeof(ncclSharedResources));
  comm->nRanks = proxy_ranks();
  comm->rank = proxy_rank();
  comm->compCap = 90;
  comm->config.trafficClass = NCCL_CONFIG_UNDEF_INT;
  setenv("NCCL_RMA_PLUGIN", getenv("CARRIER"), 1);
  CHECK(ncclRmaInit(comm) == ncclSuccess && ncclGinInit(comm) == ncclSuccess);
  ncclGinState &state = comm->sharedRes->ginState;
  CHECK(state.ncclGin == &ncclGinProxy && strcmp(state.ncclGin->name, "dynamiccl-carrier") == 0);
  CHECK(state.ginType == NCCL_GIN_TYPE_PROXY && state.supportsStrongSignals && state.supportsVASignals);
  comm->globalGinSupport = NCCL_GIN_CONNECTION_FULL; /* as initTransportsRank finds out */
  comm->symmetricSupport = true;
  CHECK(ncclGinConnectOnce(comm) == ncclSuccess && state.ginCommCount == 1);
  return comm;
}

static ncclDevComm make_device(ncclComm *comm, int contexts) {
  ncclDevCommRequirements wants = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclDevComm device = {};
  wants.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  wants.ginContextCount = contexts;
  wants.ginSignalCount = SIGNALS;
  wants.ginCounterCount = COUNTERS;
  CHECK(ncclGinDevCommSetup(comm, &wants, &device) == ncclSuccess);
  CHECK((int)device.ginContextCount == contexts && device.ginNetDeviceTypes[0] == NCCL_NET_DEVICE_GIN_PROXY);
  return device;
}

static Context context_of(const ncclDevComm &device, unsigned n) { return {(ncclGinProxyGpuCtx_t *)device.ginHandles[0] + n, n}; }

/* What ncclCommGetAsyncError asks: NCCL's thread, which a request's error has ended, and the plugin, which knows without one. */
static void hear_of_death(ncclGinState &state) {
  for (time_t from = time(nullptr); time(nullptr) - from < 20; usleep(1000)) {
    bool error = false;
    CHECK(ncclGinQueryLastError(&state, &error) == ncclSuccess);
    const int thread = __atomic_load_n((int *)&state.asyncResult, __ATOMIC_ACQUIRE);
    if (!error && thread == ncclSuccess) continue;
    printf("rank %d heard that one has died: of the thread %d, of the plugin %d\n", proxy_rank(), thread, error);
    fflush(stdout);
    _exit(0);
  }
  CHECK(!"nobody said that a rank has died");
}

static void story() {
  ncclComm *comm = make_comm();
  ncclGinState &state = comm->sharedRes->ginState;
  ncclDevComm device = make_device(comm, CONTEXTS);
  const size_t bytes = place(proxy_ranks(), CONTEXTS, 0, 0, 0);
  for (Window *w : {&sent, &received, &fetched, &values}) {
    w->at = (unsigned char *)proxy_memory(bytes, 1);
    CHECK(ncclGinRegister(comm, w->at, bytes, w->host, w->device, w == &values ? NCCL_WIN_STRICT_ORDERING : 0) == ncclSuccess);
  }
  proxy_known(device.ginHandles[0]);
  proxy_meet();
  std::thread kernels[CONTEXTS];
  for (unsigned n = 0; n < CONTEXTS; n++) kernels[n] = std::thread(kernel, context_of(device, n));
  if (kills && proxy_rank() != 1) hear_of_death(state);
  for (int n = 1; n <= 5 && !kills; n++) {
    ncclDevComm other = make_device(comm, n);
    proxy_meet();
    second_kernel(context_of(other, (unsigned)n - 1));
    proxy_meet();
    CHECK(ncclGinDevCommFree(comm, &other) == ncclSuccess);
  }
  for (auto &k : kernels) k.join();
  proxy_meet();
  bool error = true;
  CHECK(ncclGinQueryLastError(&state, &error) == ncclSuccess && !error && state.asyncResult == ncclSuccess);
  for (Window *w : {&sent, &received, &fetched, &values}) CHECK(ncclGinDeregister(comm, w->host) == ncclSuccess);
  CHECK(ncclGinDevCommFree(comm, &device) == ncclSuccess && ncclGinHostFinalize(comm) == ncclSuccess);
  CHECK(ncclGinFinalize(comm) == ncclSuccess && ncclRmaFinalize(comm) == ncclSuccess);
}

int main(int count, char **arguments) {
  rounds = count > 2 ? (unsigned)atoi(arguments[2]) : 1000;
  kills = count > 3 && strcmp(arguments[3], "kill") == 0;
  proxy_play(count > 1 ? atoi(arguments[1]) : 2, kills ? 1 : -1, story);
  printf("proxy of NCCL %d: %s ranks, %u rounds on %d contexts: right\n", NCCL_VERSION_CODE, count > 1 ? arguments[1] : "2", rounds, CONTEXTS);
}
