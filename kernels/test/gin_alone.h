/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of gin_test.cc: one rank whose peers are silent. It gives up, names whom it waited for, and puts nothing from then on, in whichever
 * lane of its communicator.
 */
#ifndef DYN_TEST_GIN_ALONE_H
#define DYN_TEST_GIN_ALONE_H

/* A lane of rank 0 of three, which are silent. */
struct Lane {
  alignas(8) uint32_t calls[DYN_GIN_COUNTERS] = {};
  uint32_t stop = 0;
  uint64_t seen[3 * DYN_GIN_MAX_BLOCKS * 3] = {}, fault[3] = {};
  std::vector<uint4> memory = std::vector<uint4>(DYN_GIN_SLOTS * 3 * kSlotBytes / sizeof(uint4));

  Gin gin(const dyn_lanes *lanes = nullptr) { return {0, 3, kSlotBytes, calls, lanes, seen, &stop, fault, 2000000, 0, 0, 0, nullptr, nullptr, 1, 0, 1, 0, 0, nullptr, nullptr, 0, 0, nullptr}; }
  Windowed window() { return {{(char *)memory.data(), (char *)memory.data(), (char *)memory.data()}}; }
};
static const FakeNet net = {0, 0, 3};

/* That were made of its puts so far, by nobody. */
static size_t puts() {
  size_t many = 0;
  std::lock_guard<std::mutex> held(wiresOf[0].lock);
  for (auto &queue : wiresOf[0].queues[0]) many += queue.size(), queue.clear();
  return many;
}
/* As a thread of so many, of the only block. */
static void inBlockOf(Block *block, unsigned threads, unsigned thread) {
  ofBlock = block;
  blockIdx.x = 0, threadIdx.x = thread, blockDim.x = threads, gridDim.x = 1;
}

/* A peer that sends nothing is named, with what was waited for, and nobody else is waited for any more. */
static const char *silence() {
  Lane lane;
  Gin g = lane.gin();
  const auto &fault = lane.fault;
  const uint32_t &stop = lane.stop;
  blockIdx.x = threadIdx.x = 0, blockDim.x = gridDim.x = 1;
  if (awaitSignal(net, g, DYN_GIN_DATA, 2, 7)) return "a signal was seen that nobody raised";
  if (fault[2] != ((uint64_t)DYN_GIN_WAIT_DATA << 32 | 7) || fault[1] != 0 || stop != 1) return "who was waited for in vain is not named";
  g.waitNs = UINT64_MAX;
  if (awaitCounter(net, g, 1, 8) || fault[1] != 0) return "a rank that has given up goes on waiting";
  return nullptr;
}

/* What a rank that has given up would put lands where a peer may still read: in calls to come it puts nothing. */
static const char *puttingOn() {
  Lane lane;
  static Block block;
  pthread_barrier_init(&block.barrier, nullptr, 1);
  inBlockOf(&block, 1, 0);
  float in[4] = {}, out[4];
  for (int call = 1; call <= 2; call++) {
    ginAllReduce<float>(net, lane.gin(), lane.window(), in, out, 4, Op::sum);
    if (puts() != (call == 1 ? 2 : 0)) return "a rank that has given up takes part in the next call";
  }
  return nullptr;
}

/* Nor in another lane of the communicator, over GIN or over load and store, whichever it was that gave up. */
static const char *puttingOnElsewhere() {
  enum { kCalls, kGraphs, kNear, kLanes };
  static Block block;
  float in[4] = {}, out[4 * 3];
  pthread_barrier_init(&block.barrier, nullptr, 1);
  inBlockOf(&block, 1, 0);
  for (int first = 0; first < kLanes; first++) {
    Lane over[2];
    static World near;
    if (first == 0) make(near, 3, 0, 1, {1, 1, 1});
    std::fill(near.counters[0].begin(), near.counters[0].end(), 0);
    memset(near.scratch[1].get(), 0, 2 * 3 * kLineBytes);
    const dyn_lanes lanes = {{&near.counters[0][kMaxBlocks], nullptr, &over[kCalls].calls[DYN_GIN_CALLS], &over[kGraphs].calls[DYN_GIN_CALLS]}};
    near.lanes = &lanes;
    for (int k = 0; k < kLanes; k++) {
      const int lane = (first + k) % kLanes;
      looks = 0;
      if (lane == kNear) allReduceOneShot<float>(Call{in, out, 4, (int32_t)Op::sum, 0, nullptr, domainOf(near, 0, 2000000)});
      else if (k < 2) ginAllReduce<float>(net, over[lane].gin(&lanes), over[lane].window(), in, out, 4, Op::sum);
      else ginAllGather(net, over[lane].gin(&lanes), over[lane].window(), (const char *)in, (char *)out, sizeof in);
      const std::vector<char> none(2 * 3 * kLineBytes);
      const bool sent = memcmp(near.scratch[1].get(), none.data(), none.size()) != 0, wants = first == kNear;
      if (puts() != (k == 0 && lane != kNear ? 2 : 0) || sent != wants) return "a rank that has given up takes part in a call of another lane";
    }
  }
  return nullptr;
}

/* Who sees it in another lane is over at once, and then the host knows already. In one place, so that what is stored last is there. */
static const char *toldTooLate() {
  Lane lane;
  alignas(8) uint32_t other[2] = {0, 4}; /* 4: the host has had enough */
  const dyn_lanes lanes = {{other}};
  Gin g = lane.gin(&lanes);
  g.stop = &other[1];
  inBlockOf(nullptr, 1, 0);
  if (awaitSignal(net, g, DYN_GIN_DATA, 1, 7)) return "a signal was seen that nobody raised";
  return other[1] == 1 ? nullptr : "a kernel of another lane is over before the host hears why";
}

/* While a block begins, of which some see it and others do not: all leave, for one puts what all have put together. */
static const char *seenBySome() {
  static Lane lane;
  static Block block;
  static std::atomic<unsigned> ended;
  const auto begin = [](unsigned thread) {
    inBlockOf(&block, 2, thread);
    float in[4] = {}, out[4];
    ginAllReduce<float>(net, lane.gin(), lane.window(), in, out, 4, Op::sum);
    ended++;
  };
  pthread_barrier_init(&block.barrier, nullptr, 2);
  std::thread(begin, 0).detach();
  usleep(50000);
  storeRelease(&lane.calls[DYN_GIN_CALLS + 1], 1u);
  std::thread(begin, 1).detach();
  for (int n = 0; n < 200 && ended < 2; n++) usleep(10000);
  return ended == 2 && puts() == 0 ? nullptr : "some of a block take part in a call and others do not";
}

#endif
