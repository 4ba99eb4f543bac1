/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the device path: what memory.c makes and launch.c uses.
 */
#ifndef DYN_LSA_H
#define DYN_LSA_H

#include <stdatomic.h>
#include <stdlib.h>

#include "../../nccltuner/abi.h"
#include "../device/call.h"
#include "driver.h"
#include "host.h"
#include "module.h"

/* Calls of a program and those of its CUDA graphs have memory each, so that they need no order between each other: a graph
 * that is replayed is seen by nobody on the host. */
enum { LANE_CALLS, LANE_GRAPHS, NUM_LANES };

/* Of a communicator, kept for the next one when it goes. */
struct scratch {
  dyn_context context;
  unsigned long long contextId;
  dyn_gpu_address memory; /* 0, of 0 bytes: of GIN alone */
  size_t bytes;
  struct dyn_ipc_handle handle;
  uint64_t *words; /* host memory that the GPU sees: stop, then fault; at LATE_AT who is late; at LANES_AT where who gives up says so; a page further, stamps */
  struct dyn_stamp *stamps; /* of its kernels in graphs */
  struct dyn_stamp *timed;  /* [DYN_TIMED_CALLS]: of calls that are timed, by their number */
  uint32_t numTimed;        /* so far, also of communicators that had it before */
  dyn_event done[NUM_LANES]; /* behind the newest kernel of each lane */
  atomic_uint graphs;   /* that have kernels on it and are not destroyed, or may not be */
  unsigned numMapped;   /* of peers' memory: still open for graphs that were left, to be closed when another communicator that has it ends */
  dyn_gpu_address mapped[DYN_KERNEL_MAX_RANKS];
  uint32_t *left;       /* room.c: the carrier's word of GIN that a communicator left for its graphs (carrier/expected.h); NULL: none */
  bool spare;           /* room.c, with the next: no communicator has it, and when its graphs are gone it is free */
  struct scratch *next; /* of this process */
};

#define LATE_AT 8   /* of words; one of each lane */
#define LANES_AT 16 /* of words: dyn_lanes */

struct lane {
  struct dyn_domain domain;
  struct dyn_bulk bulk;
};

/* watch.c: a call of a lane that waits for a live peer. */
struct waiting {
  uint32_t call;
  uint64_t sinceNs;
  uint64_t saysNs; /* it is said again when it has lasted so long */
};

/* What graphs were captured with. */
struct tag {
  int collective;
  uint64_t bytes;
  uint32_t action;
  unsigned ctas;
};
#define MAX_TAGS 512 /* more are not stamped */

/* A capture with kernels of a communicator: graphs.c. */
struct capture {
  uint64_t id;
  dyn_node recordNode, lastNode;
};
#define MAX_CAPTURES 4 /* at once; with more, one that goes on may be taken for a new one */

struct dyn_lsa {
  uint64_t id; /* the caller's */
  uint32_t nRanks, rank;
  dyn_context context;
  const struct dyn_module *module; /* NULL: GIN alone */
  struct dyn_gin_lives *_Atomic gin; /* NULL: none was begun */
  struct scratch *scratch;
  struct dyn_offer peers[DYN_KERNEL_MAX_RANKS];
  unsigned mostCtas; /* of any kernel; the same on all ranks, but where some are on other hosts */
  dyn_gpu_address bases[DYN_KERNEL_MAX_RANKS];
  bool opened[DYN_KERNEL_MAX_RANKS]; /* by a handle, to be closed */
  struct lane lanes[NUM_LANES];
  atomic_bool called;          /* a kernel was launched, other than into a graph; also the last ones of GIN */
  unsigned long long streamId; /* of the newest */
  bool graphsAlone; /* by its config */
  struct capture captures[MAX_CAPTURES]; /* the newest */
  _Atomic(uint64_t) numCaptures; /* so far */
  struct capture *capture; /* of the captured call that is being launched */
  bool needsEdge; /* behind lastNode: that call */
  atomic_bool ready;           /* peers are known */
  _Atomic(const char *) stopped; /* why */
  atomic_bool missed; /* one of this rank's calls needed who is gone */
  atomic_flag complained;
  struct tag tags[MAX_TAGS]; /* stamps.c; the number of one is its place, from 1 */
  _Atomic(uint32_t) numTags;
  struct dyn_stamp seen[DYN_STAMPS]; /* at the last look */
  uint64_t told[DYN_STAMPS];         /* words */
  struct waiting waiting[NUM_LANES];
  bool diedOnce; /* watch.c: a peer was found dead in the round before */
  atomic_bool dead; /* ... and all is stopped for it */
  int asking;    /* watch.c: threads that ask CUDA whether its calls are over */
  uint64_t askedIn; /* watch.c: the newest round in which that was asked for GIN's sake */
  struct dyn_lsa *next; /* watch.c */
};

/* stamps.c: the tag of a call that is captured; 0: there are too many */
uint32_t dyn_tag_of(struct dyn_lsa *lsa, const struct dyn_work *work, uint32_t action, unsigned ctas);
/* stamps.c: gives a timed call's kernel the next place. */
void dyn_timing_begin(struct scratch *scratch, struct dyn_timing *timing, struct dyn_call *call);

/* gin.c: true: what GIN has stays for ever, since there were graphs */
bool dyn_gin_forget(struct dyn_lsa *lsa);
uint32_t dyn_gin_own_contexts(void); /* gin_versions.c: as dyn_offer has it */

/* memory.c */
uint64_t dyn_late_ns(void); /* DYNAMICCL_LATE_S; 0: never */
struct dyn_lanes *dyn_lanes_of(const struct dyn_lsa *lsa); /* first those over load and store, behind them each backend's of GIN */
bool dyn_context_enter(dyn_context context, bool *pushed);
void dyn_context_leave(bool pushed);
bool dyn_context_lives(const struct dyn_lsa *lsa); /* its memory is there, and its events */
bool dyn_words_there(const struct dyn_lsa *lsa);   /* the host's part of it; waits for nobody */

/* A whole number in an environment variable; what is out of range is said, and stands for otherwise. */
unsigned long dyn_setting(const char *name, unsigned long least, unsigned long most, unsigned long otherwise);

/* room.c: before scratch memory is made, of which context, contextId and bytes are known. False: this process's communicators have as much there
 * as they may, which was said once. */
bool dyn_room_take(struct scratch *scratch);
void dyn_room_give(const struct scratch *scratch); /* what was taken, and not made, or freed before a peer had it */
/* For a later communicator; at once, or when no graph has kernels on it any more. */
void dyn_room_keep(struct scratch *scratch);
struct scratch *dyn_room_spare(dyn_context context, unsigned long long id, size_t bytes); /* that was kept; NULL: none */
void dyn_room_abandon(void);     /* it stays as it is, for nobody */
bool dyn_room_may_abandon(void); /* of one communicator more; why not is said once */

/* CTAs that a kernel may have beside those of ranks that share its GPU, and that the program lets NCCL's have on any rank, for which ours
 * stand. offers: of all ranks. */
unsigned dyn_most_ctas(const struct dyn_offer *offers, uint32_t nRanks);

/* graphs.c: around a launch into a capture. An error of CUDA's, 0: none. */
int dyn_graph_before(struct dyn_lsa *lsa, void *stream, uint64_t captureId);
int dyn_graph_after(struct dyn_lsa *lsa, void *stream);

/* watch.c: looks after the processes of all peers while a communicator is open */
void dyn_watch_begin(struct dyn_lsa *lsa);
void dyn_watch_end(struct dyn_lsa *lsa);
void dyn_watch_hold(void); /* it looks at nothing until it may go on */
void dyn_watch_go_on(void);
bool dyn_watch_find(dyn_gpu_address at, dyn_context *context); /* of a communicator of this process */

#endif
