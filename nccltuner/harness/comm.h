/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator on one rank, the calls that the program makes on it, and the proxy progress thread.
 */
#ifndef HARNESS_COMM_H
#define HARNESS_COMM_H

#include "api_events.h"
#include "harness.h"
#include "nccl.h"

/* What a call is confined to that names what is to run it, or is on registered memory. All zero: NCCL chooses as ever. */
struct selected {
  const char *symmetric; /* the symmetric kernel that runs, as events name it; NULL: none does */
  double costNs;         /* its own */
  uint32_t classics;     /* bit 3 * algorithm + protocol; 0: any */
  int half;              /* one buffer lies in a window: LL is a device kernel, whatever NCCL_SYM_NOWIN_ENABLE says */
};

struct comm {
  struct selected selected; /* of the next call */
  uint64_t commId; /* comm->commHash */
  int index;       /* among the rank's communicators; of the log and of random numbers */
  void *profilerContext, *tunerContext;
  int hasProfiler, hasTuner, tunerLoaded;
  uint64_t seq; /* getCollInfo calls so far */
  uint64_t seqNumber[NUM_FUNCS]; /* collectives so far, comm->seqNumber */
};

/* ncclCommInitRank: profiler first, then tuner, from one thread (init.cc:1251 and 1352). generation: how many
 * communicators of this index there were. 0, or -1 with rank->error. */
int comm_create(struct comm *comm, struct rank *rank, int index, uint64_t generation);
/* The same with an id that is known. */
int comm_create_as(struct comm *comm, struct rank *rank, int index, uint64_t commId);
/* ncclCommDestroy: tuner->finalize, then profiler->finalize (commCleanup, init.cc:2256, and commFree, init.cc:336). The
 * proxy thread has nothing of it left. */
int comm_destroy(struct comm *comm, struct rank *rank);
/* One call of the program: groupSize collectives of this item, all in one getCollInfo call. 0, or -1 with
 * rank->error. */
int comm_call(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item, int groupSize,
              uint64_t call);

/* What a call chose and costs. */
struct ran {
  int algo, proto, nChannels;
  int mask; /* activation mask at the time of the call */
  double costNs; /* by the table, without noise and faults */
  int device; /* it is NCCL's device kernel for LL */
};
enum call_as {
  CALL_RUN,       /* times are drawn when somebody observes them */
  CALL_RUN_TIMED, /* times are drawn */
  CALL_CAPTURE,   /* into a CUDA graph: no time passes, and nothing is told of a kernel */
};
int comm_call_as(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item,
                 int groupSize, uint64_t call, enum call_as as, struct ran *ran);

/* The same in two halves, of one collective in a group of the program's: what NCCL does when it comes, and, in any thread, when the
 * group ends. */
struct api_task comm_append(struct comm *comm, struct rank *rank, const struct item *item, enum call_as as);
int comm_run(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item, const struct api_task *appended,
             uint64_t call, enum call_as as, struct ran *ran);

/* From 2.29.2 on a Broadcast is a task of another kind, and one of a group of one root a collective's again, which then has nothing of the API call by
 * which the profiler hears of it (ncclPrepareTasks, enqueue.cc:367, 2.30.7). Not with NCCL_ALLGATHERV_ENABLE=0. */
int comm_broadcasts_apart(void);

/* Broadcasts with several roots that are one kernel, from 2.29 on: asks as about an AllGather, and takes the number of channels at its word. 0, or -1
 * with rank->error: the tuner broke a rule, or gave channels that are not there. */
int comm_ask_broadcasts(struct comm *comm, struct rank *rank, uint64_t bytes);

/* What the proxy progress thread does for one collective. */
struct proxy_work {
  void *profilerContext, *taskHandle;
  int mask; /* activation mask at the time of the call */
  int rank, nRanks, nNodes;
  int algo, proto, channelLo, nChannels;
  uint64_t bytes, shuffle;
  struct timing timing;
  uint64_t gpuBase;
};

struct proxy *proxy_start(int lag);
void proxy_post(struct proxy *proxy, const struct proxy_work *work);
void proxy_drain(struct proxy *proxy); /* returns when everything posted is done */
void proxy_stop(struct proxy *proxy);

#endif
