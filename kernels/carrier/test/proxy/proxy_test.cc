/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL 2.28.9's own proxy (src/gin/gin_host_proxy.cc of a source tree) between a kernel and the carrier, without a GPU: rank processes
 * whose kernel is a thread that writes descriptors as nccl_device/gin/proxy/gin_proxy.h does.
 *   make -C kernels/carrier proxy NCCL_TREE=DIR; then, with the environment of carrier_test: proxy_test RANKS ROUNDS
 * Each round: to every rank a put without and one with a signal and a counter, a signal alone that adds, a flush; all is compared.
 */
#include <atomic>
#include <thread>

#include "comm.h"
#include "gin/gin_host.h"
#include "gin/gin_host_proxy.h"
#include "nccl_device/gin/proxy/gin_proxy_device_host_common.h"
#include "patterns.h"

enum { PUTS = 0, ADDS = 1 };

static unsigned rounds;
static std::atomic<bool> stop;

struct Window {
  unsigned char *at;
  void *host[CONTEXTS], *device[CONTEXTS];
};

struct Context {
  ncclGinProxyGpuCtx_t *gpu;
  unsigned index;

  void post(int peer, unsigned op, void *srcWin, size_t srcOff, void *dstWin, size_t dstOff, size_t bytes, unsigned signal, uint64_t value,
            unsigned counter) {
    ncclGinProxyGfd_t gfd;
    memset(&gfd, 0, sizeof gfd);
    gfd.qword[ncclGinProxyGfdHeader].header = {1, op, bytes};
    gfd.qword[ncclGinProxyGfdSrcOff].srcOff = {1, srcOff};
    gfd.qword[ncclGinProxyGfdSrcHandle].srcHandle = {1, (uint64_t)srcWin};
    gfd.qword[ncclGinProxyGfdDstOff].dstOff = {1, dstOff};
    gfd.qword[ncclGinProxyGfdDstHandle].dstHandle = {1, (uint64_t)dstWin};
    gfd.qword[ncclGinProxyGfdCompletion].completion = {1, 0, (uint16_t)counter, (uint16_t)signal, (uint16_t)value, 0};
    gfd.qword[ncclGinProxyGfdSignalVal].signalVal = {1, 0, (uint16_t)(value >> 16), (uint32_t)(value >> 32)};
    gfd.qword[ncclGinProxyGfdReserved].flag.v = 1;
    uint32_t at = gpu->pis[peer]++;
    while (at - __atomic_load_n(&gpu->cis[peer], __ATOMIC_ACQUIRE) >= gpu->queueSize) sched_yield();
    ncclGinProxyGfd_t *slot = &gpu->queues[(size_t)peer * gpu->queueSize + at % gpu->queueSize];
    for (int q = ncclGinProxyGfdQwords - 1; q >= 0; q--) /* in any order, as on a GPU */
      __atomic_store_n(&slot->qword[q].raw, gfd.qword[q].raw, __ATOMIC_RELEASE);
  }
  void wait(uint64_t *word, uint64_t least) const {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least) sched_yield();
  }
  void flush(int ranks) const {
    for (int peer = 0; peer < ranks; peer++)
      while ((int32_t)(gpu->pis[peer] - __atomic_load_n(&gpu->cis[peer], __ATOMIC_ACQUIRE)) > 0) sched_yield();
  }
};

static void kernel(Context c, Window send, Window receive) {
  const int self = proxy_rank(), ranks = proxy_ranks();
  const unsigned put = ncclGinProxyOpPut, full = put | ncclGinProxyOpWithSignalInc | ncclGinProxyOpWithCounter;
  for (unsigned round = 0; round < rounds; round++) {
    for (int to = 0; to < ranks; to++)
      for (int part = 0; part < PARTS; part++) {
        uint64_t p = pattern(c.index, round, self, to, part);
        size_t from = place(ranks, c.index, round, to, part), bytes = size_of(p);
        fill(send.at + from, p);
        c.post(to, part == 0 ? put : full, send.device[c.index], from, receive.device[c.index], place(ranks, c.index, round, self, part), bytes, PUTS, 0, 7);
      }
    c.wait(&c.gpu->signals[PUTS], (uint64_t)(round + 1) * (uint64_t)ranks);
    for (int from = 0; from < ranks; from++)
      for (int part = 0; part < PARTS; part++) CHECK(is_filled(receive.at + place(ranks, c.index, round, from, part), pattern(c.index, round, from, self, part)));
    const uint64_t large = 0x123456789abcu; /* all its parts count */
    for (int to = 0; to < ranks; to++) c.post(to, put | ncclGinProxyOpWithSignalAdd, nullptr, 0, nullptr, 0, 0, ADDS, large, 0);
    c.wait(&c.gpu->signals[ADDS], large * (round + 1) * (uint64_t)ranks);
    c.flush(ranks);
    CHECK(__atomic_load_n(&c.gpu->counters[7], __ATOMIC_ACQUIRE) == (uint64_t)(round + 1) * (uint64_t)ranks);
  }
  CHECK(c.gpu->signals[PUTS] == (uint64_t)rounds * (uint64_t)ranks);
}

static void story() {
  const int ranks = proxy_ranks();
  auto comm = (ncclComm *)calloc(1, sizeof(ncclComm));
  comm->sharedRes = (ncclSharedResources *)calloc(1, sizeof(ncclSharedResources));
  comm->nRanks = ranks;
  comm->rank = proxy_rank();
  void *colls[CONTEXTS], *contexts[CONTEXTS];
  ncclNetDeviceHandle_v11_t *handles[CONTEXTS];
  for (unsigned n = 0; n < CONTEXTS; n++) {
    colls[n] = proxy_connect();
    comm->sharedRes->ginState.ncclGin = (ncclGin_t *)proxy_gin();
    CHECK(ncclGinProxyCreateContext(comm, colls[n], 0, 64 << 10, 64 << 10, &contexts[n], &handles[n]) == ncclSuccess);
    CHECK(handles[n]->netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && handles[n]->needsProxyProgress == 1);
  }
  auto gin = (ncclGin_t *)proxy_gin();
  std::thread progress([&] {
    while (!stop) {
      for (void *context : contexts) CHECK(ncclGinProxyProgress(gin, context) == ncclSuccess);
      sched_yield();
    }
  });
  size_t bytes = place(ranks, CONTEXTS, 0, 0, 0);
  Window windows[2];
  for (Window &w : windows) {
    w.at = (unsigned char *)proxy_memory(bytes, 1);
    for (unsigned n = 0; n < CONTEXTS; n++) CHECK(ncclGinProxyRegister(gin, contexts[n], w.at, bytes, NCCL_PTR_CUDA, 0, &w.host[n], &w.device[n]) == ncclSuccess);
  }
  proxy_known(handles[0]->handle);
  proxy_meet();
  std::thread kernels[CONTEXTS];
  for (unsigned n = 0; n < CONTEXTS; n++) kernels[n] = std::thread(kernel, Context{(ncclGinProxyGpuCtx_t *)handles[n]->handle, n}, windows[0], windows[1]);
  for (auto &k : kernels) k.join();
  proxy_meet();
  stop = true;
  progress.join();
  for (unsigned n = 0; n < CONTEXTS; n++) {
    bool error = true;
    CHECK(ncclGinProxyQueryLastError(gin, contexts[n], &error) == ncclSuccess && !error);
    for (Window &w : windows) CHECK(ncclGinProxyDeregister(gin, contexts[n], w.host[n]) == ncclSuccess);
    CHECK(ncclGinProxyDestroyContext(gin, contexts[n]) == ncclSuccess);
    proxy_disconnect(colls[n]);
  }
  proxy_end();
}

int main(int count, char **arguments) {
  rounds = count > 2 ? (unsigned)atoi(arguments[2]) : 1000;
  proxy_play(count > 1 ? atoi(arguments[1]) : 2, -1, story);
  printf("proxy: %s ranks, %u rounds on %d contexts: right\n", arguments[1], rounds, CONTEXTS);
}
