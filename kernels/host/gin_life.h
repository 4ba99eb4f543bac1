/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of GIN's host part: NCCL's functions (gin_nccl.c) and what its versions have of their own (gin_versions.c), the kernels
 * (gin_module.c), and the lives of one communicator's backends (gin.c, gin_run.c).
 */
#ifndef DYN_GIN_LIFE_H
#define DYN_GIN_LIFE_H

#include "../carrier/expected.h"
#include "../gin/pipes.h"
#include "gin_state.h"
#include "lsa.h"
#include "nccl_gin.h"

enum { DYN_NCCL_SUCCESS = 0, DYN_NCCL_IN_PROGRESS = 7 }; /* ncclResult_t */

#define DYN_GIN_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion, (int *version)) \
  X(ncclGetUniqueId, (struct dyn_nccl_id * id)) \
  X(ncclCommInitRankConfig, (void **comm, int nRanks, struct dyn_nccl_id id, int rank, struct dyn_nccl_config *config)) \
  X(ncclCommGetAsyncError, (void *comm, int *error)) \
  X(ncclCommDestroy, (void *comm)) \
  X(ncclCommAbort, (void *comm)) \
  X(ncclMemAlloc, (void **memory, size_t bytes)) \
  X(ncclMemFree, (void *memory)) \
  X(ncclCommWindowRegister, (void *comm, void *memory, size_t bytes, void **window, int flags)) \
  X(ncclCommWindowDeregister, (void *comm, void *window)) \
  X(ncclDevCommCreate, (void *comm, const void *wants, union dyn_nccl_dev_comm *device)) \
  X(ncclDevCommDestroy, (void *comm, const union dyn_nccl_dev_comm *device))

struct dyn_gin_nccl {
#define DYN_GIN_MEMBER(name, arguments) int(*name) arguments;
  DYN_GIN_NCCL_FUNCTIONS(DYN_GIN_MEMBER)
#undef DYN_GIN_MEMBER
  const char *(*ncclGetErrorString)(int result);
  const char *(*ncclGetLastError)(void *comm);
  int (*ncclCommQueryProperties)(void *comm, struct dyn_nccl_properties_23203 *properties); /* NULL: 2.28.9 */
  int version; /* one of DYN_GIN_NCCL_VERSIONS */
};
/* NULL: the program has not loaded NCCL, or another version of it. */
const struct dyn_gin_nccl *dyn_gin_nccl(void);

/* gin_versions.c */
enum { DYN_GIN_LIVES = 2 }; /* of a communicator: one for each backend */
#define DYN_GIN_NO_BACKEND 0
struct dyn_gin_wants {
  int type, contexts, signals, counters; /* signals and counters: of each context */
};
struct dyn_gin_granted {
  int rank, nRanks, lsaRank, lsaSize;
  uint32_t backend; /* DYN_BACKEND_*, or DYN_GIN_NO_BACKEND: an unknown one, or several */
  uint32_t contexts;
  int signals, counters;
};
/* Of what types a device communicator can be asked for, in the order in which they are, the same on all ranks. An ncclResult_t. */
int dyn_gin_types(const struct dyn_gin_nccl *nccl, void *comm, size_t *count, int types[DYN_GIN_LIVES]);
uint32_t dyn_gin_backend_of(int type); /* DYN_BACKEND_*, or DYN_GIN_NO_BACKEND */
int dyn_gin_least_contexts(const struct dyn_offer *offers, uint32_t nRanks); /* that all of these ranks let a communicator have */
/* False: NCCL of that version makes different numbers of them on these ranks, which wait for each other there. */
bool dyn_gin_can_agree(int version, const struct dyn_offer *offers, uint32_t nRanks);
/* ncclDevCommCreate. */
int dyn_gin_ask(const struct dyn_gin_nccl *nccl, void *comm, const struct dyn_gin_wants *wants, union dyn_nccl_dev_comm *device);
struct dyn_gin_granted dyn_gin_granted(int version, const union dyn_nccl_dev_comm *device);
void *dyn_gin_handle(int version, const union dyn_nccl_dev_comm *device); /* of the first connection */

struct dyn_gin_module {
  dyn_context context;
  unsigned long long contextId;
  void *allReduce[DYN_NUM_TYPES], *reduceScatter[DYN_NUM_TYPES];
  void *allGather, *allToAll, *allToAllV, *probe, *look;
  void *allReduceInRounds[DYN_NUM_TYPES], *moveSums[DYN_NUM_TYPES]; /* of half, float and bfloat16; else NULL */
  void *move, *moveParts; /* hierarchical, as moveSums are */
  struct dyn_gin_module *next;
};
bool dyn_gin_module_there(int version); /* of NCCL's */
/* As dyn_module_get. */
const struct dyn_gin_module *dyn_gin_module_get(dyn_context context);

/* Host memory that kernels write. */
struct dyn_gin_words {
  uint32_t stop, reserved0;
  uint64_t faults[DYN_KERNEL_MAX_RANKS];
  struct dyn_late late[NUM_LANES];
  struct dyn_gin_stamp stamps[DYN_GIN_MAX_CONTEXTS * DYN_KERNEL_MAX_RANKS];
};

/* Of one backend: a device communicator, with memory and numbers of its own, so that none has part in what becomes of another. */
struct dyn_gin_life {
  struct dyn_gin_state state;
  const struct dyn_gin_module *module;
  union dyn_nccl_dev_comm device;
  struct dyn_gin_granted granted;
  void *memory, *window;
  atomic_bool proven; /* calls may have run: before, what gave up was the probe */
  dyn_gpu_address numbers; /* of calls, and what signals and counters have reached */
  struct dyn_gin_words *_Atomic words;
  struct dyn_carrier_expected expected; /* zeros: nobody is told */
  uint64_t riseNs; /* that the carrier is waited for before the launch of an exchange, whose kernel would stop in vain without it; else 0 */
  bool rises; /* of the last exchange: nothing is launched where it has not come by then */
  struct dyn_gin lanes[NUM_LANES];
  struct waiting waiting[NUM_LANES]; /* watch.c */
  struct dyn_gin_trips *trips; /* gin_trips.c; under the lock of watch.c */
};

/* GIN of one communicator: NCCL's communicator for it, and a life for each backend on it, in the order in which they are made. */
struct dyn_gin_lives {
  char why[512]; /* of a failure; by the thread that makes them */
  const struct dyn_gin_nccl *nccl;
  void *comm; /* ncclComm_t, of GIN alone */
  unsigned lateS; /* by which peers may come later to a step of NCCL's, beside its own time */
  int contexts; /* that are asked for, by all ranks alike: as many as every one of them lets it have */
  bool narrow; /* kernels may have less CTAs than any has, which ranks on other hosts do not know: none is offered */
  atomic_bool parting; /* the last exchange: a peer that does not answer there is no loss */
  struct dyn_gin_life each[DYN_GIN_LIVES]; /* uninitialised: it was not begun */
};
/* The one that kernels of this backend can run on; NULL: there is none. */
struct dyn_gin_life *dyn_gin_of(const struct dyn_lsa *lsa, uint32_t backend);

/* gin_trips.c: memory of what puts take. False: there is none. */
bool dyn_trips_make(struct dyn_gin_life *life, uint32_t nRanks);
void dyn_trips_free(struct dyn_gin_life *life);

/* gin_carrier.c: asks whether kernels are to be announced, and to whom, once. And before each launch in the lane of calls: waits until the carrier
 * is ready, 2 s at most, and not at all while kernels follow each other, nor once they are to give up; when that was, 0: nobody is told. And behind it, if it went well, where the
 * carrier is waited for again if the launch was kept for long; that it is over a kernel says itself. */
void dyn_gin_expect(struct dyn_gin_life *life, int version);
uint64_t dyn_gin_announce(const struct dyn_gin_life *life);
void dyn_gin_launched(const struct dyn_gin_life *life, uint64_t announcedNs);
/* The carrier has none on the GPU now that would move what is put. */
bool dyn_gin_lapsed(const struct dyn_gin_life *life);
/* Behind why an exchange of words failed: whether the carrier was there to move them. */
void dyn_gin_tell_card(const struct dyn_gin_life *life, char *why, size_t room);
/* What a graph holds is replayed whenever the program likes, which nobody announces, as long as it exists. */
void dyn_gin_captured(const struct dyn_carrier_expected *expected, enum dyn_expected_graphs graphs);
void dyn_gin_left(const struct dyn_lsa *lsa, const struct dyn_gin_life *life); /* with the communicator; where GIN stays behind it */
void dyn_gin_look_captured(const struct dyn_lsa *lsa); /* watch.c, under its lock: no graph may be left */

/* gin_run.c */
struct dyn_gin_grid {
  void *function;
  unsigned blocks, threads;
};
/* The kernel with call's other arguments, and parts where it has them, on a lane, in order with nothing. call->gin.contexts: as many
 * as it may have, 0: all. An error of CUDA's, 0: none. */
int dyn_gin_launch(const struct dyn_gin_life *life, int lane, const struct dyn_gin_grid *grid, void *stream, struct dyn_gin_call *call, const struct dyn_parts *parts);
/* From here on who gives up in one of the communicator's lanes has in all. Behind the probe: where that is in vain other kernels run all the
 * same, over load and store or by another backend. */
void dyn_gin_join(const struct dyn_lsa *lsa, struct dyn_gin_life *life);
/* Of a dyn_gin_step, for people: what a peer was waited for. */
const char *dyn_gin_step_name(uint64_t step);
/* A word from and to every peer, on every context, with its signal, counter and data. NULL: all came within the time; else why not,
 * and the kernel may still run. */
const char *dyn_gin_exchange(struct dyn_lsa *lsa, struct dyn_gin_life *life, uint64_t waitNs, char why[512]);
/* Fills in how many CTAs kernels may have, and how many contexts there are to be: from peers, of whom it is known. */
void dyn_gin_bound(const struct dyn_lsa *lsa, struct dyn_gin_lives *gin);
/* DYN_ABLE_GIN of each backend, and DYN_ABLE_CONTEXTS; or 0. */
uint32_t dyn_gin_room(const struct dyn_lsa *lsa, int collective, uint64_t bytes);
/* Large sums are there of few types: a question of type and size alone, so all ranks have the same answer. */
bool dyn_gin_adds(const struct dyn_work *work);
/* What runs a call: a CTA for each of its shares, or roles of them; bytes that it moves for each peer. */
struct dyn_gin_choice {
  void *function;
  size_t bytes;
  unsigned roles, most; /* CTAs of a share; shares, at most */
};
/* The same on all ranks, as mostCtas is. asFlat: not the hierarchical kernel, where there is one. Fills count and same of the kernel's arguments. */
struct dyn_gin_choice dyn_gin_choose(const struct dyn_gin_life *life, const struct dyn_work *work, bool asFlat, unsigned mostCtas, struct dyn_gin_call *call);
/* Kernels that this call is, one behind the other: the hierarchical AllReduce is those of ReduceScatter and AllGather. */
unsigned dyn_gin_kernels(const struct dyn_gin_life *life, const struct dyn_work *work, const struct dyn_gin_choice *choice);
/* Makes the k-th of several, from 0 on, of the grid of the first. */
void dyn_gin_kernel(const struct dyn_gin_life *life, const struct dyn_work *work, unsigned k, struct dyn_gin_grid *grid, struct dyn_gin_call *call);
/* Of AllToAllv, whose shares do not follow from bytes: ranks do not know each other's. */
struct dyn_gin_choice dyn_gin_choose_parts(const struct dyn_gin_life *life, unsigned mostCtas);
void dyn_gin_stop(struct dyn_lsa *lsa);
/* Whether a call may be under way, as far as anybody has looked. */
bool dyn_gin_in_flight(const struct dyn_lsa *lsa);
/* Asks CUDA whether calls are over. */
void dyn_gin_look(struct dyn_lsa *lsa);
/* Whether a kernel of a call has waited too long, in any thread: then all of this communicator stops, for what the kernel left is no result. True: it
 * does so now, and nobody has said why yet. */
bool dyn_gin_check(struct dyn_lsa *lsa);
/* Whether a kernel has given up as it was stopped. */
bool dyn_gin_missed(const struct dyn_lsa *lsa);

#endif
