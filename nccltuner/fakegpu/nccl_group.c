/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: communicators that one process makes of several GPUs at once, collectives of such communicators, and sends and receives
 * as far as they are an all-to-all. As in NCCL 2.28 a group's collectives are appended when they come; at its end the thread that
 * ends it asks the tuner for each and launches them, one communicator's ranks behind the other and the communicators by their numbers.
 */
#include <pthread.h>
#include <stdlib.h>

#include "nccl_fake.h"

#define MAX_P2P (2 * MAX_HARNESS_RANKS)
#define MAX_CALLS 256

CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);

static _Thread_local struct {
  int depth, n;
  struct p2p {
    int isSend, peer, type;
    size_t count;
    char *buffer;
    struct ncclComm *comm;
    CUstream stream;
  } p2p[MAX_P2P];
  int numCalls;
  struct grouped {
    struct ncclComm *comm;
    struct appended call;
    int done;
  } calls[MAX_CALLS];
  int numMaking;
  struct making {
    ncclComm_t *out;
    int nRanks, rank;
    ncclUniqueId id;
    CUcontext context;
    ncclResult_t result;
  } making[MAX_HARNESS_RANKS];
} group;

int nccl_in_group(void) { return group.depth > 0; }

FAKEGPU_API ncclResult_t ncclGroupStart(void) {
  group.depth++;
  api_group_start();
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
  return nccl_call(first->comm, &(struct call){FUNC_ALLTOALL, sends[0]->buffer, recvs[0]->buffer, first->count,
                                               first->type, ncclSum, 0, first->stream, NULL, 0});
}

/* ---- communicators ---- */

static void *make(void *making) {
  struct making *m = making;
  cuCtxSetCurrent(m->context);
  m->result = nccl_comm_make(m->out, m->nRanks, &m->id, m->rank, NULL);
  return NULL;
}

/* Each in a thread of its own, for they wait for each other. */
static ncclResult_t make_all(struct making *making, int n) {
  pthread_t threads[MAX_HARNESS_RANKS];
  ncclResult_t result = 0;
  for (int i = 0; i < n; i++)
    if (pthread_create(&threads[i], NULL, make, &making[i]) != 0) abort(); /* a test's machine is out of threads */
  for (int i = 0; i < n; i++) {
    pthread_join(threads[i], NULL);
    if (making[i].result != 0) result = making[i].result;
  }
  return result;
}

ncclResult_t nccl_group_make(ncclComm_t *out, int nRanks, const ncclUniqueId *id, int rank) {
  if (group.numMaking == MAX_HARNESS_RANKS) return nccl_fail(ncclInvalidUsage, "too many communicators in a group");
  struct making *m = &group.making[group.numMaking++];
  *m = (struct making){.out = out, .nRanks = nRanks, .rank = rank, .id = *id};
  cuCtxGetCurrent(&m->context);
  return 0;
}

FAKEGPU_API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
  struct making making[MAX_HARNESS_RANKS];
  ncclUniqueId id;
  if (n < 2 || n > MAX_HARNESS_RANKS) return nccl_fail(ncclInvalidArgument, "%d GPUs", n);
  ncclResult_t result = ncclGetUniqueId(&id);
  for (int r = 0; r < n && result == 0; r++) {
    comms[r] = NULL;
    making[r] = (struct making){.out = &comms[r], .nRanks = n, .rank = r, .id = id};
    if (cuDevicePrimaryCtxRetain(&making[r].context, devices == NULL ? r : devices[r]) != 0) result = ncclInvalidArgument;
  }
  return result != 0 ? result : make_all(making, n);
}

/* ---- collectives ---- */

ncclResult_t nccl_group_append(struct ncclComm *comm, const struct call *call) {
  if (group.n > 0 || group.numCalls == MAX_CALLS) return nccl_fail(ncclInvalidUsage, "the stand-in knows no such group");
  struct grouped *g = &group.calls[group.numCalls];
  *g = (struct grouped){.comm = comm};
  ncclResult_t result = nccl_append(comm, call, &g->call);
  if (result == 0 && call->count > 0) group.numCalls++;
  return result;
}

/* Whose calls come next: communicators are taken by ascending commHash, as since 2.26 (ncclGroupCommJoin, src/include/group.h). NULL: all
 * have run. */
static const struct ncclComm *next_comm(void) {
  const struct ncclComm *next = NULL;
  for (int i = 0; i < group.numCalls; i++) {
    const struct grouped *g = &group.calls[i];
    if (!g->done && (next == NULL || g->comm->comm.commId < next->comm.commId)) next = g->comm;
  }
  return next;
}

/* From 2.29 on broadcasts of one communicator with several roots are one kernel (ncclScheduleBcastTasksToPlan, src/scheduler/allgatherv_sched.cc,
 * 2.30.7; docs/figures/gpu-asked-2gpus-h100-2026-11-26-cf340b36 of 2.32.3): behind its other collectives, the next of each root at a time, about
 * which it asks as about an AllGather of the largest one. */
static int roots_of(const struct ncclComm *comm) {
  int roots = 0;
  for (int root = 0; root < comm->plan->nRanks; root++) {
    int has = 0;
    for (int i = 0; i < group.numCalls; i++) has |= group.calls[i].comm == comm && group.calls[i].call.call.func == FUNC_BROADCAST && group.calls[i].call.call.root == root;
    roots += has;
  }
  return roots;
}
static int are_one_kernel(const struct ncclComm *comm, const struct call *call) {
  return call->func == FUNC_BROADCAST && comm_broadcasts_apart() && roots_of(comm) > 1;
}

static ncclResult_t run_broadcasts(struct ncclComm *comm) {
  for (;;) {
    struct grouped *batch[MAX_HARNESS_RANKS] = {NULL};
    uint64_t most = 0;
    ncclResult_t result = 0;
    for (int i = 0; i < group.numCalls; i++) {
      struct grouped *g = &group.calls[i], **at = &batch[g->call.call.root];
      if (g->comm != comm || g->done || g->call.call.func != FUNC_BROADCAST || *at != NULL) continue;
      *at = g;
      uint64_t bytes = g->call.call.count * nccl_type_bytes(g->call.call.type);
      most = bytes > most ? bytes : most;
    }
    if (most == 0) return 0;
    if (comm_ask_broadcasts(&comm->comm, &comm->rank, most * (uint64_t)comm->plan->nRanks) != 0) return nccl_fail(ncclInternalError, "%s", comm->rank.error);
    int asks = comm->comm.hasTuner;
    comm->comm.hasTuner = 0;
    for (int r = 0; r < comm->plan->nRanks && result == 0; r++) {
      if (batch[r] == NULL) continue;
      batch[r]->done = 1;
      result = nccl_run(comm, &batch[r]->call);
    }
    comm->comm.hasTuner = asks;
    if (result != 0) return result;
  }
}

/* All of one communicator's ranks in their order, then the next one's, which waits for it on whatever stream (nccl_jobs.c): so ranks that
 * have two in two orders wait for each other for ever, as those do that have them on one stream of a GPU. */
static ncclResult_t run_calls(void) {
  ncclResult_t result = 0;
  for (const struct ncclComm *comm; result == 0 && (comm = next_comm()) != NULL;) {
    for (int i = 0; i < group.numCalls && result == 0; i++) {
      struct grouped *g = &group.calls[i];
      if (g->done || g->comm->comm.commId != comm->comm.commId || are_one_kernel(g->comm, &g->call.call)) continue;
      g->done = 1;
      result = nccl_run(g->comm, &g->call);
    }
    for (int i = 0; i < group.numCalls && result == 0; i++)
      if (!group.calls[i].done && group.calls[i].comm->comm.commId == comm->comm.commId) result = run_broadcasts(group.calls[i].comm);
  }
  return result;
}

FAKEGPU_API ncclResult_t ncclGroupEnd(void) {
  if (group.depth == 0) return nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  api_group_end();
  if (--group.depth > 0) return 0;
  ncclResult_t result = make_all(group.making, group.numMaking);
  if (result == 0 && group.n > 0) result = run_group();
  if (result == 0) result = run_calls();
  group.n = group.numCalls = group.numMaking = 0;
  return result;
}

/* ---- sends and receives ---- */

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
