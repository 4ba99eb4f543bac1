/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's communicators that have kernels, for what runs their calls (device.h): device.c those outside of groups, device_groups.c those
 * in them.
 */
#ifndef DYN_BOUND_H
#define DYN_BOUND_H

#include "../plugin/datatype.h"
#include "beside.h"
#include "device.h"
#include "groups.h"

enum { DYN_SUCCESS = 0, DYN_UNHANDLED_CUDA_ERROR = 1, DYN_INVALID_ARGUMENT = 4, DYN_INVALID_USAGE = 5, DYN_REMOTE_ERROR = 6, DYN_IN_PROGRESS = 7 }; /* ncclResult_t */

/* What a group has seen of a communicator. SENDS: sends and receives alone. BEGUN: it runs, before what NCCL gets of the group. */
enum group_state { NOTHING, SENDS, HELD, PLAIN, BEGUN, GIVEN };

/* One of NCCL's communicators that has kernels. Found by any thread, used by one at a time. */
struct dyn_bound {
  atomic_uintptr_t comm; /* ncclComm_t; 0: free; RESERVED: it is being made */
  struct dyn_lsa *lsa;
  uint64_t id; /* its number, also when another thread has taken lsa away */
  void *chooser;
  dyn_choose_function choose;
  struct dyn_windows *windows; /* that the program registers; NULL: not known, some may have been missed */
  enum group_state group;
  atomic_bool stopped; /* by the program itself; another thread may ask for errors meanwhile */
  atomic_bool revoked; /* likewise: NCCL refuses its calls */
  atomic_bool finalized; /* NCCL has been told to come to the end of its calls */
  atomic_bool goes; /* a thread takes it away */
  struct dyn_bound *next; /* in its group */
  struct dyn_beside beside; /* streams of its sends and receives in the group */
  atomic_bool joins; /* the held call's stream has yet to wait for these: NCCL has not said that it has launched */
  struct dyn_request held;
  bool hadWindows; /* when it came */
  uint32_t action; /* BEGUN, GIVEN */
  int result;      /* BEGUN */
  struct dyn_coll_config config; /* GIVEN, by name */
} __attribute__((aligned(64)));

/* bound.c. NULL: it has none. */
struct dyn_bound *dyn_bound_find(const void *comm);
/* It is nobody's any more. */
void dyn_bound_free(struct dyn_lsa *lsa);

/* device.c */
/* NCCL asks nobody about an AllToAll: it counts here, whoever runs it. */
static inline bool dyn_call_counts(const struct dyn_work *work) { return work->collective == DYN_ALL_TO_ALL; }
/* It has counted, and NCCL runs it. */
static inline bool dyn_call_is_nccls(uint32_t action) { return (action & 15) != DYN_PATH_LSA && (action & 15) != DYN_PATH_GIN && action != DYN_CHOSEN_LOST; }
/* What can run the call: DYN_ABLE_. */
uint32_t dyn_call_able(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows);
/* Most calls are NCCL's, and the plan says so sooner than one knows what could run here. */
bool dyn_call_is_of_interest(const struct dyn_bound *b, const struct dyn_work *work);
/* Of one that is. 0: the call is NCCL's, and counts there, if NCCL asks. */
uint32_t dyn_call_action(const struct dyn_bound *b, const struct dyn_request *request, bool hadWindows);
int dyn_call_launch(const struct dyn_bound *b, const struct dyn_request *request, bool perhapsCaptured, uint32_t action, struct dyn_timed *timed);
/* Behind a call of NCCL's, from which it returns where another thread aborts the communicator: nobody is to be asked of that any more. */
bool dyn_call_stays(const struct dyn_bound *b, const struct dyn_request *request);
void dyn_call_over(const struct dyn_bound *b, const struct dyn_request *request); /* and if it stays, the call is over */
/* NCCL, or a kernel, would wait for the rank that is gone: the call fails. */
bool dyn_call_gave_up(const struct dyn_bound *b);

/* device_groups.c */
void dyn_groups_forget(void); /* in the child of a fork */
/* Within a group that has calls of it: NCCL gets what was held back, and the group's end finds nothing. */
void dyn_group_leave(struct dyn_bound *b);
/* NCCL has launched what it has of the group, which it tells of a communicator that does not block when it is asked for errors: the stream
 * of our call waits for that. An ncclResult_t. */
int dyn_group_launched(struct dyn_bound *b);

#endif
