/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank processes that play NCCL with GIN of type GDAKI towards the carrier: src/gin/gin_host.cc's calls, of version 11 with its progress thread,
 * over the stand-in for CUDA's driver, which runs the network card's kernel. What kernels of a program do on a GPU threads do here
 * (poster.h), with what createContext and regMrSym return. NCCL 2.28.9 has a connection for each context; 2.32.3, with the table of
 * version 14, has one, and here a device communicator for each context, whose other contexts nobody uses.
 */
#ifndef CARRIER_TEST_CARD_RIG_H
#define CARRIER_TEST_CARD_RIG_H

#include "../../expected.h"
#include "../poster.h"
#include "../rig.h"

enum { BYTES = 1 << 20 };
enum { CARD_SIGNALS = 16384, CARD_COUNTERS = 64, SPARE = 63 /* a signal, and a counter. NCCL has 65536 of each */ };

extern struct card {
  void *coll, *ginContext;
  struct gdaki_context *device;
  struct poster_queue queues[MAX_RANKS], sideQueues[MAX_RANKS];
} cards[CONTEXTS];

struct memory { /* on the GPU */
  unsigned char *at;
  size_t bytes;
  void *host[CONTEXTS]; /* version 14: one and the same */
  struct gdaki_memory *device[CONTEXTS];
};

extern int (*cudaSynchronize)(void), (*cudaFree)(uint64_t);
extern void (*cardsResult)(int result); /* of CUDA, to each start of a card's kernel from now on, in this process */
extern unsigned (*cardsGrid)(void); /* blocks of the last one that was started */

void cards_connect(void);
void cards_connect_one(struct card *card); /* version 11: a connection and its context */
bool cards_connect_if(struct card *card);  /* likewise; false: the context was refused */
bool cards_connect_of(void *instance, struct card *card); /* likewise, of another communicator */
/* Where the carrier is told of kernels on a card's communicator. */
struct dyn_carrier_expected cards_expected(const struct card *card);
bool cards_find_expected(const void *device, struct dyn_carrier_expected *expected); /* by its handle; false: it is nobody's */
void cards_start(void); /* NCCL's progress thread, where the carrier has none of its own */
void cards_pause(bool pauses); /* whose turns stand still */
void cards_turn(void); /* until it has been round once more */
void cards_stop(void);
void cards_end(void); /* as ncclGinFinalize, when it has stopped */

void memory_register(struct memory *memory);
void memory_deregister(struct memory *memory);

/* From this rank's memory to a rank's, on a context; without signal and counter. */
struct posting card_put(int context, int target, const struct memory *from, size_t fromAt, const struct memory *to, size_t toAt, size_t bytes);
/* Version 14: from a rank's memory to this rank's. */
struct posting card_get(int context, int source, const struct memory *from, size_t fromAt, const struct memory *to, size_t toAt, size_t bytes);
void card_signal(struct posting *p, int context, int target, int signal, uint64_t add);
void card_count(struct posting *p, int context, int counter);

uint64_t signal_value(int context, int signal);
uint64_t counter_value(int context, int counter);
bool card_failed(int context);
uint64_t ms_now(void);
/* At most 20 s. */
void await_signal(int context, int signal, uint64_t least);
void await_counter(int context, int counter, uint64_t least);
void await_error(int context);

/* Of single cases: to put from, and to put to; BYTES each. */
extern struct memory near, far;
void cards_begin(void);
void cards_begin_small(void); /* with that memory */
void cards_finish(void);

#endif
