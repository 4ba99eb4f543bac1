/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank processes that play NCCL towards the carrier: the calls of src/plugin/net.cc, gin_host.cc and gin_host_proxy.cc, of 2.28.9 to
 * the tables of version 11 or of 2.30.7 (src/plugin/rma.cc, too) to that of version 14, in their order and from their threads,
 * over the stand-in for CUDA's driver. What kernels do on a GPU a thread does here.
 */
#ifndef CARRIER_TEST_RIG_H
#define CARRIER_TEST_RIG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <unistd.h>

#include "../../../nccltuner/preload/test/meeting.h"
#include "../nccl_gin_abi.h"

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: rank %d: %s:", __FILE__, __LINE__, rank, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      _exit(1); \
    } \
  } while (0)

enum { MAX_RANKS = 4, CONTEXTS = 2, QUEUE = 256, SIGNALS = 64, WINDOWS = 2 };

extern int rank, numRanks;
extern ncclNet_v11_t *net;
extern ncclGin_v11_t *gin;
extern ncclRma_v14_t *rma; /* NULL: it is version 11 that is played */
extern ncclGin_v14_t *gdaki; /* likewise; of GIN of type GDAKI */
extern int playRma, playGdaki, oneGpu; /* set before play */
extern int deviceType;     /* which GIN version 11 is to be of */

/* Of whichever table is played, where both have the same. */
#define TABLE(call) (rma != NULL ? rma->call : gin->call)

/* What all ranks of a run see. */
extern struct shared {
  struct meeting meeting;
  unsigned char handles[MAX_RANKS][NCCL_NET_HANDLE_MAXSIZE];
  atomic_uint_fast64_t acknowledged[CONTEXTS][MAX_RANKS][MAX_RANKS]; /* by context, source, target */
  atomic_int ended, died;
} *shared;

struct window { /* on the GPU, or on the host */
  unsigned char *at;
  size_t bytes;
  void *regions[CONTEXTS]; /* version 14: one and the same */
};

/* One rank's communicator. */
extern struct comm {
  void *ginContext, *ginInstance;
  void *colls[CONTEXTS]; /* version 14: one and the same, and */
  void *rmaContext, *contexts;
  uint64_t *signals[CONTEXTS];
  void *signalRegions[CONTEXTS];
  uint64_t *inlines[CONTEXTS];
  void *inlineRegions[CONTEXTS];
  struct window receive[WINDOWS], send[WINDOWS]; /* 0: of virtual memory, as NCCL's windows; 1: as cudaMalloc's */
} comm;

void meet(void); /* all ranks */
void begin(void); /* the driver, a context, the library */
/* What NCCL asks of a plugin before it uses it. */
void initialise(void);
void *another_instance(void); /* version 11: another communicator's, of the same ranks */
void *connect_one(void *instance, void *context); /* listen and connect: a collComm */
int try_register(void *coll, void *at, size_t bytes, int type, uint64_t flags, void **region);
void *register_memory(void *coll, void *at, size_t bytes, int type, uint64_t flags);
/* listen, connect, and what NCCL registers of its own. */
void connect_all(void);
void register_window(struct window *window, int type, uint64_t flags);
void deregister_window(struct window *window);
void finish(void);
/* What NCCL's proxy thread asks for on a context. The signals are NCCL's own. */
int post_put(int context, uint64_t from, void *source, size_t bytes, uint64_t to, void *dest, int target, void **request);
int post_signal(int context, uint64_t from, void *source, size_t bytes, uint64_t to, void *dest, int target, uint64_t signalAt, void *signals,
                uint64_t value, uint32_t op, void **request);
int poll_request(int context, void *request, int *done);
int progress(int context);
void *device_memory(size_t bytes, int handles); /* handles: 0, none, as NCCL's signals; 1: a descriptor; 2: cudaMalloc's */

/* The file of faults on purpose (fault.h), of all ranks: rank 0 writes it, NULL: takes it away. Puts it where fault.c looks. */
void write_faults(const char *lines);

extern atomic_int warnings; /* lines at level WARN since begin */
extern char lastWarning[512];
extern int quiet;

/* Runs it in as many processes, each a rank. The status of a rank that is to die is SIGKILL. */
void play(const char *name, int ranks, int dies, void (*story)(void));
void die(void); /* what the rank that is to does at its end */
/* Not yet: what it needs of the others they must still do, however far behind it is, and it of itself. */
static inline int will_die(int dies) { return dies >= 0 && !atomic_load(&shared->died); }

static inline uint64_t random_of(uint64_t seed) { /* splitmix64 */
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

#endif
