/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes are nccl-tests': for AllGather and ReduceScatter the whole buffer, a rank's share of it rounded down to 16
 * bytes.
 */
#include <string.h>

#include "worker.h"

static const char *const names[NUM_COLLECTIVES] = {"AllReduce", "AllGather", "ReduceScatter",
                                                   "Broadcast", "Reduce",    "AllToAll"};
static const size_t elementBytes = 2; /* bf16 */

int shape_of(struct worker *worker, const char *collective, double bytes, struct shape *shape) {
  int c = 0;
  while (c < NUM_COLLECTIVES && strcmp(names[c], collective) != 0) c++;
  if (c == NUM_COLLECTIVES)
    return worker_fail(worker, "collective \"%.40s\": want AllReduce, AllGather, ReduceScatter, Broadcast, Reduce or "
                       "AllToAll", collective);
  if (bytes > (double)worker->maxBytes)
    return worker_fail(worker, "bytes %.0f: the buffers have %zu: start the worker with a larger --max-bytes", bytes,
                       worker->maxBytes);
  size_t ranks = (size_t)worker->nRanks, whole = (size_t)bytes / elementBytes;
  size_t share = (size_t)bytes / ranks / 16 * 16 / elementBytes;
  *shape = (struct shape){(enum collective)c, names[c], (size_t)bytes, whole, whole};
  if (c == ALL_GATHER || c == REDUCE_SCATTER || c == ALL_TO_ALL) {
    shape->count = share;
    shape->outputs = c == REDUCE_SCATTER ? share : share * ranks;
  } else if (c == REDUCE && worker->rank != 0) {
    shape->outputs = 0; /* the root alone gets the sums */
  }
  if (shape->count == 0)
    return worker_fail(worker, "bytes %.0f: too few for %s of %d ranks: %s", bytes, names[c], worker->nRanks,
                       c == ALL_REDUCE || c == BROADCAST || c == REDUCE ? "want 2 or more" : "want 16 or more a rank");
  return 0;
}

/* As nccl-tests and PyTorch do it where NCCL has no ncclAlltoAll. */
static int grouped_all_to_all(struct worker *worker, size_t count) {
  NCCL(worker, ncclGroupStart);
  for (int peer = 0; peer < worker->nRanks; peer++) {
    uint64_t offset = (uint64_t)peer * count * elementBytes;
    NCCL(worker, ncclSend, (void *)(uintptr_t)(worker->send + offset), count, ncclBfloat16, peer, worker->comm,
         worker->stream);
    NCCL(worker, ncclRecv, (void *)(uintptr_t)(worker->recv + offset), count, ncclBfloat16, peer, worker->comm,
         worker->stream);
  }
  NCCL(worker, ncclGroupEnd);
  return 0;
}

int shape_call(struct worker *worker, const struct shape *shape) {
  const void *send = (const void *)(uintptr_t)worker->send;
  void *recv = (void *)(uintptr_t)worker->recv;
  ncclComm_t comm = worker->comm;
  CUstream stream = worker->stream;
  size_t n = shape->count;
  switch (shape->collective) {
    case ALL_REDUCE: NCCL(worker, ncclAllReduce, send, recv, n, ncclBfloat16, ncclSum, comm, stream); return 0;
    case ALL_GATHER: NCCL(worker, ncclAllGather, send, recv, n, ncclBfloat16, comm, stream); return 0;
    case REDUCE_SCATTER: NCCL(worker, ncclReduceScatter, send, recv, n, ncclBfloat16, ncclSum, comm, stream); return 0;
    case BROADCAST: NCCL(worker, ncclBroadcast, send, recv, n, ncclBfloat16, 0, comm, stream); return 0;
    case REDUCE: NCCL(worker, ncclReduce, send, recv, n, ncclBfloat16, ncclSum, 0, comm, stream); return 0;
    default: break;
  }
  if (nccl.ncclAlltoAll == NULL) return grouped_all_to_all(worker, n);
  NCCL(worker, ncclAlltoAll, send, recv, n, ncclBfloat16, comm, stream);
  return 0;
}

int shape_calls(struct worker *worker, const struct shape *shape, int calls) {
  for (int i = 0; i < calls; i++)
    if (shape_call(worker, shape) != 0) return -1;
  return 0;
}
