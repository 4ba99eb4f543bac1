/* SPDX-License-Identifier: Apache-2.0
 *
 * The proxy progress thread of a rank: posts ProxyCtrl, ProxyOp, ProxyStep and KernelCh events after the fact, from a
 * thread that is not the one that called the collective (src/proxy.cc, src/transport/net.cc and profiler.cc of 2.28.9).
 * NCCL runs one such thread for a communicator unless resources are shared; here it is one for a rank.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "rng.h"

#define QUEUE 1024
/* Kernels take time, and NCCL's thread tells of each soon after it; this program's calls cost none and would run away.
 * NCCL keeps a channel's last 64 times, so a thread that is later than that tells wrong ones (--proxy-lag). */
#define PROMPT 32
#define MAX_CHANNELS 64

struct proxy {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct proxy_work queue[QUEUE];
  unsigned head, tail; /* next to do, next free */
  int lag, draining, stopping, busy;
};

/* The networks of a rank on one channel: rings cross nodes at their first and last GPU, alternating between channels;
 * trees cross at one GPU of each node, both ways. */
static void net_of(const struct proxy_work *w, int channel, int *sends, int *receives) {
  int perNode = w->nRanks / w->nNodes, local = w->rank % perNode;
  *sends = *receives = 0;
  if (w->nNodes == 1) return;
  if (w->algo == ALGO_TREE) {
    *sends = *receives = local == channel % perNode;
  } else {
    int reversed = channel & 1;
    *sends = local == (reversed ? 0 : perNode - 1);
    *receives = local == (reversed ? perNode - 1 : 0);
  }
}

static void ctrl_events(const struct proxy_work *w) {
  if (!(atomic_load_explicit(&nccl_event_mask, memory_order_relaxed) & ncclProfileProxyCtrl)) return;
  ncclProfilerEventDescr_v7_t descr = {.type = ncclProfileProxyCtrl};
  ncclProfilerEventStateArgs_v7_t args = {0};
  void *handle = NULL;
  profiler_start(w->profilerContext, &handle, &descr);
  if (handle == NULL) return;
  profiler_record(handle, ncclProfilerProxyCtrlIdle + 4, &args); /* ncclProfilerProxyCtrlAppend */
  args.proxyCtrl.appendedProxyOps = w->nChannels;
  profiler_record(handle, ncclProfilerProxyCtrlAppendEnd, &args);
  profiler_stop(handle);
}

struct op { void *handle; int isSend, channel; };

static int start_ops(const struct proxy_work *w, struct op *ops) {
  int n = 0;
  int proxyMask = ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileNetPlugin; /* profiler.cc:482 */
  if (!(w->mask & proxyMask)) return 0;
  for (int c = w->channelLo; c < w->channelLo + w->nChannels; c++) {
    int wanted[2];
    net_of(w, c, &wanted[1], &wanted[0]);
    for (int isSend = 0; isSend < 2; isSend++) {
      if (!wanted[isSend]) continue;
      ncclProfilerEventDescr_v7_t d = {.type = ncclProfileProxyOp, .parentObj = w->taskHandle, .rank = w->rank};
      int perNode = w->nRanks / w->nNodes;
      d.proxyOp.pid = getpid();
      d.proxyOp.channelId = (uint8_t)c;
      d.proxyOp.peer = (w->rank + (isSend ? perNode : w->nRanks - perNode)) % w->nRanks;
      d.proxyOp.chunkSize = w->proto == PROTO_SIMPLE ? 1 << 19 : 1 << 15;
      d.proxyOp.nSteps = (int)(w->bytes / (uint64_t)w->nChannels / (uint64_t)d.proxyOp.chunkSize) + 1;
      d.proxyOp.isSend = isSend;
      ops[n] = (struct op){NULL, isSend, c};
      profiler_start(w->profilerContext, &ops[n++].handle, &d);
    }
  }
  ncclProfilerEventStateArgs_v7_t args = {0};
  for (int i = 0; i < n; i++)
    if (ops[i].handle != NULL) profiler_record(ops[i].handle, ncclProfilerProxyOpInProgress_v4, &args);
  return n;
}

/* One network step; NCCL has more for large calls, which differ in nothing but their number. */
static void step_events(const struct proxy_work *w, const struct op *op) {
  if (!(w->mask & (ncclProfileProxyStep | ncclProfileNetPlugin))) return;
  static const int sendStates[] = {ncclProfilerProxyStepSendGPUWait, ncclProfilerProxyStepSendPeerWait_v4, 9};
  static const int receiveStates[] = {10, 11, ncclProfilerProxyStepRecvGPUWait};
  ncclProfilerEventDescr_v7_t d = {.type = ncclProfileProxyStep, .parentObj = op->handle, .rank = w->rank};
  ncclProfilerEventStateArgs_v7_t args = {.proxyStep = {w->bytes / (uint64_t)w->nChannels}};
  void *handle = NULL;
  profiler_start(w->profilerContext, &handle, &d);
  for (int i = 0; i < 3 && handle != NULL; i++)
    profiler_record(handle, op->isSend ? sendStates[i] : receiveStates[i], &args);
  if (handle != NULL) profiler_stop(handle);
}

static void stop_ops(const struct proxy_work *w, const struct op *ops, int n, int isSend) {
  clock_virtual(isSend ? w->timing.counterEndNs : w->timing.signalEndNs);
  for (int i = 0; i < n; i++) {
    if (ops[i].isSend != isSend) continue;
    step_events(w, &ops[i]);
    if (ops[i].handle != NULL) profiler_stop(ops[i].handle);
  }
}

/* What a call takes beside its kernel's own time: recorded tables hold whole calls (4x H200, docs/design.md, decision 6).
 * Before v4 the host times, and there is no kernel's own time. */
#define LAUNCH_NS 4600

static uint64_t launch_ns(const struct proxy_work *w) {
  uint64_t length = w->timing.signalEndNs - w->timing.arrivalNs;
  return profiler_abi() < 4 ? 0 : length / 2 < LAUNCH_NS ? length / 2 : LAUNCH_NS;
}

/* Channels start a little after each other and end within the last 2% of the kernel, one of them at its end. */
static void kernel_times(const struct proxy_work *w, int i, uint64_t *start, uint64_t *stop) {
  uint64_t begin = w->timing.arrivalNs + launch_ns(w), length = w->timing.signalEndNs - begin;
  uint64_t draw = rng_mix(w->shuffle + (uint64_t)i);
  int last = (int)(w->shuffle % (uint64_t)w->nChannels);
  int first = (int)((w->shuffle >> 32) % (uint64_t)w->nChannels);
  *start = begin + (i == first ? 0 : draw % (length / 200 + 1));
  *stop = w->timing.signalEndNs - (i == last ? 0 : (draw >> 32) % (length / 50 + 1));
}

static void kernel_stop_events(const struct proxy_work *w, void *const *kernels) {
  clock_virtual(w->timing.signalEndNs);
  for (int k = 0; k < w->nChannels; k++) {
    int i = (int)((w->shuffle + (uint64_t)k) % (uint64_t)w->nChannels);
    uint64_t start, stop;
    if (kernels[i] == NULL) continue;
    kernel_times(w, i, &start, &stop);
    ncclProfilerEventStateArgs_v7_t args = {.kernelCh = {stop + w->gpuBase}};
    profiler_record(kernels[i], ncclProfilerKernelChStop, &args);
    profiler_stop(kernels[i]);
  }
}

static void do_work(const struct proxy_work *w) {
  struct op ops[2 * MAX_CHANNELS];
  void *kernels[MAX_CHANNELS] = {NULL};
  clock_virtual(w->timing.arrivalNs);
  ctrl_events(w);
  int n = start_ops(w, ops);
  uint64_t told = 0; /* nobody hears of a kernel before it starts */
  for (int i = 0; i < w->nChannels; i++) {
    uint64_t start, stop;
    kernel_times(w, i, &start, &stop);
    if (start > told) told = start;
  }
  clock_virtual(told);
  for (int i = 0; (w->mask & ncclProfileKernelCh) && i < w->nChannels; i++) {
    uint64_t start, stop;
    kernel_times(w, i, &start, &stop);
    /* rank stays 0: ncclProfilerStartKernelChEvent does not set it. */
    ncclProfilerEventDescr_v7_t d = {.type = ncclProfileKernelCh, .parentObj = w->taskHandle};
    d.kernelCh.channelId = (uint8_t)(w->channelLo + i);
    d.kernelCh.pTimer = start + w->gpuBase;
    profiler_start(w->profilerContext, &kernels[i], &d);
  }
  stop_ops(w, ops, n, 1);
  /* Which is seen first, the end of the last receive or of the kernel, is the thread's luck. */
  int kernelFirst = (w->shuffle >> 16) & 1;
  if (kernelFirst) kernel_stop_events(w, kernels);
  stop_ops(w, ops, n, 0);
  if (!kernelFirst) kernel_stop_events(w, kernels);
  clock_virtual(0);
}

static void *progress(void *argument) {
  struct proxy *p = argument;
  pthread_mutex_lock(&p->mutex);
  for (;;) {
    int waiting = p->draining || p->stopping ? 0 : p->lag;
    if (p->tail - p->head > (unsigned)waiting) {
      struct proxy_work work = p->queue[p->head % QUEUE];
      p->busy = 1;
      p->head++;
      pthread_mutex_unlock(&p->mutex);
      do_work(&work);
      pthread_mutex_lock(&p->mutex);
      p->busy = 0;
      pthread_cond_broadcast(&p->changed);
    } else if (p->stopping) {
      break;
    } else {
      pthread_cond_wait(&p->changed, &p->mutex);
    }
  }
  pthread_mutex_unlock(&p->mutex);
  return NULL;
}

struct proxy *proxy_start(int lag) {
  struct proxy *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->lag = lag;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->changed, NULL);
  if (pthread_create(&p->thread, NULL, progress, p) == 0) return p;
  free(p);
  return NULL;
}

void proxy_post(struct proxy *p, const struct proxy_work *work) {
  pthread_mutex_lock(&p->mutex);
  unsigned limit = (unsigned)p->lag + PROMPT < QUEUE ? (unsigned)p->lag + PROMPT : QUEUE;
  while (p->tail - p->head >= limit) pthread_cond_wait(&p->changed, &p->mutex);
  p->queue[p->tail++ % QUEUE] = *work;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->mutex);
}

void proxy_drain(struct proxy *p) {
  pthread_mutex_lock(&p->mutex);
  p->draining = 1;
  pthread_cond_broadcast(&p->changed);
  while (p->tail != p->head || p->busy) pthread_cond_wait(&p->changed, &p->mutex);
  p->draining = 0;
  pthread_mutex_unlock(&p->mutex);
}

void proxy_stop(struct proxy *p) {
  pthread_mutex_lock(&p->mutex);
  p->stopping = 1;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->mutex);
  pthread_join(p->thread, NULL);
  pthread_mutex_destroy(&p->mutex);
  pthread_cond_destroy(&p->changed);
  free(p);
}
