/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of a rank. Every communicator has a lane. NCCL kernels wait for their peers while they hold SMs, so two
 * of them that cannot be on the GPU together deadlock when ranks start them in different order. Kernels of one lane
 * run one after the other, in program order, which is the same on all ranks; there are two lanes, and two kernels of
 * at most 64 blocks (NCCL's MAXCHANNELS) fit a GPU of 132 SMs together.
 */
#ifndef DYN_MIX_COMMS_H
#define DYN_MIX_COMMS_H

#include <vector>

#include "mix.h"

static const int kLanes = 2;

struct Comm {
  ncclComm_t comm = nullptr;  // null: this rank is no member
  const char *name = "";
  int n = 0, me = 0, lane = 0;
  unsigned salt = 0;          // tells communicators apart that draw the same call: their values must differ
  bool member() const { return comm != nullptr; }
};

// Waits until a non-blocking communicator is done with what it was asked for. A blocking one never is in progress.
static void settle(ncclComm_t comm, ncclResult_t result, const char *what) {
  if (result == ncclInProgress && !comm) fail("%s: in progress, but there is no communicator to ask", what);
  while (result == ncclInProgress) {
    ncclResult_t now = ncclSuccess;
    NC(ncclCommGetAsyncError(comm, &now));
    result = now;
    if (result == ncclInProgress) usleep(20);
  }
  if (result != ncclSuccess) fail("%s: %s, %s", what, ncclGetErrorString(result), ncclGetLastError(comm));
}

static void shareId(int rank, ncclUniqueId *id) {
  if (rank == 0) NC(ncclGetUniqueId(&shared->id));
  barrier("unique id");
  *id = shared->id;
  barrier("unique id read");
}

static Comm seen(ncclComm_t comm, const char *name, int lane, unsigned salt) {
  Comm c;
  c.comm = comm, c.name = name, c.lane = lane, c.salt = salt;
  if (comm) {
    NC(ncclCommCount(comm, &c.n));
    NC(ncclCommUserRank(comm, &c.me));
  }
  return c;
}

// How a communicator is made, beyond NCCL's defaults.
struct Made {
  int blocking = 1;   // 0: the non-blocking interface, polled
  int shares = 0;     // 1: children of split and shrink use its resources
};

// All ranks.
static Comm newWorld(int rank, const char *name, int lane, unsigned salt, Made made = {}) {
  ncclUniqueId id;
  shareId(rank, &id);
  doing("creating communicator %s", name);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = made.blocking, config.splitShare = made.shares;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.shrinkShare = made.shares;
#endif
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclCommInitRankConfig(&comm, options.ranks, id, rank, &config);
  settle(comm, result, "ncclCommInitRankConfig");
  beat();
  return seen(comm, name, lane, salt);
}

// color NCCL_SPLIT_NOCOLOR: the rank joins nothing. The colour enters the salt.
static Comm newSplit(const Comm &parent, int color, int key, const char *name, int lane, unsigned salt) {
  doing("splitting %s into %s, colour %d", parent.name, name, color);
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclCommSplit(parent.comm, color, key, &comm, nullptr);
  settle(parent.comm, result, "ncclCommSplit");
  // A non-blocking parent may say success before NCCL's thread stores the communicator: "NCCL_COMM_NULL until comm split
  // fully complete" (src/init.cc, v2.28.9). The watchdog bounds the wait.
  while (color != NCCL_SPLIT_NOCOLOR && !__atomic_load_n(&comm, __ATOMIC_ACQUIRE)) usleep(20);
  if (color == NCCL_SPLIT_NOCOLOR && comm) fail("ncclCommSplit with NCCL_SPLIT_NOCOLOR returned a communicator");
  if (comm) {
    ncclResult_t now = ncclSuccess;
    NC(ncclCommGetAsyncError(comm, &now));
    settle(comm, now, "new communicator of ncclCommSplit");
  }
  beat();
  return seen(comm, name, lane, salt + 0x1000u * (unsigned)(color + 1));
}

// A non-blocking communicator may still be going when destroy or abort returns; it can no longer be asked then.
static void ended(ncclResult_t result, Comm *c, const char *what) {
  if (result != ncclSuccess && result != ncclInProgress)
    fail("%s: %s, %s", what, ncclGetErrorString(result), ncclGetLastError(nullptr));
  c->comm = nullptr;
  beat();
}

// Ends a communicator that has nothing outstanding.
static void endComm(Comm *c) {
  if (!c->comm) return;
  doing("destroying communicator %s", c->name);
  settle(c->comm, ncclCommFinalize(c->comm), "ncclCommFinalize");
  ended(ncclCommDestroy(c->comm), c, "ncclCommDestroy");
}

// Ends one in the middle of whatever it does.
static void abortComm(Comm *c) {
  if (!c->comm) return;
  doing("aborting communicator %s", c->name);
  ended(ncclCommAbort(c->comm), c, "ncclCommAbort");
}

// The communicators of the random mix: all ranks twice, halves, and every other rank in reversed order.
enum { kWorld, kHalves, kWorld2, kEvenOdd, kMixComms };
struct MixComms {
  Comm all[kMixComms];
  void make(int rank) {
    if (!all[kWorld].member()) all[kWorld] = newWorld(rank, "world", 0, 1);
    all[kHalves] = newSplit(all[kWorld], rank < options.ranks / 2, rank, "halves", 0, 2);
    all[kWorld2] = newWorld(rank, "second world", 1, 3);
    all[kEvenOdd] = newSplit(all[kWorld2], rank % 2, -rank, "even-odd", 1, 4);
  }
  // All but the first. Nothing may be outstanding, and no graph may be left that was captured with them.
  void end() {
    for (int i = kMixComms - 1; i > kWorld; i--) endComm(&all[i]);
  }
  void endAll() {
    end();
    endComm(&all[kWorld]);
  }
};

#endif
