/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of GIN of one communicator: its peers, the memory that ranks registered, and what is under way.
 *
 * Who calls: set-up, registering and closing come from the program's threads; puts, tests and progress from one thread of
 * NCCL's, also while memory is being registered. So the two share only the table of regions, whose slots are atomic, the
 * connections, which NCCL's thread only asks whether they are open, and, where memory goes, what is to be done with it, under a lock.
 * NCCL 2.32 may have several such threads, but has one connection in the hands of one of them.
 *
 * Memory that goes while puts are made (carrier_deregister): a copy that has begun ends before its mapping goes, one that has not is an
 * error of its put and has no signal, and so is every later put with that handle. A signal for it that comes is an error of the connection.
 * That takes no longer than CARRIER_SETTLE_MS; where a copy does not end by then its mapping stays, and NCCL is told.
 *
 * Order, which is the promise of GIN (a signal is seen: so is the data of its put, and of all earlier puts of the same source
 * to the same peer on the same context, as NCCL 2.28 with its InfiniBand proxy has it): requests of one lane to one peer are
 * done in the order in which they came (put.c), a signal's message is sent when its own copy and all before it are done, the
 * ring keeps the order of messages (ring.h), and the target adds in that order (mover_add).
 */
#ifndef DYN_CARRIER_H
#define DYN_CARRIER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "expected.h"
#include "fault.h"
#include "mover.h"
#include "nccl_net_abi.h"
#include "ring.h"

enum {
  CARRIER_MAX_REGIONS = 4096,
  CARRIER_GONE = 1024, /* regions that are kept when they have gone: NCCL's thread may have a handle of one in its hands */
  CARRIER_SETTLE_MS = 5000,
  CARRIER_WHY = 224, /* bytes of a reason that ranks tell each other */
};

/* What NCCL's init makes: all connections of one communicator share it, which different threads may use. */
struct carrier_instance {
  pthread_mutex_t lock; /* of what changes: faults, when the link is free, of whom it was said */
  struct carrier_faults faults;
  struct carrier_gone { /* of whom it was said */
    struct carrier_gone *next;
    uint8_t process[16];
    int rank;
  } *said;
  carrier_address link; /* with GIN of type GDAKI, nic/card.c: when the link is free, for all contexts, and behind it expected.ended */
  struct dyn_carrier_expected expected; /* likewise of all */
  uint32_t lapsed;
  struct nic_card *card; /* the first of the cards that share it; the program's threads' */
};

/* Memory that all ranks registered at the same time. Where a rank's lies for this process: 0, nowhere. */
struct carrier_region {
  uint32_t number; /* the same on all ranks */
  int type;        /* NCCL_PTR_* */
  uint64_t data;   /* this rank's own */
  atomic_bool gone; /* NCCL has it no more */
  struct carrier_part { /* of each rank */
    uint64_t at, bytes;
    carrier_address mapped; /* what is to be given back; 0: nothing */
    size_t mappedBytes;     /* 0: an IPC handle's */
  } parts[];
};

struct carrier_request {
  struct carrier_request *next;
  struct carrier_lane *lane;
  struct carrier_peer *peer;
  struct carrier_copy {
    carrier_address to;
    uint64_t from;
    size_t bytes; /* 0: no copy */
    bool host;    /* from host memory */
    bool local;   /* it takes no link's time */
  } copy;
  const struct carrier_region *from, *to; /* of a copy that has not begun; NULL: none */
  struct move *move; /* NULL: no bytes, or they have arrived */
  uint64_t dueNs;
  bool signals, gets, begun, done; /* begun: its copy. What is for a rank that plays dead waits for that */
  struct ring_message message;
  int result;
};

struct carrier_peer {
  int rank, connection;       /* -1: this rank itself */
  pid_t pid;
  uint8_t process[16];        /* random: tells processes apart where pids do not */
  uint8_t gpu[16];
  struct board *board;        /* where this rank writes signals for the peer */
  bool gone;
};

/* A context: an order of its own. The tables of version 11 have one for each connection, that of 14 as many as NCCL asks for. */
struct carrier_lane {
  struct carrier *c;
  struct carrier_lane *next;
  struct mover *mover; /* of puts */
  struct carrier_queue {
    struct carrier_request *first, *last;
  } queues[]; /* to each peer */
};

struct carrier {
  struct carrier_instance *instance;
  int rank, nRanks;
  struct carrier_home home;
  int device;
  unsigned sharing; /* processes of this communicator that have this rank's GPU, its own among them */
  struct nic_feed *feed; /* with type Proxy (nic/feed.h), which moves all; NULL: CUDA does */
  struct mover *adder;
  struct carrier_lane *lanes; /* all; version 11: the one */
  struct nic_port *port; /* with type GDAKI (nic/port.h) */
  struct nic_contexts *contexts; /* likewise, version 11: once NCCL made its context */
  struct board *board; /* own: peers write here */
  uint32_t registered; /* so far */
  uint32_t numGone;    /* likewise */
  struct carrier_region *gone[CARRIER_GONE];
  pthread_mutex_t lock; /* NCCL's thread has it where it begins copies and additions, who takes memory away where it says so */
  _Atomic(struct carrier_region *) regions[CARRIER_MAX_REGIONS];
  atomic_int failed; /* what went wrong for good */
  atomic_bool lost;  /* a rank died */
  uint64_t watchedNs;
  struct pollfd *watched; /* in the order of peers */
  struct carrier_peer peers[];
};

/* regions.c: collective over all ranks. */
int carrier_register(struct carrier *c, void *data, size_t bytes, int type, uint64_t flags, struct carrier_region **out);
/* Do all ranks go on? against: why this one does not; NULL: it does. What stands in the way is said on all. */
bool carrier_agree(struct carrier *c, const char *what, const char *against);
/* This rank's part, in a program's thread. Not ncclSuccess: it may still be written to; its mapping stays. */
int carrier_deregister(struct carrier *c, struct carrier_region *region);

/* put.c: the thread's of NCCL. A region that is NULL: no bytes are meant. */
int carrier_put(struct carrier_lane *lane, const struct carrier_region *src, uint64_t srcOff, size_t bytes, const struct carrier_region *dst,
                uint64_t dstOff, uint32_t rank, const struct ring_message *signal, struct carrier_request **out);
/* Out of that rank's memory into this rank's. */
int carrier_get(struct carrier_lane *lane, const struct carrier_region *remote, uint64_t remoteOff, size_t bytes,
                const struct carrier_region *local, uint64_t localOff, uint32_t rank, struct carrier_request **out);
/* Done when all is that was asked of that rank on this lane before. */
int carrier_flush(struct carrier_lane *lane, uint32_t rank, struct carrier_request **out);
int carrier_test(struct carrier_request *request, int *done);
void carrier_advance(struct carrier_lane *lane);
/* Of memory that is gone: no copy or addition begins there any more, and what had begun is over. False: not by then. */
bool carrier_forget(struct carrier *c, const struct carrier_region *region, uint64_t deadlineNs);
/* Has the GPU add the signals that came. */
int carrier_receive(struct carrier *c);

/* peers.c */
int carrier_connect(struct carrier_instance *instance, void *handles[], int nRanks, int rank, int listener, bool proxy, struct carrier **out);
void carrier_close(struct carrier *c);
struct carrier_lane *carrier_lane_make(struct carrier *c); /* NULL: it was said why */
void carrier_lane_free(struct carrier_lane *lane);         /* waits for copies that are under way */
/* Looks at most every 20 ms who is gone, and for faults. */
void carrier_watch(struct carrier *c);
int carrier_is_gone(struct carrier *c, const struct carrier_peer *peer); /* ncclRemoteError, which is said once */

#endif
