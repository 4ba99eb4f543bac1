/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of communicators that come and go: split, shrunk, aborted in the middle of work, non-blocking, all in one
 * process.
 */
#ifndef DYN_MIX_COMM_CASES_H
#define DYN_MIX_COMM_CASES_H

#include "mix_cases.h"

// Enough calls of two buckets that epochs pass (16 calls each), and a mix.
static void exercise(Rank &r, const Comm &c, Random &random, int calls) {
  for (int i = 0; i < calls; i++) {
    Call call = i % 2 ? drawCall(random) : callOf(kAllReduce, kFloat, kSum, i % 4 ? 65536 : 4096);
    const uint32_t seed = (uint32_t)random.next();
    r.eager(c, call, seed, i % kStreams);
  }
}

// Halves, then all but the last rank (which joins nothing), with and without shared resources; parent and children
// work in turn.
static void caseSplit(Rank &r) {
  Random random{options.seed};
  for (int round = 0; round < 4; round++) {
    Comm world = newWorld(r.rank, round % 2 ? "world that shares" : "world", 0, 1, {1, round % 2});
    exercise(r, world, random, 60);
    r.drain();
    Comm halves = newSplit(world, r.rank < options.ranks / 2, -r.rank, "halves", 0, 2);
    exercise(r, halves, random, 200);
    r.drain();
    const bool last = r.rank == options.ranks - 1;
    Comm some = newSplit(world, last ? NCCL_SPLIT_NOCOLOR : 7, r.rank, "all but the last", 0, 3);
    for (int i = 0; i < 20; i++) {
      exercise(r, some, random, 10);
      exercise(r, halves, random, 10);
      exercise(r, world, random, 10);
    }
    r.drain();
    barrier("before the children end");
    endComm(&some);
    endComm(&halves);
    endComm(&world);
  }
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static Comm newShrunk(Rank &r, const Comm &parent, int without, int flags, unsigned salt) {
  ncclComm_t comm = nullptr;
  if (r.rank == without) return seen(nullptr, "shrunk", 0, salt);
  doing("shrinking %s, flags %d", parent.name, flags);
  settle(parent.comm, ncclCommShrink(parent.comm, &without, 1, &comm, nullptr, flags), "ncclCommShrink");
  if (!comm) fail("ncclCommShrink returned no communicator");
  beat();
  return seen(comm, "shrunk", 0, salt);
}
#endif

// A rank leaves an idle communicator; the others go on with a smaller one.
static void caseShrink(Rank &r) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  Random random{options.seed};
  for (int round = 0; round < 4; round++) {
    Comm world = newWorld(r.rank, round % 2 ? "world that shares" : "world", 0, 1 + round, {1, round % 2});
    exercise(r, world, random, 200);
    r.drain();
    barrier("before shrink");
    Comm less = newShrunk(r, world, round % options.ranks, NCCL_SHRINK_DEFAULT, 20 + round);
    exercise(r, less, random, 400);
    r.drain();
    barrier("after shrink");
    endComm(&less);
    endComm(&world);
  }
#endif
}

// Leaves collectives outstanding on all ranks: the last rank's stream is stalled, so its kernels do not start and the
// others' wait for them. Every host has issued every call, so no host waits for another.
struct Outstanding {
  int *go = nullptr;
  void issue(Rank &r, const Comm &c, Random &random) {
    r.drain();
    CU(cudaHostAlloc(&go, sizeof *go, cudaHostAllocPortable));
    *(volatile int *)go = 0;
    barrier("before outstanding work");
    const bool stalls = r.rank == options.ranks - 1;
    if (stalls) {
      mixStall<<<1, 1, 0, r.streams[0]>>>(go, 20000000000ull);
      CU(cudaGetLastError());
    }
    for (int i = 0; i < 12; i++) {
      const Call call = callOf(i % 5, kFloat, kSum, (size_t)4096 << (i % 4 * 3));
      // Buffers that no compared call uses: a late rank may still write for ranks that have aborted.
      const Buffers &buffers = r.graphBuffers[i / kGraphCalls][i % kGraphCalls];
      const Ready ready = r.prepare(c, call, buffers, (uint32_t)random.next(), nullptr);
      doing("outstanding call");
      r.issued(ready.call.kind, 1);  // never compared: aborted work has no right result
      settle(c.comm, Rank::nccl(ready, r.streams[0]), "outstanding call");
    }
    usleep(100000);  // kernels are on the GPU now
    if (cudaStreamQuery(r.streams[0]) != cudaErrorNotReady)
      fail("the work ended, though the last rank's stream is stalled");
    barrier("work is outstanding");
  }
  void release() { *(volatile int *)go = 1; }
  void end(Rank &r) {
    doing("waiting for aborted work to leave the GPU");
    CU(cudaStreamSynchronize(r.streams[0]));
    CU(cudaFreeHost(go));
    beat();
  }
};

// NCCL_SHRINK_ABORT: the others shrink while work that the last rank holds up is outstanding. The last rank aborts.
static void caseShrinkAbort(Rank &r) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  Random random{options.seed};
  for (int round = 0; round < 3; round++) {
    Comm world = newWorld(r.rank, "world", 0, 1 + round);
    exercise(r, world, random, 200);
    Outstanding work;
    work.issue(r, world, random);
    const int last = options.ranks - 1;
    Comm less = newShrunk(r, world, last, NCCL_SHRINK_ABORT, 20 + round);
    barrier("after shrink");
    work.release();
    abortComm(&world);
    work.end(r);
    exercise(r, less, random, 400);
    r.drain();
    barrier("after work of the shrunk communicator");
    endComm(&less);
  }
#endif
}

// Abort in the middle of work, then a new communicator, several times. In the first rounds all ranks abort at once, in
// the later ones the last rank when the others are gone.
static void caseAbort(Rank &r) {
  static const char *const names[] = {"world of round 0", "world of round 1", "world of round 2", "world of round 3"};
  Random random{options.seed};
  for (int round = 0; round < 4; round++) {
    Comm world = newWorld(r.rank, names[round], 0, 1 + round);
    exercise(r, world, random, 200);
    Outstanding work;
    work.issue(r, world, random);
    if (round >= 2) {
      if (r.rank != options.ranks - 1) abortComm(&world);
      barrier("all but the last have aborted");
    }
    work.release();
    abortComm(&world);
    work.end(r);
    barrier("all have aborted");
  }
  Comm world = newWorld(r.rank, "world", 0, 9);
  exercise(r, world, random, 400);
  r.drain();
  endComm(&world);
}

// The non-blocking interface: every call may be in progress when it returns.
static void caseNonBlocking(Rank &r) {
  Comm world = newWorld(r.rank, "non-blocking world", 0, 1, {0, 0});
  Random random{options.seed};
  exercise(r, world, random, 600);
  r.drain();
  barrier("before a non-blocking split");
  Comm halves = newSplit(world, r.rank < options.ranks / 2, r.rank, "non-blocking halves", 0, 2);
  for (int i = 0; i < 30; i++) {
    exercise(r, halves, random, 10);
    exercise(r, world, random, 10);
    std::vector<Rank::Member> members;
    for (int m = 0; m < 4; m++) members.push_back({&world, drawCall(random), 0});
    r.group(members, (uint32_t)random.next());
  }
  r.drain();
  barrier("before the end");
  endComm(&halves);
  endComm(&world);
}

// One process, one thread, all GPUs: ncclCommInitAll, and every call for all GPUs within a group.
static void caseInitAll(std::vector<std::unique_ptr<Rank>> &ranks) {
  const int n = (int)ranks.size();
  std::vector<ncclComm_t> raw(n);
  std::vector<Comm> comms(n);
  doing("ncclCommInitAll of %d GPUs", n);
  NC(ncclCommInitAll(raw.data(), n, nullptr));
  for (int i = 0; i < n; i++) {
    CU(cudaSetDevice(i));
    comms[i] = seen(raw[i], "all GPUs of a process", 0, 1);
  }
  Random random{options.seed};
  const double deadline = nowSeconds() + options.seconds;
  for (uint64_t k = 0; nowSeconds() < deadline; k++) {
    const unsigned calls = k % 4 ? 1 : 1 + random.below(5);  // one call, or several aggregated
    std::vector<Call> drawn;
    for (unsigned c = 0; c < calls; c++)
      drawn.push_back(k % 2 ? drawCall(random) : callOf(kAllReduce, kFloat, kSum, 65536));
    const uint32_t seed = (uint32_t)random.next();
    std::vector<std::pair<int, Ready>> open;
    std::vector<Slot *> slots;
    for (int i = 0; i < n; i++) {
      self = ranks[i]->mine;
      CU(cudaSetDevice(i));
      for (unsigned c = 0; c < calls; c++) {
        slots.push_back(&ranks[i]->take());
        open.emplace_back(i, ranks[i]->prepare(comms[i], drawn[c], slots.back()->buffers, seed + c, nullptr));
        ranks[i]->issued(open.back().second.call.kind, 1);
        Rank::fill(open.back().second, ranks[i]->streams[0]);
      }
      ranks[i]->mine->groups++;
      doing("NCCL group over all GPUs");
    }
    NC(ncclGroupStart());
    for (auto &o : open) NC(Rank::nccl(o.second, ranks[o.first]->streams[0]));
    NC(ncclGroupEnd());
    for (size_t j = 0; j < open.size(); j++) {
      const int i = open[j].first;
      self = ranks[i]->mine;
      CU(cudaSetDevice(i));
      Rank::check(open[j].second, ranks[i]->streams[0]);
      ranks[i]->close(*slots[j], open[j].second, 0);
    }
  }
  for (int i = 0; i < n; i++) {
    self = ranks[i]->mine;
    CU(cudaSetDevice(i));
    ranks[i]->drain();
  }
  doing("destroying the communicators of one process");
  for (int i = 0; i < n; i++) NC(ncclCommDestroy(comms[i].comm));
}

#endif
