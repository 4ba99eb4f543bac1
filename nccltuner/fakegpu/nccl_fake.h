/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the stand-in for libnccl: a communicator is one rank of the harness and the memory in which ranks meet.
 */
#ifndef FAKEGPU_NCCL_FAKE_H
#define FAKEGPU_NCCL_FAKE_H

#include <stdatomic.h>
#include <string.h>

#include "../harness/comm.h"
#include "../worker/nccl_api.h"
#include "fakegpu.h"

enum { FUNC_ALLTOALL = NUM_FUNCS }; /* no function of tuners */
/* The memory in which ranks meet: of each of them its host's name, how far its jobs are, what it shows of itself (nccl_gin.c), and two chunks. */
enum { HOST_BYTES = 64, STEPS_BYTES = 64, SHOWN_BYTES = 128, CHUNK_BYTES = 256 << 10 };
#define MAX_WINDOWS 16 /* of a communicator */
enum { NCCL_IN_PROGRESS = 7 }; /* ncclInProgress */

/* One collective as the API has it. */
struct call {
  int func;
  const void *send;
  void *recv;
  size_t count;
  int type, op, root;
  CUstream stream;
  const char *selection; /* algSelection; NULL: none */
  int force;             /* forceAlgSelection */
};

/* Registered memory. */
struct ncclWindow {
  char *at;
  size_t bytes; /* 0: free */
  int flags;
};

/* What ran, and what goes wrong with it. */
struct launched {
  struct call call;
  double costNs;
  int hangs, spoils, skips;
};

/* What jobs use, which may be there for longer than their communicator. */
struct mover {
  atomic_uint references; /* the communicator's, and one of each job */
  atomic_int aborted;     /* jobs give up */
  int rank, nRanks;
  char *shared;
  size_t sharedBytes;
  struct moving *waiting; /* its last job, if that has not begun */
  uint64_t steps;         /* of jobs, so far; from here on theirs, one at a time: */
  float *sums;            /* two chunks of CHUNK_BYTES / 2 numbers */
  int spoilt;             /* the last result */
  char *kept;             /* the last result, where it was not to be written; NULL: it was */
};

struct ncclComm {
  struct options options;
  struct plan *plan;
  struct rank rank;
  struct comm comm;
  int nth; /* of this process, from 0 */
  struct sync *sync;
  uint64_t barriers; /* of this communicator's host threads so far */
  uint64_t calls, replays;
  char *shared; /* the mover's */
  CUcontext context; /* of the thread that made it; of one that does not block: nccl_gin.c */
  atomic_int busy;   /* of GIN: a step is under way, or what it came to */
  struct ncclWindow windows[MAX_WINDOWS];
  struct mover *mover;
  struct launched last; /* given */
  CUstream stream;      /* of the last job, */
  uint64_t jobs;        /* so many there with it; 0: none yet */
  uint64_t look;        /* nccl_jobs.c */
};

/* nccl_comm.c */
extern _Thread_local char nccl_error[1024]; /* of ncclGetLastError */
int nccl_owns(const void *at); /* memory of ncclMemAlloc's */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t nccl_type_bytes(int type); /* 0: unknown here */
/* Waits for all ranks; where one is gone, for ever, as NCCL's kernels do. */
void nccl_barrier(struct ncclComm *comm);

ncclResult_t nccl_comm_make(ncclComm_t *out, int nRanks, const ncclUniqueId *id, int rank, const char *name);

/* nccl_call.c: a call of the API, in a group or not. */
ncclResult_t nccl_collective(struct ncclComm *comm, const struct call *call);

/* nccl_select.c: what registered memory and a name make of a call; ncclInvalidArgument: it refuses the name. */
ncclResult_t nccl_select(const struct ncclComm *comm, const struct call *call, uint64_t bytes, struct selected *out);

/* A collective that NCCL has been given. */
struct appended {
  struct call call;
  struct phase *phase;
  struct item *item; /* NULL: no tuner is asked */
  enum call_as as;
  struct api_task api;
};

/* nccl_call.c: the two halves of a collective, and both. */
ncclResult_t nccl_append(struct ncclComm *comm, const struct call *call, struct appended *out);
ncclResult_t nccl_run(struct ncclComm *comm, const struct appended *appended);
ncclResult_t nccl_call(struct ncclComm *comm, const struct call *call);

/* nccl_jobs.c */
struct mover *nccl_mover_new(int rank, int nRanks, char *shared, size_t bytes); /* takes the memory; NULL: there is none */
void nccl_mover_drop(struct mover *mover);
void nccl_give(struct ncclComm *comm, const struct launched *launched);
void nccl_looked(CUstream stream); /* fakegpu_on_look */
void nccl_finish(struct ncclComm *comm); /* waits for all that it was given */

/* nccl_group.c: of the thread's group. */
int nccl_in_group(void);
ncclResult_t nccl_group_append(struct ncclComm *comm, const struct call *call);
ncclResult_t nccl_group_make(ncclComm_t *out, int nRanks, const ncclUniqueId *id, int rank);

/* nccl_data.c: moves what one collective moves, but for what goes wrong with this rank's result. again: that has been moved. */
void nccl_exchange(struct mover *mover, const struct launched *launched, int again);

/* nccl_fault.c */
struct fault_point { int rank, comm, func, algo, proto; uint64_t call, bytes; };
enum { FAULT_HANG = 1, FAULT_WRONG = 2, FAULT_FAIL = 4, FAULT_SKIP = 8 };
/* What strikes here, a set of FAULT_*; a rank that is to die does not come back. before: the tuner was not asked yet,
 * so faults that name a choice wait. */
int nccl_faults(const struct fault_point *point, int before);
const char *nccl_faults_wrong(void); /* what is wrong with FAKEGPU_FAULT, NULL: nothing */

#endif
