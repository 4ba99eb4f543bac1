/* SPDX-License-Identifier: Apache-2.0
 *
 * The device path of one communicator, seen from the host: scratch memory that the ranks of an NVLink domain open of each
 * other, NCCL's GIN (gin.c), one of them or both, and launching kernels over them. Nothing here knows the program's
 * communicators, plans or the daemon.
 *
 * Life: offer (this rank's memory), open (all peers'), any number of launches, close. Offer and open run while NCCL makes
 * the communicator, on all ranks at the same place, since mapping memory may wait for GPUs: afterwards a peer's kernel
 * could be waiting for this rank. One thread at a time uses a communicator, as NCCL wants it.
 */
#ifndef DYN_HOST_H
#define DYN_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "../../nccltuner/abi.h"

struct dyn_lsa; /* one communicator */
struct dyn_windowed; /* ../device/call.h */
struct dyn_stamp;    /* likewise */

/* Scratch memory as ranks tell each other of it. */
struct dyn_offer {
  uint32_t pid;
  uint64_t startTime; /* of the process, clock ticks since boot */
  uint64_t at;        /* its address there */
  uint64_t bytes;
  uint8_t handle[64]; /* CUipcMemHandle */
  uint8_t gpu[16];    /* CUuuid; 0: not known */
  uint32_t multiprocessors; /* likewise */
  uint32_t mostCtas; /* that the program lets a kernel of NCCL's have, in whose place ours run; 0: it does not say */
  uint32_t contexts; /* of GIN, that the program lets a communicator have (NCCL_GIN_NCONTEXTS); 0: likewise */
};

/* The GPU of this thread's context, as a rank's part of the record has it; nothing where there is no context. */
void dyn_host_gpu(uint8_t gpu[16], uint32_t *multiprocessors);

/* NULL: this rank cannot; why was said. The memory is zero and belongs to the CUDA context of this thread. */
struct dyn_lsa *dyn_lsa_offer(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own);
/* Before its first call: whether the program promises that a graph with its calls runs alone. */
void dyn_lsa_graphs(struct dyn_lsa *lsa, bool alone);
/* offers: of all ranks, in their order. False: not all can be opened, only close is left. */
bool dyn_lsa_open(struct dyn_lsa *lsa, const struct dyn_offer *offers);
/* Behind settle. The memory goes to later communicators, unless somebody may still write into it. */
void dyn_lsa_close(struct dyn_lsa *lsa);

/* One call, as NCCL's API has it. */
struct dyn_work {
  int collective; /* ncclFunc_t */
  const void *send;
  void *recv;
  size_t count;
  int datatype, op, root;
  void *stream;
  bool perhapsCaptured; /* false: the stream is known not to be captured */
  const struct dyn_windowed *sendWindow, *recvWindow; /* for DYN_KERNEL_DIRECT: which all ranks have registered; NULL: none of this rank's */
};
/* Bytes by which tuners know the call: of the larger buffer. */
uint64_t dyn_work_bytes(const struct dyn_work *work, uint32_t nRanks);

/* What the communicator that GIN gets of its own is called, for who meets it. */
#define DYN_GIN_COMM_NAME "dynamiccl-gin"
/* Version, functions and kernels of GIN are there. */
bool dyn_gin_can(void);
/* For the communicator that GIN gets of its own: of rank 0, for all. */
bool dyn_gin_id(uint8_t id[128]);
/* As dyn_lsa_offer, without scratch memory; own says which process this is. */
struct dyn_lsa *dyn_gin_offer(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own);
/* Makes GIN's life up to active, on all ranks at the same place, with a deadline for each step. offers: of all ranks, needed
 * where there is no scratch memory. self: where the state is told, until dyn_lsa_close. False: it failed, and why was said. */
struct dyn_rank;
bool dyn_gin_make(struct dyn_lsa *lsa, const struct dyn_offer *offers, const uint8_t id[128], struct dyn_rank *self);
/* Behind settle, on all ranks: gives back what GIN has, unless a rank may still put. */
void dyn_gin_destroy(struct dyn_lsa *lsa);
/* 0: DYN_GIN_UNINITIALISED, where there is none. */
uint32_t dyn_gin_now(const struct dyn_lsa *lsa);

/* Beside the bits by DYN_KERNEL_*: what a call writes or reads of its peers lies in memory that this rank has registered. */
#define DYN_ABLE_WINDOWS (1u << 31)
/* The action is DYN_KERNEL_DIRECT, for which windows are to be looked up. */
static inline bool dyn_is_direct(uint32_t action) { return (action & 15) == DYN_PATH_LSA && (action >> DYN_ACTION_ALGO_SHIFT & 15) == DYN_KERNEL_DIRECT; }

/* A kernel on GIN by this backend, beside the bits by DYN_KERNEL_*. */
#define DYN_ABLE_GIN(backend) (1u << (8 + (backend)))
/* Beside it: there are several contexts, and a call has as many of them as its action says. */
#define DYN_ABLE_CONTEXTS (1u << 11)
#define DYN_ABLE_OVER_GIN (DYN_ABLE_GIN(DYN_BACKEND_PROXY) | DYN_ABLE_GIN(DYN_BACKEND_GDAKI) | DYN_ABLE_CONTEXTS)

/* It has scratch memory that all ranks have opened. */
bool dyn_lsa_near(const struct dyn_lsa *lsa);
/* Kernels (bits by DYN_KERNEL_*, DYN_ABLE_GIN) that have room for calls of up to so many bytes; the same on all ranks. */
uint32_t dyn_lsa_room(const struct dyn_lsa *lsa, int collective, uint64_t bytes);
/* Kernels that can run this very call: a question of type, operator and size alone, so all ranks say the same. */
uint32_t dyn_lsa_able(const struct dyn_lsa *lsa, const struct dyn_work *work);
#define DYN_TIMED_CALLS 512 /* of a communicator that may be in flight: the next one is given the place of the first */
/* Where a timed call's kernel leaves its times: memory that stays as long as the CUDA context of the call. */
struct dyn_timing {
  const struct dyn_stamp *at; /* NULL: it leaves none */
  uint32_t tag;
};
/* action: of path LSA or GIN, with a kernel that is able. An ncclResult_t; *ctas: how many run. timing: of a call that is timed, to be
 * filled in; NULL: it is not. */
int dyn_lsa_launch(struct dyn_lsa *lsa, const struct dyn_work *work, uint32_t action, unsigned *ctas, struct dyn_timing *timing);
/* What comes on the stream `then` from now on begins behind what is on `first` now, also in a capture that both are part of. An ncclResult_t. */
int dyn_lsa_order(struct dyn_lsa *lsa, void *first, void *then);

/* A kernel that a graph ran, by what it stamped. */
struct dyn_replay {
  uint32_t number; /* of the communicator's kernels in graphs, from 1, the same on all ranks */
  int collective;
  uint64_t bytes;
  uint32_t action;
  unsigned ctas; /* that ran */
  uint32_t counterNs, signalNs; /* since it began; saturate */
};
/* Those that were not told before: up to so many, and how many. One thread at a time. */
size_t dyn_lsa_replays(struct dyn_lsa *lsa, struct dyn_replay *replays, size_t most);

/* Behind the end of a timed call: what passed from its last send until it had all. False: it did not tell. */
bool dyn_timing_tail(const struct dyn_timing *timing, uint32_t *ns);

/* What one put of a kernel on GIN took, as that timed it: until its source was read, and until the peer's answer to its signal
 * was here, however late the peer came. */
struct dyn_trip {
  uint32_t number; /* of the call among those of its lane, the same on all ranks: a call in rounds counts as so many */
  bool inGraph;    /* of the lane of CUDA graphs, else of calls */
  unsigned backend, context, peer, ctas, contexts; /* DYN_BACKEND_*; ctas: of the kernel; contexts that these had */
  uint64_t bytes;                        /* put; 0: a signal alone */
  uint32_t counterNs, signalNs;          /* saturate; counterNs is 0 without bytes */
};
/* As dyn_lsa_replays. */
size_t dyn_gin_trips(struct dyn_lsa *lsa, struct dyn_trip *trips, size_t most);

/* Called twice a second for each open communicator, which cannot close meanwhile. Set once, before the first is made. */
extern void (*dyn_lsa_look)(struct dyn_lsa *lsa);
/* Asked twice a second, likewise: whether a rank of it that is on another host has gone for good; why: which. */
extern bool (*dyn_lsa_gone)(uint64_t id, uint32_t rank, char *why, size_t bytes);
uint64_t dyn_lsa_id(const struct dyn_lsa *lsa);

/* AllReduce of input, added to residual and normalised: dynamicclAllReduceAddRmsNorm (nccltuner/preload/dynamiccl.h). */
struct dyn_norm {
  const void *input;
  void *residual;
  const void *weight;
  void *output;
  size_t tokens, width;
  float epsilon;
  int datatype;
  void *stream;
};
/* An ncclResult_t; ncclInvalidArgument where it cannot be done, on all ranks alike. */
int dyn_lsa_rms_norm(struct dyn_lsa *lsa, const struct dyn_norm *norm);

/* AllToAll of parts of any sizes: dynamicclAllToAllv (nccltuner/preload/dynamiccl.h). Arrays have an entry for each rank, in elements. */
struct dyn_exchange {
  const void *send;
  const size_t *sendCounts, *sendOffsets;
  void *recv;
  const size_t *recvCounts, *recvOffsets;
  int datatype, path; /* DYN_PATH_LSA or DYN_PATH_GIN */
  void *stream;
  const struct dyn_windowed *recvWindow; /* in which all of recv lies that anything comes to; NULL: none */
};
/* From the beginning of recv to the end of what lies furthest on in it; 0: nothing comes, or it cannot be done. */
uint64_t dyn_exchange_bytes(const struct dyn_lsa *lsa, const struct dyn_exchange *exchange);
/* This rank can; another one may not. */
bool dyn_lsa_can_exchange(const struct dyn_lsa *lsa, int path);
/* An ncclResult_t. */
int dyn_lsa_exchange(struct dyn_lsa *lsa, const struct dyn_exchange *exchange);

uint32_t dyn_lsa_ranks(const struct dyn_lsa *lsa);
uint32_t dyn_lsa_rank(const struct dyn_lsa *lsa);
/* Kernels that wait give up, and no other begins; the first reason stays. Says nothing: a peer that ends before this rank is
 * most often no loss to anybody. */
void dyn_lsa_stop(struct dyn_lsa *lsa, const char *why);
bool dyn_lsa_stopped(const struct dyn_lsa *lsa);
/* The same, and looks whether a kernel on GIN has waited too long just now, of which nothing is said yet. */
bool dyn_lsa_gave_up(struct dyn_lsa *lsa);
/* Whether a call was in want of who is gone: it was refused, or its kernel has given up. For who asks for errors, perhaps when the program has
 * destroyed the CUDA context. A rank whose process has ended, and that nobody waits for, is no error: some go before others. True because a
 * rank has died: it has been said who. */
bool dyn_lsa_missed(struct dyn_lsa *lsa);
/* Somebody waits for what will not come: says once why it was stopped. */
void dyn_lsa_complain(struct dyn_lsa *lsa);
/* Waits for what was launched, and for replays of graphs, if these do not promise to run alone. False: it is not over in time. */
bool dyn_lsa_settle(struct dyn_lsa *lsa, uint64_t ns);
/* The same for a communicator that ends well, as NCCL waits then: as long as a peer that is late may take. Where it was stopped, or nobody finds
 * dead peers any more, 10 s at most. Another thread may close it meanwhile. */
void dyn_lsa_wait(struct dyn_lsa *lsa);

/* CLOCK_MONOTONIC. */
static inline uint64_t dyn_host_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One line on stderr, for which nobody waits longer than 0.5 s (stderr.h). */
void dyn_host_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
