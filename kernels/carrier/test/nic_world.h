/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one process with network cards in software, one for each rank and context, as ../nic/card.c makes them: memory, keys,
 * what device code is given, and a host that starts the kernel when a doorbell is ahead of what was done.
 */
#ifndef CARRIER_TEST_NIC_WORLD_H
#define CARRIER_TEST_NIC_WORLD_H

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "../nic/nic.cu"
#include "../nic/queues.h"

#define POSTER_PAUSE() perhapsWait()
#include "nic_grid.h"
#include "poster.h"

using namespace dyn;

int planted;
static int layout = GDAKI_100; /* of queues, in this process */
thread_local Index threadIdx, blockIdx, blockDim;
static std::atomic<uint64_t> seeds{1};

/* Each thread's own, and asked at each word: the thread sanitizer, which sees nothing in it, would take a sixth of its time there. */
#define UNSEEN __attribute__((no_sanitize_thread))
UNSEEN static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

UNSEEN void perhapsWait() {
  static thread_local uint64_t state = seeds++ * 0xD1342543DE82EF95u;
  uint64_t x = next(&state);
  if ((x & 0xfff) == 0) sched_yield();
  if ((x >> 12 & 0xffff) == 0) usleep(100);
}

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line), AnnotateIgnoreWritesEnd(const char *file, int line);
#endif
/* Before there is any thread that may race with it: the thread sanitizer would take twice as much memory for it, and longer than for what is tested. */
static void fillUnseen(unsigned char *at, int value, size_t bytes) {
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  memset(at, value, bytes);
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
#endif
}

/* Says why, and ends the process: other threads may be in the middle of anything. */
#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
      fprintf(stderr, "" __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      _exit(1); \
    } \
  } while (0)

constexpr int kMaxRanks = 4;
constexpr unsigned kMostHelpers = 4; /* a GPU has so many left for the kernel, or fewer */
constexpr int kSignals = 64, kCounters = 64;
enum { kCounterKey = 1, kSignalKey, kReceiveKey, kSendKey, kStoreKey, kOtherKey, kKeys };

struct Card {
  nic n = {};
  int nRanks;
  std::vector<nic_part> keys;
  std::vector<uint64_t> doorbells, consumed, requests, completions, got, seen;
  std::vector<nic_job> jobs;
  std::vector<uint32_t> copied, launch, control, keyLists;
  std::vector<uint64_t> words;        /* of queues [NIC_SIDES][nRanks] in either layout */
  std::vector<poster_queue> queues;   /* likewise, to post to */
  std::vector<nic_posted> posted;
  std::vector<gdaki_memory> handles;
  std::vector<uint64_t> signals, counters;
  gdaki_context context = {};
  nic_report report = {};
  uint64_t usedNs = 0;
  uint32_t launched = 0, ended = 0, replayed[DYN_EXPECTED_WORDS] = {}; /* kernels that put: as the host's memory has them, and the GPU's */
  std::thread host;
  std::atomic<bool> ends{false}, runs{false};
  std::atomic<uint64_t> launches{0};

  Card(int rank, int ranks, uint64_t *link, uint64_t begin);
  poster_queue &queue(int peer, int side = NIC_MAIN) { return queues[side * nRanks + peer]; }
  void tell(nic_control what, uint32_t value) { storeCount(&control[what], value); }
  void setKey(uint32_t key, int rank, nic_part part) {
    nicWord(&keys[key * nRanks + rank].at).store(part.at, std::memory_order_relaxed);
    nicWord(&keys[key * nRanks + rank].bytes).store(part.bytes, std::memory_order_relaxed);
    tell(NIC_KEYS, control[NIC_KEYS] + 1);
  }
  place at(uint32_t key, int rank, uint64_t offset) { return {offset, handles[key].keys[rank]}; }
  bool isBehind();
  void serve();
};

inline Card::Card(int rank, int ranks, uint64_t *link, uint64_t begin)
    : nRanks(ranks), keys(kKeys * ranks), doorbells(ranks * NIC_SIDES, begin), consumed(ranks * NIC_SIDES, begin), requests(ranks * NIC_SIDES * NIC_DEPTH * NIC_REQUEST_BYTES / 8),
      completions(ranks * NIC_SIDES * NIC_DEPTH * NIC_COMPLETION_BYTES / 8, UINT64_MAX), got(ranks), seen(ranks), jobs(ranks), copied(ranks * NIC_MAX_HELPERS), launch(NIC_LAUNCHES),
      control(NIC_CONTROLS), keyLists(kKeys * ranks), words(ranks * NIC_SIDES * nic_queue_bytes(layout) / 8), queues(ranks * NIC_SIDES), posted(ranks * NIC_SIDES), handles(kKeys),
      signals(kSignals), counters(kCounters) {
  n.rank = rank, n.nRanks = ranks, n.keys = keys.data(), n.nKeys = kKeys;
  n.doorbells = doorbells.data(), n.consumed = consumed.data();
  n.requests = (uint8_t *)requests.data(), n.completions = (uint8_t *)completions.data();
  n.posted = posted.data(), n.sizes = {4096, 32768, 12};
  n.jobs = jobs.data(), n.copied = copied.data(), n.launch = launch.data(), n.linkFreeNs = link, n.control = control.data(), n.report = &report;
  for (uint32_t key = 0; key < kKeys; key++) {
    handles[key] = {&keyLists[key * ranks], swapBytes(key)};
    for (int r = 0; r < ranks; r++) keyLists[key * ranks + r] = swapBytes(key);
  }
  context.queues = words.data(), context.sideQueues = &words[ranks * nic_queue_bytes(layout) / 8], context.sinkKey = swapBytes(1000);
  context.got = got.data(), context.seen = seen.data(), context.dumps = rank % 2; /* both ways to flush */
  for (int side = 0; side < NIC_SIDES; side++)
    for (int peer = 0; peer < ranks; peer++) {
      const size_t place = peer * NIC_SIDES + side;
      uint8_t *const at = (uint8_t *)words.data() + (side * ranks + peer) * nic_queue_bytes(layout);
      const nic_queue_at lies = {nicNumberOf(peer, side), n.requests + place * NIC_DEPTH * NIC_REQUEST_BYTES, n.completions + place * NIC_DEPTH * NIC_COMPLETION_BYTES, &doorbells[place]};
      nic_fill_queue(layout, at, &lies);
      posted[place] = nic_posted_of(layout, (uint64_t)at, &doorbells[place]);
      poster_queue &q = queue(peer, side) = poster_queue_of(layout, &context, peer, side == NIC_SIDE);
      if (planted == NIC_MUTATE_AHEAD) posted[place].rung = q.reserved;
      if (planted == NIC_MUTATE_READY) posted[place].rung = q.ready;
      *q.reserved = *q.ready = *q.done.consumed = report.consumed[peer][side] = begin;
    }
  control[NIC_IDLE_LOOKS] = 50;
  n.launched = &launched, n.ended = &ended, n.replayed = replayed;
  n.usedNs = &usedNs, n.lateNs = UINT32_MAX, report.next = 1; /* kernels are started as they are needed; n.number is 0 */
  for (nic_job &job : jobs) job.words[0] = job.words[NIC_JOB_NEXT] = (uint64_t)(UINT32_MAX - 10 * (NIC_JOB_HELPERS + 1)) << 32; /* numbers go on behind their end */
}

/* As card.c: of peers for whom anything is done. */
inline bool Card::isBehind() {
  const uint32_t dead = loadCount(&control[NIC_DEAD]);
  for (int peer = 0; peer < nRanks; peer++)
    for (int side = 0; side < NIC_SIDES && !(dead >> peer & 1); side++)
      if (nicWord(&doorbells[peer * NIC_SIDES + side]).load(std::memory_order_acquire) != report.consumed[peer][side]) return true;
  return false;
}

inline void Card::serve() {
  NicCrew crew = {};
  while (!ends) {
    if (!isBehind() || loadCount(&control[NIC_STOP]) != 0) {
      usleep(100);
      continue;
    }
    for (uint32_t &word : launch) word = 0;
    runs = true, launches++;
    CHECK(nicRunGrid(crew, dynamicclCarrierNic, n, launches % (kMostHelpers + 1)), "no threads");
    runs = false;
  }
  nicDismiss(crew);
}

/* All at once: the thread sanitizer looks at each access. */
static bool isUntouched(const unsigned char *at, size_t bytes) { return bytes == 0 || (at[0] == 0xa5 && memcmp(at, at + 1, bytes - 1) == 0); }

struct World {
  int nRanks, nContexts;
  size_t bytes; /* of what each rank receives into, and of what it sends from */
  std::vector<std::unique_ptr<unsigned char[]>> receive, send, store; /* store: to put to and to get from, in its first half; what was got, in the other */
  std::vector<uint64_t> links;
  std::vector<std::unique_ptr<Card>> cards;

  World(int ranks, int contexts, size_t bytes, uint64_t begin = 0); /* begin: the queues' first request */
  ~World();
  Card &card(int context, int rank) { return *cards[context * nRanks + rank]; }
};

inline nic_part partOf(const void *at, size_t bytes) { return {(uint64_t)at, bytes}; }

inline World::World(int ranks, int contexts, size_t each, uint64_t begin) : nRanks(ranks), nContexts(contexts), bytes(each), links(ranks) {
  for (int r = 0; r < ranks; r++) {
    receive.emplace_back(new unsigned char[bytes]), send.emplace_back(new unsigned char[bytes]), store.emplace_back(new unsigned char[2 * bytes]);
    fillUnseen(receive[r].get(), 0xa5, bytes), fillUnseen(send[r].get(), 0x5a, bytes), fillUnseen(store[r].get(), 0xa5, 2 * bytes);
  }
  for (int c = 0; c < contexts; c++)
    for (int r = 0; r < ranks; r++) cards.emplace_back(new Card(r, ranks, &links[r], begin));
  for (int c = 0; c < contexts; c++)
    for (int r = 0; r < ranks; r++) {
      Card &own = card(c, r);
      own.setKey(kCounterKey, r, partOf(own.counters.data(), kCounters * sizeof(uint64_t)));
      for (int peer = 0; peer < ranks; peer++) {
        own.setKey(kSignalKey, peer, partOf(card(c, peer).signals.data(), kSignals * sizeof(uint64_t)));
        own.setKey(kReceiveKey, peer, partOf(receive[peer].get(), bytes));
        own.setKey(kSendKey, peer, partOf(send[peer].get(), bytes));
        own.setKey(kStoreKey, peer, partOf(store[peer].get(), 2 * bytes));
      }
      own.host = std::thread(&Card::serve, &own);
    }
}

inline World::~World() {
  for (auto &c : cards) c->ends = true, c->tell(NIC_STOP, 1);
  for (auto &c : cards)
    if (c->host.joinable()) c->host.join();
}

#endif
