/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators that programs destroy while their calls are under way, without waiting for a stream. NCCL waits for its calls then
 * (commDestroySync), and DynamICCL for those that its kernels run (docs/design.md, decision 27): behind the end they are over, and right.
 */
#ifndef DYN_MIX_ENDS_H
#define DYN_MIX_ENDS_H

#include "mix_comm_cases.h"
#include "mix_ours.h"

enum EndedBy { kByDestroy, kByFinalize, kByFinalizeLater, kEnds };
static const char *const kEndNames[kEnds] = {"ncclCommDestroy alone", "ncclCommFinalize", "ncclCommFinalize that does not block"};

// A call on its way: its result is compared behind the end of the communicator.
struct Flying {
  Slot *slot;
  Ready ready;
  int stream;
};

static void endInFlight(Comm *c, EndedBy how) {
  doing("ending a communicator with calls under way by %s", kEndNames[how]);
  if (how != kByDestroy) settle(c->comm, ncclCommFinalize(c->comm), "ncclCommFinalize");
}

static void caseEndsInFlight(Rank &r) {
  static const int kCalls = 12, kRounds = 4 * kEnds;
  static const uint64_t kStallNs = 300000000;
  static const int kinds[] = {kAllReduce, kReduce, kAllGather, kReduceScatter, kBroadcast};
  Random random{options.seed};
  int *never;
  CU(cudaHostAlloc(&never, sizeof *never, cudaHostAllocPortable));
  *(volatile int *)never = 0;
  uint64_t byOurs = 0, byNccl = 0;
  int flew[kEnds] = {};
  for (int round = 0; round < kRounds; round++) {
    const EndedBy how = (EndedBy)(round % kEnds);
    Comm world = newWorld(r.rank, kEndNames[how], 0, 1 + round, {how != kByFinalizeLater, 0});
    const Call small = callOf(kAllReduce, kFloat, kSum, 4096);
    const bool oneBucket = round / kEnds % 2 == 0; // what kernels of ours have just run; or whatever there is, Reduce, which is NCCL's, too
    auto call = [&](int i) { return oneBucket ? small : callOf(kinds[i % 5], kBfloat16, kSum, (size_t)4096 << (i % 4 * 2)); };
    callUntilOurs(r, world, small, random, options.ours ? 3 : 0);
    for (int i = 0; i < kCalls; i++) r.eager(world, call(i), (uint32_t)random.next(), 0); // what is loaded later may wait for the whole GPU
    r.drain();
    barrier("before calls that are under way when their communicator ends");
    // The last rank's stream stands still for a while, so nobody's calls can be over; every host makes all of its own.
    if (r.rank == options.ranks - 1) {
      mixStall<<<1, 1, 0, r.streams[0]>>>((volatile int *)never, kStallNs);
      CU(cudaGetLastError());
    }
    std::vector<Flying> flying;
    for (int i = 0; i < kCalls; i++) {
      Slot &slot = r.take();
      flying.push_back({&slot, r.prepare(world, call(i), slot.buffers, (uint32_t)random.next(), nullptr), 0});
      const Ready &ready = flying.back().ready;
      r.issued(ready.call.kind, 1);
      Rank::fill(ready, r.streams[0]);
      const uint64_t before = runByOurs();
      doing("a call that is under way when its communicator ends");
      settle(world.comm, Rank::nccl(ready, r.streams[0]), kKindNames[ready.call.kind]);
      (runByOurs() > before ? byOurs : byNccl)++;
    }
    cudaEvent_t over;
    CU(cudaEventCreateWithFlags(&over, cudaEventDisableTiming));
    CU(cudaEventRecord(over, r.streams[0]));
    flew[how] += cudaEventQuery(over) == cudaErrorNotReady; // a choice that is tried for the first time may be waited for
    endInFlight(&world, how);
    if (how != kByDestroy && cudaEventQuery(over) != cudaSuccess) fail("behind %s calls are still under way", kEndNames[how]);
    ended(ncclCommDestroy(world.comm), &world, "ncclCommDestroy");
    if (cudaEventQuery(over) != cudaSuccess) fail("behind ncclCommDestroy calls are still under way");
    CU(cudaEventDestroy(over));
    for (const Flying &f : flying) {
      Rank::check(f.ready, r.streams[f.stream]);
      r.close(*f.slot, f.ready, f.stream);
    }
    r.lastStream[0] = -1;
    r.drain();
  }
  CU(cudaFreeHost(never));
  snprintf(r.mine->said, sizeof r.mine->said, "of calls under way at the end ours ran %llu, NCCL %llu", (unsigned long long)byOurs, (unsigned long long)byNccl);
  for (int how = 0; how < kEnds; how++)
    if (flew[how] == 0) fail("no calls were under way when communicators were ended by %s", kEndNames[how]);
  if (options.ours == DYNAMICCL_LSA && byOurs == 0) fail("none of the calls under way ran as ours");
  if (byNccl == 0) fail("none of the calls under way ran as NCCL's");
}

#endif
