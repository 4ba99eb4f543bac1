/* SPDX-License-Identifier: Apache-2.0
 *
 * Trips: bytes go to a rank, are fetched back behind themselves on the same context, and a signal in a window of the target's
 * tells it. Meanwhile NCCL's second thread, the one of ncclPutSignal, does its work on a connection of its own.
 */
#include "trips.h"

#include "traffic.h"

struct trip {
  uint64_t pattern;
  size_t bytes;
  void *put, *get;
};

static struct trip trips[CONTEXTS][MAX_RANKS][SLOTS];
static uint64_t started[CONTEXTS][MAX_RANKS], over[CONTEXTS][MAX_RANKS];
/* At each rank, of each context and source: the last trip's number, and three times as many signals. In strict order, as a program
 * may ask for: the carrier must not take it for NCCL's signals, which nobody else can write. */
static struct window words;
enum { WORDS = CONTEXTS * MAX_RANKS * 8 };

static size_t word_of(int context, int source) { return (size_t)(context * MAX_RANKS + source) * sizeof(uint64_t); }
static uint64_t word_at(size_t at) { return __atomic_load_n((uint64_t *)(void *)(words.at + at), __ATOMIC_ACQUIRE); }
static size_t slot_of(int context, int other, uint64_t k) { return ((size_t)(context * numRanks + other) * SLOTS + k % SLOTS) * SLOT_BYTES; }

/* NCCL's threads, too, let others in after every turn. */
static void turn(int context) {
  CHECK(progress(context) == 0);
  sched_yield();
}

static void wait_for(int context, void *request) {
  for (int done = 0; !done; turn(context)) CHECK(poll_request(context, request, &done) == 0);
}

static void start_trip(uint64_t seed, int context, int target) {
  const uint64_t k = started[context][target]++;
  const size_t at = slot_of(context, target, k), there = slot_of(context, rank, k);
  struct trip *t = &trips[context][target][k % SLOTS];
  t->pattern = random_of(seed ^ random_of(k * 64 + (uint64_t)((context * MAX_RANKS + rank) * MAX_RANKS + target)));
  t->bytes = 1 + (random_of(t->pattern) >> 16) % ((size_t)1 << t->pattern % 17);
  for (size_t i = 0; i < t->bytes; i++) {
    comm.send[0].at[at + i] = (unsigned char)(t->pattern >> i % 57);
    comm.receive[1].at[at + i] = (unsigned char)~(t->pattern >> i % 57);
  }
  CHECK(post_put(context, at, comm.send[0].regions[0], t->bytes, there, comm.receive[0].regions[0], target, &t->put) == 0);
  CHECK(rma->iget(comm.contexts, context, there, comm.receive[0].regions[0], t->bytes, at, comm.receive[1].regions[0], (uint32_t)target, &t->get) == 0);
}

/* Looks at the oldest one. */
static void end_trip(int context, int target) {
  const uint64_t k = over[context][target];
  struct trip *t = &trips[context][target][k % SLOTS];
  const unsigned char *landed = comm.receive[1].at + slot_of(context, target, k);
  void *request = NULL;
  int done = 0;
  CHECK(poll_request(context, t->get, &done) == 0);
  if (!done) return;
  for (size_t i = 0; i < t->bytes; i++)
    CHECK(landed[i] == (unsigned char)(t->pattern >> i % 57), "a get of %zu bytes is done and its data is not here", t->bytes);
  CHECK(poll_request(context, t->put, &done) == 0 && done, "what stands behind it is done, and a put is not");
  if (k % 8 == 0) { /* as ncclGin::wait, to its own rank */
    CHECK(rma->iflush(comm.contexts, context, comm.signalRegions[context], (uint32_t)rank, &request) == 0 && request != NULL);
    wait_for(context, request);
  }
  comm.inlines[context][target] = ++over[context][target];
  CHECK(post_signal(context, 8 * (uint64_t)target, comm.inlineRegions[context], 8, WORDS + word_of(context, rank), words.regions[0], target,
                    word_of(context, rank), words.regions[0], 3, NCCL_NET_SIGNAL_OP_ADD, &request) == 0);
  wait_for(context, request);
}

static void all_trips(uint64_t seed, uint64_t each) {
  for (int busy = 1; busy;) {
    busy = 0;
    for (int c = 0; c < CONTEXTS; c++)
      for (int target = 0; target < numRanks; target++) {
        if (started[c][target] < each && started[c][target] - over[c][target] < SLOTS) start_trip(seed, c, target);
        do {
          if (started[c][target] > over[c][target]) end_trip(c, target);
        } while (started[c][target] % 8 == 0 && started[c][target] > over[c][target]); /* now and then without letting copies get ahead */
        turn(c);
        busy |= over[c][target] < each;
      }
  }
  for (int c = 0; c < CONTEXTS; c++)
    for (int source = 0; source < numRanks; source++) {
      while (word_at(word_of(c, source)) != 3 * each) turn(c);
      CHECK(word_at(WORDS + word_of(c, source)) == each);
    }
}

/* ---- the thread of ncclPutSignal: src/rma/rma_proxy.cc, rma_proxy_progress.cc ---- */

static struct {
  void *coll, *contexts;
  uint64_t *signals, *cpuSignals, *flushBuffer;
  void *signalRegion, *cpuSignalRegion, *flushRegion, *sendRegion, *receiveRegion;
  unsigned char *send, *receive;
  uint64_t rounds;
} host;

enum { HOST_BYTES = 4096 };

/* What it gets as the listener's context is its own, and as the connection's the network's, which is another plugin's. */
static void connect_host(void) {
  const size_t words8 = (size_t)(numRanks + 1) * sizeof(uint64_t);
  host.coll = connect_one(comm.rmaContext, &host);
  CHECK(rma->createContext(host.coll, &(ncclRmaConfig_v14_t){1, -1, 1}, &host.contexts) == 0);
  host.signals = device_memory(words8, 0);
  host.signalRegion = register_memory(host.coll, host.signals, words8, NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET);
  host.cpuSignals = calloc(1, words8);
  host.cpuSignalRegion = register_memory(host.coll, host.cpuSignals, words8, NCCL_PTR_HOST, NCCL_NET_MR_FLAG_FORCE_SO);
  host.flushBuffer = device_memory(words8, 0);
  host.flushRegion = register_memory(host.coll, host.flushBuffer, words8, NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO);
  host.send = device_memory(MAX_RANKS * HOST_BYTES, 1);
  host.receive = device_memory(MAX_RANKS * HOST_BYTES, 1);
  host.sendRegion = register_memory(host.coll, host.send, MAX_RANKS * HOST_BYTES, NCCL_PTR_CUDA, 0);
  host.receiveRegion = register_memory(host.coll, host.receive, MAX_RANKS * HOST_BYTES, NCCL_PTR_CUDA, 0);
}

static void host_turn(void) {
  CHECK(rma->rmaProgress(host.contexts) == 0);
  sched_yield();
}

static void host_wait(void *request) {
  for (int done = 0; !done; host_turn()) CHECK(rma->test(host.coll, request, &done) == 0);
}

/* To every rank with a signal on the GPU, then one to the host, as a graph has it, which says that what came was read. */
static void *host_thread(void *unused) {
  for (uint64_t round = 1; round <= host.rounds; round++) {
    void *requests[MAX_RANKS], *request;
    for (int target = 0; target < numRanks; target++) {
      const size_t at = (size_t)target * HOST_BYTES;
      memset(host.send + at, (int)(round * 7 + (uint64_t)(rank * MAX_RANKS + target)), HOST_BYTES);
      CHECK(rma->iputSignal(host.contexts, 0, at, host.sendRegion, HOST_BYTES, (uint64_t)rank * HOST_BYTES, host.receiveRegion, (uint32_t)target,
                            8 * (uint64_t)rank, host.signalRegion, 1, NCCL_NET_SIGNAL_OP_ADD, true, &requests[target]) == 0);
    }
    for (int target = 0; target < numRanks; target++) host_wait(requests[target]);
    for (int source = 0; source < numRanks; source++) {
      while (__atomic_load_n(&host.signals[source], __ATOMIC_ACQUIRE) < round) host_turn();
      for (size_t i = 0; i < HOST_BYTES; i++)
        CHECK(host.receive[(size_t)source * HOST_BYTES + i] == (unsigned char)(round * 7 + (uint64_t)(source * MAX_RANKS + rank)), "round %ld", (long)round);
    }
    CHECK(rma->iput(host.contexts, 0, 8 * (uint64_t)rank, host.flushRegion, 8, 8 * (uint64_t)rank, host.flushRegion, (uint32_t)rank, &request) == 0);
    host_wait(request);
    for (int target = 0; target < numRanks; target++) {
      CHECK(rma->iputSignal(host.contexts, 0, 0, NULL, 0, 0, NULL, (uint32_t)target, 8 * (uint64_t)rank, host.cpuSignalRegion, 1, NCCL_NET_SIGNAL_OP_ADD,
                            true, &request) == 0);
      host_wait(request);
    }
    for (int source = 0; source < numRanks; source++)
      while (__atomic_load_n(&host.cpuSignals[source], __ATOMIC_ACQUIRE) < round) host_turn();
  }
  return unused;
}

static void disconnect_host(void) {
  void *regions[] = {host.signalRegion, host.flushRegion, host.cpuSignalRegion, host.sendRegion, host.receiveRegion};
  CHECK(rma->destroyContext(host.contexts) == 0);
  for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) CHECK(rma->deregMrSym(host.coll, regions[i]) == 0);
  CHECK(rma->closeColl(host.coll) == 0);
}

void rma_there_and_back(uint64_t seed, uint64_t gets) {
  const uint64_t each = (gets + (unsigned)(CONTEXTS * numRanks) - 1) / (unsigned)(CONTEXTS * numRanks);
  pthread_t thread;
  words = (struct window){.at = device_memory(4096, 1), .bytes = 4096};
  register_window(&words, NCCL_PTR_CUDA, NCCL_NET_MR_FLAG_FORCE_SO);
  connect_host();
  host.rounds = each / 4 + 1;
  meet();
  CHECK(pthread_create(&thread, NULL, host_thread, NULL) == 0);
  all_trips(seed, each);
  pthread_join(thread, NULL);
  bool error = true;
  CHECK(rma->queryLastError(comm.contexts, &error) == 0 && !error && rma->queryLastError(host.contexts, &error) == 0 && !error);
  CHECK(atomic_load(&warnings) == 1, "%s", lastWarning); /* development only */
  meet();
  disconnect_host();
  if (rank == 0) printf("%d ranks: rank 0 went to each and back %ld times on each context\n", numRanks, (long)each);
  fflush(stdout);
}

void rma_refusals(void) {
  void *request, *send = comm.send[0].regions[0], *receive = comm.receive[0].regions[0];
  const size_t bytes = comm.receive[0].bytes;
  const uint32_t other = 1u - (uint32_t)rank;
  for (int context = -1; context <= CONTEXTS; context += CONTEXTS + 1) {
    CHECK(post_put(context, 0, send, 8, 0, receive, 0, &request) == ncclInvalidArgument);
    CHECK(rma->iget(comm.contexts, context, 0, receive, 8, 0, send, 0, &request) == ncclInvalidArgument);
    CHECK(rma->iflush(comm.contexts, context, receive, 0, &request) == ncclInvalidArgument);
  }
  CHECK(rma->iget(comm.contexts, 0, bytes - 63, receive, 64, 0, send, other, &request) == ncclInvalidArgument);
  CHECK(rma->iget(comm.contexts, 0, 0, receive, 64, UINT64_MAX - 8, send, other, &request) == ncclInvalidArgument);
  CHECK(rma->iget(comm.contexts, 0, 0, receive, 64, 0, send, 9, &request) == ncclInvalidArgument);
  CHECK(rma->iget(comm.contexts, 0, 0, comm.signalRegions[0], 8, 0, send, other, &request) == ncclInvalidArgument &&
        strstr(lastWarning, "nobody else can read that memory") != NULL, "%s", lastWarning);
  CHECK(rma->iget(comm.contexts, 0, 0, receive, 8, 0, comm.inlineRegions[0], other, &request) == ncclInvalidArgument &&
        strstr(lastWarning, "into host memory") != NULL, "%s", lastWarning);
  CHECK(rma->createContext(comm.colls[0], &(ncclRmaConfig_v14_t){0, -1, 1}, &request) == ncclInvalidArgument);
}
