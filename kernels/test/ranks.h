/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on threads of a CPU, for the tests of this folder, each one source: a rank is a few blocks of two threads, which
 * stand still anywhere. Ranks make the same calls, one after the other in the same scratch memory, and run ahead of each
 * other. What a call is and what is to come of it the test knows.
 *   PROGRAM [CALLS [MISTAKE]]     TEST_SEED sets the seed
 * MISTAKE is the number of one to plant (line.cuh), and the program fails when it does not find it.
 */
#ifndef DYN_TEST_RANKS_H
#define DYN_TEST_RANKS_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <pthread.h>
#include <thread>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "../device/all_reduce_bulk.cuh"

using namespace dyn;

#ifndef DYN_TEST_BLOCKS
#define DYN_TEST_BLOCKS 3
#endif
constexpr unsigned kBlocks = DYN_TEST_BLOCKS, kBlockThreads = 2;

int planted;
thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static thread_local uint64_t randomState;
static thread_local struct Block {
  pthread_barrier_t barrier;
  float shared[kBlockThreads];
  alignas(16) char memory[kBlockBytes];
} *ofBlock;

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void __syncthreads() { pthread_barrier_wait(&ofBlock->barrier); }
float *blockShared() { return ofBlock->shared; }
void *blockMemory() { return ofBlock->memory; }

void perhapsWait() {
  uint64_t x = next(&randomState);
  if ((x & 0x3f) == 0) sched_yield();
  if ((x >> 6 & 0x3fff) == 0) usleep(100);
}

/* What a test needs: lines of a slot, packs of what goes in bulk, and bytes of each of a rank's buffers. */
struct Size {
  size_t lines, packs, room;
};

constexpr int kBuffers = 4;

struct World {
  int nRanks;
  uint64_t calls, seed;
  Size size;
  std::vector<std::unique_ptr<char[]>> scratch;
  std::vector<std::vector<uint32_t>> counters, passed, flags;
  const dyn_lanes *lanes = nullptr; /* by ranks; NULL: there is one */
  std::vector<std::unique_ptr<char[]>> memory;
  std::vector<std::vector<dyn_meeting>> meetings;
  std::vector<std::unique_ptr<char[]>> buffers[kBuffers];
  std::vector<pthread_barrier_t> ofRank;
  std::vector<Block> ofBlock;
  uint32_t stop = 0;
  uint64_t fault = 0;
  std::vector<std::vector<dyn_stamp>> stamps;
  std::atomic<uint64_t> wrong{0}, compared{0}, stamped{0};
};

static Domain domainOf(World &w, int rank, uint64_t waitNs) {
  Domain d = {};
  d.rank = rank, d.nRanks = w.nRanks, d.lines = w.size.lines, d.calls = w.counters[rank].data();
  for (int r = 0; r < w.nRanks; r++) d.scratch[r] = w.scratch[r].get();
  d.lanes = w.lanes == nullptr ? nullptr : &w.lanes[rank];
  d.stop = &w.stop, d.fault = &w.fault, d.waitNs = waitNs;
  return d;
}

static inline Bulk bulkOf(World &w, int rank) {
  Bulk b = {};
  for (int r = 0; r < w.nRanks; r++) b.memory[r] = w.memory[r].get(), b.flags[r] = w.flags[r].data(), b.meetings[r] = w.meetings[r].data();
  b.passed = w.passed[rank].data(), b.packs = w.size.packs;
  return b;
}

/* Plays call number n in every thread of a rank, of which one is the first. */
using Play = void (*)(World &w, uint64_t n, int rank, bool first);

/* In every thread of a rank: what the first prepares before the kernel, in blocks so many, and what it looks at behind. */
template <typename Prepare, typename Kernel, typename Check>
static void inRank(World &w, int rank, bool first, unsigned blocks, Prepare prepare, Kernel kernel, Check check) {
  if (first) prepare();
  pthread_barrier_wait(&w.ofRank[rank]);
  looks = 0;
  if (blockIdx.x < blocks) {
    gridDim.x = blocks;
    kernel(domainOf(w, rank, planted ? 1000000000u : 20000000000u)); /* a mistake may be that nobody comes */
  }
  pthread_barrier_wait(&w.ofRank[rank]);
  if (first) check();
  if (planted && (w.wrong != 0 || loadHost(&w.stop) != 0 || ((std::atomic<uint64_t> *)&w.fault)->load() != 0)) _exit(1); /* found */
}

static void make(World &w, int nRanks, uint64_t calls, uint64_t seed, const Size &size) {
  w.nRanks = nRanks, w.calls = calls, w.seed = seed, w.size = size;
  w.ofRank.resize(nRanks), w.ofBlock.resize(nRanks * kBlocks);
  for (int r = 0; r < nRanks; r++) {
    w.scratch.emplace_back(new char[2 * nRanks * size.lines * kLineBytes]());
    for (auto &b : w.buffers) b.emplace_back(new char[size.room]());
    /* As after four thousand million calls: the number goes on behind its end. */
    w.counters.emplace_back(DYN_KERNEL_COUNTERS, UINT32_MAX - (uint32_t)(calls / 2));
    w.counters.back()[kMaxBlocks] = w.counters.back()[kMaxBlocks + 1] = 0;
    w.passed.emplace_back(kMaxBlocks, UINT32_MAX - (uint32_t)(calls / 20));
    w.stamps.emplace_back(DYN_STAMPS + 1);
    w.flags.emplace_back(kMaxBlocks * kMaxRanks, UINT32_MAX - (uint32_t)(calls / 20));
    w.meetings.emplace_back(DYN_MEETINGS);
    w.memory.emplace_back(new char[dyn_bulk_bytes(size.packs, nRanks) + kBulkBytes]());
    pthread_barrier_init(&w.ofRank[r], nullptr, kBlocks * kBlockThreads);
    for (unsigned b = 0; b < kBlocks; b++) pthread_barrier_init(&w.ofBlock[r * kBlocks + b].barrier, nullptr, kBlockThreads);
  }
}

static void thread(World *w, int rank, unsigned block, unsigned thread, Play play) {
  blockIdx.x = block, threadIdx.x = thread, blockDim.x = kBlockThreads;
  ofBlock = &w->ofBlock[rank * kBlocks + block];
  randomState = w->seed * 31 + (uint64_t)rank * 1009 + block * 101 + thread;
  for (uint64_t n = 0; n < w->calls; n++) play(*w, n, rank, block == 0 && thread == 0);
}

static uint64_t run(int nRanks, uint64_t calls, uint64_t seed, const Size &size, Play play) {
  static World w; /* a mistake leaves threads in it that never end */
  make(w, nRanks, calls, seed, size);
  std::vector<std::thread> threads;
  for (int r = 0; r < nRanks; r++)
    for (unsigned b = 0; b < kBlocks; b++)
      for (unsigned t = 0; t < kBlockThreads; t++) threads.emplace_back(thread, &w, r, b, t, play);
  for (auto &t : threads) t.join();
  uint64_t wrong = w.wrong + (w.fault != 0);
  printf("{\"ranks\":%d,\"calls\":%lu,\"elements\":%lu,\"wrong\":%lu,\"fault\":%lx,\"stamped\":%lu}\n", nRanks, calls,
         w.compared.load(), w.wrong.load(), w.fault, w.stamped.load());
  return wrong;
}

/* One thread is a rank. */
template <typename Kernel>
static void playAlone(World &w, int rank, uint64_t waitNs, Kernel kernel) {
  Block alone;
  pthread_barrier_init(&alone.barrier, nullptr, 1);
  ofBlock = &alone;
  blockIdx.x = threadIdx.x = 0, blockDim.x = gridDim.x = 1;
  looks = 0;
  kernel(Call{w.buffers[0][rank].get(), w.buffers[1][rank].get(), 5, (int32_t)Op::sum, 0, nullptr, domainOf(w, rank, waitNs)}, bulkOf(w, rank));
}

/* Rank 0 gives up on rank 2, which comes later, in a call of one lane, and behind it stands one of the other lane. For whom the other two
 * wait in vain there, counted from 1. */
template <typename Before, typename Kernel>
static inline uint64_t missedBeside(const Size &size, Before before, Kernel kernel) {
  static std::vector<std::unique_ptr<World>> worlds;
  for (int i = 0; i < 2; i++) worlds.emplace_back(new World), make(*worlds.back(), 3, 0, 1, size);
  World &w = *worlds.end()[-2], &other = *worlds.back();
  dyn_lanes lanes[3] = {};
  for (int r = 0; r < 3; r++) lanes[r].gaveUp[0] = &w.counters[r][kMaxBlocks], lanes[r].gaveUp[DYN_LANES - 1] = &other.counters[r][kMaxBlocks];
  w.lanes = other.lanes = lanes;
  std::thread([&] {
    playAlone(w, 0, 2000000, before);
    playAlone(other, 0, 2000000, kernel);
  }).join();
  other.fault = 0;
  std::vector<std::thread> threads;
  for (int r = 1; r < 3; r++)
    threads.emplace_back([&, r] {
      playAlone(w, r, 1000000000, before);
      playAlone(other, r, 1000000000, kernel);
    });
  for (auto &t : threads) t.join();
  return other.fault >> kFaultPeer;
}

/* Exit status of the program. alone is asked first, where no mistake is planted, or one of those that no call shows in which all ranks
 * come: NULL, or what is wrong. */
static int runAll(int argc, char **argv, const Size &size, Play play, const char *(*alone)(), std::initializer_list<int> ranks = {2, 3, 4, 8}) {
  const char *seed = getenv("TEST_SEED"), *said;
  uint64_t calls = argc > 1 ? strtoull(argv[1], nullptr, 10) : 2000, from = seed ? strtoull(seed, nullptr, 10) : 1;
  planted = argc > 2 ? atoi(argv[2]) : 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool late = planted >= DYN_KERNEL_MUTATE_SENDS_ON && planted <= DYN_KERNEL_MUTATE_SOME_LEAVE;
  if ((planted == 0 || late) && alone != nullptr && (said = alone()) != nullptr) {
    fprintf(stderr, "%s\n", said);
    return !late;
  }
  bool wrong = false;
  for (int nRanks : ranks) { /* each in a process of its own */
    pid_t child = fork();
    if (child == 0) {
      alarm(planted ? 40 : 400); /* of a mistake a hang is one way to be found */
      _exit(run(nRanks, calls * 4 / (uint64_t)(nRanks * nRanks) + 1, from + (uint64_t)nRanks, size, play) != 0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) wrong = true; /* also where a mistake hangs */
    if (wrong) break;
  }
  if (wrong == (planted != 0)) return 0;
  fprintf(stderr, wrong ? "wrong results, or a hang: TEST_SEED=%lu\n" : "the planted mistake was not found (seed %lu)\n", from);
  return 1;
}

#endif
