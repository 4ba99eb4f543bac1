/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcasts of one group that have several roots. NCCL makes one kernel of them from 2.29 on, and asks about it as about an AllGather
 * (plugin/everywhere.h): so the plugin is told of each communicator whether that is what the group has. Whether one has several broadcasts in
 * one group is alike on all of its ranks, or NCCL itself would run a kernel of several there and several kernels here; and what of its
 * collectives stands in one group with them has to be, as with any two of a communicator (device.h).
 *
 * And whether an AllReduce of the communicator has averaged numbers: NCCL takes it for one that its device kernels have, and fails
 * (plugin/everywhere.h). From that call on, or the group that has it, which is the same on all ranks, the plugin lets it have none. And whether
 * the communicator has had a window, with which it is asked about device kernels that it has not been asked about before.
 */
#ifndef DYN_GATHERS_H
#define DYN_GATHERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DYN_NO_ROOT (-1)
#define DYN_ROOTS (-2) /* several */

/* Of a communicator. NCCL may ask in a thread of its own, behind the group's end where the communicator does not block. */
struct dyn_gathers {
  atomic_uintptr_t comm; /* 0: nobody's */
  atomic_int root;       /* of the broadcasts in the group */
  atomic_uint pending;   /* a group, by a number, that has ended, and NCCL has yet to say that it has launched; 0: none */
  atomic_bool inGroup;   /* of a thread, which alone uses the communicator then */
  atomic_bool gathers;   /* likewise, which has an AllGather of it */
  atomic_bool averages;  /* a call of it has */
  atomic_bool windows;   /* the program has called for a window of it */
  bool averaging;        /* the group has one that does: of the thread that is in it */
  bool inThread;         /* a call of the program's has made it in its own thread: so it blocks, and NCCL asks about it within our calls, or about what a group has */
  struct dyn_gathers *next;
};

/* What NCCL asks about as about an AllGather is broadcasts now. */
static inline bool dyn_gathers_broadcasts(const struct dyn_gathers *of) { return atomic_load_explicit(&of->root, memory_order_relaxed) == DYN_ROOTS; }

/* The group under way has an AllGather, that is, one which went through this library. */
static inline bool dyn_gathers_grouped(const struct dyn_gathers *of) { return atomic_load_explicit(&of->gathers, memory_order_relaxed); }

static inline bool dyn_gathers_averages(const struct dyn_gathers *of) { return atomic_load_explicit(&of->averages, memory_order_relaxed); }

static inline bool dyn_gathers_windows(const struct dyn_gathers *of) { return atomic_load_explicit(&of->windows, memory_order_relaxed); }

/* For the plugin. of: of the communicator that is being made now, in which NCCL keeps the tuner's context at inside; NULL: it is not known which
 * it is, or there is no room. over: it is gone. */
struct dyn_gathers_calls {
  struct dyn_gathers *(*of)(const void *inside, uint32_t nRanks, uint32_t rank);
  void (*over)(struct dyn_gathers *of);
};
extern const struct dyn_gathers_calls dyn_gathers_calls;

/* The communicator around inside. said: as the program's call says; NULL: it does not say. NULL: not known, or it is not as with those before. */
const void *dyn_gathers_around(const void *inside, const void *said);

/* Whose it is; NULL: nobody's, or it is not relied on. */
const void *dyn_gathers_comm(const struct dyn_gathers *of);

/* making.c. lost: it was not made after all, and its address may be another one's; the plugin may not hear of it, and the place stays. */
struct dyn_gathers *dyn_gathers_take(const void *comm);
void dyn_gathers_lost(struct dyn_gathers *of);
void dyn_gathers_made(struct dyn_gathers *of, const void *comm); /* the program gets it as that one */
void dyn_gathers_over(struct dyn_gathers *of);
struct dyn_gathers *dyn_making_gathers(const void *inside, uint32_t nRanks, uint32_t rank);
void dyn_making_gathers_over(struct dyn_gathers *of);

/* In a group, of more than nothing. */
void dyn_gathers_broadcast(const void *comm, int root);
void dyn_gathers_gather(const void *comm);
/* Before an AllReduce that averages floats. */
void dyn_gathers_average(const void *comm, bool inGroup);
/* Before ncclCommWindowRegister, whatever becomes of it: it is collective, and in one order with the communicator's calls. */
void dyn_gathers_window(const void *comm);
/* The outermost group is about to end: what it has NCCL asks about now, unless it is only simulated, which a rank may do by itself. */
void dyn_gathers_ends(bool simulated);
/* The outermost group has ended, with that ncclResult_t; and NCCL says of a communicator, when asked behind that group, that nothing is under
 * way. */
void dyn_gathers_ended(int result);
unsigned dyn_gathers_pending(const void *comm);
void dyn_gathers_launched(const void *comm, unsigned group);
extern atomic_bool dyn_gathers_waited; /* some group of this process was under way behind its end */

#endif
