/* SPDX-License-Identifier: Apache-2.0
 *
 * Other work on this GPU while replays are timed: kernels that hold most multiprocessors, or copies to the next GPU. It
 * runs in the rank's own process, because kernels of two processes take turns on a GPU and never share it, and only
 * while replays are timed: setting up a communicator or graph may wait for the device, beside a load for ever.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load_ptx.h"
#include "worker.h"

static const size_t loadBytes = 64u << 20;     /* above the L2 of an H200 (60 MB): a pass meets memory */
static const int mostSharedBytes = 200 << 10;  /* a block: no block of NCCL fits beside it on a multiprocessor */
static const int freeMultiprocessors = 20;     /* what programs that overlap leave for NCCL */
static const uint64_t kernelNs = 500000;
static const double warmMs = 500;
#define QUEUED 3 /* pieces of work that stay queued: no pause, and an end within milliseconds */

enum kind { LOAD_NONE, LOAD_COMPUTE, LOAD_COPY };

struct load {
  struct worker *worker;
  enum kind kind;
  CUstream stream;
  CUdeviceptr data, result;
  CUfunction function;
  int blocks, sharedBytes;
  CUcontext peerContext;
  CUdeviceptr far; /* memory of the next GPU */
  CUevent queue[QUEUED];
  pthread_t thread;
  int threadRuns;
  atomic_int on, idle; /* wanted; and that the thread launches nothing until it is wanted again */
  _Atomic uint64_t launched;
  atomic_int failed; /* the thread's CUresult */
};

static CUresult launch(struct load *load) {
  if (load->kind == LOAD_COPY)
    return cuda.cuMemcpyPeerAsync(load->far, load->peerContext, load->data, load->worker->context, loadBytes,
                                  load->stream);
  uint64_t cells = loadBytes / 16, ns = kernelNs;
  void *arguments[] = {&load->data, &cells, &ns, &load->result};
  return cuda.cuLaunchKernel(load->function, (unsigned)load->blocks, 1, 1, 1024, 1, 1, (unsigned)load->sharedBytes,
                             load->stream, arguments, NULL);
}

static void *keep_busy(void *argument) {
  struct load *load = argument;
  CUresult result = cuda.cuCtxSetCurrent(load->worker->context);
  for (uint64_t i = 0; result == 0; i++) {
    while (!atomic_load(&load->on)) {
      atomic_store(&load->idle, 1);
      usleep(50);
    }
    atomic_store(&load->idle, 0);
    result = cuda.cuEventSynchronize(load->queue[i % QUEUED]);
    if (result == 0) result = launch(load);
    if (result == 0) result = cuda.cuEventRecord(load->queue[i % QUEUED], load->stream);
    atomic_fetch_add(&load->launched, 1);
  }
  atomic_store(&load->failed, result);
  return NULL;
}

static int prepare(struct worker *worker) {
  if (worker->load != NULL) return 0;
  struct load *load = calloc(1, sizeof *load);
  if (load == NULL) return worker_fail(worker, "load: out of memory");
  load->worker = worker;
  CUDA(worker, cuStreamCreate, &load->stream, CU_STREAM_NON_BLOCKING);
  CUDA(worker, cuMemAlloc_v2, &load->data, loadBytes);
  CUDA(worker, cuMemAlloc_v2, &load->result, sizeof(float));
  CUDA(worker, cuMemsetD8Async, load->data, 0, loadBytes, load->stream);
  for (int i = 0; i < QUEUED; i++) CUDA(worker, cuEventCreate, &load->queue[i], CU_EVENT_DISABLE_TIMING);
  CUDA(worker, cuStreamSynchronize, load->stream);
  worker->load = load;
  return 0;
}

static int prepare_compute(struct worker *worker) {
  struct load *load = worker->load;
  CUmodule module;
  if (load->function != NULL) return 0;
  int multiprocessors, shared;
  CUDA(worker, cuDeviceGetAttribute, &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, worker->gpu);
  CUDA(worker, cuDeviceGetAttribute, &shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, worker->gpu);
  load->blocks = multiprocessors - freeMultiprocessors;
  if (load->blocks < multiprocessors / 2) load->blocks = multiprocessors / 2;
  load->sharedBytes = shared < mostSharedBytes ? shared : mostSharedBytes;
  CUfunction function;
  CUDA(worker, cuModuleLoadData, &module, loadPtx);
  CUDA(worker, cuModuleGetFunction, &function, module, "dynamiccl_load");
  CUDA(worker, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, load->sharedBytes);
  load->function = function;
  return 0;
}

static int prepare_copy(struct worker *worker) {
  struct load *load = worker->load;
  CUdevice peer;
  int count;
  if (load->far != 0) return 0;
  CUDA(worker, cuDeviceGetCount, &count);
  if (count < 2) return worker_fail(worker, "load copy: want two visible GPUs: look at CUDA_VISIBLE_DEVICES");
  CUDA(worker, cuDeviceGet, &peer, (worker->device + 1) % count);
  CUDA(worker, cuDevicePrimaryCtxRetain, &load->peerContext, peer);
  CUDA(worker, cuCtxSetCurrent, load->peerContext);
  CUDA(worker, cuMemAlloc_v2, &load->far, loadBytes);
  CUDA(worker, cuCtxSetCurrent, worker->context);
  /* Where GPUs have no way to each other the copy goes through the host; where NCCL was first this is an error too. */
  (void)cuda.cuCtxEnablePeerAccess(load->peerContext, 0);
  return 0;
}

int load_choose(struct worker *worker, const char *kind) {
  if (strcmp(kind, "none") == 0) {
    if (worker->load != NULL) worker->load->kind = LOAD_NONE;
    return 0;
  }
  int copy = strcmp(kind, "copy") == 0;
  if (!copy && strcmp(kind, "compute") != 0)
    return worker_fail(worker, "kind \"%.40s\": want none, compute or copy", kind);
  if (worker->context == NULL) return worker_fail(worker, "load: there is no GPU yet: send init first");
  if (prepare(worker) != 0 || (copy ? prepare_copy(worker) : prepare_compute(worker)) != 0) return -1;
  struct load *load = worker->load;
  load->kind = copy ? LOAD_COPY : LOAD_COMPUTE;
  CUresult result = launch(load); /* compiles and maps what it needs before anything is timed */
  if (result != 0) return cuda_failed(worker, copy ? "cuMemcpyPeerAsync" : "cuLaunchKernel", result);
  CUDA(worker, cuStreamSynchronize, load->stream);
  if (!load->threadRuns && pthread_create(&load->thread, NULL, keep_busy, load) != 0)
    return worker_fail(worker, "load: no thread");
  load->threadRuns = 1;
  return 0;
}

int load_turn(struct worker *worker, int on) {
  struct load *load = worker->load;
  if (load == NULL || load->kind == LOAD_NONE) return 0;
  uint64_t before = atomic_load(&load->launched);
  atomic_store(&load->on, on);
  while (on && atomic_load(&load->launched) < before + QUEUED && atomic_load(&load->failed) == 0) usleep(20);
  while (!on && !atomic_load(&load->idle) && atomic_load(&load->failed) == 0) usleep(20);
  if (!on) CUDA(worker, cuStreamSynchronize, load->stream);
  CUresult failed = atomic_load(&load->failed);
  return failed == 0 ? 0 : cuda_failed(worker, "the load", failed);
}

/* Kernels until their own time adds up; where none can be compiled the first measurements are cold, which is said. */
int load_warm(struct worker *worker) {
  CUevent start, end;
  if (prepare(worker) != 0 || prepare_compute(worker) != 0) {
    fprintf(stderr, "dynamiccl-worker: rank %d: the GPU is not warmed: %s\n", worker->rank, worker->error);
    worker->unusable = 0;
    return 0;
  }
  struct load *load = worker->load;
  CUDA(worker, cuEventCreate, &start, CU_EVENT_DEFAULT);
  CUDA(worker, cuEventCreate, &end, CU_EVENT_DEFAULT);
  double total = 0;
  for (int batch = 0; batch < 200 && total < warmMs; batch++) {
    float ms;
    CUDA(worker, cuEventRecord, start, load->stream);
    for (int i = 0; i < 20; i++) {
      CUresult result = launch(load);
      if (result != 0) return cuda_failed(worker, "cuLaunchKernel", result);
    }
    CUDA(worker, cuEventRecord, end, load->stream);
    CUDA(worker, cuStreamSynchronize, load->stream);
    CUDA(worker, cuEventElapsedTime, &ms, start, end);
    total += ms;
  }
  return 0;
}
