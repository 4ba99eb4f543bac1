/* SPDX-License-Identifier: Apache-2.0
 *
 * What the preload library and the plugin tell each other, in one process. The preload defines dynamiccl_preload, the
 * plugin finds it with dlsym(RTLD_DEFAULT). The plugin may come and go with NCCL's communicators; the preload stays, so
 * it calls nothing of the plugin's: it works on NCCL's mask itself, which the plugin names.
 */
#ifndef DYN_PRELOAD_H
#define DYN_PRELOAD_H

#include <pthread.h>
#include <stddef.h>

#include "../../kernels/host/host.h"
#include "../abi.h"
#include "../plugin/mask.h"
#include "watch.h"

#define DYN_PRELOAD_SYMBOL "dynamiccl_preload"
#define DYN_PRELOAD_VERSION 23

/* Who goes on into NCCL, which needs the processor's caches for itself, finds little of ours in them, so what counts is how many
 * lines a call touches: what it always does lies together, and what it hardly ever does elsewhere. */
#define DYN_HOT __attribute__((hot))
#define DYN_RARELY(condition) __builtin_expect(!!(condition), 0)

/* A call that CUDA events time (probe.c), as the plugin describes it while its thread is in it. */
struct dyn_timed {
  unsigned asked; /* getCollInfo calls of a sampled communicator during it: only 1 is one collective's call */
  unsigned lease; /* dyn_preload.lease at that time */
  struct dyn_sample sample; /* all but the times */
  struct dyn_timing timing; /* preload: what a kernel of ours that runs it tells of itself */
};

/* The NCCL call that a thread is in. */
struct dyn_preload_call {
  uint16_t depth; /* of our wrappers; 0: none */
  bool ends;      /* none, but its outermost group is ending: what is asked is about what that has */
  bool captured;  /* a guard is up for it */
  bool inGraph;   /* it is known to go into a CUDA graph; where captured is true and this is not, the driver did not tell */
  bool looked;    /* before is valid: there was a mask */
  bool simulates; /* its group is ending, and nothing of that runs (ncclGroupSimulateEnd) */
  uint64_t number; /* of the call, or the group's end; no other thread has it, also not one that has the memory of a thread that ended */
  struct dyn_mask_before before;
  struct dyn_timed *timed; /* NULL: it is not timed */
  uint64_t key; /* dyn_watch_key; 0: no tuner is asked about it, or it is a group's, and dyn_preload.about knows */
  void *comm;   /* ncclComm_t */
};

/* How the call that the plugin is asked about is timed: the thread's, or the rank's of a group that is ending (groups.h). */
struct dyn_about {
  struct dyn_timed *timed; /* NULL: it is not timed */
  uint64_t key;            /* as in dyn_preload_call */
};

/* What is asked before each call that one of the kernels able (bits by DYN_KERNEL_*, DYN_ABLE_GIN) could run, or that reads and
 * writes registered memory. It gives the action of path LSA or GIN that is to run, and has counted the call then; or 0: it is
 * NCCL's, and counts if NCCL asks. On registered memory it may also give what NCCL is to be told by name, or DYN_CHOSEN_NCCL:
 * then it has counted as well, and the chooser hears when it is over. */
typedef uint32_t (*dyn_choose_function)(void *chooser, int collective, uint64_t bytes, uint32_t able);
#define DYN_CHOSEN_NCCL 15u              /* no path: NCCL is to run it as it likes */
#define DYN_CHOSEN_LOST 14u              /* no path: nobody can say what other ranks run, and NCCL would ask nobody: the call fails */
#define DYN_ABLE_REGISTERED (1u << 16)   /* the call reads and writes memory that the program has registered, as all ranks see alike (device.c) */
#define DYN_ABLE_OVER (1u << 17)         /* no question: the call that was counted has been given to NCCL, and its group has ended */
#define DYN_ABLE_REFUSED (1u << 18)      /* no question: NCCL has refused the name that was given for it, and runs it as it likes */
#define DYN_ABLE_LOOK (1u << 19)         /* no question: not 0 if the plan has a kernel of ours for the coming call; nothing counts */

/* Beside what ctas tells: the config wants NCCL to do without CTAs where it can (CTAPolicy), as ours cannot. */
#define DYN_NO_CTAS (UINT32_C(1) << 31)

/* The device path (kernels/host/host.h), for the plugin. id is commId in samples. names: calls can be given to NCCL by name. windows: behind expect:
 * none of the memory that the program registers with its communicator will be missed.
 * bind says, inside of a call of the communicator's, that lsa is
 * its: from then on choose is asked, with the chooser. False: not now.
 * expect says the same while NCCL makes the communicator (making.c). True: it is known which call of the program's makes it,
 * so it is bound before the program has it; and now is called then, as if inside of a call of the communicator, unless the
 * communicator is still being made when that call returns. */
struct dyn_lsa;
struct dyn_hosts_calls;
struct dyn_offer;
struct dyn_rank;
/* GIN's part of it: expect and bind take what offer gives, as well. */
struct dyn_gin_calls {
  bool (*can)(void);
  bool (*id)(uint8_t id[128]);
  struct dyn_lsa *(*offer)(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own);
  bool (*make)(struct dyn_lsa *lsa, const struct dyn_offer *offers, const uint8_t id[128], struct dyn_rank *self);
};
struct dyn_device_calls {
  struct dyn_lsa *(*offer)(uint64_t id, uint32_t nRanks, uint32_t rank, struct dyn_offer *own);
  bool (*open)(struct dyn_lsa *lsa, const struct dyn_offer *offers);
  uint32_t (*room)(const struct dyn_lsa *lsa, int collective, uint64_t bytes);
  bool (*bind)(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose);
  bool (*expect)(struct dyn_lsa *lsa, void *chooser, dyn_choose_function choose, void (*now)(void *chooser));
  void (*close)(struct dyn_lsa *lsa);
  bool (*alone)(const struct dyn_lsa *lsa); /* behind expect: the call that makes it makes no other communicator, in this thread */
  const struct dyn_gin_calls *gin;
  bool (*names)(void);
  bool (*windows)(const struct dyn_lsa *lsa);
  void (*gpu)(uint8_t gpu[16], uint32_t *multiprocessors);
  const struct dyn_hosts_calls *hosts; /* hosts/hosts.h */
  uint32_t (*ctas)(uint32_t nRanks, uint32_t rank); /* that the config of the call that makes it lets a kernel have; 0: it does not say */
};
extern const struct dyn_device_calls dyn_device_calls;

/* Which network configs (ncclConfig_t.netName) name: bits of dyn_preload.networks. */
#define DYN_NETWORK_ANY 1u /* none */
#define DYN_NETWORK_SOCKET 2u
#define DYN_NETWORK_IB 4u
#define DYN_NETWORK_OTHER 8u /* or the config cannot be read here */

/* What was done for NCCL's Socket network since it was last told, by each of this process's threads. */
struct dyn_traffic {
  _Atomic uint64_t longBytes;  /* of messages that threads of ours could move, sent and received */
  _Atomic uint64_t movedBytes; /* of these, those that they moved */
  _Atomic uint64_t together;   /* messages that went in one packet with their size */
};
static inline void dyn_traffic_add(_Atomic uint64_t *to, uint64_t n) { atomic_fetch_add_explicit(to, n, memory_order_relaxed); }

struct dyn_preload { /* up to watched.used in one line of cache, for each call looks at it */
  uint32_t version; /* DYN_PRELOAD_VERSION; anything else: not there, as far as the plugin is concerned */
  atomic_int timing; /* plugin: calls are to be timed, for a communicator of this process is sampled now */
  _Atomic(atomic_int *) mask; /* plugin: NCCL's activation mask; NULL: the plugin is not loaded */
  atomic_int take;            /* plugin: struct dyn_mask_words */
  atomic_int restore;         /* plugin: likewise */
  atomic_int tell;            /* plugin: likewise */
  atomic_uint turns;
  const struct dyn_preload_call *(*call)(void); /* of this thread; never NULL */
  _Atomic(void *) isCapturing; /* preload: the driver's cuStreamIsCapturing; NULL: not found yet */
  atomic_int bounds;           /* preload: cells of bound.c that have been used: no look goes further */
  atomic_int lone;             /* preload: communicators of one rank that it knows (forward.h) */
  struct dyn_watch_list watched; /* plugin: calls that are timed whether or not */
  struct dyn_rest_list resting;  /* plugin: communicators whose calls are not, whatever timing says of the process */
  /* Communicators that the program asked for through this library and that the plugin has not met yet. The plugin takes
   * one away for each that it meets: less than none means that some of the program's calls go past this library. */
  atomic_int announced;
  atomic_uint ranksHere; /* plugin: of this host, in the largest communicator that it has met */
  atomic_uint networks; /* DYN_NETWORK_* of all that the program has asked for so far, each before NCCL heard of it */
  struct dyn_about (*about)(uint32_t nRanks, int rank, int collective); /* waits for nothing */
  bool (*can_time)(void); /* the driver has what timing needs; it must be loaded by now */
  const struct dyn_device_calls *device;
  const struct dyn_gathers_calls *gathers; /* gathers.h */
  /* Where samples go. The preload's thread holds roundLock while it asks the driver and puts samples, so after the plugin
   * has taken ring away under it, neither its memory nor a CUDA context is touched any more. */
  pthread_mutex_t roundLock;
  struct dyn_ring *ring; /* plugin, under roundLock; NULL: none */
  unsigned lease;        /* plugin, under roundLock: rings so far; what was timed under another one is of nobody's */
  struct dyn_traffic traffic __attribute__((aligned(64))); /* preload */
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct dyn_preload, watched.used) < 64, "the line that each call looks at");

/* Whether a call of the communicator is timed, whose key it is (dyn_watch_key). */
static inline bool dyn_call_wanted(struct dyn_preload *preload, const void *comm, uint64_t key) {
  bool sampled = atomic_load_explicit(&preload->timing, memory_order_relaxed) && !dyn_rest_has(&preload->resting, comm);
  return sampled || dyn_watch_has(&preload->watched, key);
}

/* Puts it into the ring, from where it goes to the daemon. NULL: nobody is told. */
static inline void dyn_traffic_tell(struct dyn_traffic *traffic, struct dyn_ring *ring) {
  if ((atomic_load_explicit(&traffic->longBytes, memory_order_relaxed) | atomic_load_explicit(&traffic->together, memory_order_relaxed)) == 0) return; /* as mostly */
  uint64_t all = atomic_exchange(&traffic->longBytes, 0), moved = atomic_exchange(&traffic->movedBytes, 0), together = atomic_exchange(&traffic->together, 0);
  if (ring == NULL) return;
  __atomic_fetch_add(&ring->longBytes, all, __ATOMIC_RELAXED);
  __atomic_fetch_add(&ring->movedBytes, moved, __ATOMIC_RELAXED);
  __atomic_fetch_add(&ring->together, together, __ATOMIC_RELAXED);
}

#endif
