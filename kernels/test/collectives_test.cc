/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's collectives of ../device on threads of a CPU (ranks.h): calls of all kinds after one another in the same scratch
 * memory, every element compared bit by bit. Buffers lie in windows or not, as each rank has it: nobody's word counts for
 * the others.
 */
#include <type_traits>

#include "../device/all_reduce_bulk.cuh"
#include "../device/broadcast_bulk.cuh"
#include "../device/move.cuh"
#include "../device/parts_bulk.cuh"
#include "../device/reduce_scatter.cuh"
#include "../types.h"
#include "ranks.h"

constexpr size_t kMost = 704, kBefore = 192, kRoom = 8 * kMost * kMaxRanks + 2 * kBefore; /* elements of a part, bytes */

enum Type {
#define TYPE_OF(NAME, TYPE) k_##NAME,
  DYN_TYPES(TYPE_OF) kTypes
};

enum class Kind { oneShot, twoShot, bulk, reduceScatter, reduceScatterBulk, allGather, allGatherBulk, allToAll, allToAllBulk, broadcast, broadcastBulk, count };
static const char *const kindNames[] = {"one shot", "two shots", "bulk", "ReduceScatter", "ReduceScatter in bulk", "AllGather", "AllGather in bulk", "AllToAll", "AllToAll in bulk", "Broadcast", "Broadcast in bulk"};
static bool scatters(Kind k) { return k == Kind::reduceScatter || k == Kind::reduceScatterBulk; }
static bool gathers(Kind k) { return k == Kind::allGather || k == Kind::allGatherBulk; }
static bool exchanges(Kind k) { return k == Kind::allToAll || k == Kind::allToAllBulk; }

/* One call, the same on all ranks. count is of a part where there are parts. */
struct Step {
  Kind kind;
  Type type;
  Op op;
  int root;
  unsigned blocks;
  size_t count, shift;
  uint32_t tag;
  bool inPlace;
  int windows;  /* 0: no rank has any; 1: each as it likes; 2: all have the same ones */
  uint64_t seed;
};

static Step stepOf(uint64_t seed, uint64_t n, int nRanks) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  s.type = (Type)(next(&r) % kTypes);
  s.op = (Op)(next(&r) % 5);
  s.kind = (Kind)(next(&r) % (int)Kind::count);
  s.root = (int)(next(&r) % (uint64_t)nRanks);
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.count = 1 + next(&r) % (next(&r) % 4 == 0 ? kMost : 40);
  s.shift = next(&r) % 3;
  s.inPlace = next(&r) % 2;
  s.seed = next(&r);
  s.tag = (uint32_t)(next(&r) % 5);
  if (s.tag == 4) s.tag |= DYN_STAMP_TIMED;
  s.windows = (int)(next(&r) % 3);
  if (s.windows == 0) return s;
  s.count = (s.count + 15) / 16 * 16, s.shift = 0; /* packs are whole, or nothing goes into windows */
  return s;
}

/* Values whose sums round, so that the order of ranks shows. */
template <typename T>
static T valueOf(const Step &s, int rank, size_t i) {
  uint64_t r = s.seed + (uint64_t)rank * 1000003 + i * 7919;
  uint64_t x = next(&r);
  using Wide = typename Number<T>::Wide;
  if (std::is_integral<T>::value) return Number<T>::down((Wide)(x & 0x7f));
  return Number<T>::down((Wide)((double)(int64_t)(x >> 20 & 0xffff) / 1024 - 16));
}

/* Elements of what a rank sends and of what it gets. */
static size_t sent(const Step &s, int nRanks) { return scatters(s.kind) || exchanges(s.kind) ? s.count * nRanks : s.count; }
static size_t got(const Step &s, int nRanks) { return gathers(s.kind) || exchanges(s.kind) ? s.count * nRanks : s.count; }

/* Element i of what rank has in the end. */
template <typename T>
static T wanted(const Step &s, int nRanks, int rank, size_t i) {
  using N = Number<T>;
  size_t part = i / s.count, at = i % s.count;
  switch (s.kind) {
    case Kind::allGather:
    case Kind::allGatherBulk: return valueOf<T>(s, (int)part, at);
    case Kind::allToAll:
    case Kind::allToAllBulk: return valueOf<T>(s, (int)part, rank * s.count + at);
    case Kind::broadcast:
    case Kind::broadcastBulk: return valueOf<T>(s, s.root, i);
    default: break;
  }
  if (scatters(s.kind)) i += rank * s.count;
  typename N::Wide sum = N::up(valueOf<T>(s, 0, i));
  for (int r = 1; r < nRanks; r++) sum = combine(s.op, sum, N::up(valueOf<T>(s, r, i)));
  return N::down(finish(s.op, sum, nRanks));
}

template <typename T>
static void check(World &w, const Step &s, int rank, const T *out) {
  size_t elements = got(s, w.nRanks);
  uint64_t wrong = 0;
  for (size_t i = 0; i < elements; i++) {
    T want = wanted<T>(s, w.nRanks, rank, i);
    wrong += memcmp(&want, &out[i], sizeof(T)) != 0;
  }
  const unsigned char *before = (const unsigned char *)out, *behind = (const unsigned char *)(out + elements);
  for (int i = 1; i <= 8; i++) wrong += !s.inPlace && (before[-i] != 0xa5 || behind[i - 1] != 0xa5);
  if (wrong > 0 && w.wrong.fetch_add(wrong) == 0 && planted == 0)
    fprintf(stderr, "%s, rank %d of %d, type %d, operator %d, %zu elements, %u blocks%s: %lu wrong\n", kindNames[(int)s.kind], rank, w.nRanks,
            (int)s.type, (int)s.op, s.count, s.blocks, s.inPlace ? ", in place" : "", wrong);
  w.compared += elements;
}

/* Those of timed calls have a place behind the others'. */
static dyn_stamp *stampsOf(World &w, const Step &s, int rank) { return w.stamps[rank].data() + ((s.tag & DYN_STAMP_TIMED) != 0 ? DYN_STAMPS : 0); }

/* Behind the call: what it left of its times, if it was to. */
static void checkStamp(World &w, const Step &s, int rank) {
  const uint32_t call = w.counters[rank][0];
  const dyn_stamp &at = stampsOf(w, s, rank)[dyn_stamp_place(s.tag, call)];
  const bool stamped = at.word == dyn_stamp_word(call, s.tag), ordered = at.beginNs > 0 && at.beginNs <= at.counterNs && at.counterNs <= at.signalNs;
  w.stamped += stamped;
  if (stamped != ((s.tag & DYN_STAMP_TIMED) != 0 || (s.tag != 0 && dyn_stamped(call))) || (stamped && !ordered)) {
    if (w.wrong.fetch_add(1) == 0 && planted == 0) fprintf(stderr, "%s, call %u: stamped: %d, in order: %d\n", kindNames[(int)s.kind], call, stamped, ordered);
  }
}

template <typename T>
static void launch(const Step &s, const Call &c, const Bulk &b) {
  Call bytes = c;
  bytes.count *= sizeof(T);
  switch (s.kind) {
    case Kind::oneShot: allReduceOneShot<T>(c); break;
    case Kind::twoShot: allReduceTwoShot<T>(c); break;
    case Kind::bulk: allReduceBulk<T>(c, b); break;
    case Kind::reduceScatter: reduceScatter<T>(c); break;
    case Kind::reduceScatterBulk: reduceScatterBulk<T>(c, b); break;
    case Kind::allGather: allGather(bytes); break;
    case Kind::allGatherBulk: allGatherBulk(bytes, b); break;
    case Kind::allToAll: allToAll(bytes); break;
    case Kind::allToAllBulk: allToAllBulk(bytes, b); break;
    case Kind::broadcastBulk: broadcastBulk(bytes, b); break;
    default: broadcast(bytes, s.root);
  }
}

/* Bytes before a rank's buffers: another offset on each rank. */
static size_t before(const Step &s, int rank) { return s.windows == 0 ? 16 : 96 + 16 * ((s.seed + (uint64_t)rank * (s.seed >> 7)) % 6); }

/* Of a rank's memory buffers[0] is window 1, and buffers[1] window 2 and, from further before, window 3 as well. As in a
 * program, the same offset may be another address, and the other way round. short: where a peer's buffer lies further on than
 * this rank's, something else lies for it. */
static dyn_windowed windowOf(World &w, const Step &s, int buffer, int window, int rank, const void *at, bool isShort) {
  dyn_windowed in = {};
  if (window == 0) return in;
  for (int r = 0; r < w.nRanks; r++) {
    const bool beyond = isShort && before(s, r) > before(s, rank);
    in.base[r] = w.buffers[beyond ? 2 : buffer][r].get() + (window == 3 ? 64 : 0);
  }
  const size_t offset = (size_t)((const char *)at - w.buffers[buffer][rank].get()) - (window == 3 ? 64 : 0);
  in.word = dyn_window_word((uint64_t)window, offset);
  in.most = isShort ? offset : kRoom;
  return in;
}

/* What this rank tells the others of its buffers. */
static Bulk toldBy(World &w, const Step &s, int rank, const void *in, const void *out) {
  Bulk b = bulkOf(w, rank);
  b.root = s.root;
  if (s.windows == 0) return b;
  const bool likes = s.windows == 1;
  uint64_t r = s.seed + (likes ? 31 * (uint64_t)rank : 0);
  const auto window = [&](const void *at, uint64_t choice) {
    const bool first = at >= w.buffers[0][rank].get() && at < w.buffers[0][rank].get() + kRoom;
    return windowOf(w, s, !first, likes && choice / 2 % 4 == 0 ? 0 : first ? 1 : s.seed & 1 && choice & 1 ? 2 : 3, rank, at, likes && choice / 8 % 4 == 0);
  };
  b.send = window(in, next(&r)), b.recv = window(out, next(&r));
  if (!likes && next(&r) % 3 == 0) b.send = {}; /* the result alone: sums go there */
  return b;
}

template <typename T>
static void play(World &w, const Step &s, int rank, bool first) {
  const size_t apart = before(s, rank);
  const bool inPlace = s.inPlace && !(exchanges(s.kind) && s.seed % 4 == 0 && rank % 2); /* also of some ranks alone */
  T *in = (T *)(w.buffers[0][rank].get() + apart) + s.shift, *out = (T *)(w.buffers[1][rank].get() + apart) + s.shift;
  if (inPlace && gathers(s.kind)) in = out + rank * s.count;
  else if (inPlace && scatters(s.kind)) out = in + rank * s.count;
  else if (inPlace) out = in;
  inRank(w, rank, first, s.blocks,
         [&] {
           memset(w.buffers[1][rank].get(), 0xa5, kRoom);
           for (size_t i = 0; i < sent(s, w.nRanks); i++) in[i] = valueOf<T>(s, rank, i);
         },
         [&](const Domain &d) { launch<T>(s, {in, out, s.count, (int32_t)s.op, s.tag, stampsOf(w, s, rank), d}, toldBy(w, s, rank, in, out)); },
         [&] { check<T>(w, s, rank, out), checkStamp(w, s, rank); });
}

static void playCall(World &w, uint64_t n, int rank, bool first) {
  Step s = stepOf(w.seed, n, w.nRanks);
  switch (s.type) {
#define PLAY(NAME, TYPE) case k_##NAME: play<TYPE>(w, s, rank, first); break;
    DYN_TYPES(PLAY)
    default: break;
  }
}

static const Size size = {dyn_lines(kMost * 8) + 2 * kMaxRanks + 1, kMost / 16, kRoom}; /* in bulk, in many rounds */

/* A rank that does not come: the wait ends, and says for whom it waited, and in which call. */
static const char *givesUp() {
  World w;
  make(w, 3, 0, 1, size);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; r++)
    threads.emplace_back([&w, r] {
      w.counters[r].assign(DYN_KERNEL_COUNTERS, 6), w.counters[r][kMaxBlocks] = w.counters[r][kMaxBlocks + 1] = 0;
      playAlone(w, r, 50000000, [](const Call &c, const Bulk &) { allReduceOneShot<float>(c); });
    });
  for (auto &t : threads) t.join();
  return w.fault == ((uint64_t)3 << kFaultPeer | 7) ? nullptr : "a rank that does not come is not told of";
}

/* Rank 0 gives up on rank 2, which comes later, in a call of this kernel, behind which so many others stand. For whom the other two
 * wait in vain, counted from 1: long enough to find each other on a busy machine. */
template <typename Kernel>
static uint64_t missedBehind(int next, Kernel kernel) {
  static std::vector<std::unique_ptr<World>> worlds;
  worlds.emplace_back(new World);
  World &w = *worlds.back();
  make(w, 3, 0, 1, size);
  const auto behind = [](const Call &c, const Bulk &) { allReduceOneShot<float>(c); };
  std::thread([&] {
    playAlone(w, 0, 2000000, kernel);
    for (int i = 0; i < next; i++) playAlone(w, 0, 2000000, behind);
  }).join();
  w.fault = 0;
  std::vector<std::thread> threads;
  for (int r = 1; r < 3; r++)
    threads.emplace_back([&, r] {
      playAlone(w, r, 1000000000, kernel);
      for (int i = 0; i < next; i++) playAlone(w, r, 1000000000, behind);
    });
  for (auto &t : threads) t.join();
  return w.fault >> kFaultPeer;
}
/* What it would send on peers must not take for a result: they wait for it in vain. */
static const char *givesUpForGood() {
  if (missedBehind(1, [](const Call &c, const Bulk &) { allReduceOneShot<float>(c); }) != 1) return "a rank that has given up sends more in the next call";
  if (missedBehind(0, [](const Call &c, const Bulk &) { allReduceTwoShot<float>(c); }) != 1) return "a rank that has given up sends sums of what did not come";
  if (missedBehind(0, [](const Call &c, const Bulk &b) { allReduceBulk<float>(c, b); }) != 1) return "a rank that has given up is through a meeting in bulk";
  return nullptr;
}

/* Nor in the lane beside, behind that call. */
static const char *givesUpInBothLanes() {
  const auto before = [](const Call &c, const Bulk &) { allReduceOneShot<float>(c); };
  if (missedBeside(size, before, before) != 1) return "a rank that has given up in one lane sends lines in the other";
  if (missedBeside(size, before, [](const Call &c, const Bulk &b) { reduceScatterBulk<float>(c, b); }) != 1) return "a rank that has given up in one lane meets others in the other";
  return nullptr;
}

static const char *alone() {
  const char *said = givesUp();
  if (said == nullptr) said = givesUpForGood();
  return said != nullptr ? said : givesUpInBothLanes();
}

int main(int argc, char **argv) { return runAll(argc, argv, size, playCall, alone); }
