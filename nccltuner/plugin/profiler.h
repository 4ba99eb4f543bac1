/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the profiler half. profiler_vN.c turn what one NCCL version says into struct dyn_event; nothing else here
 * knows a version.
 *   profiler.c         contexts, init and finalize
 *   capture.c          how calls are timed; CUDA graph capture: who may ask for KernelCh
 *   profiler_pool.c    event objects and handles
 *   profiler_event.c   start, stop and state of events
 *   profiler_sample.c  one collective's events -> one dyn_sample, joined to its choice
 *   profiler_names.c   NCCL's names -> numbers
 *   chain.c            handing everything on to another profiler plugin
 */
#ifndef DYN_PROFILER_H
#define DYN_PROFILER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "datatype.h"
#include "nccl_profiler_abi.h"
#include "plugin.h"

#define DYN_POOL_SLOTS 8192      /* open events of a process: about 160 collectives in flight on 24 channels */
#define DYN_MAX_CONTEXTS 2048    /* communicators of a process that are profiled at once */
#define DYN_MAX_CHANNELS 64      /* MAXCHANNELS, src/include/device.h v2.30.7 */
#define DYN_NUM_LAZY 64          /* collectives of a communicator whose number of channels is not told */
#define DYN_NUM_RETIRED 1024     /* API events of a chained profiler kept after their stop, for children that follow */
#define DYN_AGE_LIMIT 1024       /* later collectives after which an open event is given up when slots run out */
#define DYN_LAZY_QUIET_NS 1000000ull         /* no event for so long: a collective of unknown channels is complete */
#define DYN_MAX_DURATION_NS 3600000000000ull /* more than an hour is a broken clock */
#define DYN_HOLD_VERSION 7       /* profiler ABI of the first NCCL that loses count when KernelCh is switched (seen with 2.32.3; 2.31.2 has the same ABI) */
#define DYN_BROADCAST_VERSION 6  /* of the first that does not count broadcasts (2.29) */
#define DYN_LATE_WORKS 48        /* of the 64 kernel times that NCCL keeps a channel; the rest is for events told late */
#define DYN_NEAR_NS 100000ull    /* less than 64 kernels take, one after the other */
#define DYN_BACKWARD_LIMIT 8     /* from 2.32 on: times that go backwards before a communicator's are not believed any more */

#define DYN_UNKNOWN 255 /* algorithm or protocol with a name that we do not know */

/* One event as NCCL describes it, free of versions. Pointers are NCCL's and valid during the call only. */
struct dyn_event {
  uint64_t type; /* ncclProfile* */
  void *parent;  /* Coll: its CollApi event (v5 on), else the Group; KernelCh, ProxyOp: the Coll or P2p */
  union {
    struct {
      int captured;  /* GroupApi, CollApi, P2pApi */
      int broadcast; /* CollApi */
    } api;
    struct {
      void *group;          /* Group event of the kernel plan that it is part of */
      const char *func;     /* NULL: number says it */
      const char *datatype; /* likewise */
      const char *algo;
      const char *proto;
      int funcNumber, datatypeNumber, algoNumber, protoNumber; /* v1 */
      uint64_t count;
      uint64_t trafficBytes; /* v1, v2; 0: not told */
      uint64_t commHash;     /* v1 to v3, which give no id at init */
      int rank;
      int nChannels;         /* 0: not known */
    } coll;
    struct {
      pid_t pid;
      int isSend;
    } proxyOp;
    struct {
      unsigned channel;
      uint64_t timer; /* GPU ns; 0: not told (v3) */
    } kernelCh;
  };
};

/* One communicator as the profiler sees it. Lives in a static table and is named by a handle, never by address. */
struct dyn_context {
  atomic_uint_fast64_t word; /* generation << 32 | 1 while it is in use */
  int version;             /* of the profiler ABI that NCCL speaks with us */
  struct dyn_comm *comm;   /* NULL: v1 to v3, or no memory */
  struct dyn_process *process;
  void *chainContext; /* the chained profiler's, any value */
  int chained;        /* events go on to the chained profiler */
  atomic_uint_fast64_t ownSeq; /* for collectives that no choice matched */
  atomic_uint_fast64_t joined[DYN_NUM_DECISIONS]; /* by seq % DYN_NUM_DECISIONS: (seq + 1) << 1 | aggregated */
  atomic_uint_fast64_t lazy[DYN_NUM_LAZY];        /* handles of collectives that wait for quiet */
  atomic_uint lazyNext; /* 0: there were none so far */
  atomic_int miscounted; /* a work that NCCL did not count */
  atomic_uint backward;  /* kernel times that went backwards */
  atomic_uint_fast64_t works;    /* Coll and P2p events so far */
  atomic_uint_fast64_t lastStop; /* GPU ns of the newest kernel stop that is believed, ... */
  atomic_uint_fast64_t lastStops[DYN_MAX_CHANNELS]; /* ... and that of each channel */
};

enum dyn_kind { DYN_KIND_API = 1, DYN_KIND_GROUP, DYN_KIND_COLL, DYN_KIND_KERNEL, DYN_KIND_PROXY };

/* What is measured of one collective. Written by several threads at once (user, proxy, profiler thread of 2.32), hence
 * atomic; times are 0 while nothing was seen. */
struct dyn_collective {
  struct dyn_process *process;
  struct dyn_sample sample; /* all that is known at its start */
  uint64_t expected;        /* channels; 0: not told */
  uint64_t work;            /* of the context's works */
  int hostTimed;
  atomic_uint aggregated;
  atomic_uint bad;          /* a time that cannot be */
  atomic_uint_fast64_t channels;  /* bit: stopped */
  atomic_uint_fast64_t firstStart, lastStop; /* kernel, GPU ns (host ns when hostTimed) */
  atomic_uint_fast64_t kernelSeen; /* host ns at which the first kernel start was told */
  atomic_uint_fast64_t startClock, stopClock; /* host ns less GPU ns of the first start and the last stop that was told */
  atomic_uint_fast64_t firstOp, lastSend, lastRecv; /* proxy, host ns */
  atomic_uint_fast64_t touched;    /* host ns of the last event, where quiet is waited for */
};

/* An event object. word: generation << 32 | pins << 20 | references. References 0 and pins 0: finished. */
struct dyn_slot {
  atomic_uint_fast64_t word;
  atomic_uint next; /* free list: slot + 1 */
  uint8_t kind;
  atomic_uchar stopped;
  atomic_uchar abandoned; /* given up: no sample */
  uint64_t owner; /* context handle */
  uint64_t birth; /* collectives started in this process before it */
  void *chain;    /* the chained profiler's handle of the same event */
  union {
    struct {
      uint64_t minSeq; /* getCollInfo calls of the communicator when the API call began */
    } api;
    struct {
      atomic_uint count;
      atomic_uint_fast64_t first; /* handle of its first collective */
    } group;
    struct {
      uint64_t coll; /* handle of the collective */
      unsigned channel;
      int isSend;
      int hostTimed;
      uint64_t start;
      atomic_uint_fast64_t stop;
    } part; /* kernel channel or proxy operation */
    struct dyn_collective coll;
  };
};

/* ---- profiler_pool.c ---- */

/* A handle is not an address: tag << 48 | generation << 16 | index. The tag makes it non-canonical on every 64-bit
 * machine, so that it cannot be mistaken for another plugin's pointer, and a stale one is seen by its generation. */
#define DYN_HANDLE_TAG 0xd1c1ull
#define DYN_CONTEXT_TAG 0xd1c2ull
/* A CollApi event without a chained profiler needs no object: its handle says it all, tag << 48 | low 32 bits of minSeq
 * << 16 | context index, and so it outlives its stop for as long as its children need it. */
#define DYN_API_TAG 0xd1c3ull
static inline int dyn_handle_ours(const void *handle) {
  uint64_t tag = (uintptr_t)handle >> 48;
  return tag == DYN_HANDLE_TAG || tag == DYN_API_TAG;
}
void *dyn_api_handle(const struct dyn_context *context, uint64_t minSeq);
/* getCollInfo calls of the communicator when the API call of this handle began; 0: not an API event of this context. */
int dyn_api_min(const struct dyn_context *context, const void *handle, uint64_t *minSeq);

/* A new object with refs references and one pin; NULL: none free, counted in ring.dropped. */
struct dyn_slot *dyn_slot_new(struct dyn_process *process, uint64_t owner, enum dyn_kind kind, unsigned refs);
void *dyn_slot_handle(const struct dyn_slot *slot);
/* The live object of a handle, pinned; NULL: stale or not ours. */
struct dyn_slot *dyn_slot_pin(const void *handle);
void dyn_slot_ref(struct dyn_slot *slot);
/* Gives back drops references and the pin; the last one finishes the object. */
void dyn_slot_unpin(struct dyn_slot *slot, unsigned drops);
unsigned dyn_slot_refs(const struct dyn_slot *slot);
/* Keeps an API event for its children; the oldest kept one goes. */
void dyn_slot_retire(struct dyn_slot *slot);
/* Gives up every open event of a context (owner != 0) or every one older than age. How many. */
unsigned dyn_slot_reclaim(uint64_t owner, uint64_t minAge);
unsigned dyn_slots_used(void);
extern atomic_uint_fast64_t dyn_collectives_started;

struct dyn_context *dyn_context_new(void);
struct dyn_context *dyn_context_get(const void *handle);
void *dyn_context_handle(const struct dyn_context *context);
void dyn_context_free(struct dyn_context *context);

/* ---- profiler_names.c ---- */

int dyn_func_number(const char *name);           /* 0 to 4, -1: not a collective that is tuned */
uint8_t dyn_algorithm_number(const char *name);
uint8_t dyn_protocol_number(const char *name);
unsigned dyn_datatype_bytes(const char *name);   /* 0: not known */
/* Bytes as getCollInfo sees them; 0: cannot be told. */
uint64_t dyn_collective_bytes(int func, unsigned elementBytes, uint64_t count, uint64_t trafficBytes, unsigned nRanks);

/* ---- profiler_sample.c ---- */

/* Starts the sample of a collective; NULL: not wanted, or nothing can be said about it. Pinned. */
struct dyn_slot *dyn_coll_start(struct dyn_context *context, const struct dyn_event *event);
/* A kernel channel stopped. References of the collective that are done with it: 0 or 1. */
unsigned dyn_coll_kernel(struct dyn_slot *coll, unsigned channel, uint64_t start, uint64_t stop, uint64_t nowNs);
/* The last reference is gone: puts the sample into the ring. */
void dyn_coll_finish(struct dyn_slot *coll);
/* Completes the collectives of unknown channels that have been quiet; all of them when force. */
void dyn_coll_sweep(struct dyn_context *context, uint64_t nowNs, int force);
/* Counts a sample that is lost or cannot be used. */
void dyn_count_dropped(struct dyn_process *process);
uint64_t dyn_now_ns(void);
void dyn_atomic_min(atomic_uint_fast64_t *at, uint64_t value); /* 0 counts as unset */
void dyn_atomic_max(atomic_uint_fast64_t *at, uint64_t value);

/* ---- profiler_event.c: what the shims call; descr is NCCL's own descriptor of the same event, for the chain ---- */

int dyn_event_start(void *context, void **handle, const struct dyn_event *event, const void *descr);
int dyn_event_stop(void *handle);
/* state in NCCL's numbering, args NCCL's union (NULL allowed); timer: GPU ns of ncclProfilerKernelChStop, else 0. */
int dyn_event_state(void *handle, int state, void *args, uint64_t timer);

/* ---- profiler.c ---- */

struct dyn_profiler_init {
  int version;
  int hasId;
  uint64_t commId;
  const char *commName;
  int nNodes, nRanks, rank;
  dyn_logger log;
};
int dyn_profiler_init(void **context, int *mask, const struct dyn_profiler_init *in);
int dyn_profiler_finalize(void *context);
/* Notes a broadcast, whose work NCCL does not count. */
void dyn_broadcast_note(struct dyn_context *context);
/* Whether the kernel times of this context are those of its own collectives. */
int dyn_in_step(const struct dyn_context *context);
/* Bits of ours that are wanted for a collective of this context that starts now. */
int dyn_wanted(const struct dyn_context *context);
pid_t dyn_own_pid(void);

/* ---- capture.c ---- */

/* A communicator is made, under the init lock: decides with the first one how calls are timed. 1: this one's calls are
 * not, for they go past the preload library. */
int dyn_capture_open(struct dyn_process *process, int *mask, int version, dyn_logger log);
/* The last communicator is gone, under the init lock: nothing of ours stays in the mask. */
void dyn_capture_close(struct dyn_process *process);
/* Notes an API call and whether it goes into a CUDA graph. 1: it found KernelCh in the mask if that was wanted. */
int dyn_capture_note(struct dyn_context *context, int captured);
/* Whether this thread's call goes into a CUDA graph, where no event says it (before v5); groups end outside of it. */
int dyn_capture_now(const struct dyn_process *process);

#endif
