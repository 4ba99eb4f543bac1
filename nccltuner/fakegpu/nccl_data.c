/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves data between the processes of a communicator: chunk by chunk every rank shows its send buffer in shared memory
 * and takes from all of them what is its own. Sums are taken in the order of ranks, on every rank alike.
 */
#include <string.h>

#include "nccl_fake.h"

/* Two chunks a rank, by turns: a rank that writes the one of step n+2 has passed the barrier of step n+1, so all have
 * read the one of step n. */
static char *chunk_of(struct ncclComm *comm, int rank) {
  size_t ranks = (size_t)comm->plan->nRanks, turn = comm->steps & 1;
  return comm->shared + 64 * ranks + (turn * ranks + (size_t)rank) * CHUNK_BYTES;
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
static void widen_all(float *to, const char *from, size_t n, int type) {
  if (type == ncclFloat32) memcpy(to, from, n * sizeof *to);
  else for (size_t i = 0; i < n; i++) to[i] = widen(((const uint16_t *)from)[i]);
}

static void narrow_all(char *to, const float *from, size_t n, int type) {
  if (type == ncclFloat32) memcpy(to, from, n * sizeof *from);
  else for (size_t i = 0; i < n; i++) ((uint16_t *)to)[i] = narrow(from[i]);
}

static void fold(float *into, const float *from, size_t n, int op) {
  if (op == ncclMax) for (size_t i = 0; i < n; i++) into[i] = from[i] > into[i] ? from[i] : into[i];
  else for (size_t i = 0; i < n; i++) into[i] += from[i];
}

/* bytes from offset of everybody's chunk, reduced to one. */
static void reduce(struct ncclComm *comm, const struct call *call, char *to, size_t offset, size_t bytes) {
  float *sum = comm->sums, *next = comm->sums + CHUNK_BYTES / 2;
  size_t n = bytes / nccl_type_bytes(call->type);
  widen_all(sum, chunk_of(comm, 0) + offset, n, call->type);
  for (int r = 1; r < comm->plan->nRanks; r++) {
    widen_all(next, chunk_of(comm, r) + offset, n, call->type);
    fold(sum, next, n, call->op);
  }
  if (call->op == ncclAvg) for (size_t i = 0; i < n; i++) sum[i] /= (float)comm->plan->nRanks;
  narrow_all(to, sum, n, call->type);
}

/* Where the part of the send buffers that this rank wants lies inside the chunk [at, at + bytes). */
static size_t overlap(size_t at, size_t bytes, size_t from, size_t to, size_t *offset) {
  size_t low = at > from ? at : from, high = at + bytes < to ? at + bytes : to;
  *offset = low < high ? low - at : 0;
  return low < high ? high - low : 0;
}

/* Takes what is this rank's out of chunks that hold [at, at + bytes) of every send buffer. */
static void take(struct ncclComm *comm, const struct call *call, size_t at, size_t bytes) {
  int rank = comm->rank.rank, nRanks = comm->plan->nRanks;
  size_t share = call->count * nccl_type_bytes(call->type), offset, mine;
  char *recv = call->recv;
  switch (call->func) {
    case FUNC_BROADCAST: memcpy(recv + at, chunk_of(comm, call->root), bytes); return;
    case FUNC_REDUCE:
      if (rank == call->root) reduce(comm, call, recv + at, 0, bytes);
      return;
    case FUNC_ALLREDUCE: reduce(comm, call, recv + at, 0, bytes); return;
    case FUNC_ALLGATHER:
      for (int r = 0; r < nRanks; r++) memcpy(recv + (size_t)r * share + at, chunk_of(comm, r), bytes);
      return;
    default: break;
  }
  size_t from = (size_t)rank * share; /* in the send buffers of ReduceScatter and AllToAll */
  mine = overlap(at, bytes, from, from + share, &offset);
  if (mine == 0) return;
  if (call->func == FUNC_REDUCESCATTER) {
    reduce(comm, call, recv + (at + offset - from), offset, mine);
    return;
  }
  for (int r = 0; r < nRanks; r++)
    memcpy(recv + (size_t)r * share + (at + offset - from), chunk_of(comm, r) + offset, mine);
}

void nccl_exchange(struct ncclComm *comm, const struct launched *launched) {
  const struct call *call = &launched->call;
  int scattered = call->func == FUNC_REDUCESCATTER || call->func == FUNC_ALLTOALL;
  size_t total = call->count * nccl_type_bytes(call->type) * (scattered ? (size_t)comm->plan->nRanks : 1);
  for (size_t at = 0; at < total; at += CHUNK_BYTES) {
    size_t bytes = total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES;
    memcpy(chunk_of(comm, comm->rank.rank), (const char *)call->send + at, bytes);
    nccl_barrier(comm);
    if (!launched->skips) take(comm, call, at, bytes);
    comm->steps++;
  }
  if (launched->spoils) *(char *)call->recv ^= 1;
}
