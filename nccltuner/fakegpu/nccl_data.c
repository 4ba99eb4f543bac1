/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves data between the processes of a communicator: chunk by chunk every rank shows its send buffer in shared memory
 * and takes from all of them what is its own. Sums are taken in the order of ranks, on every rank alike.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl_fake.h"

/* Two chunks a rank, by turns: a rank that writes the one of step n+2 has met the others in step n+1, so all have
 * read the one of step n. */
static char *chunk_of(const struct mover *mover, int rank) {
  size_t ranks = (size_t)mover->nRanks, turn = mover->steps & 1;
  return mover->shared + (HOST_BYTES + STEPS_BYTES + SHOWN_BYTES) * ranks + (turn * ranks + (size_t)rank) * CHUNK_BYTES;
}

/* Steps in which a rank has shown what it sends. */
static atomic_ullong *steps_of(const struct mover *mover, int rank) {
  return (atomic_ullong *)(mover->shared + HOST_BYTES * (size_t)mover->nRanks + STEPS_BYTES * (size_t)rank);
}

/* Machines have more ranks than CPUs. */
static void nap(unsigned round) {
  if (round < 32) sched_yield();
  else usleep(round < 1000 ? 50 : 1000);
}

/* False: the communicator was aborted. Where a rank is gone only that ends it, as it ends NCCL's kernels. */
static int meet(const struct mover *mover) {
  unsigned round = 0;
  atomic_store_explicit(steps_of(mover, mover->rank), mover->steps + 1, memory_order_release);
  for (int r = 0; r < mover->nRanks; r++) {
    while (atomic_load_explicit(steps_of(mover, r), memory_order_acquire) <= mover->steps) {
      if (atomic_load(&mover->aborted)) return 0;
      nap(round++);
    }
  }
  return 1;
}

static float widen(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* To nearest, ties to even. */
static uint16_t narrow(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Loops without questions in them: a few MiB must not take a test's time. */
static void widen_all(float *restrict to, const char *restrict from, size_t n, int type) {
  if (type == ncclFloat32) memcpy(to, from, n * sizeof *to);
  else for (size_t i = 0; i < n; i++) to[i] = widen(((const uint16_t *)from)[i]);
}

static void narrow_all(char *restrict to, const float *restrict from, size_t n, int type) {
  if (type == ncclFloat32) memcpy(to, from, n * sizeof *from);
  else for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = narrow(from[i]);
}

static void fold(float *restrict into, const float *restrict from, size_t n, int op) {
  if (op == ncclMax) for (size_t i = 0; i < n; i++) into[i] = from[i] > into[i] ? from[i] : into[i];
  else for (size_t i = 0; i < n; i++) into[i] += from[i];
}

/* bytes from offset of everybody's chunk, reduced to one. */
static void reduce(const struct mover *mover, const struct call *call, char *to, size_t offset, size_t bytes) {
  float *sum = mover->sums, *next = mover->sums + CHUNK_BYTES / 2;
  size_t n = bytes / nccl_type_bytes(call->type);
  widen_all(sum, chunk_of(mover, 0) + offset, n, call->type);
  for (int r = 1; r < mover->nRanks; r++) {
    widen_all(next, chunk_of(mover, r) + offset, n, call->type);
    fold(sum, next, n, call->op);
  }
  if (call->op == ncclAvg) for (size_t i = 0; i < n; i++) sum[i] /= (float)mover->nRanks;
  narrow_all(to, sum, n, call->type);
}

/* Where the part of the send buffers that this rank wants lies inside the chunk [at, at + bytes). */
static size_t overlap(size_t at, size_t bytes, size_t from, size_t to, size_t *offset) {
  size_t low = at > from ? at : from, high = at + bytes < to ? at + bytes : to;
  *offset = low < high ? low - at : 0;
  return low < high ? high - low : 0;
}

/* Takes what is this rank's out of chunks that hold [at, at + bytes) of every send buffer. */
static void take(const struct mover *mover, const struct call *call, size_t at, size_t bytes) {
  int rank = mover->rank, nRanks = mover->nRanks;
  size_t share = call->count * nccl_type_bytes(call->type), offset, mine;
  char *recv = call->recv;
  switch (call->func) {
    case FUNC_BROADCAST: memcpy(recv + at, chunk_of(mover, call->root), bytes); return;
    case FUNC_REDUCE:
      if (rank == call->root) reduce(mover, call, recv + at, 0, bytes);
      return;
    case FUNC_ALLREDUCE: reduce(mover, call, recv + at, 0, bytes); return;
    case FUNC_ALLGATHER:
      for (int r = 0; r < nRanks; r++) memcpy(recv + (size_t)r * share + at, chunk_of(mover, r), bytes);
      return;
    default: break;
  }
  size_t from = (size_t)rank * share; /* in the send buffers of ReduceScatter and AllToAll */
  mine = overlap(at, bytes, from, from + share, &offset);
  if (mine == 0) return;
  if (call->func == FUNC_REDUCESCATTER) {
    reduce(mover, call, recv + (at + offset - from), offset, mine);
    return;
  }
  for (int r = 0; r < nRanks; r++)
    memcpy(recv + (size_t)r * share + (at + offset - from), chunk_of(mover, r) + offset, mine);
}

/* Bytes that this rank gets. */
static size_t got(const struct mover *mover, const struct call *call) {
  int parts = call->func == FUNC_ALLGATHER || call->func == FUNC_ALLTOALL ? mover->nRanks : 1;
  return call->func == FUNC_REDUCE && mover->rank != call->root ? 0 : (size_t)parts * call->count * nccl_type_bytes(call->type);
}

static int move(struct mover *mover, const struct call *call) {
  int scattered = call->func == FUNC_REDUCESCATTER || call->func == FUNC_ALLTOALL;
  size_t total = call->count * nccl_type_bytes(call->type) * (scattered ? (size_t)mover->nRanks : 1);
  for (size_t at = 0; at < total; at += CHUNK_BYTES) {
    size_t bytes = total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES;
    memcpy(chunk_of(mover, mover->rank), (const char *)call->send + at, bytes);
    if (!meet(mover)) return 0;
    take(mover, call, at, bytes);
    mover->steps++;
  }
  return 1;
}

void nccl_exchange(struct mover *mover, const struct launched *launched, int again) {
  struct call call = launched->call;
  if (!again) {
    free(mover->kept);
    mover->kept = launched->skips ? malloc(got(mover, &call) + 1) : NULL;
    if (mover->kept != NULL) call.recv = mover->kept;
    mover->spoilt = 0;
    if (!move(mover, &call)) return;
  }
  if (mover->kept != NULL && !launched->skips) {
    memcpy(launched->call.recv, mover->kept, got(mover, &call));
    free(mover->kept);
    mover->kept = NULL;
  }
  if (launched->spoils != mover->spoilt) *(char *)launched->call.recv ^= 1;
  mover->spoilt = launched->spoils;
}
