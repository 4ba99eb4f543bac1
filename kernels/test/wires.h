/* SPDX-License-Identifier: Apache-2.0
 *
 * GIN among ranks on threads of a CPU (ranks.h): what gin/net.cuh has for a GPU. A thread of each rank carries what that puts, as
 * NCCL's proxy does, and as badly as it may: it reads the source long after the put, one queue's puts run ahead of another's,
 * payload lands in pieces, and the counter comes before or behind the signal. Only what GIN promises holds: a queue is a
 * context's to one peer, and goes in order, and a signal comes behind the payload.
 */
#ifndef DYN_TEST_WIRES_H
#define DYN_TEST_WIRES_H

#include <deque>
#include <mutex>

#include "../gin/calls.cuh"
#include "ranks.h"

constexpr unsigned kContexts = 3; /* that were granted. Calls have as many or fewer, other ones each time */
constexpr size_t kSeen = kContexts * (size_t)(DYN_GIN_KINDS + 1) * DYN_GIN_MAX_BLOCKS * kMaxRanks;
constexpr uint32_t kNone = UINT32_MAX, kFirst = 3; /* signals and counters are used from there on */

/* Of the counters of kernels over load and store the last ones: behind them is the same word. */
static inline uint32_t *ginCalls(const Domain &d) { return d.calls + (DYN_KERNEL_COUNTERS - DYN_GIN_COUNTERS); }

struct Put {
  char *to;
  const char *from;
  size_t bytes;
  uint32_t signal, counter, by; /* by: to the signal */
};

struct Wires {
  std::mutex lock;
  std::deque<Put> queues[kContexts][kMaxRanks]; /* to that peer */
  std::atomic<uint64_t> settledNs[kContexts][kFirst + DYN_GIN_KINDS * DYN_GIN_MAX_BLOCKS * kMaxRanks]; /* before the signal's last raise */
  std::atomic<uint64_t> readNs[kContexts][kFirst + DYN_GIN_MAX_BLOCKS * kMaxRanks];                    /* before the counter's */
  std::atomic<uint64_t> signals[kContexts][kFirst + DYN_GIN_KINDS * DYN_GIN_MAX_BLOCKS * kMaxRanks], counters[kContexts][kFirst + DYN_GIN_MAX_BLOCKS * kMaxRanks];
};
static Wires wiresOf[kMaxRanks];
static std::atomic<uint64_t> offRail; /* puts that were not to be */

/* Every peer's windows lie at the same offsets: a window is its memory on each rank. */
struct Windowed {
  char *memory[kMaxRanks];
};

static void deliver(int rank, unsigned context, int peer, const Put &p) {
  const size_t half = p.bytes / 2;
  perhapsWait();
  if (p.bytes > 0) memcpy(p.to + half, p.from + half, p.bytes - half);
  perhapsWait();
  if (half > 0) memcpy(p.to, p.from, half);
  const bool early = next(&randomState) & 1;
  if (p.counter != kNone) wiresOf[rank].readNs[context][p.counter] = globalNs();
  if (early && p.counter != kNone) wiresOf[rank].counters[context][p.counter].fetch_add(1, std::memory_order_release);
  perhapsWait();
  if (p.signal != kNone) wiresOf[peer].settledNs[context][p.signal] = globalNs();
  if (p.signal != kNone) wiresOf[peer].signals[context][p.signal].fetch_add(p.by, std::memory_order_release);
  if (!early && p.counter != kNone) wiresOf[rank].counters[context][p.counter].fetch_add(1, std::memory_order_release);
}

static void carry(int rank, int nRanks, uint64_t seed) {
  randomState = seed;
  for (;;) {
    const uint64_t x = next(&randomState);
    const unsigned context = x % kContexts;
    const int peer = (int)((x >> 8) % (unsigned)nRanks);
    Put p;
    {
      std::lock_guard<std::mutex> held(wiresOf[rank].lock);
      std::deque<Put> &queue = wiresOf[rank].queues[context][peer];
      if (queue.empty()) p.bytes = SIZE_MAX;
      else p = queue.front(), queue.pop_front();
    }
    if (p.bytes == SIZE_MAX) letOthersRun();
    else looks = 0, deliver(rank, context, peer, p);
  }
}

struct FakeNet {
  using Window = Windowed;
  int rank;
  unsigned context;
  int numRanks;
  int localRanks = 0; /* of a node; puts may go to the rail's ranks alone. 0: all do without nodes */

  void post(int peer, const Put &p) const {
    perhapsWait();
    if (localRanks > 0 && peer % localRanks != rank % localRanks) offRail++;
    std::lock_guard<std::mutex> held(wiresOf[rank].lock);
    wiresOf[rank].queues[context][peer].push_back(p);
  }
  void put(int peer, const Window &to, size_t toAt, const Window &from, size_t fromAt, size_t bytes, uint32_t signal) const {
    post(peer, {to.memory[peer] + toAt, from.memory[rank] + fromAt, bytes, signal, kNone, 1});
  }
  void putCounted(int peer, const Window &to, size_t toAt, const Window &from, size_t fromAt, size_t bytes, uint32_t signal, uint32_t counter) const {
    post(peer, {to.memory[peer] + toAt, from.memory[rank] + fromAt, bytes, signal, counter, 1});
  }
  void raise(int peer, uint32_t signal, uint32_t by = 1) const { post(peer, {nullptr, nullptr, 0, signal, kNone, by}); }
  uint64_t signalValue(uint32_t signal) const { return wiresOf[rank].signals[context][signal].load(std::memory_order_acquire); }
  uint64_t counterValue(uint32_t counter) const { return wiresOf[rank].counters[context][counter].load(std::memory_order_acquire) & (~0ull >> (64 - kCounterBits)); }
  char *local(const Window &window, size_t at) const { return window.memory[rank] + at; }
  char *near(const Window &window, size_t at, int peer) const { return window.memory[rank - rank % localRanks + peer] + at; }
  bool all(bool fine) const { return blockSum(fine ? 0 : 1) == 0; }
  /* Nothing counts what was carried but counters, so a flush is one more put, to each peer, to nowhere. */
  void flush() const {
    std::atomic<uint64_t> &done = wiresOf[rank].counters[context][kFirst + (DYN_GIN_MAX_BLOCKS - 1) * kMaxRanks + blockIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint64_t before = done.load();
      int peers = 0;
      for (int r = 0; r < numRanks; r++)
        if (r != rank) post(r, {nullptr, nullptr, 0, kNone, kFirst + (DYN_GIN_MAX_BLOCKS - 1) * kMaxRanks + blockIdx.x, 0}), peers++;
      while (done.load(std::memory_order_acquire) < before + peers) letOthersRun();
    }
    __syncthreads();
  }
};

#endif
