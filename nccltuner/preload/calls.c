/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's calls that give it work, each forwarded with all its arguments; signatures from nccl.h 2.28.9 and 2.32.3. A
 * call whose stream is being captured into a CUDA graph runs under a guard (plugin/mask.h), so that NCCL does not find
 * KernelCh in its activation mask and the graph holds no host work for ever.
 *
 * Does a guard around each of these calls suffice? Who reads ncclProfilerEventMask, NCCL 2.28.9 and 2.30.7:
 *   ncclProfilerStartGroupApiEvent (src/plugin/profiler.cc), called by p2pTaskAppend and collTaskAppend, and
 *   ceCollTaskAppend (src/enqueue.cc): all inside of the call itself, in its thread, group or no group, and for
 *   non-blocking communicators as well: ncclEnqueueCheck appends before ncclGroupEndInternal starts any job.
 *   rmaTaskAppend (2.30.7; ncclPutSignal, ncclSignal, ncclWaitSignal): its copy is never looked at, hence no wrapper.
 *   Everything later (group end, jobs, launch, proxy thread) looks at the task's copy. What reads the mask itself there
 *   asks for ProxyCtrl, CeColl, CeSync and CeBatch, never for KernelCh.
 * 2.32.3 by its symbols: the same, unless NCCL_ENQUEUE_REARCH_ENABLE is set (default 0): then ncclTaskPostTuning reads it
 * at the end of the group. The plugin asks for no KernelCh in that case (capture.c).
 *
 * Calls that make communicators are announced to the plugin, so that it notices ones that went past this library.
 * COLLECTIVE calls ask a tuner: these are timed (probe.c, groups.c). All are counted (intercepted.h).
 */
#include <stddef.h>

#include "../plugin/datatype.h"
#include "device.h"
#include "gathers.h"
#include "groups.h"
#include "net.h"
#include "windows.h"

/* NCCL's types as far as forwarding needs them: enumerations are ints, handles pointers. */
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct ncclConfig ncclConfig_t;
typedef struct ncclCollConfig ncclCollConfig_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct { char internal[128]; } ncclUniqueId; /* NCCL_UNIQUE_ID_BYTES; passed by value */

#define EXPORT __attribute__((visibility("default")))
#define IN_PROGRESS 7 /* ncclInProgress */

/* NCCL's, of that name. */
#define FIND_FOR(NAME, CALLER) dyn_find(&counted_##NAME.real, #NAME, (void *)NAME, CALLER)
#define FIND(NAME) FIND_FOR(NAME, __builtin_return_address(0)) /* in our function of that name */

/* A call that is NCCL's. */
#define FORWARD(NAME, PARAMETERS, ...) FORWARD_AS(0, OF_ALL, NAME, PARAMETERS, __VA_ARGS__)
#define COLLECTIVE(FUNC, NAME, PARAMETERS, ...) FORWARD_AS(KEY(FUNC), OF_ALL, NAME, PARAMETERS, __VA_ARGS__)
/* NCCL makes it of sends and receives, or it is one. */
#define FORWARD_P2P(NAME, PARAMETERS, ...) FORWARD_AS(0, dyn_device_sends(comm, stream), NAME, PARAMETERS, __VA_ARGS__)
#define FORWARD_MADE(NAME, PARAMETERS, ...) FORWARD_AS(0, count > 0 ? dyn_device_sends(comm, stream) : (void)0, NAME, PARAMETERS, __VA_ARGS__)
#define OF_ALL (count > 0 ? dyn_device_plain(comm) : (void)0) /* NCCL drops a collective of nothing */
#define KEY(FUNC) dyn_watch_key(comm, FUNC + 1, count, dyn_datatype_number_bytes(datatype))
#define FORWARD_AS(KEY, GROUPED, NAME, PARAMETERS, ...) \
  DYN_INTERCEPTED(NAME) \
  EXPORT ncclResult_t NAME PARAMETERS; \
  EXPORT ncclResult_t NAME PARAMETERS { \
    DYN_COUNT(NAME); \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)FIND(NAME); \
    if (real == NULL) return DYN_SYSTEM_ERROR; \
    uint64_t key = KEY; \
    if (dyn_in_group()) { \
      if (dyn_this_call()->depth == 0) dyn_grouped_add(comm, stream, key); \
      GROUPED; \
    } \
    struct dyn_passage passage; \
    dyn_passage_enter(&passage, stream, comm, key); \
    ncclResult_t result = real(__VA_ARGS__); \
    dyn_passage_leave(&passage, result); \
    return result; \
  }

/* A call that our kernels may run. TAKE: all that any of these calls has. */
#define TAKE(REQUEST) \
  const void *sendbuff __attribute__((unused)) = (REQUEST)->work.send; \
  void *recvbuff __attribute__((unused)) = (REQUEST)->work.recv; \
  size_t count = (REQUEST)->work.count; \
  ncclDataType_t datatype = (REQUEST)->work.datatype; \
  ncclRedOp_t op __attribute__((unused)) = (REQUEST)->work.op; \
  int root __attribute__((unused)) = (REQUEST)->work.root; \
  ncclComm_t comm = (REQUEST)->comm; \
  cudaStream_t stream = (REQUEST)->work.stream;
#define NOT_NAMED(NAME) NULL
#define NAMED(NAME) named_##NAME
#define REQUEST(FUNC, SEND, RECV, OP, ROOT, HOW, NAME) \
  {{FUNC, SEND, RECV, count, datatype, OP, ROOT, stream, true, NULL, NULL}, comm, forward_##NAME, HOW(NAME), &counted_##NAME, __builtin_return_address(0)}
#define DEVICE(FUNC, SEND, RECV, OP, ROOT, HOW, NAME, PARAMETERS, ...) \
  DYN_INTERCEPTED(NAME) \
  EXPORT ncclResult_t NAME PARAMETERS; \
  static ncclResult_t forward_##NAME(const struct dyn_request *request) { \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)FIND_FOR(NAME, request->caller); \
    TAKE(request) \
    return real == NULL ? DYN_SYSTEM_ERROR : real(__VA_ARGS__); \
  } \
  EXPORT DYN_HOT ncclResult_t NAME PARAMETERS { \
    DYN_COUNT(NAME); \
    if (FUNC == DYN_ALL_GATHER) settle_waited(comm, __builtin_return_address(0)); \
    if (FUNC == DYN_ALL_REDUCE) note_average(comm, count, datatype, OP); \
    if (DYN_RARELY(!is_single(count))) { \
      struct dyn_request request = REQUEST(FUNC, SEND, RECV, OP, ROOT, HOW, NAME); \
      return run_other(&request, KEY(FUNC)); \
    } \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)FIND(NAME); \
    if (real == NULL) return DYN_SYSTEM_ERROR; \
    if (dyn_is_lone(comm)) return real(__VA_ARGS__); \
    struct dyn_passage passage; \
    dyn_passage_enter(&passage, stream, comm, KEY(FUNC)); \
    ncclResult_t result; \
    if (no_kernels() || !run_ours(&(struct dyn_request)REQUEST(FUNC, SEND, RECV, OP, ROOT, HOW, NAME), &result)) result = real(__VA_ARGS__); \
    dyn_passage_leave(&passage, result); \
    return result; \
  }

/* Before a call of caller's. A rank that never asks whether a group is over has it over all the same, as the others have: NCCL refuses a call
 * before that. */
static void settle_gathers(ncclComm_t comm, const void *caller);
static inline void settle_waited(ncclComm_t comm, const void *caller) {
  if (DYN_RARELY(atomic_load_explicit(&dyn_gathers_waited, memory_order_relaxed))) settle_gathers(comm, caller);
}
/* Before an AllReduce. Of whole numbers and doubles NCCL's device kernels have no sums; of nothing it makes no call. */
#define AVERAGE 4 /* ncclAvg */
#define FIRST_FLOAT 6 /* ncclFloat16 */
#define DOUBLE 8      /* ncclFloat64 */
static inline void note_average(ncclComm_t comm, size_t count, ncclDataType_t datatype, ncclRedOp_t op) {
  if (DYN_RARELY(op == AVERAGE) && datatype >= FIRST_FLOAT && datatype != DOUBLE && count > 0) dyn_gathers_average(comm, dyn_in_group());
}
/* One of the program's by itself, and not of nothing. */
static inline bool is_single(size_t count) { return dyn_this_call()->depth == 0 && !dyn_in_group() && count > 0; }
/* In this process, so there is nothing to ask: as in most jobs over several hosts. */
static inline bool no_kernels(void) { return atomic_load_explicit(&dynamiccl_preload.bounds, memory_order_acquire) == 0; }

static inline bool run_ours(const struct dyn_request *request, ncclResult_t *result) { return dyn_device_run(request, dyn_this_call()->captured, result); }

static ncclResult_t run_other(const struct dyn_request *request, uint64_t key) {
  if (DYN_RARELY(dyn_this_call()->depth > 0)) return dyn_forward(request, key); /* NCCL calls itself */
  if (!dyn_in_group()) return dyn_forward_empty(request);
  dyn_grouped_add(request->comm, request->work.stream, key);
  if (request->work.count == 0) return dyn_forward_empty(request); /* ranks may have it in the group or not */
  if (request->work.collective == DYN_BROADCAST) dyn_gathers_broadcast(request->comm, request->work.root);
  if (request->work.collective == DYN_ALL_GATHER) dyn_gathers_gather(request->comm);
  ncclResult_t result;
  return dyn_device_hold(request, &result) ? result : dyn_forward(request, key);
}

/* A call that makes so many communicators, of so many ranks each, for ranks from RANK on; -1: not known. ID: by which ranks meet, or PARENT: of
 * which it is made. */
#define ANNOUNCE(COUNT, OUT, RANKS, RANK, ID, NAME, PARAMETERS, ...) ANNOUNCE_AS(COUNT, OUT, RANKS, RANK, ID, NULL, NAME, PARAMETERS, real(__VA_ARGS__))
#define ANNOUNCE_CHILD(COUNT, OUT, NAME, PARAMETERS, ...) ANNOUNCE_AS(COUNT, OUT, -1, -1, NULL, comm, NAME, PARAMETERS, real(__VA_ARGS__))
#define ANNOUNCE_AS(COUNT, OUT, RANKS, RANK, ID, PARENT, NAME, PARAMETERS, CALL) \
  DYN_INTERCEPTED(NAME) \
  EXPORT ncclResult_t NAME PARAMETERS; \
  EXPORT ncclResult_t NAME PARAMETERS { \
    DYN_COUNT(NAME); \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)FIND(NAME); \
    if (real == NULL) return DYN_SYSTEM_ERROR; \
    int number = COUNT; \
    dyn_announce(number); \
    for (int i = 0; i < number && (OUT) != NULL; i++) dyn_making_begins((void **)&(OUT)[i], RANKS, RANK + i, ID, PARENT); \
    ncclResult_t result = CALL; \
    dyn_making_returns(result); \
    if (!dyn_in_group()) dyn_making_ends(result); \
    return result; \
  }

/* The same call with a configuration, from 2.31 on. */
#define WITH_NAME(NAME, CONFIG, PARAMETERS, ...) \
  EXPORT ncclResult_t CONFIG PARAMETERS; \
  static ncclResult_t named_##NAME(const struct dyn_request *request, const struct dyn_coll_config *named) { \
    static dyn_real cache; \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)dyn_find(&cache, #CONFIG, (void *)CONFIG, NULL); \
    const ncclCollConfig_t *config = (const ncclCollConfig_t *)named; \
    TAKE(request) \
    return real == NULL ? DYN_SYSTEM_ERROR : real(__VA_ARGS__); \
  }
WITH_NAME(ncclAllReduce, ncclAllReduceConfig, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t, const ncclCollConfig_t *),
          sendbuff, recvbuff, count, datatype, op, comm, stream, config)
WITH_NAME(ncclAllGather, ncclAllGatherConfig, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t, const ncclCollConfig_t *),
          sendbuff, recvbuff, count, datatype, comm, stream, config)
WITH_NAME(ncclReduceScatter, ncclReduceScatterConfig, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t,
          const ncclCollConfig_t *), sendbuff, recvbuff, count, datatype, op, comm, stream, config)

DEVICE(DYN_ALL_REDUCE, sendbuff, recvbuff, op, 0, NAMED, ncclAllReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, op, comm, stream)
DEVICE(DYN_BROADCAST, sendbuff, recvbuff, 0, root, NOT_NAMED, ncclBroadcast, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int
        root, ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, root, comm, stream)
DEVICE(DYN_BROADCAST, recvbuff, recvbuff, 0, root, NOT_NAMED, ncclBcast, (void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream), recvbuff, count, datatype, root, comm, stream)
COLLECTIVE(DYN_REDUCE, ncclReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t
        op, int root, ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, op, root, comm,
        stream)
DEVICE(DYN_ALL_GATHER, sendbuff, recvbuff, 0, 0, NAMED, ncclAllGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, comm, stream)
DEVICE(DYN_REDUCE_SCATTER, sendbuff, recvbuff, op, 0, NAMED, ncclReduceScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t
        datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, op, comm,
        stream)
DEVICE(DYN_ALL_TO_ALL, sendbuff, recvbuff, 0, 0, NOT_NAMED, ncclAlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
        cudaStream_t stream), sendbuff, recvbuff, count, datatype, comm, stream)
FORWARD_MADE(ncclGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, root, comm, stream)
FORWARD_MADE(ncclScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream), sendbuff, recvbuff, count, datatype, root, comm, stream)
FORWARD_P2P(ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream), sendbuff, count, datatype, peer, comm, stream)
FORWARD_P2P(ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream), recvbuff, count, datatype, peer, comm, stream)

/* A call with something before and after it. */
#define AROUND(NAME, PARAMETERS, BEFORE, AFTER, ...) \
  DYN_INTERCEPTED(NAME) \
  EXPORT ncclResult_t NAME PARAMETERS; \
  EXPORT ncclResult_t NAME PARAMETERS { \
    DYN_COUNT(NAME); \
    ncclResult_t (*real) PARAMETERS = (ncclResult_t(*) PARAMETERS)FIND(NAME); \
    if (real == NULL) return DYN_SYSTEM_ERROR; \
    BEFORE; \
    ncclResult_t result = real(__VA_ARGS__); \
    AFTER; \
    return result; \
  }
typedef struct ncclSimInfo ncclSimInfo_t;
AROUND(ncclGetUniqueId, (ncclUniqueId *uniqueId), (void)0, if (result == 0 && uniqueId != NULL && dyn_thread.nested == 1) dyn_hosts_mark(uniqueId), uniqueId)
/* NCCL counts how deep groups are nested, and so do we. */
AROUND(ncclGroupStart, (void), (void)0, if (result == 0) dyn_group_begin())
AROUND(ncclGroupEnd, (void), dyn_group_end(false), result = dyn_group_ended(result))
AROUND(ncclGroupSimulateEnd, (ncclSimInfo_t *simInfo), dyn_group_end(true), result = dyn_group_ended(result), simInfo)
AROUND(ncclCommFinalize, (ncclComm_t comm), dyn_device_finalizes(comm), if (result == 0 || result == IN_PROGRESS) dyn_device_finalized(comm, result == 0), comm)
AROUND(ncclCommDestroy, (ncclComm_t comm), (dyn_device_goes(comm, false), dyn_comm_goes(comm)), (dyn_probes_settle(), dyn_making_gone(comm)), comm)
AROUND(ncclCommAbort, (ncclComm_t comm), (dyn_device_goes(comm, true), dyn_comm_goes(comm)), (dyn_probes_settle(), dyn_making_gone(comm)), comm)
/* NCCL refuses flags that it does not know: nothing has ended then. */
#define REVOKE_DEFAULT 0 /* NCCL_REVOKE_DEFAULT */
AROUND(ncclCommRevoke, (ncclComm_t comm, int revokeFlags), if (revokeFlags == REVOKE_DEFAULT) dyn_device_revokes(comm), if (result == 0 || result == IN_PROGRESS) dyn_device_revoked(comm), comm, revokeFlags)
AROUND(ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags), dyn_gathers_window(comm),
       dyn_window_comes(comm, buff, size, (void **)win, winFlags, result), comm, buff, size, win, winFlags)
AROUND(ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), dyn_window_goes(comm, win), (void)0, comm, win)
/* NCCL knows nothing of a peer whose death our kernels found. */
AROUND(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError), unsigned group = dyn_gathers_pending(comm),
       if (result == 0 && *asyncError != IN_PROGRESS) (dyn_making_over(comm, *asyncError == 0), dyn_gathers_launched(comm, group));
       if (result == 0 && *asyncError == 0) *asyncError = dyn_device_error(comm), comm, asyncError)

__attribute__((noinline)) static void settle_gathers(ncclComm_t comm, const void *caller) {
  unsigned group = dyn_gathers_pending(comm);
  if (group == 0) return;
  ncclResult_t (*ask)(ncclComm_t, ncclResult_t *) = (ncclResult_t(*)(ncclComm_t, ncclResult_t *))FIND_FOR(ncclCommGetAsyncError, caller), state;
  if (ask != NULL && ask(comm, &state) == 0 && state != IN_PROGRESS) dyn_gathers_launched(comm, group);
}

/* From 2.31 on. */
FORWARD_AS((note_average(comm, count, datatype, op), KEY(DYN_ALL_REDUCE)), OF_ALL, ncclAllReduceConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t
        datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), sendbuff,
        recvbuff, count, datatype, op, comm, stream, config)
FORWARD_AS(KEY(DYN_BROADCAST), (OF_ALL, count > 0 ? dyn_gathers_broadcast(comm, root) : (void)0), ncclBroadcastConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), sendbuff, recvbuff, count,
        datatype, root, comm, stream, config)
COLLECTIVE(DYN_REDUCE, ncclReduceConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), sendbuff,
        recvbuff, count, datatype, op, root, comm, stream, config)
FORWARD_AS((settle_waited(comm, __builtin_return_address(0)), KEY(DYN_ALL_GATHER)), (OF_ALL, count > 0 ? dyn_gathers_gather(comm) : (void)0), ncclAllGatherConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t
        datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), sendbuff, recvbuff, count,
        datatype, comm, stream, config)
COLLECTIVE(DYN_REDUCE_SCATTER, ncclReduceScatterConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t
        datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config), sendbuff,
        recvbuff, count, datatype, op, comm, stream, config)
FORWARD(ncclAlltoAllConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
        sendbuff, recvbuff, count, datatype, comm, stream, config)
FORWARD_MADE(ncclGatherConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
        sendbuff, recvbuff, count, datatype, root, comm, stream, config)
FORWARD_MADE(ncclScatterConfig, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),
        sendbuff, recvbuff, count, datatype, root, comm, stream, config)

#define ON_NET(config) ((ncclConfig_t *)dyn_net_config(config, &(struct dyn_nccl_config){0})) /* for the time of the call */
#define ON_PARENTS_NET(config) ((config) == NULL ? (dyn_making_inherits(), NULL) : ON_NET(config)) /* without one NCCL takes the parent's */
#define NO_COLOR (-1) /* NCCL_SPLIT_NOCOLOR: this rank gets no communicator */
ANNOUNCE(1, comm, nranks, rank, &commId, ncclCommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config),
         comm, nranks, commId, rank, ON_NET(config))
/* What has no config gets one where the program's communicators are to have another network than GIN's. */
typedef ncclResult_t (*init_rank_config)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
static ncclResult_t init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
  static dyn_real cache;
  init_rank_config real = (init_rank_config)dyn_find(&cache, "ncclCommInitRankConfig", (void *)ncclCommInitRankConfig, NULL);
  return real == NULL ? DYN_SYSTEM_ERROR : real(comm, nranks, id, rank, ON_NET(NULL));
}
ANNOUNCE_AS(1, comm, nranks, rank, &commId, NULL, ncclCommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank),
            dyn_net_apart() ? init_rank(comm, nranks, commId, rank) : (dyn_net_note(NULL), real(comm, nranks, commId, rank)))
ANNOUNCE(1, newcomm, nranks, myrank, nId == 1 ? commIds : NULL, ncclCommInitRankScalable, (ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
         ncclConfig_t *config), newcomm, nranks, myrank, nId, commIds, ON_NET(config))
ANNOUNCE_AS(ndev, comm, ndev, 0, NULL, NULL, ncclCommInitAll, (ncclComm_t *comm, int ndev, const int *devlist),
            (dyn_net_note(NULL), dyn_net_none("ncclCommInitAll"), real(comm, ndev, devlist)))
ANNOUNCE_CHILD(color != NO_COLOR, newcomm, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
         ncclConfig_t *config), comm, color, key, newcomm, ON_PARENTS_NET(config))
/* NCCL ends its own kernels then. */
#define SHRINK_ABORT 1 /* NCCL_SHRINK_ABORT */
#define STOP_SHRUNK(comm, flags) ((flags) & SHRINK_ABORT ? dyn_device_stops(comm, "the program shrank the communicator and aborted its calls") : (void)0)
ANNOUNCE_CHILD((STOP_SHRUNK(comm, shrinkFlags), 1), newcomm, ncclCommShrink, (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
         ncclConfig_t *config, int shrinkFlags), comm, excludeRanksList, excludeRanksCount, newcomm, ON_PARENTS_NET(config), shrinkFlags)
ANNOUNCE_CHILD(1, newcomm, ncclCommGrow, (ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
         ncclConfig_t *config), comm, nRanks, uniqueId, rank, newcomm, ON_PARENTS_NET(config))
