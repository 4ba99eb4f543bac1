/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamicclAllToAllv of libdynamiccl.so, beside NCCL's calls: parts of any sizes, most of them small. Over load and store some are of more
 * than a round of scratch memory has, results in a window, and in one call of three one rank's result elsewhere; over GIN parts are smaller,
 * for the carrier is slow. Every byte of every part is compared, and guards between parts.
 */
#ifndef DYN_MIX_EXCHANGE_H
#define DYN_MIX_EXCHANGE_H

#include "mix_cases.h"
#include "mix_ours.h"

static const size_t kMostPart = 12 << 20, kMostPartOverGin = 2 << 20;
static_assert(kMostPartOverGin <= kMostPart, "parts have room");
static const double kOursSeconds = 20; // until all ranks have kernels, or never
static const size_t kPartRoom = kMostPart + 2 * kGuardBytes + 16;

// One call, as every rank draws it.
struct Exchange {
  uint32_t seed;
  int n;
  size_t most;
  size_t bytes(int from, int to) const {
    Random random{seed + (uint64_t)(from * kMaxRanks + to) * 7919};
    const uint32_t how = random.below(8);
    return how < 2 ? 0 : random.below(how < 4 ? most : 1 << 16);
  }
  // Within a part's room: any alignment, and a guard before it.
  size_t at(int from, int to, bool sends) const {
    Random random{seed + (uint64_t)(from * kMaxRanks + to) * 104729 + sends};
    return (sends ? to : from) * kPartRoom + kGuardBytes + random.below(16);
  }
  uint32_t salt(int from, int to) const { return seed * 31 + from * kMaxRanks + to; }
};

// What fills this rank's part for a peer, and checks the peer's for it: a message of its own to mix_verify.h.
static Ready message(Rank &r, const Comm &comm, const Exchange &x, int peer, char *in, char *out, bool sends) {
  Ready ready = {&comm, callOf(kSendRecv, kUint8, kSum, 1), {}};
  Spec &s = ready.spec;
  s.n = comm.n, s.me = comm.me, s.kind = kSendRecv, s.type = kUint8, s.peerFrom = peer, s.errors = r.errors, s.call = (unsigned)r.numbers;
  s.seed = sends ? x.salt(comm.me, peer) : x.salt(peer, comm.me);
  s.send = in + x.at(comm.me, peer, true), s.recv = out + x.at(peer, comm.me, false);
  s.sendCount = x.bytes(comm.me, peer), s.recvCount = s.poisonCount = x.bytes(peer, comm.me), s.count = s.recvCount;
  s.low = s.recv, s.high = s.recv + s.recvCount;
  return ready;
}

static void exchange(Rank &r, const Comm &comm, const Exchange &x, AllToAllv run, int way, char *in, char *out) {
  size_t sendCounts[kMaxRanks], sendOffsets[kMaxRanks], recvCounts[kMaxRanks], recvOffsets[kMaxRanks], bytes = 0;
  const uint64_t number = ++r.numbers;
  snprintf(&r.texts[number % kTexts * kTextBytes], kTextBytes, "call %llu: AllToAllv, seed %u (rank %d of %d)", (unsigned long long)number, x.seed, comm.me, comm.n);
  for (int p = 0; p < comm.n; p++) {
    sendCounts[p] = x.bytes(comm.me, p), sendOffsets[p] = x.at(comm.me, p, true);
    recvCounts[p] = x.bytes(p, comm.me), recvOffsets[p] = x.at(p, comm.me, false);
    bytes += recvCounts[p];
    Rank::fill(message(r, comm, x, p, in, out, true), r.streams[0]);
  }
  r.issued(kAllToAll, 1);
  r.enterLane(comm.lane, 0);
  doing("dynamicclAllToAllv");
  NC((ncclResult_t)run(in, sendCounts, sendOffsets, out, recvCounts, recvOffsets, ncclUint8, way, comm.comm, r.streams[0]));
  Rank::add(&r.mine->kernels, 1);
  r.leaveLane(comm.lane, 0);
  for (int p = 0; p < comm.n; p++) Rank::check(message(r, comm, x, p, in, out, false), r.streams[0]);
  r.drain();
  r.count(1, bytes, bytes);
}

// Kernels come with the communicator, or with one of its first calls, to one rank before another.
static bool awaitOurs(Rank &r, const Comm &comm, Random &random) {
  const double deadline = nowSeconds() + kOursSeconds;
  doing("waiting for kernels of all ranks");
  do {
    for (int i = 0; i < 20; i++) r.eager(comm, callOf(kAllReduce, kFloat, kSum, 4096), (uint32_t)random.next(), 0);
    r.drain();
    if (allHave(r, comm, hasOurs(comm))) return true;
  } while (options.ours && allHave(r, comm, nowSeconds() < deadline));
  return false;
}

static void caseExchanges(Rank &r) {
  Comm world = newWorld(r.rank, "world", 0, 1);
  Random random{options.seed};
  const int way = options.ours ? options.ours : DYNAMICCL_LSA;
  const size_t room = (size_t)world.n * kPartRoom;
  char *in, *apart, *window = nullptr;
  const AllToAllv run = (AllToAllv)dlsym(RTLD_DEFAULT, "dynamicclAllToAllv");
  if (!run || !awaitOurs(r, world, random)) {
    if (options.ours) fail("not all ranks have kernels of ours over %s: AllToAllv was not tried", oursName());
    snprintf(r.mine->said, sizeof r.mine->said, "no kernels of ours: AllToAllv was not tried");
    endComm(&world);
    return;
  }
  const bool overGin = way == DYNAMICCL_GIN; // which knows nothing of windows
  CU(cudaMalloc(&in, room));
  CU(cudaMalloc(&apart, room));
  NC(ncclMemAlloc((void **)&window, room));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  ncclWindow_t registered = nullptr;
  doing("registering a window");
  if (!overGin) NC(ncclCommWindowRegister(world.comm, window, room, &registered, NCCL_WIN_COLL_SYMMETRIC));
#endif
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    const bool elsewhere = k % 3 == 2 && (int)(k / 3 % world.n) == world.me;
    exchange(r, world, {(uint32_t)random.next(), world.n, overGin ? kMostPartOverGin : kMostPart}, run, way, in, elsewhere ? apart : window);
    if (k % 4 == 0) r.eager(world, callOf(kAllReduce, kBfloat16, kSum, 1 << 20), (uint32_t)random.next(), 0);
  }
  r.drain();
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  if (registered) NC(ncclCommWindowDeregister(world.comm, registered));
#endif
  NC(ncclMemFree(window));
  CU(cudaFree(in));
  CU(cudaFree(apart));
  endComm(&world);
}

#endif
