/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank at work: streams, buffers, and one call from filling its input to comparing its result, without the host
 * waiting for the GPU. At most kSlots calls are in flight.
 */
#ifndef DYN_MIX_RANK_H
#define DYN_MIX_RANK_H

#include <memory>

#include "mix_comms.h"
#include "mix_verify.h"

static const int kSlots = 32, kStreams = 4, kGraphs = 4, kGraphCalls = 4;
static const size_t kMostBytes = 16 << 20;
static const size_t kEdgeBytes = 512;  // before and after a buffer: guards and the shift of unaligned calls
static const int kTexts = 1 << 16;     // calls that a mismatch can still name

struct Call {
  int kind = kAllReduce, type = kFloat, op = kSum;
  size_t bytes = 4;       // of the whole buffer, as nccl-tests counts
  unsigned root = 0;      // modulo the number of ranks
  bool inPlace = false, checkInput = false;
  int shift = 0;          // elements by which buffers are off their alignment
  bool whole = false;     // AllToAll: ncclAlltoAll, where NCCL has it, and not messages
};

struct Buffers {
  char *a, *b;
};

// What calls have in place of their slots' buffers: null where the slot's own stays.
struct Instead {
  Buffers of[kSlots];
};

struct Slot {
  Buffers buffers;
  cudaEvent_t done;
  bool busy;
  uint64_t call, elements, bytes;
};

// A prepared call: all that fill, NCCL and check need.
struct Ready {
  const Comm *comm;
  Call call;
  Spec spec;
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#pragma weak ncclAlltoAll  // an older NCCL may be the one that is found
static bool hasAlltoAll() { return shared->nccl >= 22800; }
#else
static bool hasAlltoAll() { return false; }
#endif

static Call limited(Call c, int n) {
  if (c.kind != kAllReduce && c.kind != kReduceScatter && c.kind != kReduce) c.op = kSum;
  if (c.op == kAvg && !canAverage(c.type, n)) c.op = kSum;
  if (c.kind == kAllToAll || c.kind == kSendRecv) c.inPlace = false;
  c.whole = c.whole && c.kind == kAllToAll && hasAlltoAll();
  return c;
}

struct Rank {
  int rank, gpu;
  SharedRank *mine;
  cudaStream_t streams[kStreams];
  Slot slots[kSlots];
  Buffers graphBuffers[kGraphs][kGraphCalls];
  unsigned *replays;                  // device memory, one counter a graph
  MixErrors *errors;
  std::unique_ptr<char[]> texts{new char[(size_t)kTexts * kTextBytes]()};
  uint64_t nextSlot = 0, reported = 0, numbers = 0;  // numbers: calls that got a number, captured ones among them

  void start(int r) {
    int gpus;
    CU(cudaGetDeviceCount(&gpus));
    rank = r, gpu = r % gpus, mine = self;  // ranks of pretended nodes may share one
    doing("starting CUDA on GPU %d", gpu);
    CU(cudaSetDevice(gpu));
    for (auto &s : streams) CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (auto &e : laneEvents) CU(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    const size_t room = kMostBytes + 2 * kEdgeBytes;
    char *arena;
    CU(cudaMalloc(&arena, room * 2 * (kSlots + kGraphs * kGraphCalls)));
    auto take = [&] {
      char *p = arena;
      arena += room;
      return p;
    };
    for (auto &s : slots) {
      s = Slot{{take(), take()}, nullptr, false, 0, 0, 0};
      CU(cudaEventCreateWithFlags(&s.done, cudaEventDisableTiming));
    }
    for (auto &g : graphBuffers)
      for (auto &b : g) b = Buffers{take(), take()};
    CU(cudaMalloc(&replays, kGraphs * sizeof *replays));
    CU(cudaMemset(replays, 0, kGraphs * sizeof *replays));
    CU(cudaHostAlloc(&errors, sizeof *errors, cudaHostAllocPortable));
    memset(errors, 0, sizeof *errors);
    warm();
    if (rank == 0) {
      cudaDeviceProp prop;
      CU(cudaGetDeviceProperties(&prop, gpu));
      snprintf(shared->gpu, sizeof shared->gpu, "%.90s", prop.name);
      NC(ncclGetVersion(&shared->nccl));
    }
    beat();
  }

  // Each kernel once: loading one later could wait for the whole GPU, and with it for other ranks.
  void warm() {
    Spec s = {};
    s.send = s.recv = s.low = s.high = slots[0].buffers.a + kEdgeBytes, s.errors = errors, s.n = 1, s.count = 1;
    mixFill<<<1, 256, 0, streams[0]>>>(s);
    mixCheck<<<1, 256, 0, streams[0]>>>(s);
    mixBump<<<1, 1, 0, streams[0]>>>(replays);
    mixStall<<<1, 1, 0, streams[0]>>>((volatile int *)errors, 1000);
    CU(cudaGetLastError());
    CU(cudaStreamSynchronize(streams[0]));
    CU(cudaMemset(replays, 0, kGraphs * sizeof *replays));
  }

  // The rank's part of a call, with its text kept for reports. Threads of a rank may prepare at once.
  Ready prepare(const Comm &comm, const Call &wanted, const Buffers &buffers, uint32_t seed, const unsigned *replay) {
    Ready ready = {&comm, limited(wanted, comm.n), {}};
    const Call &c = ready.call;
    const size_t size = sizeOf(c.type);
    Spec &s = ready.spec;
    const bool split = c.kind == kAllGather || c.kind == kReduceScatter || c.kind == kAllToAll;
    s.n = comm.n, s.me = comm.me, s.root = c.root % comm.n, s.peerFrom = (comm.me + comm.n - 1) % comm.n;
    s.count = c.bytes / size / (split ? comm.n : 1);
    if (s.count == 0) s.count = 1;
    s.kind = c.kind, s.type = c.type, s.op = c.op, s.inPlace = c.inPlace, s.checkInput = c.checkInput && !c.inPlace;
    s.replay = replay, s.errors = errors, s.seed = seed ^ comm.salt * 0x9e3779b9u;
    s.sendCount = c.kind == kReduceScatter || c.kind == kAllToAll ? s.count * comm.n : s.count;
    s.recvCount = c.kind == kAllGather || c.kind == kAllToAll ? s.count * comm.n : s.count;
    size_t edge = s.recvCount;
    char *a = buffers.a + kEdgeBytes / 2 + c.shift * size, *b = buffers.b + kEdgeBytes / 2 + c.shift * size;
    s.send = c.inPlace ? b : a, s.recv = b, s.poisonCount = c.inPlace ? 0 : s.recvCount;
    if (c.inPlace && c.kind == kAllGather) s.send = b + s.me * s.count * size, s.poisonCount = s.recvCount;
    if (c.inPlace && c.kind == kReduceScatter) s.recv = b + s.me * s.count * size, edge = s.sendCount;
    s.low = b, s.high = b + edge * size;
    if (c.kind == kReduce && s.me != s.root) s.recvCount = 0;
    const uint64_t number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    s.call = (unsigned)number;
    char *text = mine->recent[number % kRecent];
    snprintf(text, kTextBytes, "call %llu: %s %s%s%s, count %zu, root %d%s%s, of %s (rank %d of %d)",
             (unsigned long long)number, c.whole ? "AlltoAll" : kKindNames[c.kind], kTypeNames[c.type], copies(c.kind) ? "" : " ",
             copies(c.kind) ? "" : kOpNames[c.op], s.count, s.root, c.inPlace ? ", in place" : "",
             c.shift ? ", unaligned" : "", comm.name, comm.me, comm.n);
    mine->recentCall[number % kRecent] = number;
    memcpy(&texts[number % kTexts * kTextBytes], text, kTextBytes);
    return ready;
  }

  static uint64_t bytesOf(const Ready &r) {
    return sizeOf(r.call.type) * (r.spec.recvCount > r.spec.sendCount ? r.spec.recvCount : r.spec.sendCount);
  }
  static void fill(const Ready &r, cudaStream_t stream) {
    mixFill<<<gridFor(r.spec.sendCount > r.spec.poisonCount ? r.spec.sendCount : r.spec.poisonCount), 256, 0, stream>>>(
        r.spec);
    CU(cudaGetLastError());
  }
  static void check(const Ready &r, cudaStream_t stream) {
    if (options.spoil && r.spec.call % options.spoil == 0 && r.spec.recvCount)
      mixSpoil<<<1, 1, 0, stream>>>(r.spec.recv + r.spec.recvCount * sizeOf(r.call.type) - 1);
    mixCheck<<<gridFor(r.spec.recvCount > r.spec.count ? r.spec.recvCount : r.spec.count), 256, 0, stream>>>(r.spec);
    CU(cudaGetLastError());
  }

  const char *textOf(uint64_t call) const { return &texts[call % kTexts * kTextBytes]; }

  // Nothing but the NCCL call. Within a group the caller settles.
  static ncclResult_t nccl(const Ready &r, cudaStream_t stream) {
    const Spec &s = r.spec;
    const ncclDataType_t type = kNcclTypes[r.call.type];
    const ncclRedOp_t op = kNcclOps[r.call.op];
    const size_t step = s.count * sizeOf(r.call.type);
    const ncclComm_t comm = r.comm->comm;
    switch (r.call.kind) {
      case kAllReduce: return ncclAllReduce(s.send, s.recv, s.count, type, op, comm, stream);
      case kAllGather: return ncclAllGather(s.send, s.recv, s.count, type, comm, stream);
      case kReduceScatter: return ncclReduceScatter(s.send, s.recv, s.count, type, op, comm, stream);
      case kBroadcast: return ncclBroadcast(s.send, s.recv, s.count, type, s.root, comm, stream);
      case kReduce: return ncclReduce(s.send, s.recv, s.count, type, op, s.root, comm, stream);
    }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    if (r.call.whole) return ncclAlltoAll(s.send, s.recv, s.count, type, comm, stream);
#endif
    NC(ncclGroupStart());
    if (r.call.kind == kSendRecv) {
      settleInGroup(ncclSend(s.send, s.count, type, (s.me + 1) % s.n, comm, stream));
      settleInGroup(ncclRecv(s.recv, s.count, type, s.peerFrom, comm, stream));
    } else {
      for (int p = 0; p < s.n; p++) {
        settleInGroup(ncclSend(s.send + p * step, s.count, type, p, comm, stream));
        settleInGroup(ncclRecv(s.recv + p * step, s.count, type, p, comm, stream));
      }
    }
    return ncclGroupEnd();
  }

  // One eager call on one of the streams. Every rank makes the same calls in the same order.
  void eager(const Comm &comm, const Call &call, uint32_t seed, int stream, const Instead *instead = nullptr) {
    if (!comm.member()) return;
    Slot &slot = take();
    const Ready r = prepare(comm, call, buffersOf(slot, instead), seed, nullptr);
    issued(r.call.kind, 1);
    fill(r, streams[stream]);
    enterLane(comm.lane, stream);
    doing("NCCL call");
    settle(comm.comm, nccl(r, streams[stream]), kKindNames[r.call.kind]);
    leaveLane(comm.lane, stream);
    check(r, streams[stream]);
    close(slot, r, stream);
  }

  struct Member {
    const Comm *comm;
    Call call;
    int stream;
    int number = -1; // in the group, where ranks have an order of their own; negative: its place
    const Instead *instead = nullptr;
  };
  static uint32_t seedOf(uint32_t seed, size_t i) { return seed + 0x1000193u * (unsigned)i; } // of a group's call
  // Several calls in one ncclGroupStart/End. Calls of one lane must name one stream, or be of one communicator, whose streams NCCL has wait
  // for each other: there each call's buffers are filled, and compared, on the next one's stream.
  void group(const std::vector<Member> &members, uint32_t seed) {
    std::vector<std::pair<Slot *, Ready>> open;
    std::vector<int> streamOf;
    int laneStream[kLanes] = {-1, -1};
    const Comm *laneComm[kLanes] = {};
    size_t turned = 0;
    if (members.size() > kSlots) fail("a group of %zu calls: there are buffers for %d", members.size(), kSlots);
    for (size_t i = 0; i < members.size(); i++) {
      const Member &m = members[i];
      if (!m.comm->member()) continue;
      Slot &slot = take();
      open.emplace_back(&slot, prepare(*m.comm, m.call, buffersOf(slot, m.instead), seedOf(seed, m.number < 0 ? i : (size_t)m.number), nullptr));
      streamOf.push_back(m.stream);
      issued(open.back().second.call.kind, 1);
      const int lane = m.comm->lane;
      if (laneStream[lane] >= 0 && laneStream[lane] != m.stream) turned = 1;
      if (turned && laneComm[lane] != nullptr && laneComm[lane] != m.comm) fail("a group with two streams in one lane");
      laneStream[lane] = m.stream, laneComm[lane] = m.comm;
    }
    auto near = [&](size_t i) { return streamOf[(i + turned) % open.size()]; };
    for (size_t i = 0; i < open.size(); i++) {
      fill(open[i].second, streams[near(i)]);
      enterLane(open[i].second.comm->lane, streamOf[i]);
    }
    doing("NCCL group of %zu calls", open.size());
    mine->groups++;
    NC(ncclGroupStart());
    for (size_t i = 0; i < open.size(); i++) settleInGroup(nccl(open[i].second, streams[streamOf[i]]));
    const ncclResult_t end = ncclGroupEnd();
    if (end != ncclInProgress && end != ncclSuccess)
      fail("ncclGroupEnd: %s, %s", ncclGetErrorString(end), ncclGetLastError(nullptr));
    for (size_t i = 0; i < open.size() && end == ncclInProgress; i++) {
      settle(open[i].second.comm->comm, ncclInProgress, "group");
    }
    for (int l = 0; l < kLanes; l++)
      if (laneStream[l] >= 0) leaveLane(l, laneStream[l]);
    for (size_t i = 0; i < open.size(); i++) {
      check(open[i].second, streams[near(i)]);
      close(*open[i].first, open[i].second, near(i));
    }
  }
  static void settleInGroup(ncclResult_t r) {
    if (r != ncclSuccess && r != ncclInProgress)
      fail("NCCL call in a group: %s, %s", ncclGetErrorString(r), ncclGetLastError(nullptr));
  }

  // Lanes: see mix_comms.h. enterLane makes the stream wait for the lane's kernel before, leaveLane marks its own.
  cudaEvent_t laneEvents[kLanes];
  int lastStream[kLanes] = {-1, -1};
  void enterLane(int lane, int stream) {
    if (lastStream[lane] >= 0 && lastStream[lane] != stream)
      CU(cudaStreamWaitEvent(streams[stream], laneEvents[lane], 0));
  }
  void leaveLane(int lane, int stream) {
    CU(cudaEventRecord(laneEvents[lane], streams[stream]));
    lastStream[lane] = stream;
  }

  // The next slot; waits for the call that had it before.
  Slot &take() {
    Slot &s = slots[nextSlot++ % kSlots];
    finish(s);
    look();
    return s;
  }
  Buffers buffersOf(const Slot &s, const Instead *instead) const {
    if (!instead) return s.buffers;
    const Buffers &b = instead->of[&s - slots];
    return Buffers{b.a ? b.a : s.buffers.a, b.b ? b.b : s.buffers.b};
  }
  void close(Slot &s, const Ready &r, int stream) {
    s.busy = true, s.call = r.spec.call, s.elements = r.spec.recvCount, s.bytes = bytesOf(r);
    CU(cudaEventRecord(s.done, streams[stream]));
  }
  void finish(Slot &s) {
    if (!s.busy) return;
    doing("waiting for the GPU to end %s", textOf(s.call));
    CU(cudaEventSynchronize(s.done));
    count(1, s.elements, s.bytes);
    s.busy = false;
  }
  static void add(uint64_t *to, uint64_t n) { __atomic_fetch_add(to, n, __ATOMIC_RELAXED); }
  void issued(int kind, uint64_t n) { add(&mine->issued, n), add(&mine->calls[kind], n); }
  void count(uint64_t calls, uint64_t elements, uint64_t bytes) {
    add(&mine->compared, calls), add(&mine->elements, elements), add(&mine->bytes, bytes);
    beat();
  }

  // Waits for all that was issued.
  void drain() {
    for (auto &s : slots) finish(s);
    doing("waiting for all streams");
    for (auto &s : streams) CU(cudaStreamSynchronize(s));
    beat();
    look();
  }

  // Says the first wrong elements when they are seen; the count is always up to date.
  void look() {
    const uint64_t wrong = *(volatile unsigned long long *)&errors->wrong;
    if (wrong == mine->wrong) return;
    CU(cudaDeviceSynchronize());  // so that the report is whole
    mine->wrong = *(volatile unsigned long long *)&errors->wrong;
    for (; reported < mine->wrong && reported < kKeptErrors; reported++) {
      const MixError &e = errors->first[reported];
      const char *text = textOf(e.call);
      static const char *const kinds[] = {"bits differ", "values differ", "written outside the output",
                                          "input changed"};
      char name[32], what[128];
      snprintf(name, sizeof name, "call %u:", e.call);
      double expected, got;
      memcpy(&expected, &e.expected, 8), memcpy(&got, &e.got, 8);
      if (e.mismatch == kValuesDiffer)
        snprintf(what, sizeof what, "expected %.17g, got %.17g", expected, got);
      else
        snprintf(what, sizeof what, "%s, expected 0x%llx, got 0x%llx", kinds[e.mismatch],
                 (unsigned long long)e.expected, (unsigned long long)e.got);
      fprintf(stderr, "mix: WRONG rank %d, %s, replay %u, element %llu: %s\n", rank,
              strncmp(text, name, strlen(name)) ? name : text, e.replay, (unsigned long long)e.index, what);
    }
  }
};

#endif
