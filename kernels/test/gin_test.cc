/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels on GIN on threads of a CPU (ranks.h), over wires that keep no more than GIN promises (wires.h): AllReduce,
 * AllToAll, the probe and rounds between two ranks in turns, of any size, alignment and number of blocks and of contexts that they
 * share. Every element is compared bit by bit. And, alone, that shares cover what they share and that slots and signals are apart.
 */
#include <cmath>

#define DYN_GIN_TRIP_EVERY 8
#define DYN_GIN_TRIP_CLOSELY 2
#define DYN_GIN_TRIPS_RARE 64
#define DYN_GIN_TRIPS_CLOSE 32
#include "../gin/all_reduce.cuh"
#include "../gin/all_to_all.cuh"
#include "../gin/ping_pong.cuh"
#include "../gin/probe.cuh"
#include "../gin/rounds.cuh"
#include "wires.h"

constexpr size_t kSlotBytes = 2048, kMostPart = 700, kMostRounds = 6000, kGuard = 16, kSlotsAt = 128;
enum { kIn, kOut, kSlots, kPath }; /* buffers */

enum class Type { f32, bf16, i8, count };
enum class Kind { allReduce, allReduceInRounds, allToAllCounter, allToAllFlush, allToAllSlots, allGather, reduceScatter, probe, rounds };
static const char *const kindNames[] = {"AllReduce", "AllReduce in rounds", "AllToAll, counter", "AllToAll, flush", "AllToAll, slots", "AllGather", "ReduceScatter", "probe", "rounds"};

/* One call, the same on all ranks. */
struct Step {
  Kind kind;
  Type type;
  Op op;
  unsigned blocks, contexts;
  size_t count, shiftIn, shiftOut; /* elements, or bytes of a part */
  uint64_t seed;
  bool closely; /* its puts are timed as one of few calls is */
};

static Step stepOf(uint64_t seed, uint64_t n) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  static constexpr Kind kinds[] = {Kind::allReduce, Kind::allReduce, Kind::allReduceInRounds, Kind::allReduceInRounds, Kind::allToAllCounter, Kind::allToAllCounter, Kind::allToAllFlush,
                                   Kind::allToAllFlush, Kind::allToAllSlots, Kind::allToAllSlots, Kind::allGather, Kind::allGather, Kind::reduceScatter, Kind::reduceScatter,
                                   Kind::probe, Kind::rounds};
  s.kind = kinds[next(&r) % 16];
  s.type = (Type)(next(&r) % (int)Type::count);
  s.op = next(&r) % 3 == 0 ? Op::avg : next(&r) % 4 == 0 ? Op::max : Op::sum;
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.count = 1 + next(&r) % (next(&r) % 3 == 0 ? (s.kind == Kind::allReduce ? kSlotBytes / 4 : s.kind == Kind::allReduceInRounds ? kMostRounds : s.kind == Kind::reduceScatter ? kMostRounds / 4 : s.kind == Kind::allToAllSlots || s.kind == Kind::allGather ? kMostRounds : kMostPart) : 40);
  if (s.kind == Kind::allToAllSlots && next(&r) % 4 != 0) /* in the last round all blocks but one have nothing to move */
    s.blocks = kBlocks, s.count = (1 + next(&r) % 2) * (kSlotBytes / DYN_GIN_UNIT / kBlocks) * kBlocks * DYN_GIN_UNIT + 1 + next(&r) % DYN_GIN_UNIT;
  s.shiftIn = next(&r) % 2 ? 0 : next(&r) % 4, s.shiftOut = next(&r) % 2 ? 0 : next(&r) % 4;
  s.seed = next(&r);
  s.contexts = 1 + (unsigned)(next(&r) % kContexts);
  s.closely = next(&r) % 2;
  return s;
}

static uint64_t faults[kMaxRanks][kMaxRanks];

/* ---- what puts take ---- */

struct Trips {
  dyn_gin_legs legs[DYN_GIN_TRIP_BLOCKS * kMaxRanks];
  dyn_gin_trip told[DYN_GIN_TRIPS * DYN_GIN_TRIP_BLOCKS * kMaxRanks], known[DYN_GIN_TRIPS * DYN_GIN_TRIP_BLOCKS * kMaxRanks];
  uint32_t last; /* call */
};
static Trips tripsOf[kMaxRanks];

static Gin ginOf(World &w, int rank, const Domain &d, const Step &s) {
  static uint64_t seen[kMaxRanks][kSeen];
  Trips &trips = tripsOf[rank];
  return {rank, w.nRanks, kSlotBytes, ginCalls(d), nullptr, seen[rank], d.stop, faults[rank], d.waitNs, kSlotsAt, kFirst, kFirst, trips.legs, trips.told, s.contexts, s.closely, 1, 0, 0, nullptr, nullptr, 0, 0, nullptr};
}

/* What the call that has just ended, before this rank begins another, told of a put of so many bytes: not 0 until the
 * peer had it. */
static uint64_t differOf(const World &w, const Step &s, int rank, unsigned block, int peer, uint32_t call, bool whole, const dyn_gin_trip &told) {
  const dyn_gin_legs &legs = tripsOf[rank].legs[block * w.nRanks + peer];
  const size_t bytes = dyn_gin_trip_bytes(told.word);
  uint64_t wrong = told.word >> 32 != call || bytes > kSlotBytes || bytes % sizeof(uint4) != 0 || legs.issuedNs == 0 || (legs.counterNs != 0) != (bytes > 0);
  wrong += dyn_gin_trip_blocks(told.word) != s.blocks || dyn_gin_trip_contexts(told.word) != s.contexts;
  wrong += told.times != dyn_gin_trip_times(legs.issuedNs, legs.counterNs, legs.signalNs) || legs.signalNs <= legs.issuedNs || (bytes > 0 && legs.counterNs <= legs.issuedNs);
  if (whole) wrong += legs.signalNs < wiresOf[peer].settledNs[block][kFirst + ginSignalOf(w.nRanks, DYN_GIN_DATA, block, rank)];
  if (whole && bytes > 0) wrong += legs.counterNs < wiresOf[rank].readNs[block][kFirst + ginCounterOf(w.nRanks, block, peer)];
  return wrong;
}

/* Trips are told of timed calls alone, and of the first block on each context all. blocks: that put something or nothing; whole: in one round. */
static uint64_t tripsDiffer(World &w, const Step &s, int rank, unsigned blocks, bool collective, bool whole) {
  Trips &t = tripsOf[rank];
  const uint32_t call = t.last + 1 != 0 ? t.last + 1 : 2;
  const bool timed = collective && dyn_gin_timed(call, s.closely);
  uint64_t wrong = 0;
  for (unsigned cell = 0; cell < DYN_GIN_TRIPS; cell++)
    for (unsigned b = 0; b < DYN_GIN_TRIP_BLOCKS; b++)
      for (int r = 0; r < w.nRanks; r++) {
        const size_t at = (cell * DYN_GIN_TRIP_BLOCKS + b) * w.nRanks + r;
        const bool changed = memcmp(&t.told[at], &t.known[at], sizeof t.told[at]) != 0, wanted = timed && cell == dyn_gin_trip_place(call, s.closely) && b < blocks && b < s.contexts && r != rank;
        wrong += changed != wanted;
        if (changed && wanted) wrong += differOf(w, s, rank, b, r, call, whole, t.told[at]), w.stamped++;
        t.known[at] = t.told[at];
      }
  t.last = w.counters[rank][kMaxBlocks - 1];
  return wrong;
}

/* Values of several magnitudes, so that sums round, and the order of ranks shows. */
template <typename T>
static T valueOf(const Step &s, int rank, size_t i) {
  uint64_t r = s.seed + (uint64_t)rank * 1000003 + i * 7919, x = next(&r);
  if (sizeof(T) == 1) return (T)(x % 64);
  return Number<T>::down((typename Number<T>::Wide)std::ldexp((float)(x >> 20 & 0x1fffff) / 65536 - 16, -(int)(x & 7)));
}

template <typename T>
static T wantedOf(const Step &s, int nRanks, size_t i) {
  typename Number<T>::Wide sum = Number<T>::up(valueOf<T>(s, 0, i));
  for (int r = 1; r < nRanks; r++) sum = combine(s.op, sum, Number<T>::up(valueOf<T>(s, r, i)));
  return Number<T>::down(finish(s.op, sum, nRanks));
}

template <typename T>
static uint64_t differ(const T *have, const std::vector<T> &want) {
  const unsigned char *before = (const unsigned char *)have, *behind = (const unsigned char *)(have + want.size());
  uint64_t wrong = 0;
  for (size_t i = 0; i < want.size(); i++) wrong += memcmp(&want[i], &have[i], sizeof(T)) != 0;
  for (size_t i = 1; i <= kGuard / 2; i++) wrong += before[-(int)i] != 0xa5 || behind[i - 1] != 0xa5;
  return wrong;
}

static Windowed windowOf(World &w, int buffer) {
  Windowed window = {};
  for (int r = 0; r < w.nRanks; r++) window.memory[r] = w.buffers[buffer][r].get();
  return window;
}

static void count(World &w, const Step &s, int rank, uint64_t wrong, size_t compared) {
  const bool collective = s.kind == Kind::allReduce || s.kind == Kind::allReduceInRounds || s.kind == Kind::allToAllSlots || s.kind == Kind::allGather || s.kind == Kind::reduceScatter;
  const size_t size = s.kind != Kind::allReduce && s.kind != Kind::allReduceInRounds && s.kind != Kind::reduceScatter ? 1 : s.type == Type::f32 ? 4 : s.type == Type::bf16 ? 2 : 1;
  unsigned blocks = s.blocks;
  const bool whole = s.kind == Kind::allReduce;
  if (whole) /* blocks that have nothing put nothing */
    while (ginShareOf(s.count * size, s.blocks, blocks - 1).begin == s.count * size) blocks--;
  for (uint64_t fault : faults[rank]) wrong += fault != 0;
  wrong += tripsDiffer(w, s, rank, blocks, collective, whole || (s.kind != Kind::allReduceInRounds && ginRoundsOf(s.count * size, kSlotBytes, s.blocks).count == 1));
  if (wrong > 0 && w.wrong.fetch_add(wrong) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, type %d, operator %d, %zu elements, %u blocks, %u contexts: %lu wrong\n", kindNames[(int)s.kind], rank, w.nRanks, (int)s.type, (int)s.op,
            s.count, s.blocks, s.contexts, wrong);
  w.compared += compared;
}

template <typename T>
static void playSum(World &w, const Step &s, int rank, bool first) {
  const bool inPlace = s.seed % 4 == 0;
  T *in = (T *)(w.buffers[inPlace ? kOut : kIn][rank].get() + kGuard) + (inPlace ? s.shiftOut : s.shiftIn), *out = (T *)(w.buffers[kOut][rank].get() + kGuard) + s.shiftOut;
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           for (size_t i = 0; i < s.count; i++) in[i] = valueOf<T>(s, rank, i);
         },
         [&](const Domain &d) {
           const FakeNet net = {rank, blockIdx.x % s.contexts, w.nRanks};
           if (s.kind == Kind::allReduceInRounds) ginAllReduceInRounds<T>(net, ginOf(w, rank, d, s), windowOf(w, kSlots), in, out, s.count, s.op);
           else ginAllReduce<T>(net, ginOf(w, rank, d, s), windowOf(w, kSlots), in, out, s.count, s.op);
         },
         [&] {
           std::vector<T> want(s.count);
           for (size_t i = 0; i < s.count; i++) want[i] = wantedOf<T>(s, w.nRanks, i);
           count(w, s, rank, differ(out, want), s.count);
         });
}

static void playExchange(World &w, const Step &s, int rank, bool first) {
  const bool inPlace = s.kind == Kind::allToAllSlots && s.seed % 4 == 0;
  const size_t inAt = kGuard + s.shiftIn, outAt = inPlace ? inAt : kGuard + s.shiftOut;
  uint8_t *in = (uint8_t *)w.buffers[kIn][rank].get() + inAt, *out = inPlace ? in : (uint8_t *)w.buffers[kOut][rank].get() + outAt;
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[inPlace ? kIn : kOut][rank].get(), 0xa5, w.size.room);
           for (size_t i = 0; i < s.count * w.nRanks; i++) in[i] = (uint8_t)valueOf<int8_t>(s, rank, i);
         },
         [&](const Domain &d) {
           if (s.kind == Kind::allToAllSlots) ginAllToAllSlots(FakeNet{rank, blockIdx.x % s.contexts, w.nRanks}, ginOf(w, rank, d, s), windowOf(w, kSlots), (const char *)in, (char *)out, s.count);
           else ginAllToAll(FakeNet{rank, blockIdx.x % s.contexts, w.nRanks}, ginOf(w, rank, d, s), windowOf(w, kIn), inAt, windowOf(w, kOut), outAt, s.count,
                       s.kind == Kind::allToAllFlush ? Locally::flush : Locally::counter);
         },
         [&] {
           std::vector<uint8_t> want(s.count * w.nRanks);
           for (size_t i = 0; i < want.size(); i++) want[i] = (uint8_t)valueOf<int8_t>(s, (int)(i / s.count), rank * s.count + i % s.count);
           count(w, s, rank, differ(out, want), want.size());
         });
}

static void playGather(World &w, const Step &s, int rank, bool first) {
  const bool inPlace = s.seed % 4 == 0;
  uint8_t *out = (uint8_t *)w.buffers[kOut][rank].get() + kGuard + s.shiftOut, *in = inPlace ? out + rank * s.count : (uint8_t *)w.buffers[kIn][rank].get() + kGuard + s.shiftIn;
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           for (size_t i = 0; i < s.count; i++) in[i] = (uint8_t)valueOf<int8_t>(s, rank, i);
         },
         [&](const Domain &d) {
           ginAllGather(FakeNet{rank, blockIdx.x % s.contexts, w.nRanks}, ginOf(w, rank, d, s), windowOf(w, kSlots), (const char *)in, (char *)out, s.count);
         },
         [&] {
           std::vector<uint8_t> want(s.count * w.nRanks);
           for (size_t i = 0; i < want.size(); i++) want[i] = (uint8_t)valueOf<int8_t>(s, (int)(i / s.count), i % s.count);
           count(w, s, rank, differ(out, want), want.size());
         });
}

template <typename T>
static void playScatter(World &w, const Step &s, int rank, bool first) {
  const bool inPlace = s.seed % 4 == 0;
  T *in = (T *)(w.buffers[kIn][rank].get() + kGuard) + s.shiftIn, *out = inPlace ? in + rank * s.count : (T *)(w.buffers[kOut][rank].get() + kGuard) + s.shiftOut;
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           for (size_t i = 0; i < s.count * w.nRanks; i++) in[i] = valueOf<T>(s, rank, i);
         },
         [&](const Domain &d) {
           ginReduceScatter<T>(FakeNet{rank, blockIdx.x % s.contexts, w.nRanks}, ginOf(w, rank, d, s), windowOf(w, kSlots), in, out, s.count, s.op);
         },
         [&] {
           std::vector<T> want(s.count);
           for (size_t i = 0; i < s.count; i++) want[i] = wantedOf<T>(s, w.nRanks, rank * s.count + i);
           uint64_t wrong = 0;
           for (size_t i = 0; inPlace && i < s.count; i++) wrong += memcmp(&want[i], &out[i], sizeof(T)) != 0; /* its neighbours are no guards */
           count(w, s, rank, inPlace ? wrong : differ(out, want), s.count);
         });
}

static void playProbe(World &w, const Step &s, int rank, bool first) {
  static dyn_gin_stamp stamps[kMaxRanks][kBlocks * kMaxRanks];
  inRank(w, rank, first, s.blocks, [&] { memset(stamps[rank], 0, sizeof stamps[rank]); },
         [&](const Domain &d) { ginProbe(FakeNet{rank, blockIdx.x % s.contexts, w.nRanks}, ginOf(w, rank, d, s), windowOf(w, kSlots), stamps[rank]); },
         [&] {
           uint64_t wrong = 0;
           for (unsigned b = 0; b < s.blocks; b++)
             for (int r = 0; r < w.nRanks; r++)
               if (const dyn_gin_stamp &at = stamps[rank][b * w.nRanks + r]; r != rank) wrong += at.right != 1 || at.counterNs < at.issuedNs || at.signalNs == 0;
           count(w, s, rank, wrong, s.blocks * (w.nRanks - 1));
         });
}

/* Of the first rank and the last; who is neither goes on. */
static void playRounds(World &w, const Step &s, int rank, bool first) {
  constexpr uint32_t kMost = 8;
  static dyn_gin_stamp stamps[kBlocks * kMost];
  static uint64_t missing[kBlocks];
  const int last = w.nRanks - 1;
  const uint32_t rounds = 1 + (uint32_t)(s.seed % kMost);
  if (rank != 0 && rank != last) return;
  GinPath<FakeNet> path = {windowOf(w, kPath), windowOf(w, kPath), rank == 0 ? last : 0, 8 * (1 + s.count % 20), rounds, (s.seed >> 8 & 1) != 0};
  for (int r = 0; r < w.nRanks; r++) path.recv.memory[r] += w.size.room / 2;
  inRank(w, rank, first, s.blocks, [&] { if (rank == 0) memset(stamps, 0, sizeof stamps); },
         [&](const Domain &d) {
           const FakeNet net = {rank, blockIdx.x % s.contexts, w.nRanks};
           if (rank == 0) ginPing(net, ginOf(w, rank, d, s), path, stamps);
           else ginPong(net, ginOf(w, rank, d, s), path, missing);
         },
         [&] {
           uint64_t wrong = 0;
           for (uint32_t i = 0; i < s.blocks * rounds; i++)
             if (const dyn_gin_stamp &at = stamps[i]; rank == 0) wrong += at.right != 1 || at.postedNs < at.issuedNs || (at.counterNs != 0) != path.counted || at.signalNs < at.postedNs;
           for (unsigned b = 0; b < s.blocks; b++) wrong += rank == last && missing[b] != 0;
           count(w, s, rank, wrong, s.blocks * rounds);
         });
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  const Step s = stepOf(w.seed, n);
  if (n == 0 && first) std::thread(carry, rank, w.nRanks, w.seed + 17 * rank).detach(), tripsOf[rank].last = w.counters[rank][kMaxBlocks - 1];
  if (s.kind == Kind::probe) playProbe(w, s, rank, first);
  else if (s.kind == Kind::rounds) playRounds(w, s, rank, first);
  else if (s.kind == Kind::allGather) playGather(w, s, rank, first);
  else if (s.kind == Kind::reduceScatter && s.type == Type::f32) playScatter<float>(w, s, rank, first);
  else if (s.kind == Kind::reduceScatter && s.type == Type::bf16) playScatter<__nv_bfloat16>(w, s, rank, first);
  else if (s.kind == Kind::reduceScatter) playScatter<int8_t>(w, s, rank, first);
  else if (s.kind != Kind::allReduce && s.kind != Kind::allReduceInRounds) playExchange(w, s, rank, first);
  else if (s.type == Type::f32) playSum<float>(w, s, rank, first);
  else if (s.type == Type::bf16) playSum<__nv_bfloat16>(w, s, rank, first);
  else playSum<int8_t>(w, s, rank, first);
}

#include "gin_alone.h"

/* Arithmetic. */
static const char *alone() {
  if (const char *said = silence()) return said;
  if (const char *said = puttingOn()) return said;
  if (const char *said = puttingOnElsewhere()) return said;
  if (const char *said = toldTooLate()) return said;
  if (const char *said = seenBySome()) return said;
  for (size_t bytes : {1u, 15u, 16u, 17u, 160u, 161u, 4096u, 100001u})
    for (unsigned blocks = 1; blocks <= DYN_GIN_MAX_BLOCKS; blocks++) {
      size_t end = 0;
      for (unsigned b = 0; b < blocks; b++) {
        const GinShare s = ginShareOf(bytes, blocks, b);
        if (s.begin != end || s.end < s.begin || (s.begin % DYN_GIN_UNIT != 0 && s.begin != bytes)) return "shares of blocks do not follow each other";
        end = s.end;
      }
      if (end != bytes) return "shares of blocks do not cover all";
    }
  for (size_t part : {1u, 16u, 100u, 2048u, 2049u, 6000u, 100001u})
    for (unsigned blocks = 1; blocks <= DYN_GIN_MAX_BLOCKS; blocks++) {
      const GinRounds rounds = ginRoundsOf(part, kSlotBytes, blocks);
      size_t end = 0;
      for (uint32_t i = 0; i < rounds.count; i++)
        for (unsigned b = 0; b < blocks; b++) {
          const GinShare s = ginRoundShare(rounds, part, i, b);
          if (s.begin != end || s.end < s.begin || s.end - s.begin > rounds.each) return "rounds do not follow each other";
          end = s.end;
        }
      if (end != part || rounds.each * blocks > kSlotBytes || rounds.each % DYN_GIN_UNIT != 0) return "rounds do not cover all, or do not fit";
    }
  for (int n = 2; n <= kMaxRanks; n++) {
    std::vector<int> signals(ginSignals(n)), counters(ginCounters(n));
    for (int r = 0; r < n; r++)
      for (unsigned b = 0; b < DYN_GIN_MAX_BLOCKS; b++) {
        counters.at(ginCounterOf(n, b, r))++;
        for (int kind = 0; kind < DYN_GIN_KINDS; kind++) signals.at(ginSignalOf(n, kind, b, r))++;
      }
    for (int c : signals)
      if (c != 1) return "signals are not apart";
    for (int c : counters)
      if (c != 1) return "counters are not apart";
  }
  if (!ginReached(5, 5, 56) || ginReached(4, 5, 56) || !ginReached(2, ~0ull, 64) || ginReached(~0ull, 2, 64) || !ginReached(0, (1ull << 56) - 1, 56))
    return "what is reached is not what NCCL's gin.h says";
  return nullptr;
}

static const Size size = {1, 1, kSlotsAt + DYN_GIN_SLOTS * kMaxRanks * kSlotBytes + 4 * kGuard};

int main(int argc, char **argv) { return runAll(argc, argv, size, playCall, alone); }
