/* SPDX-License-Identifier: Apache-2.0
 *
 * Device, buffers and communicators of the rank. The context is the device's primary one: NCCL uses CUDA's runtime,
 * which has no other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_hash.h"
#include "worker.h"

int rank_id(struct worker *worker, struct reply *reply) {
  ncclUniqueId id;
  if (nccl_load(worker) != 0) return -1;
  NCCL(worker, ncclGetUniqueId, &id);
  reply_format(reply, "{\"id\":\"");
  for (size_t i = 0; i < sizeof id; i++) reply_format(reply, "%02x", (unsigned char)id.internal[i]);
  reply_format(reply, "\"}");
  return 0;
}

/* How many there are; -1: these are none. */
static int read_ids(const char *hex, ncclUniqueId ids[MAX_COMMS]) {
  size_t digits = strlen(hex), each = 2 * sizeof *ids, n = digits / each;
  if (n < 1 || n > MAX_COMMS || digits % each != 0 || strspn(hex, "0123456789abcdef") != digits) return -1;
  for (size_t i = 0; i < digits / 2; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return -1;
    ids[i / sizeof *ids].internal[i % sizeof *ids] = (char)byte;
  }
  return (int)n;
}

/* Registered memory must be NCCL's own (ncclMemAlloc), which has what it takes. */
static int make_buffer(struct worker *worker, CUdeviceptr *buffer) {
  void *at;
  if (!worker->registered) {
    CUDA(worker, cuMemAlloc_v2, buffer, worker->maxBytes);
    return 0;
  }
  worker->unusable = nccl.ncclMemAlloc == NULL || nccl.ncclCommWindowRegister == NULL || nccl.ncclCommWindowDeregister == NULL;
  if (worker->unusable) return worker_fail(worker, "registered memory: NCCL %d has no windows: take 2.27 or newer, or plain buffers", worker->ncclVersion);
  NCCL(worker, ncclMemAlloc, &at, worker->maxBytes);
  *buffer = (CUdeviceptr)(uintptr_t)at;
  return 0;
}

static void exchange(struct worker *worker) {
  const CUdeviceptr buffers[2] = {worker->send, worker->recv};
  worker->send = worker->ofNccl[0];
  worker->recv = worker->ofNccl[1];
  memcpy(worker->ofNccl, buffers, sizeof buffers);
}

int rank_exchange(struct worker *worker) {
  int first = !worker->allHave;
  float failed = 0;
  void *at;
  if (nccl.ncclMemAlloc == NULL) return worker_fail(worker, "memory \"nccl\": NCCL %d has none: take 2.19 or newer", worker->ncclVersion);
  for (int i = 0; i < 2 && first && failed == 0; i++) {
    if (worker->ofNccl[i] != 0) continue;
    failed = nccl.ncclMemAlloc(&at, worker->maxBytes) != 0;
    if (failed == 0) worker->ofNccl[i] = (CUdeviceptr)(uintptr_t)at;
  }
  if (first && rank_largest(worker, &failed) != 0) return -1; /* one rank without must not keep the others waiting */
  if (failed != 0) return worker_fail(worker, "memory \"nccl\": a rank's ncclMemAlloc of twice %zu bytes failed", worker->maxBytes);
  worker->allHave = 1;
  exchange(worker);
  if (!first || pattern_fill(worker) == 0) return 0;
  exchange(worker);
  return -1;
}

static int register_buffers(struct worker *worker, struct communicator *of) {
  const CUdeviceptr buffers[2] = {worker->send, worker->recv};
  for (int i = 0; i < 2 && worker->registered; i++) {
    NCCL(worker, ncclCommWindowRegister, of->comm, (void *)(uintptr_t)buffers[i], worker->maxBytes, &of->windows[i], NCCL_WIN_COLL_SYMMETRIC);
    worker->unusable = of->windows[i] == NULL;
    if (worker->unusable) return worker_fail(worker, "registered memory: NCCL has none that is symmetric on this communicator: measure plain buffers");
  }
  return 0;
}

/* NCCL refuses two ranks of one node on a GPU, but those of pretended nodes may share it: nobody measures speed there, but what
 * two nodes do can be had with half their GPUs. Newer releases allow it inside a node, too, where they are told so. */
static int may_share(const struct worker *worker, int gpus) {
  const char *text = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return (worker->perNode > 0 && worker->perNode <= gpus) || (text != NULL && strcmp(text, "1") == 0);
}

/* Context, stream and buffers: once in a process. */
static int start_device(struct worker *worker) {
  int count;
  if (worker->staging != NULL) return 0;
  CUDA(worker, cuInit, 0);
  CUDA(worker, cuDeviceGetCount, &count);
  if (count > 0 && may_share(worker, count)) worker->device %= count;
  if (worker->device >= count) {
    worker->unusable = 1;
    return worker_fail(worker, "--device %d: %d GPUs are visible, counted from 0: look at CUDA_VISIBLE_DEVICES",
                       worker->device, count);
  }
  CUDA(worker, cuDeviceGet, &worker->gpu, worker->device);
  CUDA(worker, cuDevicePrimaryCtxRetain, &worker->context, worker->gpu);
  CUDA(worker, cuCtxSetCurrent, worker->context);
  CUDA(worker, cuStreamCreate, &worker->stream, CU_STREAM_NON_BLOCKING);
  if (make_buffer(worker, &worker->send) != 0 || make_buffer(worker, &worker->recv) != 0) return -1;
  CUDA(worker, cuMemAlloc_v2, &worker->shared, 2 * sizeof(float));
  CUDA(worker, cuMemAllocHost_v2, &worker->staging, STAGING_BYTES);
  if (pattern_fill(worker) != 0) return -1;
  CUDA(worker, cuCtxSynchronize);
  return load_warm(worker);
}

static int describe(struct worker *worker, uint64_t hash, struct reply *reply) {
  char name[256], bus[32];
  CUuuid uuid;
  int driver;
  CUDA(worker, cuDeviceGetName, name, sizeof name, worker->gpu);
  CUDA(worker, cuDeviceGetUuid_v2, &uuid, worker->gpu);
  CUDA(worker, cuDeviceGetPCIBusId, bus, sizeof bus, worker->gpu);
  CUDA(worker, cuDriverGetVersion, &driver);
  reply_format(reply, "{\"ready\":true,\"nccl\":%d,\"gpu\":", worker->ncclVersion);
  reply_quote(reply, name);
  reply_format(reply, ",\"uuid\":\"GPU"); /* as nvidia-smi writes it */
  for (int i = 0; i < 16; i++)
    reply_format(reply, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
  reply_format(reply, "\",\"pciBus\":");
  reply_quote(reply, bus);
  reply_format(reply, ",\"driverVersion\":%d,\"commHash\":\"", driver);
  if (worker->ncclVersion >= 22700) reply_format(reply, "%016llx", (unsigned long long)hash);
  reply_format(reply, "\"}");
  return 0;
}

/* In the order of the ids, on every rank. */
static int make_comms(struct worker *worker, const ncclUniqueId *ids, int n) {
  worker->comms[0].stream = worker->stream;
  for (int i = 0; i < n; i++) {
    struct communicator *made = &worker->comms[i];
    if (made->stream == NULL) CUDA(worker, cuStreamCreate, &made->stream, CU_STREAM_NON_BLOCKING);
    NCCL(worker, ncclCommInitRank, &made->comm, worker->nRanks, ids[i], worker->rank);
    if (register_buffers(worker, made) != 0) return -1;
  }
  worker->numComms = n;
  worker->comm = worker->comms[0].comm;
  return 0;
}

int rank_init(struct worker *worker, const char *hex, struct reply *reply) {
  ncclUniqueId ids[MAX_COMMS];
  int n = read_ids(hex, ids);
  if (n < 0) return worker_fail(worker, "id: want the %zu hexadecimal digits that rank 0 gave, once for each communicator, %d at most", 2 * sizeof *ids, MAX_COMMS);
  if (worker->comm != NULL)
    return worker_fail(worker, "init: there is a communicator already: send {\"do\":\"destroy\"} first");
  if (cuda_load(worker) != 0 || nccl_load(worker) != 0 || start_device(worker) != 0) return -1;
  if (make_comms(worker, ids, n) != 0) return -1;
  /* Ready means that all ranks are; and what this needs is connected before any load runs. */
  float zero = 0;
  if (rank_largest(worker, &zero) != 0) return -1;
  return describe(worker, nccl_comm_hash(&ids[0]), reply);
}

int rank_destroy(struct worker *worker) {
  if (worker->comm == NULL) return worker_fail(worker, "destroy: there is no communicator: send init first");
  CUDA(worker, cuStreamSynchronize, worker->stream);
  for (int i = 0; i < worker->numComms; i++) {
    struct communicator *gone = &worker->comms[i];
    for (int w = 0; w < 2 && gone->windows[w] != NULL; w++) NCCL(worker, ncclCommWindowDeregister, gone->comm, gone->windows[w]);
    NCCL(worker, ncclCommDestroy, gone->comm);
  }
  worker->numComms = 0;
  worker->comm = NULL;
  return 0;
}

int rank_meet(struct worker *worker) {
  NCCL(worker, ncclAllReduce, (const void *)(uintptr_t)worker->shared, (void *)(uintptr_t)(worker->shared + sizeof(float)), 1, ncclFloat32,
       ncclMax, worker->comm, worker->stream);
  return 0;
}

int rank_largest(struct worker *worker, float *value) {
  *(float *)worker->staging = *value; /* page-locked: only then the copy has ended when it returns */
  CUDA(worker, cuMemcpyHtoD_v2, worker->shared, worker->staging, sizeof *value);
  if (rank_meet(worker) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  CUDA(worker, cuMemcpyDtoH_v2, value, worker->shared + sizeof *value, sizeof *value);
  return 0;
}
