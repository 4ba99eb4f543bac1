/* SPDX-License-Identifier: Apache-2.0
 *
 * What all of mix shares: the memory in which ranks and their parent meet, and how a rank fails. Nothing here is NCCL's
 * or CUDA's doing, so a rank whose GPU hangs can still be asked what it was at.
 */
#ifndef DYN_MIX_H
#define DYN_MIX_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <string>

static const int kMaxRanks = 16;    // the largest sum that stays exact in bfloat16, see mix_verify.h
static const int kRecent = 64;  // calls whose text a report can still show; more than are ever in flight on a rank
static const int kTextBytes = 144;
static const uint64_t kDecideEvery = 256;  // steps between two moments at which rank 0 may say stop

enum ExitCode { kRight = 0, kWrong = 1, kUsage = 2, kHang = 3, kFailed = 4 };
enum Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSendRecv, kKinds };
static const char *const kKindNames[kKinds] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                               "Reduce",    "AllToAll",  "SendRecv"};

// One rank's part. Written by the rank alone (its threads in turn), read by the parent.
struct SharedRank {
  uint64_t beat;  // atomic: grows with everything that ends; the watchdog looks at it
  uint64_t issued, compared;  // calls: handed to NCCL; ended, results compared
  uint64_t calls[kKinds];  // of issued; a replay of a graph counts every call in it
  uint64_t replays, captures, groups;
  uint64_t bytes, elements;  // compared so far
  uint64_t wrong;
  uint64_t kernels;  // of its calls, run by kernels of DynamICCL's; of all ranks of a process at the first one
  int pid, ended;
  int heard;  // atomic: of a rank that died
  char doing[2 * kTextBytes];  // the step that the host is in
  char why[2 * kTextBytes];  // why the rank gave up
  char said[2 * kTextBytes];  // what a case has to tell of it, for the JSON line
  uint64_t recentCall[kRecent];
  char recent[kRecent][kTextBytes];
};

struct Shared {
  int arrived, generation;  // barrier
  uint64_t decided;  // atomic, rank 0: go or stop is decided for every multiple of kDecideEvery up to here
  uint64_t stopAt;  // atomic, rank 0: the decision's step at which all stop; ~0: none yet
  int nccl, gpus, leastMajor;  // leastMajor: of the GPUs' compute capabilities
  char gpu[96];
  ncclUniqueId id;  // see shareId
  SharedRank ranks[kMaxRanks];
};

struct Options {
  int ranks, nodes, gpus;
  double seconds, hangSeconds;  // of the mix, or of each case that goes on for a time; without progress
  uint64_t seed;
  uint64_t spoil;  // one result in this many is made wrong before it is compared; 0: none
  bool oneProcess;
  std::string out, only;
  std::string nodeEnv;  // NAME=VALUE of a node's ranks, with its number for %d; empty: none
  int ahead = 16;       // replays of a graph in flight, at most
  int ours = 0;         // which kernels of DynamICCL's are to run, a path of dynamiccl.h; 0: none
  bool float8 = false;  // NCCL and all GPUs take floats of 8 bits
};

static Shared *shared;
static Options options;
static thread_local SharedRank *self;  // of the rank that this thread works for

// Ranks that the fullest GPU has: rank r is on GPU r modulo their number.
static int ranksOfGpu() { return (options.ranks + options.gpus - 1) / options.gpus; }
// Within a node, which NCCL refuses unless it is told not to; ranks of pretended nodes may always.
static bool sharedInNode() { return (options.ranks + options.nodes - 1) / options.nodes > options.gpus; }

static double nowSeconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void beat() { __atomic_fetch_add(&self->beat, 1, __ATOMIC_RELEASE); }

__attribute__((format(printf, 1, 2))) static void doing(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(self->doing, sizeof self->doing, format, args);
  va_end(args);
}

// The rank's last words; the parent ends the others. _exit: CUDA's and NCCL's destructors may wait for a hung GPU.
__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  char text[2 * kTextBytes];
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (self) memcpy(self->why, text, sizeof text);
  fprintf(stderr, "mix: %s%s%s\n", text, self ? ", in: " : "", self ? self->doing : "");
  _exit(kFailed);
}

#define CU(x)                                                                                      \
  do {                                                                                             \
    cudaError_t e_ = (x);                                                                          \
    if (e_ != cudaSuccess) fail("%s: %s (%s:%d)", #x, cudaGetErrorString(e_), __FILE__, __LINE__); \
  } while (0)
#define NC(x)                                                                                             \
  do {                                                                                                    \
    ncclResult_t r_ = (x);                                                                                \
    if (r_ != ncclSuccess)                                                                                \
      fail("%s: %s, %s (%s:%d)", #x, ncclGetErrorString(r_), ncclGetLastError(NULL), __FILE__, __LINE__); \
  } while (0)

// All ranks, processes or threads. A rank that never comes shows as a hang: the parent ends everyone then.
static void barrier(const char *name) {
  char before[sizeof self->doing];
  memcpy(before, self->doing, sizeof before);
  int g = __atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE);
  doing("barrier %d: %s", g, name);
  if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == options.ranks) {
    __atomic_store_n(&shared->arrived, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&shared->generation, g + 1, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(&shared->generation, __ATOMIC_ACQUIRE) == g) sched_yield();
  memcpy(self->doing, before, sizeof before);
  beat();
}

// Whether step `step` is to be run: the same answer on every rank. Rank 0 decides and goes on, the others wait for its
// word at every kDecideEvery-th step. It cannot deadlock: rank 0 comes here with the help of earlier steps alone, which
// a rank that waits here has issued.
static bool goOn(int rank, uint64_t step, double deadline) {
  if (step % kDecideEvery) return true;
  if (rank == 0) {
    if (nowSeconds() > deadline) __atomic_store_n(&shared->stopAt, step, __ATOMIC_RELEASE);
    __atomic_store_n(&shared->decided, step + 1, __ATOMIC_RELEASE);
  }
  doing("waiting for rank 0 to say whether step %llu is to be run", (unsigned long long)step);
  while (__atomic_load_n(&shared->decided, __ATOMIC_ACQUIRE) < step + 1) sched_yield();
  beat();
  return step < __atomic_load_n(&shared->stopAt, __ATOMIC_ACQUIRE);
}

// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): every rank draws the same numbers from the same seed.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t n) { return (uint32_t)((next() >> 32) * n >> 32); }
  double unit() { return (next() >> 11) * 0x1p-53; }
};

#endif
