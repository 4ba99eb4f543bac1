/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card's kernel (../nic/nic.cuh) on threads of a CPU: what ../nic/nic_machine.cuh has for a GPU. nic_grid.h launches it. A warp is
 * one thread. A queue's block has four: of the main queue, of the side queue, and two that copy; a helper's has three, one of
 * which ends at once.
 *
 * Orders are those of the GPU's version, where it names one. Where it needs none, since a GPU's load is over when its value
 * was stored elsewhere (a source that was copied, a request that was read), C++ knows of no such thing and a release stands here.
 */
#ifndef CARRIER_TEST_NIC_MACHINE_H
#define CARRIER_TEST_NIC_MACHINE_H

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "../nic/gdaki_abi.h"
#include "../nic/nic.h"
#include "../nic/nic_stamps.cuh"

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* nvcc asks for none */

#define __device__
#define __global__
#define __shared__ /* of a block: the objects below refer to what its threads share */
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct Index { unsigned x; };
extern thread_local Index threadIdx, blockIdx, blockDim;

#ifdef NIC_MUTATE
/* As 0, by who runs the kernel and tests something else: nobody stands still, and who finds nothing to do leaves the CPU to others. */
inline void perhapsWait() {}
inline void nicRest(unsigned vain) {
  if (vain % 16 == 15) usleep(vain < 64 ? 20 : 200);
  else if (vain < 16) sched_yield();
}
constexpr uint32_t kAskLooks = 256;
#else
/* Now and then a thread stands still here. */
void perhapsWait();
inline void nicRest(unsigned vain) {
  if (vain > 3) usleep(vain < 16 ? 20 : 200);
  else sched_yield();
}
constexpr uint32_t kAskLooks = 32; /* of which most are naps */

/* Number of the mistake that is planted; 0: none. */
extern int planted;
#define NIC_MUTATE planted
#endif
#include "../nic/nic_mistakes.h"

namespace dyn {

/* What threads of a block share. */
struct NicShared {
  pthread_barrier_t all, copying;
  std::atomic<uint32_t> consumed;
  bool ends;
  char *to;
  const char *from;
  uint32_t bytes;
};
inline thread_local NicShared *nicShared;

template <typename T>
std::atomic<T> &nicWord(const T *at) {
  perhapsWait();
  return *reinterpret_cast<std::atomic<T> *>(const_cast<T *>(at));
}

inline void nicSync() { pthread_barrier_wait(&nicShared->all); }
/* Not a function of this name: the stand-in for CUDA's driver has one for its other kernels. */
#define __syncthreads() ::dyn::nicSync()

constexpr unsigned kNicLanes = 1;

inline unsigned nicLane() { return 0; }
inline void joinWarp() {}
inline int lowestBit(uint32_t bits) { return __builtin_ctz(bits); }
inline int highestBit(uint32_t bits) { return 31 - __builtin_clz(bits); }

inline uint32_t swapBytes(uint32_t word) { return __builtin_bswap32(word); }

inline uint64_t nicNowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

inline uint32_t loadCount(const uint32_t *at) { return nicWord(at).load(std::memory_order_acquire); }
inline void storeCount(uint32_t *at, uint32_t value) { nicWord(at).store(value, std::memory_order_release); }

inline uint32_t loadHost(const uint32_t *at) { return loadCount(at); }
inline void storeHost(uint32_t *at, uint32_t value) { storeCount(at, value); }
inline uint64_t loadNs(const uint64_t *at) { return nicWord(at).load(std::memory_order_relaxed); }
inline void storeNs(uint64_t *at, uint64_t ns) { nicWord(at).store(ns, std::memory_order_relaxed); }
inline void tellUsed(nic_report *report, uint32_t number) { storeHost(&report->used, number); }
inline uint64_t loadRung(const nic_posted &posted) { return nicWord(posted.rung).load(std::memory_order_relaxed); }
inline bool anyLane(bool is) { return is; }
inline void nicNap() { usleep(200); }

/* The one behind may be being written: then nobody looks at it. */
struct NicRequests {
  uint32_t words[2][GDAKI_WORDS];
  uint32_t word(int which, int i) const { return words[which][i]; }
};

struct NicSlots {
  const uint8_t *queue;
  uint32_t index;
  NicRequests requests;
  NicSlots(const uint8_t *queue_, uint32_t index_) : queue(queue_), index(index_) {}
  void load() {
    for (uint32_t i = 0; i < 2 * GDAKI_WORDS; i++)
      requests.words[i / GDAKI_WORDS][i % GDAKI_WORDS] =
          nicWord((const uint32_t *)(queue + (index + i / GDAKI_WORDS) % NIC_DEPTH * NIC_REQUEST_BYTES) + i % GDAKI_WORDS).load(std::memory_order_relaxed);
  }
};

struct NicView {
  uint32_t control[NIC_CONTROLS];
  uint64_t rung;
  uint32_t helpers;
  bool over;
  const uint32_t *controls, *launch;
  const uint64_t *ready;
  unsigned vain;
  NicView(const uint32_t *controls_, const uint64_t *ready_, const uint32_t *launch_)
      : control(), rung(0), helpers(0), over(false), controls(controls_), launch(launch_), ready(ready_), vain(0) {}
  template <bool kFed>
  void look() {
    const uint64_t now = nicWord(ready).load(std::memory_order_acquire);
    vain = now == rung ? vain + 1 : 0;
    if (vain > 0) nicRest(vain);
    rung = now;
    for (int i = 0; i < NIC_CONTROLS; i++) control[i] = loadCount(&controls[i]);
    helpers = loadCount(&launch[NIC_HELPERS]);
    over = loadCount(&launch[NIC_OVER]) != 0;
  }
};

inline nic_part loadPart(const nic_part *at) {
  return {nicWord(&at->at).load(std::memory_order_relaxed), nicWord(&at->bytes).load(std::memory_order_relaxed)};
}

/* What a planted mistake keeps back of a copy until this thread copies again. */
struct NicLate {
  char *to;
  char byte;
  bool is;
  void write() {
    if (is) *to = byte;
    is = false;
  }
};

inline void copyBytes(char *to, const char *from, uint64_t bytes, unsigned lane, unsigned lanes) {
  static thread_local NicLate late;
  const uint64_t begin = bytes * lane / lanes, middle = bytes * (2 * lane + 1) / (2 * lanes);
  uint64_t end = bytes * (lane + 1) / lanes;
  late.write();
  if (NIC_MUTATE == NIC_MUTATE_EARLY && begin < end && end == bytes) end--, late = {to + end, from[end], true};
  if (middle < end) memcpy(to + middle, from + middle, end - middle); /* nobody may count on the order */
  perhapsWait();
  memcpy(to + begin, from + begin, (middle < end ? middle : end) - begin);
}

inline void copyByWarp(char *to, const char *from, uint64_t bytes) { copyBytes(to, from, bytes, 0, 1); }

/* A fence orders what was before it with what this warp plainly stores later, and so with who takes its job. C++ has fences, and the
 * thread sanitizer knows nothing of them: so one is a release of this word, which the job's taker acquires. */
inline thread_local uint64_t *nicFences;
inline uint64_t *nicFencesOf(const nic_job *job) { return const_cast<uint64_t *>(&job->words[NIC_JOB_NEXT + 1]); }

inline void addReleased(uint64_t *at, uint64_t value) {
  nicWord(at).fetch_add(value, NIC_MUTATE == NIC_MUTATE_UNRELEASED ? std::memory_order_relaxed : std::memory_order_release);
  nicWord(nicFences).fetch_add(1, std::memory_order_release);
}
inline void raiseKnown(uint64_t *at, uint64_t value) {
  auto &word = nicWord(at);
  for (uint64_t seen = word.load(std::memory_order_relaxed); seen < value;)
    if (word.compare_exchange_weak(seen, value, std::memory_order_release, std::memory_order_relaxed)) break;
}
/* Completions are releases here. */
inline void releaseGot() {}
inline void releaseAll() {}
/* The source that it stands for was read. */
inline void addPlain(uint64_t *at, uint64_t value) { nicWord(at).fetch_add(value, std::memory_order_release); }
inline void storeCompletion(uint8_t *completions, uint32_t index, uint32_t word) {
  nicWord((uint32_t *)(completions + (size_t)(index + 1) * NIC_COMPLETION_BYTES) - 1).store(word, std::memory_order_release);
}

inline uint64_t passLink(uint64_t *freeNs, uint64_t now, uint64_t ns) {
  auto &word = nicWord(freeNs);
  for (uint64_t seen = word.load(std::memory_order_relaxed), until;;) {
    until = (seen > now ? seen : now) + ns;
    if (word.compare_exchange_weak(seen, until, std::memory_order_relaxed)) return until;
  }
}

inline uint32_t lastJob(const nic_job *job) {
  nicFences = nicFencesOf(job);
  return (uint32_t)(nicWord(&job->words[NIC_JOB_NEXT]).load(std::memory_order_relaxed) >> 32);
}
inline void storeNext(nic_job *job, uint32_t number, uint32_t blocks) {
  nicWord(&job->words[NIC_JOB_NEXT]).store((uint64_t)number << 32 | blocks, std::memory_order_relaxed);
}
inline void postJob(nic_job *job, uint32_t number, uint64_t to, uint64_t from, uint32_t bytes, uint32_t blocks, bool ordered) {
  const uint64_t words[NIC_JOB_WORDS] = {(uint32_t)to, to >> 32, (uint32_t)from, from >> 32, bytes, blocks};
  for (int i = 0; i < NIC_JOB_WORDS; i++) {
    nicWord(&job->words[i]).store((uint64_t)number << 32 | words[i], ordered ? std::memory_order_release : std::memory_order_relaxed);
    if (i == 0 && number >> 6 & 1) usleep(20); /* helpers look in between */
  }
}
inline bool allCopied(const uint32_t *copied, uint32_t helpers, uint32_t number) {
  for (uint32_t h = 0; h < helpers; h++)
    if (loadCount(&copied[h]) != number) {
      usleep(20); /* who copies naps, too */
      return false;
    }
  return true;
}
inline void storeCopied(uint32_t *at, uint32_t number) { storeCount(at, number); }
inline uint32_t joinHelpers(uint32_t *helpers) { return nicWord(helpers).fetch_add(1, std::memory_order_release); }

inline uint64_t loadConsumed(const uint64_t *at) { return nicWord(at).load(std::memory_order_relaxed); }
inline void storeConsumed(uint64_t *at, uint64_t *report, uint64_t value, uint64_t failed) {
  nicWord(at).store(value | failed << NIC_CONSUMED_BITS, std::memory_order_relaxed);
  nicWord(report).store(value, std::memory_order_relaxed);
}
inline void reportFailure(nic_report *report, uint32_t failed, uint32_t peer) {
  if (nicWord(&report->failed).load(std::memory_order_relaxed) != 0) return;
  nicWord(&report->peer).store(peer, std::memory_order_relaxed);
  storeCount(&report->failed, failed);
}
inline void countUp(uint32_t *at) { nicWord(at).fetch_add(1, std::memory_order_release); }

inline void noteIdle(uint32_t *launch, uint32_t bit, uint32_t all, bool is) {
  auto &idle = nicWord(&launch[NIC_IDLE]);
  if (!is) idle.fetch_and(~bit, std::memory_order_relaxed);
  else if ((idle.fetch_or(bit, std::memory_order_relaxed) | bit) == all) storeCount(&launch[NIC_OVER], 1);
}

struct NicBlock {
  std::atomic<uint32_t> &consumed = nicShared->consumed;
  bool &ends = nicShared->ends;
  uint32_t mainConsumed() const {
    perhapsWait();
    return consumed.load(std::memory_order_acquire);
  }
  void setMainConsumed(uint32_t value) { consumed.store(value, std::memory_order_release); }
  static NicRequests share(int, const NicSlots &slots) { return slots.requests; }
  static NicRequests loadRequest(const uint8_t *queue, uint32_t index, const uint32_t *beside, uint32_t *now) {
    NicRequests r;
    for (uint32_t i = 0; i < GDAKI_WORDS; i++) r.words[0][i] = nicWord((const uint32_t *)(queue + index * NIC_REQUEST_BYTES) + i).load(std::memory_order_relaxed);
    *now = loadCount(beside);
    return r;
  }
  static void meet() { pthread_barrier_wait(&nicShared->copying); }
  void beginCopy(char *to, const char *from, uint32_t bytes) {
    nicShared->to = to, nicShared->from = from, nicShared->bytes = bytes;
    meet();
  }
  static void endCopy() { meet(); }
  void endCopies() {
    ends = true;
    meet();
  }
  void serveCopies() {
    while (meet(), !ends) {
      copyBytes(nicShared->to, nicShared->from, nicShared->bytes, threadIdx.x - NIC_SIDES, blockDim.x - NIC_SIDES);
      meet();
    }
  }
};

struct NicJob {
  uint32_t number, bytes, blocks, helpers;
  uint64_t to, from;
  uint32_t placeOf(uint32_t own) const {
    const uint32_t first = blocks >> 16 & 0xff, there = blocks >> 24, all = number & NIC_JOB_HELPERS;
    return own >= there ? all : own >= first ? own - first : own + there - first;
  }
};

template <bool kFed>
struct NicBoard {
  const nic &n;
  uint64_t now[NIC_MAX_RANKS][NIC_JOB_NEXT + 1] = {}, ready[NIC_MAX_RANKS] = {};
  uint32_t done[NIC_MAX_RANKS] = {}, nextDone[NIC_MAX_RANKS] = {};
  unsigned vain = 0;
  explicit NicBoard(const nic &n_) : n(n_) {}
  void look() {
    if (vain++ > 0) usleep(vain < 16 ? 20 : 200);
    for (int p = 0; p < n.nRanks; p++) {
      for (int i = NIC_JOB_NEXT; i >= 0; i--) now[p][i] = nicWord(&n.jobs[p].words[i]).load(std::memory_order_acquire);
      if (NIC_MUTATE != NIC_MUTATE_BLIND && !kFed) ready[p] = nicWord(n.posted[p * NIC_SIDES].rung).load(std::memory_order_acquire);
    }
  }
  bool haveEnded(const nic &) { return loadCount(&n.launch[NIC_ENDED]) == (uint32_t)(n.nRanks * NIC_SIDES); }
  uint32_t number(int peer, int word) const { return (uint32_t)(now[peer][word] >> 32); }
  void forget() {
    for (int p = 0; p < n.nRanks; p++) done[p] = number(p, 0), nextDone[p] = number(p, NIC_JOB_NEXT);
  }
  NicJob job(int peer) const {
    const auto address = [&](int i) { return now[peer][i + 1] << 32 | (uint32_t)now[peer][i]; };
    return {number(peer, 0), (uint32_t)now[peer][NIC_JOB_BYTES], (uint32_t)now[peer][NIC_JOB_BLOCKS], number(peer, 0) & NIC_JOB_HELPERS, address(NIC_JOB_TO), address(NIC_JOB_FROM)};
  }
  NicJob nextOf(int peer) const { return {number(peer, NIC_JOB_NEXT), 0, (uint32_t)now[peer][NIC_JOB_NEXT]}; }
  uint32_t jobsOf(uint32_t own) const {
    const auto isFor = [&](const NicJob &j, uint32_t before) { return j.number != before && j.placeOf(own) < (j.number & NIC_JOB_HELPERS); };
    const auto isReady = [&](int p, const NicJob &j) { return (int16_t)((uint16_t)ready[p] - (uint16_t)j.blocks) >= 0; };
    uint32_t peers = 0;
    for (int p = 0; p < n.nRanks; p++) {
      const NicJob j = job(p), next = nextOf(p);
      bool fine = isFor(j, done[p]);
      for (int i = 0; i < NIC_JOB_WORDS; i++) fine = fine && (NIC_MUTATE == NIC_MUTATE_TORN || number(p, i) == j.number);
      if (NIC_MUTATE != NIC_MUTATE_BLIND && !kFed) fine = fine && isReady(p, j);
      peers |= (uint32_t)fine << p | (uint32_t)(isFor(next, nextDone[p]) && isReady(p, next)) << (NIC_MAX_RANKS + p);
    }
    return peers;
  }
  NicJob take(NicBlock &, int peer, bool next) {
    vain = 0;
    nicWord(nicFencesOf(&n.jobs[peer])).load(std::memory_order_acquire);
    if (next) return nextDone[peer] = number(peer, NIC_JOB_NEXT), nextOf(peer);
    done[peer] = number(peer, 0);
    return job(peer);
  }
};

}  // namespace dyn

#endif
