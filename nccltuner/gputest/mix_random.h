/* SPDX-License-Identifier: Apache-2.0
 *
 * The random mix: one sequence of steps, drawn alike by every rank from the seed. A step is an eager call, a group, a
 * replay, or a capture. Sizes are log-uniform from 4 B to 16 MiB. Eager calls and groups of the world may be on registered memory.
 */
#ifndef DYN_MIX_RANDOM_H
#define DYN_MIX_RANDOM_H

#include <math.h>

#include "mix_graph.h"
#include "mix_windows.h"

static const uint64_t kRebuildEvery =
    64 * kDecideEvery;  // steps after which all communicators but the world are made anew

struct Shape {              // shares of steps, in thousandths; the rest are eager calls
  unsigned capture, replay, group;
};
static const Shape kEverything = {8, 220, 120}, kOnlyEager = {0, 0, 0};

static Call drawCall(Random &random) {
  static const int kinds[] = {kAllReduce,     kAllReduce,     kAllReduce, kAllGather, kAllGather,
                              kReduceScatter, kReduceScatter, kBroadcast, kReduce,    kAllToAll};
  Call c;
  c.kind = kinds[random.below(10)];
  c.type = random.below(options.float8 ? kTypes : kE4m3);
  c.op = random.below(2) ? (int)kSum : (int)random.below(kOps);
  c.bytes = (size_t)exp2(2 + 22 * random.unit());
  if (random.below(3) == 0) c.bytes &= ~(size_t)1023;  // a third are round
  c.root = random.below(1 << 16);
  c.inPlace = random.below(3) == 0;
  c.checkInput = random.below(8) == 0;
  c.shift = random.below(4) ? 0 : 1 + random.below(7);
  c.whole = random.below(2);
  return c;
}

struct Mixer {
  Rank &r;
  MixComms comms;
  Graph graphs[kGraphs];
  Random random;
  Windows windows;

  Mixer(Rank &rank, uint64_t seed) : r(rank), random{seed} { comms.make(r.rank); }

  // Threads of one process share what the driver locks: nothing may run on any GPU while one of them captures or frees.
  void quiet() {
    if (!options.oneProcess) return;
    drainAll();
    barrier("quiet");
  }
  void drainAll() {
    for (auto &g : graphs) g.wait();
    r.drain();
  }

  // Up to `most` calls, each lane's on one stream.
  std::vector<Rank::Member> drawMembers(unsigned most) {
    std::vector<Rank::Member> members;
    const int first = random.below(kStreams), second = (first + 1 + random.below(kStreams - 1)) % kStreams;
    const bool one = random.below(2);
    const unsigned comm = random.below(kMixComms), n = 1 + random.below(most);
    for (unsigned i = 0; i < n; i++) {
      const Comm &c = comms.all[one ? comm : random.below(kMixComms)];
      members.push_back({&c, drawCall(random), c.lane == 0 ? first : second});
      if (members.back().call.kind != kAllToAll && random.below(8) == 0) members.back().call.kind = kSendRecv;
      members.back().instead = windows.draw(random, c, &members.back().call);
    }
    return members;
  }

  void step(const Shape &shape) {
    const unsigned u = random.below(1000), g = random.below(kGraphs);
    const uint32_t seed = (uint32_t)random.next();
    const int stream = random.below(kStreams), other = (stream + 1) % kStreams;
    if (u < shape.capture) {
      const bool grouped = random.below(3) == 0;
      const std::vector<Rank::Member> members = drawMembers(kGraphCalls);
      quiet();
      graphs[g].capture(r, g, members, grouped, seed, stream, other);
      quiet();
    } else if (u < shape.capture + shape.replay) {
      if (graphs[g].exec) graphs[g].replay(stream);
    } else if (u < shape.capture + shape.replay + shape.group) {
      r.group(drawMembers(6), seed);
    } else {
      const Comm &c = comms.all[random.below(kMixComms)];
      Call call = drawCall(random);
      const Instead *instead = windows.draw(random, c, &call);
      r.eager(c, call, seed, stream, instead);
    }
  }

  void rebuild() { // a window stays, as the world does
    drainAll();
    barrier("making communicators anew");
    for (auto &g : graphs) g.drop();
    comms.end();
    comms.make(r.rank);
  }

  void run(const Shape &shape, double seconds) {
    const double deadline = nowSeconds() + seconds;
    for (uint64_t k = 0; goOn(r.rank, k, deadline); k++) {
      if (k && k % kRebuildEvery == 0) rebuild();
      step(shape);
    }
    drainAll();
    barrier("the mix has ended");
    for (auto &g : graphs) g.drop();
    windows.end();
    comms.endAll();
  }
};

static void mixRandom(Rank &r) {
  Mixer mixer(r, options.seed);
  if (options.nodes == 1 && options.ranks > 1 && !options.oneProcess && ranksOfGpu() == 1) mixer.windows.make(mixer.comms.all[kWorld]);
  mixer.run(kEverything, options.seconds);
}

#endif
