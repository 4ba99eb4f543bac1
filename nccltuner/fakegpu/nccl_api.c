/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of nccl.h, and groups as far as an all-to-all of sends and receives needs them.
 */
#include "nccl_fake.h"

#define MAX_P2P (2 * MAX_HARNESS_RANKS)

static _Thread_local struct {
  int depth, n;
  struct p2p {
    int isSend, peer, type;
    size_t count;
    char *buffer;
    struct ncclComm *comm;
    CUstream stream;
  } p2p[MAX_P2P];
} group;

ncclResult_t nccl_collective(struct ncclComm *comm, const struct call *call) {
  if (group.depth == 0) return nccl_run(comm, call);
  return nccl_fail(ncclInvalidUsage, "the stand-in knows only sends and receives in a group");
}

FAKEGPU_API ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_BROADCAST, send, recv, count, type, ncclSum, root, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
                                    ncclComm_t comm, CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_REDUCE, send, recv, count, type, op, root, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, int type, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_ALLGATHER, send, recv, count, type, ncclSum, 0, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op,
                                           ncclComm_t comm, CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_REDUCESCATTER, send, recv, count, type, op, 0, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
                                       CUstream stream) {
  return nccl_collective(comm, &(struct call){FUNC_ALLREDUCE, send, recv, count, type, op, 0, stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclGroupStart(void) {
  group.depth++;
  return 0;
}

/* A send and a receive for every rank, all of one size, each buffer in the order of ranks: an all-to-all. */
static ncclResult_t run_group(void) {
  struct p2p *sends[MAX_HARNESS_RANKS] = {NULL}, *recvs[MAX_HARNESS_RANKS] = {NULL}, *first = &group.p2p[0];
  int nRanks = first->comm->plan->nRanks, ok = group.n == 2 * nRanks;
  for (int i = 0; i < group.n && ok; i++) {
    struct p2p *p = &group.p2p[i], **place = p->isSend ? &sends[p->peer] : &recvs[p->peer];
    ok = p->comm == first->comm && p->count == first->count && p->type == first->type && *place == NULL;
    *place = p;
  }
  size_t bytes = first->count * nccl_type_bytes(first->type);
  for (size_t r = 0; r < (size_t)nRanks && ok; r++)
    ok = sends[r]->buffer == sends[0]->buffer + r * bytes && recvs[r]->buffer == recvs[0]->buffer + r * bytes;
  if (!ok) return nccl_fail(ncclInvalidUsage, "the stand-in knows sends and receives as an all-to-all alone");
  return nccl_run(first->comm, &(struct call){FUNC_ALLTOALL, sends[0]->buffer, recvs[0]->buffer, first->count,
                                              first->type, ncclSum, 0, first->stream, NULL, 0});
}

FAKEGPU_API ncclResult_t ncclGroupEnd(void) {
  if (group.depth == 0) return nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0 || group.n == 0) return 0;
  ncclResult_t result = run_group();
  group.n = 0;
  return result;
}

static ncclResult_t add_p2p(int isSend, void *buffer, size_t count, int type, int peer, struct ncclComm *comm,
                            CUstream stream) {
  if (group.depth == 0) return nccl_fail(ncclInvalidUsage, "the stand-in knows sends and receives in a group alone");
  if (comm == NULL || group.n == MAX_P2P || peer < 0 || peer >= comm->plan->nRanks)
    return nccl_fail(ncclInvalidArgument, "peer %d", peer);
  group.p2p[group.n++] = (struct p2p){isSend, peer, type, count, buffer, comm, stream};
  return 0;
}

FAKEGPU_API ncclResult_t ncclSend(const void *send, size_t count, int type, int peer, ncclComm_t comm,
                                  CUstream stream) {
  return add_p2p(1, (void *)send, count, type, peer, comm, stream);
}

FAKEGPU_API ncclResult_t ncclRecv(void *recv, size_t count, int type, int peer, ncclComm_t comm, CUstream stream) {
  return add_p2p(0, recv, count, type, peer, comm, stream);
}
