/* SPDX-License-Identifier: Apache-2.0
 *
 * The device path between NCCL's calls, the plugin and our kernels (kernels/host): which of NCCL's communicators has
 * kernels, and which calls they run. A call is run here if the plan in force says so, which the plugin tells, and then it
 * never reaches NCCL; else NCCL runs it and asks the plugin as ever. Either way it counts once, so all ranks stay in step.
 *
 * In a group calls are NCCL's, but for a communicator whose only collective in the group it is: whether such a call stands in a
 * group is no matter between ranks (a rank may have other communicators' calls beside it, or sends and receives), so it must not
 * change who runs it. It is held back until the group ends or has another collective of the communicator. Several of one
 * communicator in one group NCCL takes together, on all ranks or wrongly, so there ranks agree that they are NCCL's.
 *
 * Kernels of ours are launched before NCCL's part of the group, by the numbers of their communicators. On one stream calls of several
 * communicators wait for each other, so what comes first must be the same for any two ranks that share two of them, whatever else these
 * have in the group: who runs a call, and its communicator's number, are. NCCL goes by these numbers too, and not by the program's order
 * (ncclGroupCommJoin, from 2.26). Of one communicator collectives come before sends and receives, as in NCCL, and wait for their streams
 * as these do for theirs (beside.h). AllToAll, too, which NCCL makes of sends: between any two ranks it stands at the same place of their
 * messages, or these do not fit each other.
 *
 * Calls on registered memory (windows.h) may also be NCCL's by name (named.h), from 2.31 on. Such a call counts before NCCL sees it, and
 * what NCCL asks the plugin about it meanwhile is no call. Outside of groups and captures the name is all that NCCL may run, and if it
 * refuses that, before anything runs and on every rank, the call is made again without and the name is not given again for calls of its
 * size. In them NCCL does as it likes where it cannot do as it is told, which comes to the same.
 */
#ifndef DYN_DEVICE_H
#define DYN_DEVICE_H

#include "../../kernels/device/call.h"
#include "../../kernels/host/host.h"
#include "../hosts/hosts.h"
#include "forward.h"
#include "intercepted.h"
#include "named.h"

/* A call of a program as it came. */
struct dyn_request {
  struct dyn_work work;
  void *comm;                                   /* ncclComm_t */
  int (*forward)(const struct dyn_request *it); /* to NCCL */
  int (*named)(const struct dyn_request *it, const struct dyn_coll_config *config); /* likewise; NULL: nothing of it has a name */
  struct dyn_intercepted *counted;
  const void *caller; /* an address in the program's library that calls */
};

/* As it is, with all that goes around a call of NCCL's (preload.c). */
int dyn_forward(const struct dyn_request *request, uint64_t key);
/* A collective of nothing, outside of all others and of groups. NCCL lets it go before it tells of it, asks about it or makes a task of it
 * (taskAppend, src/enqueue.cc): whether it is captured is no matter, and the driver is not asked. */
int dyn_forward_empty(const struct dyn_request *request);

/* making.c: before a call that makes a communicator, for each that it makes, and behind it, or behind its group. */
void dyn_making_begins(void **comm, int nRanks, int rank, const void *id, const void *parent); /* id: its ncclUniqueId; NULL: none, or several. parent: NULL: none */
void dyn_making_returns(int result); /* the call, with an ncclResult_t */
void dyn_making_ends(int result);
/* It, or what is made of it, is made, or will not be, or is gone: what did not block. */
void dyn_making_over(const void *comm, bool isMade);
void dyn_making_gone(const void *comm); /* the program has it no more */
bool dyn_making_expect(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose, void (*now)(void *chooser));
/* What a config says that our kernels go by, too. */
struct dyn_says {
  int maxCTAs;      /* of a kernel; 0: it does not say */
  bool noCTAs;      /* NCCL is to do without where it can */
  bool graphsAlone; /* one graph at a time, and no call beside it */
};
/* The call's config, or, where it has none, what it makes by itself. Inside of the call. */
void dyn_making_bounds(struct dyn_says says);
void dyn_making_inherits(void); /* it has none, and what it makes has its parent's */
uint32_t dyn_making_ctas(uint32_t nRanks, uint32_t rank); /* of whichever of the calls makes it; DYN_NO_CTAS beside it */
bool dyn_making_alone(const struct dyn_lsa *lsa);
struct dyn_fence *dyn_making_hosts(const struct dyn_hosts_place *place, dyn_hosts_logger log); /* of the one that is being made: where its ranks meet is known, or NULL */
/* absent.c: a communicator is made, of which this process has that rank; negative: not known */
void dyn_plugin_look(int rank);
/* bound.c: the place of one that is being made, and what becomes of it; NULL: nothing. */
struct dyn_bound;
struct dyn_lsa *dyn_bound_lsa(const struct dyn_bound *bound);
struct dyn_bound *dyn_bound_reserve(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose); /* NULL: no room */
void dyn_bound_fill(struct dyn_bound *bound, void *comm);
void dyn_making_forget(const struct dyn_bound *bound);

/* windowed.c */
struct dyn_windows;
struct dyn_buffers {
  struct dyn_windowed send, recv;
};
/* In a window that this process can address on all ranks; a peer's buffer of as many bytes must lie where it can, too. */
bool dyn_windowed_of(const struct dyn_windows *windows, const void *at, uint64_t bytes, struct dyn_windowed *in);
/* Finds windows of the call's buffers. False: what goes directly, if anything does, is in none. */
bool dyn_windowed_find(const struct dyn_windows *windows, struct dyn_work *work, uint32_t nRanks, struct dyn_buffers *in);

/* Outside of groups. True: our kernel runs it, or NCCL by name, or it failed; *result is NCCL's. */
bool dyn_device_run(const struct dyn_request *request, bool perhapsCaptured, int *result);
/* Whether the communicator has kernels, and the one of ours that NCCL has nothing of: no call of the plan, and not counted. */
bool dyn_device_has(const void *comm);
int dyn_device_rms_norm(void *comm, const struct dyn_norm *norm);
bool dyn_device_can_exchange(const void *comm, int path);
int dyn_device_exchange(void *comm, const struct dyn_exchange *exchange);
/* In a group. True: it is held back, or has failed: *result. */
bool dyn_device_hold(const struct dyn_request *request, int *result);
/* In a group: a call that is NCCL's whatever the plan says; what was held back of its communicator goes before it. */
void dyn_device_plain(void *comm);
/* In a group: a send or a receive, of which other ranks know nothing. What is held back of its communicator stays so, on the same stream. */
void dyn_device_sends(void *comm, void *stream);
/* The outermost group ends: what is held back is launched, or goes to NCCL. simulated: nothing will run. Behind NCCL's end, the group's result:
 * this one, unless something that was launched failed. */
void dyn_device_group_ends(bool simulated);
int dyn_device_group_ended(int result);

/* Before and behind ncclCommFinalize, at whose end (over), or the end of the group around it, all calls are over; of a communicator that does
 * not block when dyn_device_error says so. */
void dyn_device_finalizes(void *comm);
void dyn_device_finalized(void *comm, bool over);
/* The communicator goes; what was launched is waited for, if it is aborted no longer than what runs takes to end. */
void dyn_device_goes(void *comm, bool aborted);
/* The program stops what is under way and keeps the communicator: kernels end, further calls fail. NCCL
 * has no error for it, and dyn_device_error none. */
void dyn_device_stops(void *comm, const char *why);
void dyn_device_revokes(void *comm); /* NCCL is about to, and would wait for our kernels */
void dyn_device_revoked(void *comm); /* NCCL has, or does */
/* ncclCommGetAsyncError's answer: a peer has died, or a launch failed; or it comes to its end, and not all is over; 0: none of these. */
int dyn_device_error(void *comm);

#endif
