/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the library: what the tuner half and the profiler half share. No NCCL version appears here: every version is
 * a thin shim (tuner_vN.c, profiler_vN.c) over these calls. Protocol: docs/design.md.
 */
#ifndef DYN_PLUGIN_H
#define DYN_PLUGIN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi.h"
#include "../preload/preload.h"
#include "datatype.h"
#include "process_start.h"

/* ncclDebugLogger_t, src/include/nccl_common.h */
typedef void (*dyn_logger)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);

/* What getCollInfo chose, kept so that the profiler half can join an event to its choice. */
struct dyn_decision {
  uint64_t seq;
  uint64_t bytes;
  uint32_t action;
  uint32_t planVersion;
  uint8_t collective; /* as NCCL names it */
  uint8_t counted;    /* as plans do: another on registered memory */
};
#define DYN_NUM_DECISIONS 64

/* What is known of a collective and bucket; together, for a call looks at all of it. */
struct dyn_place {
  uint32_t calls, entryId; /* calls since the entry came into force */
  uint16_t made;    /* calls so far, captured ones not counted, modulo 2^16 */
  uint16_t kernels; /* what ours have room for any call of the bucket: the upper half of the marks that say so */
  uint32_t marks;   /* as the record has them, which no other rank writes */
};

/* One communicator on one rank; shared by the tuner's and the profiler's context, freed by the last release.
 * The tuner half alone writes it; NCCL calls getCollInfo of one communicator from one thread at a time. */
struct dyn_comm {
  /* What each call looks at, in few lines of cache. */
  struct dyn_record *record; /* NULL: not joined, plain NCCL */
  struct dyn_rank *self;
  struct dyn_process *process; /* NULL: no profiler half, hence no samples */
  struct dyn_lsa *lsa; /* scratch memory that is open on this rank, or GIN; NULL: no kernels */
  uint64_t seq;        /* getCollInfo calls so far */
  uint32_t callsLeft;  /* until the next epoch */
  int sampling;        /* this epoch is sampled */
  int bound;           /* 1: all ranks have it, and calls are looked at before NCCL sees them; -1: never; 0: not known */
  int hasProfiler;     /* opened by the profiler half */
  unsigned watched;    /* keys of its calls in the preload library's list */
  uint32_t entryCall;  /* the call being made: of its plan entry, from 1; 0: it has none, or is captured */
  bool trial, coming;  /* it is to be timed by itself, and so is the next one of its bucket */
  bool inGraph;        /* the call being made goes into a CUDA graph */
  bool ahead;          /* a call on registered memory is under way and has counted: what NCCL asks meanwhile is about it */
  bool lost;           /* nobody can say what the ranks of other hosts do: calls fail */
  uint32_t aheadAction;
  struct {             /* NCCL's last question that counted: from 2.29.2 to 2.30 it may ask twice in one call of the program's */
    const struct dyn_preload_call *in; /* NULL: not known */
    uint64_t number;
    int collective;
    uint64_t bytes;
    uint32_t action;
  } question;
  int8_t deviceRanks;  /* DYN_DEVICE_*; 0: not known, as always between nodes */
  int8_t tellApart;    /* 1: of two questions about one call the second counts on no rank; -1: on all; 0: not known */
  int captured;        /* atomic, profiler half: NCCL's last word on whether a call goes into a CUDA graph */

  bool own;            /* made by ourselves, for GIN: plain NCCL */
  bool gin;            /* it wants GIN, and begins with it once NCCL has made the communicator */
  bool binds;          /* the preload library knows, or will, which of NCCL's communicators this is */
  bool allBind;        /* on every rank, before its first call: so calls that NCCL asks nobody about count. Between hosts on this one, as its promises say */
  bool windows;        /* likewise: calls on registered memory are counted apart */
  bool names;          /* likewise, with windows: NCCL can be told by name what is to run them */
  uint64_t commId;
  uint32_t nRanks, nNodes;
  int32_t rank;        /* -1: not known */
  dyn_logger log;
  const void *inside;  /* an address in NCCL's communicator, the same place of each (preload/gathers.c) */
  atomic_int refs;
  size_t recordBytes;
  int tunerLive;
  uint64_t epoch;
  uint32_t slot;       /* plan buffer + 1 in force, 0: NCCL's defaults */
  uint64_t closeLeft;  /* epochs in which puts over GIN are timed closely, this one among them; the same on all ranks (dyn_pass_close) */
  uint64_t windowSeq;  /* the call in which sampling last began: no sample, since its timing had not begun before it */
  const void *handle;  /* ncclComm_t, by which the preload library has it among those that rest (preload/watch.h); NULL: not known yet */
  int deviceLL;        /* in the plan in force LL means a device kernel where there is one */
  bool patSums;        /* a rank's NCCL may run averages as sums in PAT: no ReduceScatter is told to */
  bool ownGathers;     /* AllGather keeps NCCL's own number of channels (everywhere.h) */
  struct dyn_gathers *gathers; /* whether what NCCL asks about as an AllGather is one; NULL: not known */
  struct dyn_gathers *averages; /* whether an AllReduce has averaged, where that matters; NULL: not known */
  struct dyn_gathers *registers; /* whether it has had a window, likewise */
  bool seesGathers;    /* nor a number for one that the preload library has not seen: its call went past it, or it is broadcasts that did */
  struct dyn_fence *fence; /* of ranks on several hosts; NULL: none, and the record alone decides */
  uint64_t fenceEpoch;
  int past;            /* atomic, profiler half: its calls go past the preload library, which times calls */
  uint64_t seenHeartbeat;
  uint64_t heartbeatEpoch; /* epoch at which the heartbeat last moved */
  struct dyn_place places[DYN_NUM_COLLECTIVES][DYN_NUM_BUCKETS];
  bool forced;         /* a rank of `calibrate` or `sweep`: each choice is captured in turn, and buffers lie in windows or do not, send and receive alike */
  bool capturedNccls[DYN_NUM_COLLECTIVES][DYN_NUM_BUCKETS]; /* a call went into a graph with a kernel of NCCL's */
  uint32_t refused[DYN_NUM_COLLECTIVES - DYN_FIRST_REGISTERED][DYN_NUM_BUCKETS]; /* marks of names that NCCL did not take */
  struct dyn_plan plan;    /* private copy of the plan in force */
  struct dyn_decision decisions[DYN_NUM_DECISIONS]; /* by seq % DYN_NUM_DECISIONS */
};

/* ---- record.c: files of DYNAMICCL_DIR, joining and leaving; never on the hot path ---- */

/* Profiler init: makes the communicator and remembers it in this thread for the tuner init that follows. NULL: no memory. */
struct dyn_comm *dyn_comm_open(uint64_t commId, int nRanks, int nNodes, int rank, dyn_logger log);
/* Tuner init: takes the communicator that the profiler opened in this thread just before (hasId == 0 or same id, same
 * number of ranks), else makes one. Joins its record when an id is known. inside: where NCCL wants the context. NULL: no memory. */
struct dyn_comm *dyn_comm_claim(const void *inside, int hasId, uint64_t commId, size_t nRanks, size_t nNodes, dyn_logger log);
/* Either half is done with it. The tuner half leaves the record first. */
void dyn_comm_release_tuner(struct dyn_comm *comm);
void dyn_comm_release_profiler(struct dyn_comm *comm);

/* Directory of the shared files, made and checked once a process; NULL: none, with the reason logged once. */
const char *dyn_directory(dyn_logger log);

/* ---- tuner.c: the choice; no lock, allocation, system call or wait ---- */

/* costs: numAlgo x numProto floats, NCCL's cost table, NULL when the tuner version has none (then nothing is chosen).
 * Writes 0.0 into the chosen entry and *nChannels, or leaves both untouched. */
void dyn_choose(struct dyn_comm *comm, int collective, size_t bytes, float *costs, int numAlgo, int numProto, int *nChannels);
/* NCCL from 2.31 on asks, before the call and with numPipeOps 0, whether to fall back from a device kernel: it does unless
 * the answer is LL, and then that is the call, nobody asks again. bytes are one rank's part for AllGather and
 * ReduceScatter. Writes 0.0 into an entry of LL if the plan says LL for this call, and counts it; else does nothing. */
void dyn_choose_device(struct dyn_comm *comm, int collective, size_t bytes, float *costs, int numAlgo, int numProto);
/* preload.h: dyn_choose_function. Before NCCL sees the call: the plan's action if it is of path LSA with one of the kernels able (bits by DYN_KERNEL_*), or
 * of path GIN where that is able (DYN_ABLE_GIN), and then the call counts; else 0, and NCCL is to run it. AllToAll counts here either way, since NCCL asks nobody about it, or on
 * no rank at all. So do calls on registered memory
 * (DYN_ABLE_REGISTERED), where all ranks know the program's windows. bytes: as NCCL would ask. chooser: a struct dyn_comm. */
uint32_t dyn_choose_kernel(void *chooser, int collective, uint64_t bytes, uint32_t able);
void dyn_decision_note(struct dyn_comm *comm, uint64_t seq, int collective, size_t bytes, uint32_t action);
/* Newest decision of this collective and size among the last DYN_NUM_DECISIONS; 0: none. */
int dyn_decision_find(struct dyn_comm *comm, int collective, uint64_t bytes, struct dyn_decision *out);
/* Newest decision of this collective, any size. */
int dyn_decision_newest(struct dyn_comm *comm, int collective, struct dyn_decision *out);

/* ---- process.c: the ring and the activation mask of this process ---- */

struct dyn_process {
  struct dyn_ring *ring; /* NULL: none */
  struct dyn_sample *cells;
  atomic_int *mask;          /* NCCL's activation mask, NULL until the profiler half is loaded */
  struct dyn_preload *preload; /* NULL: not in this process */
  int eventTimed;              /* it times calls, no kernel is timed; does not change while a comm lives */
  int promised;                /* DYNAMICCL_NO_GRAPHS */
  atomic_int take, restore, tell; /* struct dyn_mask_words, where there is no preload to have them */
  atomic_uint turns;
  atomic_int samplingComms;  /* communicators whose present epoch is sampled */
  atomic_int chainMask;      /* what a chained profiler wants */
  atomic_int heldMask;       /* bits of ours that stay set, sampling or not: KernelCh from NCCL 2.32 on (profiler.c) */
  atomic_int refused;        /* bits of ours that must not be asked for: kernel times (capture.c) */
  unsigned lease;            /* the ring's, in the preload library */
};
/* The process's ring, opened at the first call after load or fork. Never NULL; ring is NULL when none can be had. */
struct dyn_process *dyn_process_get(dyn_logger log);
/* Closes and unlinks the ring when the last communicator is gone. */
void dyn_process_ref(void);
void dyn_process_unref(void);
/* Writes the mask that NCCL polls:
 * (((ring.wantMask if any communicator samples now and the daemon lives) | heldMask) & ~refused) | chainMask,
 * Coll alone of wantMask where single calls are timed (preload/watch.h),
 * KernelCh of ours only while no guard is up (mask.h). */
void dyn_mask_update(struct dyn_process *process, int alive);
static inline struct dyn_mask_words dyn_process_words(struct dyn_process *p) {
  struct dyn_preload *preload = p->preload;
  if (preload == NULL) return (struct dyn_mask_words){p->mask, &p->take, &p->restore, &p->turns, &p->tell};
  return (struct dyn_mask_words){p->mask, &preload->take, &preload->restore, &preload->turns, &preload->tell};
}
/* Whether calls of this process have no times, and whether it is CUDA events that give them. */
int dyn_times_refused(void);
bool dyn_times_wanted(const struct dyn_process *process); /* by the daemon that reads the ring */
int dyn_event_timed(void);
/* A switch that daemon and ranks read alike. */
int dyn_switched_on(const char *name);
/* Puts one sample into the ring; dropped and counted when it is full. 1: stored. */
int dyn_ring_put(struct dyn_process *process, const struct dyn_sample *sample);

#endif
