/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of ../device on threads of a CPU: ranks that run ahead of each other, threads that stand still
 * anywhere, calls of all kinds after one another in the same scratch memory, every element compared bit by bit.
 *   collectives_test [CALLS [MISTAKE]]     TEST_SEED sets the seed
 * MISTAKE is the number of one to plant (line.cuh), and the program fails when it does not find it.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <pthread.h>
#include <thread>
#include <type_traits>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "../device/all_reduce_bulk.cuh"
#include "../device/move.cuh"
#include "../device/parts_bulk.cuh"
#include "../device/reduce_scatter.cuh"

using namespace dyn;

int planted;
thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static thread_local uint64_t randomState;
static thread_local pthread_barrier_t *ofBlock;

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

void __syncthreads() { pthread_barrier_wait(ofBlock); }

void perhapsWait() {
  uint64_t x = next(&randomState);
  if ((x & 0x3f) == 0) sched_yield();
  if ((x >> 6 & 0x3fff) == 0) usleep(100);
}

constexpr unsigned kBlocks = 3, kBlockThreads = 2;
constexpr size_t kMost = 700, kRoom = 8 * kMost * kMaxRanks + 64; /* elements of a part, bytes */

enum class Type { i8, u32, i64, f16, bf16, f32, f64, e4m3, count };

enum class Kind { oneShot, twoShot, bulk, reduceScatter, reduceScatterBulk, allGather, allGatherBulk, allToAll, broadcast, count };
static const char *const kindNames[] = {"one shot", "two shots", "bulk", "ReduceScatter", "ReduceScatter in bulk", "AllGather", "AllGather in bulk", "AllToAll", "Broadcast"};
static bool scatters(Kind k) { return k == Kind::reduceScatter || k == Kind::reduceScatterBulk; }
static bool gathers(Kind k) { return k == Kind::allGather || k == Kind::allGatherBulk; }

/* One call, the same on all ranks. count is of a part where there are parts. */
struct Step {
  Kind kind;
  Type type;
  Op op;
  int root;
  unsigned blocks;
  size_t count, shift;
  bool inPlace;
  uint64_t seed;
};

static Step stepOf(uint64_t seed, uint64_t n, int nRanks) {
  uint64_t r = seed ^ n * 0xD1342543DE82EF95u;
  Step s;
  s.type = (Type)(next(&r) % (int)Type::count);
  s.op = (Op)(next(&r) % 5);
  s.kind = (Kind)(next(&r) % (int)Kind::count);
  s.root = (int)(next(&r) % (uint64_t)nRanks);
  s.blocks = 1 + (unsigned)(next(&r) % kBlocks);
  s.count = 1 + next(&r) % (next(&r) % 4 == 0 ? kMost : 40);
  s.shift = next(&r) % 3;
  s.inPlace = next(&r) % 2;
  s.seed = next(&r);
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

struct World {
  int nRanks;
  uint64_t calls, seed;
  std::vector<std::unique_ptr<char[]>> scratch;
  std::vector<std::vector<uint32_t>> counters, passed, flags;
  std::vector<std::unique_ptr<char[]>> memory;
  std::vector<std::unique_ptr<char[]>> in, out;
  std::vector<pthread_barrier_t> ofRank, ofBlock;
  uint32_t stop = 0;
  uint64_t fault = 0;
  std::atomic<uint64_t> wrong{0}, compared{0};
};

static size_t lines() { return kMost + 2 * kMaxRanks + 1; }

static Domain domainOf(World &w, int rank, uint64_t waitNs) {
  Domain d = {};
  d.rank = rank, d.nRanks = w.nRanks, d.lines = lines(), d.calls = w.counters[rank].data();
  for (int r = 0; r < w.nRanks; r++) d.scratch[r] = w.scratch[r].get();
  d.stop = &w.stop, d.fault = &w.fault, d.waitNs = waitNs;
  return d;
}

/* Elements of what a rank sends and of what it gets. */
static size_t sent(const Step &s, int nRanks) { return scatters(s.kind) || s.kind == Kind::allToAll ? s.count * nRanks : s.count; }
static size_t got(const Step &s, int nRanks) { return gathers(s.kind) || s.kind == Kind::allToAll ? s.count * nRanks : s.count; }

/* Element i of what rank has in the end. */
template <typename T>
static T wanted(const Step &s, int nRanks, int rank, size_t i) {
  using N = Number<T>;
  size_t part = i / s.count, at = i % s.count;
  switch (s.kind) {
    case Kind::allGather:
    case Kind::allGatherBulk: return valueOf<T>(s, (int)part, at);
    case Kind::allToAll: return valueOf<T>(s, (int)part, rank * s.count + at);
    case Kind::broadcast: return valueOf<T>(s, s.root, i);
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

static size_t bulkPacks() { return kMost / 2 + kMaxRanks; }

static Bulk bulkOf(World &w, int rank) {
  Bulk b = {};
  for (int r = 0; r < w.nRanks; r++) b.memory[r] = w.memory[r].get(), b.flags[r] = w.flags[r].data();
  b.passed = w.passed[rank].data(), b.packs = bulkPacks();
  return b;
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
    default: broadcast(bytes, s.root);
  }
}

template <typename T>
static void play(World &w, const Step &s, int rank, bool first) {
  T *in = (T *)(w.in[rank].get() + 16) + s.shift, *out = (T *)(w.out[rank].get() + 16) + s.shift;
  if (s.inPlace && gathers(s.kind)) in = out + rank * s.count;
  else if (s.inPlace && scatters(s.kind)) out = in + rank * s.count;
  else if (s.inPlace) out = in;
  if (first) {
    memset(w.out[rank].get(), 0xa5, kRoom);
    for (size_t i = 0; i < sent(s, w.nRanks); i++) in[i] = valueOf<T>(s, rank, i);
  }
  pthread_barrier_wait(&w.ofRank[rank]);
  if (blockIdx.x < s.blocks) {
    gridDim.x = s.blocks;
    launch<T>(s, {in, out, s.count, (int32_t)s.op, 0, domainOf(w, rank, 20000000000u)}, bulkOf(w, rank));
  }
  pthread_barrier_wait(&w.ofRank[rank]);
  if (first) check<T>(w, s, rank, out);
}

static void thread(World *w, int rank, unsigned block, unsigned thread) {
  blockIdx.x = block, threadIdx.x = thread, blockDim.x = kBlockThreads;
  ofBlock = &w->ofBlock[rank * kBlocks + block];
  randomState = w->seed * 31 + (uint64_t)rank * 1009 + block * 101 + thread;
  bool first = block == 0 && thread == 0;
  for (uint64_t n = 0; n < w->calls; n++) {
    Step s = stepOf(w->seed, n, w->nRanks);
    switch (s.type) {
      case Type::i8: play<int8_t>(*w, s, rank, first); break;
      case Type::u32: play<uint32_t>(*w, s, rank, first); break;
      case Type::i64: play<int64_t>(*w, s, rank, first); break;
      case Type::f16: play<__half>(*w, s, rank, first); break;
      case Type::bf16: play<__nv_bfloat16>(*w, s, rank, first); break;
      case Type::f32: play<float>(*w, s, rank, first); break;
      case Type::f64: play<double>(*w, s, rank, first); break;
      default: play<__nv_fp8_e4m3>(*w, s, rank, first); break;
    }
  }
}

static void make(World &w, int nRanks, uint64_t calls, uint64_t seed) {
  w.nRanks = nRanks, w.calls = calls, w.seed = seed;
  w.ofRank.resize(nRanks), w.ofBlock.resize(nRanks * kBlocks);
  for (int r = 0; r < nRanks; r++) {
    w.scratch.emplace_back(new char[2 * nRanks * lines() * kLineBytes]());
    w.in.emplace_back(new char[kRoom]()), w.out.emplace_back(new char[kRoom]());
    /* As after four thousand million calls: the number goes on behind its end. */
    w.counters.emplace_back(kMaxBlocks, UINT32_MAX - (uint32_t)(calls / 2));
    w.passed.emplace_back(kMaxBlocks, UINT32_MAX - (uint32_t)(calls / 20));
    w.flags.emplace_back(kMaxBlocks * kMaxRanks, UINT32_MAX - (uint32_t)(calls / 20));
    w.memory.emplace_back(new char[dyn_bulk_bytes(bulkPacks(), nRanks) + kBulkBytes]());
    pthread_barrier_init(&w.ofRank[r], nullptr, kBlocks * kBlockThreads);
    for (unsigned b = 0; b < kBlocks; b++) pthread_barrier_init(&w.ofBlock[r * kBlocks + b], nullptr, kBlockThreads);
  }
}

static uint64_t run(int nRanks, uint64_t calls, uint64_t seed) {
  static World w; /* a mistake leaves threads in it that never end */
  make(w, nRanks, calls, seed);
  std::vector<std::thread> threads;
  for (int r = 0; r < nRanks; r++)
    for (unsigned b = 0; b < kBlocks; b++)
      for (unsigned t = 0; t < kBlockThreads; t++) threads.emplace_back(thread, &w, r, b, t);
  for (auto &t : threads) t.join();
  uint64_t wrong = w.wrong + (w.fault != 0);
  printf("{\"ranks\":%d,\"calls\":%lu,\"elements\":%lu,\"wrong\":%lu,\"fault\":%lx}\n", nRanks, calls,
         w.compared.load(), w.wrong.load(), w.fault);
  return wrong;
}

/* A rank that does not come: the wait ends, and says for whom it waited, and in which call. */
static bool givesUp() {
  World w;
  make(w, 3, 0, 1);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; r++)
    threads.emplace_back([&w, r] {
      pthread_barrier_t alone;
      pthread_barrier_init(&alone, nullptr, 1);
      ofBlock = &alone;
      blockDim.x = gridDim.x = 1;
      w.counters[r].assign(kMaxBlocks, 6);
      Call c = {w.in[r].get(), w.out[r].get(), 5, (int32_t)Op::sum, 0, domainOf(w, r, 50000000)};
      allReduceOneShot<float>(c);
    });
  for (auto &t : threads) t.join();
  return w.fault == ((uint64_t)3 << kFaultPeer | 7);
}

int main(int argc, char **argv) {
  const char *seed = getenv("TEST_SEED");
  uint64_t calls = argc > 1 ? strtoull(argv[1], nullptr, 10) : 2000, from = seed ? strtoull(seed, nullptr, 10) : 1;
  planted = argc > 2 ? atoi(argv[2]) : 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (planted == 0 && !givesUp()) {
    fprintf(stderr, "a rank that does not come is not told of\n");
    return 1;
  }
  bool wrong = false;
  for (int nRanks : {2, 3, 4, 8}) { /* each in a process of its own */
    pid_t child = fork();
    if (child == 0) {
      alarm(planted ? 2 : 120); /* a mistake may hang */
      _exit(run(nRanks, calls * 4 / (uint64_t)(nRanks * nRanks) + 1, from + (uint64_t)nRanks) != 0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) wrong = true;
    if (wrong) break;
  }
  if (wrong == (planted != 0)) return 0;
  fprintf(stderr, wrong ? "wrong results, or a hang: TEST_SEED=%lu\n" : "the planted mistake was not found (seed %lu)\n", from);
  return 1;
}
