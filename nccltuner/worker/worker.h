/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamiccl-worker: one rank on one GPU that calls NCCL's collectives, checks and times them, by commands on standard
 * input. The program that starts it says what is measured and looks at all ranks together.
 */
#ifndef WORKER_H
#define WORKER_H

#include "cuda_api.h"
#include "json.h"
#include "nccl_api.h"

/* Sums over this many ranks of the pattern's values are exact in bf16 (pattern.c). */
#define MAX_RANKS 64

/* Of the same ranks. */
#define MAX_COMMS 8

struct load;

struct communicator {
  ncclComm_t comm;  /* NULL: none */
  void *windows[2]; /* of send and recv; NULL: none */
  CUstream stream;  /* on which its graphs are captured; the first one's is the worker's */
};

struct worker {
  int rank, nRanks, device;
  int perNode; /* 0: device counts no GPU twice */
  const char *ncclPath; /* NULL: libnccl.so.2 by the linker's rules */
  size_t maxBytes;
  int registered; /* send and recv are memory of NCCL's, and registered */

  int ncclVersion; /* 0: NCCL is not loaded yet */
  CUdevice gpu;
  CUcontext context; /* NULL: CUDA is not up yet */
  CUstream stream;
  CUdeviceptr send, recv; /* maxBytes each */
  CUdeviceptr ofNccl[2];  /* what rank_exchange changes them for; 0: none yet */
  int allHave;            /* all ranks have these */
  CUdeviceptr shared;     /* two floats: what ranks agree on */
  void *staging;          /* page-locked, STAGING_BYTES */
  struct communicator comms[MAX_COMMS];
  int numComms;           /* 0: none */
  ncclComm_t comm;        /* whose calls are made: the first one but where it is said; NULL: none */
  struct load *load;      /* NULL: no load was ever asked for */

  char error[1024];
  int unusable; /* CUDA or NCCL failed: nothing more can be expected of this process */
};

#define STAGING_BYTES (4u << 20)

/* Keeps the text for the reply; -1. */
int worker_fail(struct worker *worker, const char *format, ...) __attribute__((format(printf, 2, 3)));
double now_us(void);

/* ---- cuda.c, nccl.c: the libraries and what their errors mean ---- */
struct cuda_functions {
#define CUDA_MEMBER(name, arguments) CUresult(*name) arguments;
  CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};
extern struct cuda_functions cuda;
int cuda_load(struct worker *worker);
int cuda_failed(struct worker *worker, const char *call, CUresult result); /* -1 */
/* Makes the caller return -1 with an error text when the call fails. */
#define CUDA(worker, function, ...) \
  do { \
    CUresult result_ = cuda.function(__VA_ARGS__); \
    if (result_ != 0) return cuda_failed(worker, #function, result_); \
  } while (0)

struct nccl_functions {
#define NCCL_MEMBER(name, arguments) ncclResult_t(*name) arguments;
#define NCCL_TEXT_MEMBER(name, arguments) const char *(*name) arguments;
  NCCL_FUNCTIONS(NCCL_MEMBER)
  NCCL_TEXT_FUNCTIONS(NCCL_TEXT_MEMBER)
  NCCL_NEWER_FUNCTIONS(NCCL_MEMBER) /* NULL: not in this libnccl */
#undef NCCL_MEMBER
#undef NCCL_TEXT_MEMBER
};
extern struct nccl_functions nccl;
int nccl_load(struct worker *worker);
int nccl_failed(struct worker *worker, const char *call, ncclResult_t result); /* -1 */
#define NCCL(worker, function, ...) \
  do { \
    ncclResult_t result_ = nccl.function(__VA_ARGS__); \
    if (result_ != 0) return nccl_failed(worker, #function, result_); \
  } while (0)

/* ---- rank.c: device, buffers and communicator ---- */
int rank_id(struct worker *worker, struct reply *reply);
/* One communicator for each id; they stand one behind the other. */
int rank_init(struct worker *worker, const char *ids, struct reply *reply);
int rank_destroy(struct worker *worker);
/* Send and recv become buffers of NCCL's own memory, registered by nobody, and the next time what they were. NCCL registers such by
 * itself in a graph, and ranks then read and write each other's: cuMemAlloc's it cannot (ipcRegisterBuffer, src/transport/p2p.cc). */
int rank_exchange(struct worker *worker);
/* The largest of the ranks' values, the same on all of them. One collective of 4 bytes. */
int rank_largest(struct worker *worker, float *value);
/* The same collective, of whatever is there: no rank's stream goes on before all have come. */
int rank_meet(struct worker *worker);

/* ---- collective.c: a collective and size, as nccl-tests count bytes ---- */
enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, NUM_COLLECTIVES };
struct shape {
  enum collective collective;
  const char *name;
  size_t bytes;   /* asked for */
  size_t count;   /* elements of bf16 as the API has them: per rank for all but AllReduce, Broadcast and Reduce */
  size_t outputs; /* elements that this rank gets */
};
int shape_of(struct worker *worker, const char *collective, double bytes, struct shape *shape);
int shape_call(struct worker *worker, const struct shape *shape);
int shape_calls(struct worker *worker, const struct shape *shape, int calls);

/* ---- pattern.c: what is sent and what must arrive ---- */
int pattern_fill(struct worker *worker);
/* Spoils every element that the next call must write. */
int pattern_poison(struct worker *worker, const struct shape *shape);
/* Elements of recv that are not what they must be; waits for the stream. */
int pattern_verify(struct worker *worker, const struct shape *shape, size_t *wrong);

/* ---- capture.c ---- */
/* A graph of so many calls on each communicator, all captured at once. grid: blocks of the first one's first kernel. */
int capture_graphs(struct worker *worker, const struct shape *shape, int calls, CUgraphExec *execs, unsigned *grid);

/* ---- measure.c ---- */
/* So many on each communicator. */
int measure_call(struct worker *worker, const struct shape *shape, int calls, struct reply *reply);
enum mode {
  MODE_GRAPH, /* of every communicator; other modes want one alone */
  MODE_STREAM, /* calls that are all enqueued before the first begins */
  MODE_FREE,   /* they run while later ones are still enqueued */
  MODE_HOST,   /* what enqueueing them takes the host, with none of them running */
  NUM_MODES
};
struct measurement {
  enum mode mode;
  int calls, replays, minReplays;
  double warmUs, budgetUs;
};
int measure(struct worker *worker, const struct shape *shape, const struct measurement *want, struct reply *reply);

/* ---- load.c: other work on the GPU while replays are timed ---- */
int load_choose(struct worker *worker, const char *kind);
int load_turn(struct worker *worker, int on);
/* Work for some hundred milliseconds: a GPU's clocks rise only under work. */
int load_warm(struct worker *worker);

#endif
