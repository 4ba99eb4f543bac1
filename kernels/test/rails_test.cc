/* SPDX-License-Identifier: Apache-2.0
 *
 * Hierarchical kernels on GIN, on threads of a CPU (ranks.h, wires.h): 2 nodes of 2 ranks, 3 of 2, and 2 of 4 make random
 * AllGathers, AllToAlls and ReduceScatters, also in place, and AllToAlls of parts that differ (parts.h), of any size, alignment and
 * number of channels, with calls of flat kernels between them. Every element is compared bit by bit, and no put may leave its rail.
 *   rails_test [CALLS [MISTAKE [KIND]]]     KIND: calls of this kind alone, as kindNames has it
 */
#define DYN_TEST_BLOCKS 6
#include <cmath>

#include "../gin/all_reduce.cuh"
#include "../gin/rails.cuh"
#include "../gin/rails_differ.cuh"
#include "../gin/rails_sum.cuh"
#include "../gin/rounds_differ.cuh"
#include "wires.h"
#include "parts.h"

constexpr size_t kSlotBytes = 1024, kCellBytes = 256, kMost = 12000, kMostPart = 3000, kGuard = 16, kPipesAt = DYN_GIN_SLOTS * kMaxRanks * kSlotBytes + 128;
enum { kIn, kOut, kSlots }; /* buffers */

enum class Kind { allGather, allToAll, scatterFloat, scatterBfloat16, flatSum, flatAllToAll, allToAllV, flatAllToAllV, count };
static const char *const kindNames[] = {"AllGather", "AllToAll", "ReduceScatter of float", "ReduceScatter of bfloat16",
                                        "flat AllReduce", "flat AllToAll", "AllToAllv", "flat AllToAllv"};
static Kind onlyKind = Kind::count;

/* One call, the same on all ranks. */
struct Step {
  Kind kind;
  Op op;
  unsigned blocks, contexts;
  size_t count, shiftIn, shiftOut; /* elements, or bytes, of a part */
  bool inPlace;
  int shape; /* of parts that differ */
  uint64_t seed;
};

static Step stepOf(uint64_t seed, uint64_t n) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  static constexpr Kind kinds[] = {Kind::allGather, Kind::allToAll, Kind::allToAll, Kind::scatterFloat, Kind::scatterBfloat16, Kind::flatSum,
                                   Kind::flatAllToAll, Kind::allToAllV, Kind::allToAllV, Kind::flatAllToAllV};
  s.kind = kinds[next(&r) % 10];
  if (onlyKind != Kind::count) s.kind = onlyKind;
  s.op = next(&r) % 3 == 0 ? Op::avg : next(&r) % 4 == 0 ? Op::max : Op::sum;
  const bool flat = s.kind == Kind::flatSum || s.kind == Kind::flatAllToAll || s.kind == Kind::flatAllToAllV;
  s.blocks = flat ? 1 + (unsigned)(next(&r) % kBlocks) : DYN_GIN_ROLES * (1 + (unsigned)(next(&r) % (kBlocks / DYN_GIN_ROLES)));
  s.count = 1 + next(&r) % (next(&r) % 3 == 0 ? (s.kind == Kind::flatSum ? kSlotBytes / 4 : kMost / 4) : 60);
  s.shiftIn = next(&r) % 2 ? 0 : next(&r) % 4, s.shiftOut = next(&r) % 2 ? 0 : next(&r) % 4;
  s.inPlace = next(&r) % 3 == 0;
  s.shape = (int)(next(&r) % 8);
  s.seed = next(&r);
  s.contexts = 1 + (unsigned)(next(&r) % kContexts);
  return s;
}

static int localsOf(int nRanks) { return nRanks == 8 ? 4 : 2; }

static uint64_t faults[kMaxRanks][kMaxRanks];

static Gin ginOf(World &w, int rank, const Domain &d, unsigned contexts) {
  static uint64_t seen[kMaxRanks][kSeen];
  static uint32_t items[kMaxRanks][DYN_GIN_FLAG_WORDS];
  Gin g = {};
  g.rank = rank, g.nRanks = w.nRanks, g.slotBytes = kSlotBytes, g.calls = ginCalls(d), g.seen = seen[rank], g.stop = d.stop, g.fault = faults[rank], g.waitNs = d.waitNs;
  g.slotsAt = 128, g.firstSignal = g.firstCounter = kFirst, g.contexts = contexts;
  g.localRanks = localsOf(w.nRanks), g.pipesAt = kPipesAt, g.cellBytes = kCellBytes, g.items = items[rank];
  return g;
}
static FakeNet netOf(const World &w, int rank, unsigned contexts) { return {rank, ginChannel() % contexts, w.nRanks, localsOf(w.nRanks)}; }
static FakeNet flatNetOf(const World &w, int rank, unsigned contexts) { return {rank, blockIdx.x % contexts, w.nRanks}; }

/* Values of several magnitudes, so that sums round, and their order shows. */
template <typename T>
static T valueOf(const Step &s, int rank, size_t i) {
  uint64_t r = s.seed + (uint64_t)rank * 1000003 + i * 7919, x = next(&r);
  if (sizeof(T) == 1) return (T)(x >> 3);
  return Number<T>::down((typename Number<T>::Wide)std::ldexp((float)(x >> 20 & 0x1fffff) / 65536 - 16, -(int)(x & 7)));
}

/* Of ranks from the first on, in their order. */
template <typename T, typename Of>
static T sumOf(Op op, int many, Of of) {
  typename Number<T>::Wide sum = Number<T>::up(of(0));
  for (int k = 1; k < many; k++) sum = combine(op, sum, Number<T>::up(of(k)));
  return Number<T>::down(finish(op, sum, many));
}
template <typename T>
static T scatteredOf(const Step &s, int nRanks, size_t i) {
  const int locals = localsOf(nRanks);
  return sumOf<T>(s.op, nRanks / locals, [&](int n) { return sumOf<T>(s.op, locals, [&](int l) { return valueOf<T>(s, n * locals + l, i); }); });
}

template <typename T>
static uint64_t differ(const T *have, const std::vector<T> &want, bool guarded) {
  const unsigned char *before = (const unsigned char *)have, *behind = (const unsigned char *)(have + want.size());
  uint64_t wrong = 0;
  for (size_t i = 0; i < want.size(); i++) wrong += memcmp(&want[i], &have[i], sizeof(T)) != 0;
  for (size_t i = 1; i <= kGuard / 2 && guarded; i++) wrong += before[-(int)i] != 0xa5 || behind[i - 1] != 0xa5;
  return wrong;
}

static Windowed windowOf(World &w) {
  Windowed window = {};
  for (int r = 0; r < w.nRanks; r++) window.memory[r] = w.buffers[kSlots][r].get();
  return window;
}

static void count(World &w, const Step &s, int rank, uint64_t wrong) {
  wrong += offRail;
  for (uint64_t fault : faults[rank]) wrong += fault != 0;
  if (wrong > 0 && w.wrong.fetch_add(wrong) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, operator %d, %zu elements, shape %d, %u blocks, in place %d: %lu wrong, %lu off their rail\n", kindNames[(int)s.kind], rank, w.nRanks,
            (int)s.op, s.count, s.shape, s.blocks, s.inPlace, wrong, offRail.load());
}

/* Sends so many elements of a rank, wants those that wanted(i) gives. guarded: what lies beside the result is nobody's. */
template <typename T, typename Kernel, typename Wanted>
static void playOf(World &w, const Step &s, int rank, bool first, size_t sent, T *in, T *out, size_t got, bool guarded, Kernel kernel, Wanted wanted) {
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           if (in < (T *)w.buffers[kOut][rank].get() || in >= (T *)(w.buffers[kOut][rank].get() + w.size.room)) memset(w.buffers[kIn][rank].get(), 0xa5, w.size.room);
           for (size_t i = 0; i < sent; i++) in[i] = valueOf<T>(s, rank, i);
         },
         [&](const Domain &d) { kernel(ginOf(w, rank, d, s.contexts)); },
         [&] {
           std::vector<T> want(got);
           for (size_t i = 0; i < got; i++) want[i] = wanted(i);
           count(w, s, rank, differ(out, want, guarded));
           w.compared += got;
         });
}

template <typename T>
static T *at(World &w, int buffer, int rank, size_t shift) { return (T *)(w.buffers[buffer][rank].get() + kGuard) + shift; }

static void playMove(World &w, const Step &s, int rank, bool first) {
  using B = uint8_t;
  const bool same = s.kind == Kind::allGather;
  B *out = at<B>(w, kOut, rank, s.shiftOut), *in = !s.inPlace ? at<B>(w, kIn, rank, s.shiftIn) : same ? out + rank * s.count : out;
  playOf<B>(w, s, rank, first, s.count * (same ? 1 : w.nRanks), in, out, s.count * w.nRanks, true,
            [&](const Gin &g) {
              if (s.kind == Kind::flatAllToAll) ginAllToAllSlots(flatNetOf(w, rank, s.contexts), g, windowOf(w), (const char *)in, (char *)out, s.count);
              else ginMove(netOf(w, rank, s.contexts), g, windowOf(w), (const char *)in, (char *)out, s.count, same);
            },
            [&](size_t i) { return valueOf<B>(s, (int)(i / s.count), (same ? 0 : rank * s.count) + i % s.count); });
}

template <typename T>
static void playScatter(World &w, const Step &s, int rank, bool first) {
  T *in = at<T>(w, s.inPlace ? kOut : kIn, rank, s.shiftIn), *out = s.inPlace ? in + rank * s.count : at<T>(w, kOut, rank, s.shiftOut);
  playOf<T>(w, s, rank, first, s.count * w.nRanks, in, out, s.count, !s.inPlace,
            [&](const Gin &g) { ginMoveSums<T>(netOf(w, rank, s.contexts), g, windowOf(w), in, out, s.count, s.op); },
            [&](size_t i) { return scatteredOf<T>(s, w.nRanks, rank * s.count + i); });
}

static void playSum(World &w, const Step &s, int rank, bool first) {
  float *in = at<float>(w, kIn, rank, s.shiftIn), *out = at<float>(w, kOut, rank, s.shiftOut);
  playOf<float>(w, s, rank, first, s.count, in, out, s.count, true,
                [&](const Gin &g) { ginAllReduce<float>(flatNetOf(w, rank, s.contexts), g, windowOf(w), in, out, s.count, s.op); },
                [&](size_t i) { return sumOf<float>(s.op, w.nRanks, [&](int r) { return valueOf<float>(s, r, i); }); });
}

static void playParts(World &w, const Step &s, int rank, bool first) {
  const Exchange x = {s.seed, kMostPart, s.shape, false};
  Parts parts = partsOf(x, w.nRanks, rank);
  for (int r = 0; r < w.nRanks && s.kind == Kind::allToAllV && s.inPlace; r++) /* a program's mistake: less is wanted than comes */
    if (r != rank) parts.recvBytes[r] -= parts.recvBytes[r] / 4;
  uint8_t *in = at<uint8_t>(w, kIn, rank, s.shiftIn), *out = at<uint8_t>(w, kOut, rank, s.shiftOut);
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           fillParts(x, w.nRanks, rank, in);
         },
         [&](const Domain &d) {
           if (s.kind == Kind::allToAllV) ginMoveParts(netOf(w, rank, s.contexts), ginOf(w, rank, d, s.contexts), windowOf(w), (const char *)in, (char *)out, parts);
           else ginAllToAllV(flatNetOf(w, rank, s.contexts), ginOf(w, rank, d, s.contexts), windowOf(w), (const char *)in, (char *)out, parts);
         },
         [&] { count(w, s, rank, partsDiffer(x, parts, w.nRanks, rank, out, w.compared)); });
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  const Step s = stepOf(w.seed, n);
  if (n == 0 && first) std::thread(carry, rank, w.nRanks, w.seed + 17 * rank).detach();
  switch (s.kind) {
    case Kind::scatterFloat: return playScatter<float>(w, s, rank, first);
    case Kind::scatterBfloat16: return playScatter<__nv_bfloat16>(w, s, rank, first);
    case Kind::flatSum: return playSum(w, s, rank, first);
    case Kind::allToAllV:
    case Kind::flatAllToAllV: return playParts(w, s, rank, first);
    default: return playMove(w, s, rank, first);
  }
}

/* Who waits for a rank that does not come gives up and names it: the sender that of its rail, which takes nothing, the forwarder
 * the same, which sends nothing, and the receiver its neighbour. */
static const char *silence() {
  static const struct { int peer, step; } wants[DYN_GIN_ROLES] = {{2, DYN_GIN_WAIT_ROOM}, {2, DYN_GIN_WAIT_DATA}, {1, DYN_GIN_WAIT_DATA}};
  const size_t bytes = kPipesAt + dyn_gin_pipe_bytes(4, 2, kCellBytes);
  static char in[400], out[400];
  const Exchange x = {1, 60, 0, true};
  for (bool differ : {true, false})
    for (unsigned role = 0; role < DYN_GIN_ROLES; role++) {
      std::vector<std::vector<char>> memory(4, std::vector<char>(bytes));
      alignas(8) uint32_t calls[DYN_GIN_COUNTERS] = {}, others[DYN_GIN_COUNTERS] = {};
      uint32_t items[DYN_GIN_FLAG_WORDS] = {}, stop = 0;
      const dyn_lanes lanes = {{nullptr, others + DYN_GIN_CALLS, calls + DYN_GIN_CALLS}};
      uint64_t seen[(DYN_GIN_KINDS + 1) * DYN_GIN_MAX_BLOCKS * 4] = {}, fault[4] = {};
      Gin g = {0, 4, kSlotBytes, calls, &lanes, seen, &stop, fault, 2000000, 128, kFirst, kFirst, nullptr, nullptr, 1, 0, 2, kPipesAt, kCellBytes, items, nullptr, 0, 0, nullptr};
      Windowed window = {};
      for (int r = 0; r < 4; r++) window.memory[r] = memory[r].data();
      const FakeNet net = {0, 0, 4, 2};
      static Block block;
      pthread_barrier_init(&block.barrier, nullptr, 1);
      ofBlock = &block;
      blockIdx.x = role, threadIdx.x = 0, blockDim.x = 1, gridDim.x = DYN_GIN_ROLES;
      for (int call = 1; call <= 3; call++) {
        const std::vector<std::vector<char>> before = memory;
        if (call == 3) g.calls = others; /* another lane of the communicator */
        if (differ) ginMoveParts(net, g, window, in, out, partsOf(x, 4, 0));
        else ginMove(net, g, window, in, out, 60, false);
        size_t puts = 0;
        for (auto &queue : wiresOf[0].queues[0]) puts += queue.size(), queue.clear();
        if (call > 1 && (puts > 0 || memory != before)) return "a rank that has given up puts in the next call";
      }
      for (int r = 0; r < 4; r++)
        if (fault[r] != (r == wants[role].peer ? (uint64_t)wants[role].step << 32 | calls[role] : 0) || stop != 1) return "who was waited for in vain is not named";
    }
  return nullptr;
}

/* Heads of a call's cells: no later than whoever fills waits for them, as many as cells in the end, and one for the last ones. */
static const char *heads() {
  for (uint32_t items = 1; items < 20; items++) {
    uint32_t head = 0, messages = 0;
    for (uint32_t item = 0; item < items; item++) {
      const uint32_t by = ginHead(item, items);
      head += by, messages += by > 0;
      if (head > item + 1 || (item + DYN_GIN_CELLS < items && head != item + 1)) return "a head comes before its cell is taken, or too late";
    }
    if (head != items || messages != (items <= DYN_GIN_CELLS ? 1 : items - DYN_GIN_CELLS + 1)) return "heads are not those of all cells, or too many";
  }
  return nullptr;
}

/* What of the window and of flags belongs to whom. */
static const char *alone() {
  if (const char *said = silence()) return said;
  if (const char *said = heads()) return said;
  for (int n = 2; n <= kMaxRanks; n++)
    for (int locals = 1; locals <= n; locals++) {
      const bool is = dyn_gin_hierarchical(n, locals);
      if (is != (n % locals == 0 && locals > 1 && locals < n)) return "which communicators are of several nodes with several ranks";
      if (is != (dyn_gin_pipe_bytes(n, locals, kCellBytes) != 0) || (is && locals > DYN_GIN_MAX_LOCAL)) return "memory of communicators that need none, or none of those that do";
      std::vector<int> cells(is ? dyn_gin_pipe_bytes(n, locals, kCellBytes) / kCellBytes + 1 : 0), flags(DYN_GIN_FLAG_BYTES / 4);
      Gin g = {};
      g.nRanks = n, g.localRanks = locals, g.cellBytes = kCellBytes;
      for (unsigned c = 0; c < DYN_GIN_CHANNELS && is; c++) {
        blockIdx.x = c * DYN_GIN_ROLES;
        const FakeNet net = {0, 0, n};
        const GinPipes<FakeNet> p(net, g, Windowed{}, 1);
        for (uint32_t i = 0; i < DYN_GIN_CELLS; i++) {
          for (int k = 0; k < p.nodes; k++) cells.at((p.fromNode(k, i) - DYN_GIN_FLAG_BYTES) / kCellBytes)++, cells.at((p.toNode(k, i) - DYN_GIN_FLAG_BYTES) / kCellBytes)++;
          for (int k = 0; k < locals; k++) cells.at((p.fromNear(k, i) - DYN_GIN_FLAG_BYTES) / kCellBytes)++;
        }
        if (p.fromNode(0, 0) != p.fromNode(0, DYN_GIN_CELLS) || p.fromNode(0, 1) - p.fromNode(0, 0) != kCellBytes) return "a buffer is not circular";
        for (int peer = 0; peer < kMaxRanks; peer++)
          for (int which = 0; which < DYN_GIN_FLAGS; which++) flags.at(dyn_gin_flag_at(which, c, peer) / 4)++;
      }
      for (size_t i = 0; i < cells.size(); i++)
        if (cells[i] > 1 || (cells[i] == 0 && (i + 2) * kCellBytes + DYN_GIN_FLAG_BYTES <= dyn_gin_pipe_bytes(n, locals, kCellBytes))) return "cells are not apart";
      for (int flag : flags)
        if (flag > 1) return "flags are not apart";
    }
  return nullptr;
}

static const Size size = {1, 1, kPipesAt + DYN_GIN_FLAG_BYTES + DYN_GIN_CHANNELS * DYN_GIN_CELLS * 10 * kCellBytes + kMaxRanks * kMost + 4 * kGuard};

int main(int argc, char **argv) {
  for (int k = 0; k < (int)Kind::count; k++)
    if (argc > 3 && strcmp(argv[3], kindNames[k]) == 0) onlyKind = (Kind)k;
  if (argc > 3 && onlyKind == Kind::count) return fprintf(stderr, "no such kind: %s\n", argv[3]), 2;
  return runAll(argc, argv, size, playCall, alone, {4, 6, 8});
}
