/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of ordinary work: what programs do with communicators that live on. Each starts in processes of its own.
 */
#ifndef DYN_MIX_CASES_H
#define DYN_MIX_CASES_H

#include <thread>

#include "mix_random.h"

static Call callOf(int kind, int type, int op, size_t bytes) {
  Call c;
  c.kind = kind, c.type = type, c.op = op, c.bytes = bytes;
  return c;
}

// Few buckets, many calls: choices come into force, trials run and end, and results stay right throughout.
static void casePlans(Rank &r) {
  Comm world = newWorld(r.rank, "world", 0, 1);
  static const int kinds[] = {kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce};
  static const size_t sizes[] = {4096, 65536, 1 << 20};
  Random random{options.seed};
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    // Runs of 64 equal calls, so that epochs hold trials of one bucket.
    Call c = callOf(kinds[k / 64 % 5], k % 3 ? kBfloat16 : kFloat, kSum, sizes[k / 320 % 3]);
    c.root = (unsigned)k, c.inPlace = k % 4 == 0;
    r.eager(world, c, (uint32_t)random.next(), 0);
  }
  r.drain();
  endComm(&world);
}

// Graphs of several collectives and sizes: captured, replayed many times between eager calls, captured again, while
// what the plan says changes. A graph keeps the choices of its capture.
static void playGraphs(Rank &r, bool alternate) {
  Comm world = newWorld(r.rank, "world", 0, 1);
  Random random{options.seed};
  Graph graphs[kGraphs];
  for (int round = 0; round < 12; round++) {
    for (int g = 0; g < kGraphs; g++) {
      std::vector<Rank::Member> members;
      for (int i = 0; i < kGraphCalls; i++) {
        Call c = drawCall(random);
        c.kind = (round + g + i) % 5;
        members.push_back({&world, c, 0});
      }
      graphs[g].capture(r, g, members, g == 3, (uint32_t)random.next(), 0, 1, alternate);
    }
    for (int i = 0; i < 200; i++) {
      graphs[random.below(kGraphs)].replay(random.below(2));
      if (i % 3 == 0) r.eager(world, drawCall(random), (uint32_t)random.next(), random.below(kStreams));
    }
  }
  for (auto &g : graphs) g.wait();
  r.drain();
  for (auto &g : graphs) g.drop();
  endComm(&world);
}

static void caseGraphs(Rank &r) { playGraphs(r, false); }

// Graphs whose calls are the body of a conditional node that runs them three times a replay. Such a body may hold no events, so graphs have to
// run alone, as the setting promises NCCL.
static void caseLoops(Rank &r) {
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
  Comm world = newWorld(r.rank, "world", 0, 1);
  Random random{options.seed};
  Graph graphs[kGraphs];
  for (int round = 0; round < 6; round++) {
    for (int g = 0; g < kGraphs; g++) {
      std::vector<Rank::Member> members;
      for (int i = 0; i < kGraphCalls; i++) members.push_back({&world, drawCall(random), 0});
      graphs[g].times = 3;
      graphs[g].capture(r, g, members, g == 3, (uint32_t)random.next(), 0, 1);
    }
    for (int i = 0; i < 100; i++) {
      Graph &g = graphs[random.below(kGraphs)];
      g.replay(0);
      g.wait();
      if (i % 3 == 0) r.eager(world, drawCall(random), (uint32_t)random.next(), 0);
      r.drain();
    }
  }
  for (auto &g : graphs) g.drop();
  endComm(&world);
}

// Calls of one communicator on two streams of a capture, which do not wait for each other: they run in the order of the
// calls all the same.
static void caseForks(Rank &r) { playGraphs(r, true); }

// Three threads of every rank capture at once, each on a communicator and a stream of its own; nothing runs on the GPU
// meanwhile, for a capture may connect ranks. Then the graphs replay: first launched by one thread, then those of two
// lanes by two threads at once.
static void caseThreads(Rank &r) {
  static const int kThreads = 3;
  static const char *const names[kThreads] = {"first", "second", "third"};
  Comm comms[kThreads];
  Graph graphs[kThreads];
  for (int t = 0; t < kThreads; t++) comms[t] = newWorld(r.rank, names[t], t % kLanes, 10 + t);
  Random random{options.seed};
  SharedRank *const mine = self;
  for (int round = 0; round < 10; round++) {
    std::vector<std::vector<Rank::Member>> members(kThreads);
    std::vector<uint32_t> seeds;
    for (int t = 0; t < kThreads; t++) {
      seeds.push_back((uint32_t)random.next());
      for (int i = 0; i < kGraphCalls; i++) members[t].push_back({&comms[t], drawCall(random), t});
    }
    r.drain();
    barrier("before captures by threads");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; t++)
      threads.emplace_back([&, t] {
        self = mine;
        CU(cudaSetDevice(r.gpu));
        graphs[t].capture(r, t, members[t], false, seeds[t], t, kStreams - 1);
      });
    for (auto &t : threads) t.join();
    barrier("after captures by threads");
    for (int i = 0; i < 60; i++)
      for (int t = 0; t < kThreads; t++) graphs[t].replay(t);
    for (auto &g : graphs) g.wait();
    r.drain();
    barrier("before replays by threads");
    std::vector<std::thread> replaying;
    for (int t = 0; t < kLanes; t++)
      replaying.emplace_back([&, t] {
        self = mine;
        CU(cudaSetDevice(r.gpu));
        for (int i = 0; i < 60; i++) graphs[t].replay(t);
      });
    for (auto &t : replaying) t.join();
    for (auto &g : graphs) g.wait();
    r.drain();
    barrier("after replays by threads");
  }
  for (auto &g : graphs) g.drop();
  for (auto &c : comms) endComm(&c);
}

// ncclGroup in all its uses: several collectives of one communicator, equal ones (which NCCL aggregates) and different
// ones; several communicators; collectives mixed with send and recv.
static void caseGroups(Rank &r) {
  MixComms comms;
  comms.make(r.rank);
  Random random{options.seed};
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    std::vector<Rank::Member> members;
    const unsigned n = 2 + random.below(7);
    const Call same = drawCall(random);
    for (unsigned i = 0; i < n; i++) {
      const Comm &c = comms.all[k % 4 == 2 || k % 4 == 3 ? random.below(kMixComms) : k % kMixComms];
      Call call = k % 4 == 0 ? same : drawCall(random);
      if (call.bytes > (4 << 20)) call.bytes >>= 2;
      if (k % 2 && i % 2) call.kind = kSendRecv;
      members.push_back({&c, call, c.lane});
    }
    r.group(members, (uint32_t)random.next());
  }
  r.drain();
  comms.endAll();
}

// Groups that are not alike on all ranks. One rank alone, in turn, makes a group of a collective and a message, which may be on another
// stream, that the others make one by one. And every rank makes one of calls of two communicators and of one that half of the ranks have, in
// an order of its own, all on one stream: there NCCL goes by the communicators' numbers (ncclGroupCommJoin), and whoever runs some of them
// has to find an order, too. NCCL connects ranks with their hosts in the first call of an algorithm or to a peer: all of that has to be before.
static void caseGroupsApart(Rank &r) {
  setenv("NCCL_RUNTIME_CONNECT", "0", 1);
  Comm worlds[2] = {newWorld(r.rank, "first", 0, 30), newWorld(r.rank, "second", 0, 31)};
  Comm half = newSplit(worlds[0], r.rank % 2, r.rank, "even-odd", 0, 32);
  const Comm *const all[] = {&worlds[0], &worlds[1], &half};
  static const int kinds[] = {kAllReduce, kAllGather, kReduceScatter, kBroadcast, kSendRecv};
  static const size_t sizes[] = {4096, 262144, 1 << 20};
  Random random{options.seed};
  for (int kind : kinds)
    for (const Comm *c : all) r.eager(*c, callOf(kind, kBfloat16, kSum, 1 << 20), options.seed, 0);
  r.drain();
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    const size_t bytes = sizes[k / 192 % 3];
    const uint32_t seed = (uint32_t)random.next();
    std::vector<Rank::Member> members;
    if (k / 64 % 2 == 0) {
      members.push_back({&worlds[0], callOf(kinds[k / 192 % 4], kBfloat16, kSum, bytes), 0});
      members.push_back({&worlds[0], callOf(kSendRecv, kBfloat16, kSum, bytes), (int)(k / 128 % 2)});
    } else {
      for (int i = 0; i < 3; i++) {
        const int c = (r.rank + i * (1 + (int)(k / 2 + r.rank) % 2)) % 3;
        members.push_back({all[c], callOf(kinds[(k / 8 + c) % 4], kBfloat16, kSum, bytes), 0, c});
      }
      if (k % 3 == 0) members.push_back({&worlds[k % 2], callOf(kSendRecv, kBfloat16, kSum, bytes), 0, 3});
    }
    const bool together = k / 64 % 2 != 0 || r.rank == (int)(k % options.ranks);
    if (together) r.group(members, seed);
    else
      for (size_t i = 0; i < members.size(); i++) r.eager(*members[i].comm, members[i].call, Rank::seedOf(seed, i), members[i].stream);
  }
  r.drain();
  endComm(&half);
  for (Comm &c : worlds) endComm(&c);
}

// Several communicators and streams at once, eager calls only.
static void caseStreams(Rank &r) {
  Mixer mixer(r, options.seed);
  mixer.run(kOnlyEager, options.seconds);
}

// One communicator used on four streams without any dependency of ours: NCCL itself orders its kernels.
static void caseOneCommStreams(Rank &r) {
  Comm world = newWorld(r.rank, "world", 0, 1);
  Random random{options.seed};
  const double deadline = nowSeconds() + options.seconds / 2;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    r.lastStream[0] = -1;  // forget the lane: enterLane adds no dependency
    r.eager(world, drawCall(random), (uint32_t)random.next(), k % kStreams);
  }
  r.drain();
  endComm(&world);
}

// Kernels that wait keep others out of a GPU. In turn one rank calls on three communicators before the call that the other ranks wait
// for, with their hosts, before they make those three calls: all four have to fit there, as NCCL's own do. NCCL connects ranks, with
// their hosts, in the first call that runs an algorithm, or sends to a peer: all of that has to be before such turns.
static void casePlaces(Rank &r) {
  setenv("NCCL_RUNTIME_CONNECT", "0", 1);
  static const int kWorlds = kStreams;
  static const char *const names[kWorlds] = {"first", "second", "third", "fourth"};
  Comm worlds[kWorlds];
  for (int t = 0; t < kWorlds; t++) worlds[t] = newWorld(r.rank, names[t], 0, 20 + t);
  Random random{options.seed};
  auto call = [&](int t, int kind, uint32_t seed) {
    r.lastStream[0] = -1;  // each has its own stream, and none waits for another's
    r.eager(worlds[t], callOf(kind, kBfloat16, kSum, 4 << 20), seed, t);
  };
  static const int kinds[] = {kAllReduce, kAllGather, kReduceScatter, kAllToAll};
  for (int kind : kinds)
    for (int t = 0; t < kWorlds; t++) call(t, kind, options.seed);
  r.drain();
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    const int kind = kinds[k / 64 % 4];
    uint32_t seeds[kWorlds];
    for (auto &seed : seeds) seed = (uint32_t)random.next();
    const bool ahead = r.rank == (int)(k % options.ranks);
    for (int t = 1; ahead && t < kWorlds; t++) call(t, kind, seeds[t]);
    call(0, kind, seeds[0]);
    doing("waiting for the call of the first communicator");
    CU(cudaStreamSynchronize(r.streams[0]));
    for (int t = 1; !ahead && t < kWorlds; t++) call(t, kind, seeds[t]);
    r.drain();
  }
  for (auto &w : worlds) endComm(&w);
}

// The same with most calls of the world on memory that is registered, which are choices of their own.
static void playRegistered(Rank &r, bool apart) {
  Mixer mixer(r, options.seed);
  mixer.windows.apart = apart;
  if (options.nodes == 1) mixer.windows.make(mixer.comms.all[kWorld]);
  else snprintf(r.mine->said, sizeof r.mine->said, "nothing is registered between nodes");
  mixer.run(kEverything, 2 * options.seconds);
}
static void caseRegistered(Rank &r) { playRegistered(r, false); }

// In some calls one rank's buffers are elsewhere, where nobody was promised that they are not: NCCL takes no notice of registration there then.
static void caseRegisteredApart(Rank &r) {
  setenv("NCCL_LOCAL_REGISTER", "0", 1);
  playRegistered(r, true);
}

// One buffer of each call is registered and the other one is not, in ways in which NCCL has device kernels for LL alone. It asks about these calls,
// and what is answered LL runs as one: averages have none (from 2.30.3), and before that they read some addresses wrongly. By itself NCCL takes none
// for calls of this size.
static const size_t kHalfRegistered = 8 << 20;
static void caseHalves(Rank &r) {
  Comm world = newWorld(r.rank, "world", 0, 1);
  Windows windows;
  windows.make(world, kHalfRegistered);
  static const struct { int kind, op; bool gives; } kinds[] = {{kAllReduce, kAvg, true}, {kAllReduce, kAvg, false}, {kAllReduce, kSum, true}, {kAllGather, kSum, true}, {kReduceScatter, kSum, false}};
  Random random{options.seed};
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
    const auto &kind = kinds[k / 64 % 5];
    Call c = callOf(kind.kind, kBfloat16, kind.op, kHalfRegistered);
    c.shift = k % 2;
    r.eager(world, c, (uint32_t)random.next(), 0, windows.half(kind.gives));
  }
  r.drain();
  windows.end();
  endComm(&world);
}

static void caseEverything(Rank &r) {
  Mixer mixer(r, options.seed);
  mixer.run(kEverything, 2 * options.seconds);
}

#endif
