/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll of parts of any sizes, over load and store and over GIN, on threads of a CPU (ranks.h, wires.h): each rank sends
 * each other one another number of bytes, often none, from and to anywhere, small parts in lines or not, with calls of equal parts
 * between them in the same memory. Every byte is compared, and those between parts. Results lie in windows or not, as each rank has it.
 */
#include "../device/parts_bulk.cuh"
#include "../device/parts_differ.cuh"
#include "../gin/rounds_differ.cuh"
#include "wires.h"
#include "parts.h"

constexpr size_t kSlotLines = 8, kSlotBytes = 1024, kMost = 2500, kSlotsAt = 128, kShift = 100;
enum { kIn, kOut, kSlots, kElse }; /* buffers */

enum class Kind { near, nearAlike, overGin, ginAlike };
static const char *const kindNames[] = {"load and store", "load and store, equal parts", "GIN", "GIN, equal parts"};

/* All ranks' results lie in one window, or not: of some ranks in none, of some in another one, or some address no more than they have to. */
enum class Windows { none, same, few, others, brief };

/* One call, the same on all ranks. */
struct Step {
  Kind kind;
  unsigned blocks;
  int shape;
  size_t lines; /* of a part that goes in lines, at most */
  Windows windows;
  uint64_t seed;
};

static Step stepOf(uint64_t seed, uint64_t n) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  static constexpr Kind kinds[] = {Kind::near, Kind::near, Kind::nearAlike, Kind::overGin, Kind::overGin, Kind::ginAlike};
  s.kind = kinds[next(&r) % 6];
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.shape = (int)(next(&r) % 8);
  const uint64_t room = next(&r) % 3; /* none, few, or all that there is: some ranks' parts are in bulk, all, or none */
  s.lines = room == 0 ? 0 : room == 1 ? 1 : dyn_parts_lines(kSlotLines, s.blocks);
  s.seed = next(&r);
  static constexpr Windows windows[] = {Windows::none, Windows::same, Windows::same, Windows::few, Windows::others, Windows::brief};
  s.windows = windows[next(&r) % 6];
  return s;
}

static Exchange exchangeOf(const Step &s) { return {s.seed, kMost, s.shape, s.kind == Kind::nearAlike || s.kind == Kind::ginAlike}; }

static uint64_t faults[kMaxRanks][kMaxRanks];

static Gin ginOf(World &w, int rank, const Domain &d) {
  static uint64_t seen[kMaxRanks][kSeen];
  static uint32_t calls[kMaxRanks][DYN_GIN_COUNTERS];
  Gin g = {};
  g.rank = rank, g.nRanks = w.nRanks, g.slotBytes = kSlotBytes, g.calls = calls[rank], g.seen = seen[rank], g.stop = d.stop, g.fault = faults[rank], g.waitNs = d.waitNs;
  g.slotsAt = kSlotsAt, g.firstSignal = g.firstCounter = kFirst, g.localRanks = 1, g.contexts = kContexts;
  return g;
}

static Windowed windowOf(World &w) {
  Windowed window = {};
  for (int r = 0; r < w.nRanks; r++) window.memory[r] = w.buffers[kSlots][r].get();
  return window;
}

/* Bytes before a rank's result: another offset on each rank, of any alignment. */
static size_t before(const Step &s, int rank) { return s.windows == Windows::none ? kGap / 2 : 64 + (s.seed + (uint64_t)rank * (s.seed >> 7)) % kShift; }
/* Offset at which the last part of it ends. */
static size_t endOf(const Step &s, int nRanks, int rank) {
  const Parts p = partsOf(exchangeOf(s), nRanks, rank);
  size_t end = 0;
  for (int r = 0; r < nRanks; r++) end = p.recvBytes[r] > 0 && p.recvAt[r] + p.recvBytes[r] > end ? p.recvAt[r] + p.recvBytes[r] : end;
  return before(s, rank) + end;
}

/* What this rank tells the others of its result. Where it cannot address what a peer has, something else lies for that. */
static Bulk toldBy(World &w, const Step &s, int rank) {
  Bulk b = bulkOf(w, rank);
  uint64_t own = s.seed + 31 * (uint64_t)rank;
  const bool differs = next(&own) % (uint64_t)w.nRanks == 0, other = differs && s.windows == Windows::others, isBrief = differs && s.windows == Windows::brief;
  if (s.windows == Windows::none || (differs && s.windows == Windows::few)) return b;
  for (int r = 0; r < w.nRanks; r++) {
    const bool beyond = isBrief && endOf(s, w.nRanks, r) > endOf(s, w.nRanks, rank);
    b.recv.base[r] = w.buffers[beyond ? kElse : kOut][r].get() + (other ? 48 : 0);
  }
  const uint64_t offset = before(s, rank) - (other ? 48 : 0);
  b.recv.word = dyn_window_word(other ? 2 : 1, offset);
  b.recv.most = isBrief ? offset : w.size.room;
  return b;
}

static void run(World &w, const Step &s, int rank, const Domain &d, const uint8_t *in, uint8_t *out) {
  const Parts p = partsOf(exchangeOf(s), w.nRanks, rank);
  const FakeNet net = {rank, blockIdx.x % kContexts, w.nRanks};
  const Call c = {in, out, s.kind == Kind::near ? s.lines : p.sendBytes[0], 0, 0, nullptr, d};
  switch (s.kind) {
    case Kind::near: allToAllV(c, toldBy(w, s, rank), p); break;
    case Kind::nearAlike: allToAllBulk(c, bulkOf(w, rank)); break;
    case Kind::overGin: ginAllToAllV(net, ginOf(w, rank, d), windowOf(w), (const char *)in, (char *)out, p); break;
    case Kind::ginAlike: ginAllToAllSlots(net, ginOf(w, rank, d), windowOf(w), (const char *)in, (char *)out, p.sendBytes[0]); break;
  }
}

static void check(World &w, const Step &s, int rank, const uint8_t *out) {
  uint64_t wrong = partsDiffer(exchangeOf(s), partsOf(exchangeOf(s), w.nRanks, rank), w.nRanks, rank, out, w.compared);
  for (uint64_t fault : faults[rank]) wrong += fault != 0;
  if (wrong > 0 && w.wrong.fetch_add(wrong) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, shape %d, %zu lines, windows %d, %u blocks: %lu wrong\n", kindNames[(int)s.kind], rank, w.nRanks, s.shape, s.lines, (int)s.windows, s.blocks, wrong);
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  const Step s = stepOf(w.seed, n);
  if (n == 0 && first) std::thread(carry, rank, w.nRanks, w.seed + 17 * rank).detach();
  uint8_t *in = (uint8_t *)w.buffers[kIn][rank].get() + kGap / 2, *out = (uint8_t *)w.buffers[kOut][rank].get() + before(s, rank);
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[kOut][rank].get(), 0xa5, w.size.room);
           fillParts(exchangeOf(s), w.nRanks, rank, in);
         },
         [&](const Domain &d) { run(w, s, rank, d, in, out); }, [&] { check(w, s, rank, out); });
}

static const Size size = {kSlotLines, 20, kSlotsAt + DYN_GIN_SLOTS * kMaxRanks * kSlotBytes + kMaxRanks * (kMost + kGap) + 4 * kGap + 64 + kShift};

/* A rank that has given up in one lane (collectives_test.cc). */
static uint64_t missed(size_t bytes) {
  return missedBeside(size, [](const Call &c, const Bulk &) { allReduceOneShot<float>(c); }, [bytes](const Call &c, const Bulk &b) {
    Parts p = {};
    for (int r = 0; r < 3; r++) p.sendBytes[r] = p.recvBytes[r] = bytes, p.sendAt[r] = p.recvAt[r] = r * bytes;
    allToAllV(c, b, p);
  });
}
static const char *alone() {
  /* In lines, and in one round: behind the meeting nobody waits for anybody. */
  if (missed(9) != 1) return "a rank that has given up in one lane sends small parts in the other";
  return missed(2 * size.packs * kBulkBytes) == 1 ? nullptr : "a rank that has given up in one lane meets others in the other";
}

int main(int argc, char **argv) { return runAll(argc, argv, size, playCall, alone); }
