/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of this folder beside NCCL, on the GPUs of one machine, a process a GPU, or, where there are more ranks than GPUs,
 * several a GPU, without NCCL (run.sh starts what has them run beside each other):
 *   lsa [--ranks N] [--check] [--time] [--sizes B,B,...] [--round PACKS] [--grids] [--path NAME] [--ctas N,N,...] [--selections]
 *       [--no-symmetric] [--kernels FILE]
 * --check compares every element of calls of all types, operators, sizes and alignments, and holds sums that round against a
 * bound, and against the other ranks' and kernels'; --time measures bfloat16 in CUDA graphs of 20 calls (4 from 32 MiB on): median
 * of 30 replays (11), largest over ranks; bytes are nccl-tests'. Both without either. --round: of 16 bytes, the room of a part of
 * what goes in bulk (default: as with 64 MiB of scratch memory). --grids: every number of CTAs and threads
 * has a line, and not the best alone. --path: those of ours whose names begin so ("bulk", "AllToAllv") and nothing of NCCL's; --ctas: these alone, of 512
 * threads. --no-symmetric: NCCL gets no registered buffers. --kernels: lib/dynamiccl-kernels.fatbin.
 * JSON lines. Exit: 0 if every element is right, 3 if NCCL could not go on with them.
 */
#include "differ.cuh"
#include "fused.cuh"
#include "nccl.cuh"
#include "selections.cuh"
#include "stamps.cuh"
#include "sums.cuh"

constexpr size_t kCounts[] = {1, 2, 3, 7, 8, 9, 63, 1000, 4097, 65536, 300001, 300032};

/* 1 to 55, and as different where fewer may be. */
static int blocksOf(unsigned seed) { return 1 + (int)(seed % 7) * std::min(9, (mostBlocks - 1) / 6); }

/* Buffers in windows; in one call of eight one rank's is in none. */
static Bulk told(const Rank &k, const Call &c, unsigned seed, bool sends = true) {
  return seed / 2 % 8 == 7 && (int)(seed / 16) % numRanks == rank ? k.bulk : withWindows(k, c, sends);
}

template <typename T>
static void checkOp(Rank &k, Op op) {
  const Kernels<T> kernels;
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 8; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        bool scatters = kind == 2 || kind == 4 || kind == 7;
        int blocks = blocksOf(seed);
        T *in = (T *)k.in + shift, *out = seed & 1 ? in + (scatters ? rank * count : 0) : (T *)k.out + shift;
        fill<T><<<32, 256, 0, k.stream>>>(in, scatters ? count * numRanks : count, rank, op, seed);
        Call c = {in, out, count, (int32_t)op, 0, k.stamps, k.domain};
        if (kind == 0) launchOn(k, kernels.oneShot, blocks, kThreads, c);
        else if (kind == 1) launchOn(k, kernels.twoShot, blocks, kThreads, c);
        else if (kind == 2) launchOn(k, kernels.reduceScatter, blocks, kThreads, c);
        else if (kind == 3) launchOn(k, kernels.bulk, blocks, kThreads, c, k.bulk);
        else if (kind == 4) launchOn(k, kernels.reduceScatterBulk, blocks, kThreads, c, k.bulk);
        else if (kind == 7) launchOn(k, kernels.reduceScatterBulk, blocks, kThreads, c, told(k, c, seed));
        else launchOn(k, kernels.bulk, blocks, kThreads, c, told(k, c, seed, kind == 6)); /* into windows, and out of them */
        verify<T><<<32, 256, 0, k.stream>>>(out, count, scatters ? rank * count : 0, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

static void checkMoves(Rank &k) {
  enum { kGather, kExchange, kBroadcast, kGatherBulk, kExchangeBulk, kBroadcastBulk, kGatherDirect, kExchangeDirect, kBroadcastDirect, kKinds };
  const cudaKernel_t kernels[] = {kernelOf("allGather"), kernelOf("allToAll"), kernelOf("broadcast"), kernelOf("allGatherBulk"), kernelOf("allToAllBulk"), kernelOf("broadcastBulk")};
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < kKinds; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        int blocks = blocksOf(seed), root = (int)(seed % (unsigned)numRanks), what = kind % 3;
        bool gathers = what == kGather, exchanges = what == kExchange, broadcasts = what == kBroadcast, direct = kind >= kGatherDirect;
        bool inPlace = seed & 1 && !(exchanges && seed % 5 == 0 && rank & 1); /* AllToAll also of some ranks alone */
        Byte *out = (Byte *)k.out + shift, *in = inPlace ? out + (gathers ? rank * count : 0) : (Byte *)k.in + shift;
        fill<Byte><<<32, 256, 0, k.stream>>>(in, exchanges ? count * numRanks : count, rank, Op::sum, seed);
        Call c = {in, out, count, (int32_t)Op::sum, 0, k.stamps, k.domain};
        Bulk b = direct ? told(k, c, seed) : k.bulk;
        b.root = root;
        if (kind == kBroadcast) launchOn(k, kernels[kind], blocks, kThreads, c, root);
        else if (kind < kGatherBulk) launchOn(k, kernels[kind], blocks, kThreads, c);
        else launchOn(k, kernels[direct ? kind - 3 : kind], blocks, kThreads, c, b);
        verifyMoved<<<32, 256, 0, k.stream>>>(out, count, broadcasts ? 1 : numRanks, broadcasts ? root : 0, exchanges ? rank * count : 0, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

/* direct: the result is told to lie in a window; what others say comes of seed. lines: small parts go in lines, as they are launched. */
static void launchDiffer(const Rank &k, const dyn_parts &parts, bool direct = false, unsigned seed = 0, bool lines = true, int blocks = DYN_PARTS_CTAS,
                         int threads = DYN_PARTS_THREADS) {
  static const cudaKernel_t kernel = kernelOf("allToAllV");
  const size_t most = lines ? dyn_parts_lines(k.domain.lines, (unsigned)std::min(blocks, mostBlocks)) : 0;
  const Call c = {k.in, k.out, most, (int32_t)Op::sum, 0, k.stamps, k.domain};
  launchOn(k, kernel, blocks, threads, c, direct ? told(k, c, seed, false) : k.bulk, parts);
}

template <typename T>
static void checkType(Rank &k) {
  unsigned long long before = *k.wrong;
  for (Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::avg}) checkOp<T>(k, op);
  if constexpr (!std::is_integral<T>::value) checkSums<T>(k);
  if (*k.wrong != before) printf("{\"figure\":\"lsa check\",\"ranks\":%d%s,\"type\":\"%s\",\"rank\":%d,\"wrong\":%llu}\n", numRanks, sharing(), Kernels<T>::name, rank, *k.wrong - before);
}

static void check(Rank &k) {
#define CHECK_TYPE(NAME, TYPE) checkType<TYPE>(k);
  DYN_TYPES(CHECK_TYPE)
  checkMoves(k);
  for (bool direct : {false, true})
    for (bool lines : {false, true}) {
      unsigned calls = 0;
      checkDiffering(k, {2, 100, 5000, 300001, 4 << 20, 20 << 20}, [&](const dyn_parts &p) { launchDiffer(k, p, direct, calls++, lines); });
    }
#define CHECK_NORM(NAME, TYPE) checkFused<TYPE>(k, #NAME, {1, 7, 128, 4096, 5120, 8192}, {1, 3, 64, 100}, 16, kThreads);
  DYN_NORM_TYPES(CHECK_NORM)
  shared->wrong += (long)*k.wrong;
  barrier();
  if (rank == 0)
    printf("{\"figure\":\"lsa check\",\"ranks\":%d%s,\"elements\":%ld,\"wrong\":%ld}\n", numRanks, sharing(), shared->compared.load(), shared->wrong.load());
}

static bool everyGrid;
static const char *onlyPath; /* NULL: all, and NCCL's */
static bool wanted(const char *path) { return onlyPath == nullptr || strncmp(path, onlyPath, strlen(onlyPath)) == 0; }

static void printTime(const char *collective, size_t bytes, const char *path, int blocks, int threads, double us) {
  printf("{\"figure\":\"lsa time\",\"ranks\":%d%s,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"%s\",\"blocks\":%d,\"threads\":%d,\"us\":%.2f}\n", numRanks,
         sharing(), collective, bytes, path, blocks, threads, us);
}

/* AllToAllv as it is launched, and with --grids otherwise: parts of so many bytes between all, at another place of a word where
 * they are sent from than where they go to, through scratch memory and with results in a window; and without lines where it has them. */
template <typename TimePath>
static void timeDiffer(const Rank &k, size_t bytes, size_t part, TimePath timePath) {
  static const char *const paths[] = {"AllToAllv, equal parts", "AllToAllv, not aligned", "AllToAllv, equal parts, direct", "AllToAllv, not aligned, direct",
                                      "AllToAllv, equal parts, no lines", "AllToAllv, not aligned, no lines"};
  for (int kind = 0; kind < 6; kind++) {
    if (!wanted(paths[kind])) continue;
    const size_t apart = kind % 2;
    const bool direct = kind / 2 == 1, lines = kind < 4;
    if (!lines && dyn_lines(part) > dyn_parts_lines(k.domain.lines, DYN_PARTS_CTAS)) continue; /* in bulk anyway */
    dyn_parts equal = {};
    for (int r = 0; r < numRanks; r++) equal.sendBytes[r] = equal.recvBytes[r] = part, equal.sendAt[r] = r * part + apart, equal.recvAt[r] = r * part + 3 * apart;
    const double us = timed(k, [&] { launchDiffer(k, equal, direct, 0, lines); });
    if (rank == 0) printTime("AllToAll", bytes, paths[kind], std::min(DYN_PARTS_CTAS, mostBlocks), DYN_PARTS_THREADS, us);
    if (everyGrid) timePath(paths[kind], [&](int n, int t) { launchDiffer(k, equal, direct, 0, lines, n, t); });
  }
}

static std::vector<int> onlyCtas; /* empty: powers of two */

constexpr int kProgramCtas = 64; /* what programs have at most (docs/design.md, decision 2.4) */

/* One path of one collective, with every number of blocks and threads that makes sense: its best, and where that is no program's the best that is. */
template <typename Launch>
static void timePath(Rank &k, const char *collective, const char *path, size_t bytes, size_t packs, Launch launch, bool fits = true) {
  struct Best {
    double us = 0;
    int with = 0, threads = 0;
  } best, ofPrograms;
  const auto take = [](Best &b, int blocks, int t, double us) {
    if (b.with == 0 || us < b.us) b = {us, blocks, t};
  };
  if (!fits || !wanted(path)) return;
  for (int blocks = 1; blocks <= mostBlocks; blocks *= 2)
    for (int t : {128, 256, 512}) {
      if (!onlyCtas.empty() && (t != kThreads || std::count(onlyCtas.begin(), onlyCtas.end(), blocks) == 0)) continue;
      if ((size_t)blocks * t >= 2 * packs + 128 && (blocks > 1 || t > 128)) break;
      if (packs > (size_t)blocks * t * 128 && (4 * blocks <= mostBlocks || t < kThreads)) continue;
      double us = timed(k, [&] { launch(blocks, t); });
      if (rank == 0 && everyGrid) printTime(collective, bytes, path, blocks, t, us);
      take(best, blocks, t, us);
      if (blocks <= kProgramCtas) take(ofPrograms, blocks, t, us);
    }
  if (rank == 0 && !everyGrid) {
    if (ofPrograms.with > 0) printTime(collective, bytes, path, ofPrograms.with, ofPrograms.threads, ofPrograms.us);
    if (best.with > kProgramCtas) printTime(collective, bytes, path, best.with, best.threads, best.us);
  }
  fflush(stdout);
}

static void time(Rank &k, const std::vector<size_t> &sizes, const Place &plain, const Place &windows) {
  using T = __nv_bfloat16;
  const Kernels<T> kernels;
  const cudaKernel_t allGather = kernelOf("allGather"), allGatherBulk = kernelOf("allGatherBulk"), allToAll = kernelOf("allToAll"), allToAllBulk = kernelOf("allToAllBulk"),
                     broadcast = kernelOf("broadcast"), broadcastBulk = kernelOf("broadcastBulk");
  const auto nccl = [&](Collective collective, size_t bytes) {
    if (onlyPath != nullptr || plain.comm == nullptr) return;
    timeNccl(k, plain, collective, bytes);
    if (windows.registered) timeNccl(k, windows, collective, bytes);
  };
  warm(k);
  for (size_t bytes : sizes) {
    large = bytes >= kLargeBytes;
    size_t count = bytes / sizeof(T), part = count / numRanks, lines = dyn_lines(count * sizeof(T)), partLines = dyn_lines(part * sizeof(T));
    Call all = {k.in, k.out, count, (int32_t)Op::sum, 0, k.stamps, k.domain}, parts = all, moved = all;
    parts.count = part, moved.count = part * sizeof(T);
    Call whole = all; /* bytes that everybody gets */
    whole.count = count * sizeof(T);
    const Bulk direct = withWindows(k, all), into = withWindows(k, all, false); /* in and out are those of every call */
    nccl(kAllReduce, bytes);
    timePath(k, "AllReduce", "one shot", bytes, lines * kLineLanes, [&](int n, int t) { launchOn(k, kernels.oneShot, n, t, all); }, lines <= slotLines);
    timePath(k, "AllReduce", "two shots", bytes, lines * kLineLanes / numRanks + 1, [&](int n, int t) { launchOn(k, kernels.twoShot, n, t, all); },
             dyn_two_shot_lines(lines, numRanks) <= slotLines);
    size_t part16 = dyn_part(dyn_packs(count * sizeof(T), DYN_BULK_BYTES), numRanks);
    timePath(k, "AllReduce", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, kernels.bulk, n, t, all, k.bulk); });
    timePath(k, "AllReduce", "direct, sums alone", bytes, part16, [&](int n, int t) { launchOn(k, kernels.bulk, n, t, all, into); });
    timePath(k, "AllReduce", "direct", bytes, part16, [&](int n, int t) { launchOn(k, kernels.bulk, n, t, all, direct); });
    nccl(kReduceScatter, bytes);
    timePath(k, "ReduceScatter", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, kernels.reduceScatter, n, t, parts); }, partLines <= slotLines);
    timePath(k, "ReduceScatter", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, kernels.reduceScatterBulk, n, t, parts, k.bulk); });
    timePath(k, "ReduceScatter", "direct", bytes, part16, [&](int n, int t) { launchOn(k, kernels.reduceScatterBulk, n, t, parts, direct); });
    nccl(kAllGather, bytes);
    timePath(k, "AllGather", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, allGather, n, t, moved); }, partLines <= slotLines);
    timePath(k, "AllGather", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, allGatherBulk, n, t, moved, k.bulk); });
    timePath(k, "AllGather", "direct", bytes, part16, [&](int n, int t) { launchOn(k, allGatherBulk, n, t, moved, direct); });
    nccl(kAllToAll, bytes);
    timePath(k, "AllToAll", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, allToAll, n, t, moved); }, partLines <= slotLines);
    timeDiffer(k, bytes, moved.count, [&](const char *path, auto launch) { timePath(k, "AllToAll", path, bytes, part16, launch); });
    timePath(k, "AllToAll", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, allToAllBulk, n, t, moved, k.bulk); });
    timePath(k, "AllToAll", "direct", bytes, part16, [&](int n, int t) { launchOn(k, allToAllBulk, n, t, moved, direct); });
    Call inPlace = moved;
    inPlace.send = inPlace.recv;
    timePath(k, "AllToAll", "bulk, in place", bytes, part16, [&](int n, int t) { launchOn(k, allToAllBulk, n, t, inPlace, k.bulk); });
    timePath(k, "AllToAll", "direct, in place", bytes, part16, [&](int n, int t) { launchOn(k, allToAllBulk, n, t, inPlace, withWindows(k, inPlace)); });
    const size_t forwarded = dyn_part(dyn_packs(whole.count, DYN_BULK_BYTES), numRanks - 1);
    timePath(k, "Broadcast", "lines", bytes, (lines + 1) * kLineLanes, [&](int n, int t) { launchOn(k, broadcast, n, t, whole, 0); }, lines < slotLines);
    timePath(k, "Broadcast", "bulk", bytes, forwarded, [&](int n, int t) { launchOn(k, broadcastBulk, n, t, whole, k.bulk); });
    timePath(k, "Broadcast", "direct", bytes, forwarded, [&](int n, int t) { launchOn(k, broadcastBulk, n, t, whole, direct); });
  }
  large = false;
}

static std::string hundredths(double us) {
  char text[32];
  snprintf(text, sizeof text, "%.2f", us);
  return text;
}

/* Widths of Llama-8B and 70B. Without NCCL its time is null. */
static void timeFused(Rank &k) {
  using T = __nv_bfloat16;
  const Kernels<T> kernels;
  const cudaKernel_t fused = kernelOf("allReduceAddRmsNorm_bfloat16");
  for (size_t width : {4096, 8192})
    for (size_t tokens : {1, 8, 32}) {
      const Norm<T> n(k, tokens, width);
      n.fill(k, 1);
      std::string nccl = "null";
      if (comm != nullptr)
        nccl = hundredths(timed(k, [&] {
          NCCL(ncclAllReduce(n.in, n.sum, n.count, ncclBfloat16, ncclSum, comm, k.stream));
          n.norm(k);
        }));
      double two = timed(k, [&] {
        launchOn(k, kernels.oneShot, 16, kThreads, n.call(k, n.sum));
        n.norm(k);
      });
      double one = timed(k, [&] { n.all(k, fused); });
      if (rank == 0)
        printf("{\"figure\":\"lsa fused\",\"ranks\":%d%s,\"width\":%zu,\"tokens\":%zu,\"nccl_us\":%s,\"one_shot_us\":%.2f,\"fused_us\":%.2f}\n", numRanks,
               sharing(), width, tokens, nccl.c_str(), two, one);
      fflush(stdout);
    }
}

static void printNoWindows(const char *why) {
  printf("{\"figure\":\"lsa symmetric\",\"ranks\":%d%s,\"registered\":false,\"why\":\"%s\"}\n", numRanks, sharing(), why);
}

static bool selections;

/* NCCL refuses ranks of a node that share a GPU, but newer ones where they are told not to, and then it needs its share of the
 * places that blocks of ours have: where GPUs are shared it is left out. */
static void printBegin(int nccl) {
  if (gpusShared())
    printf("{\"figure\":\"lsa\",\"ranks\":%d,\"gpus\":%d%s,\"most_blocks\":%d,\"nccl\":null,\"why\":\"ranks share GPUs: ours alone\"}\n", numRanks, numGpus, sharing(), mostBlocks);
  else
    printf("{\"figure\":\"lsa\",\"ranks\":%d,\"nccl\":%d}\n", numRanks, nccl);
}

static void timeAll(Rank &k, const std::vector<size_t> &sizes, bool symmetric, bool fused) {
  const Place plain = {comm, k.in, k.out, false};
  Place windows = {};
  std::string why = gpusShared() ? "ranks share GPUs" : "--no-symmetric";
  if (symmetric) why.clear(), makeWindows(*std::max_element(sizes.begin(), sizes.end()), &windows, &why);
  if (rank == 0 && !windows.registered) printNoWindows(why.c_str());
  if (selections) {
    trySelections(k, sizes, plain, windows);
    return;
  }
  time(k, sizes, plain, windows);
  if (fused) timeFused(k), timeStamps(k);
}

int main(int argc, char **argv) {
  const char *kernels = "lib/dynamiccl-kernels.fatbin";
  bool checks = false, times = false, fused = true, symmetric = true;
  std::vector<size_t> sizes = {1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--ranks") && i + 1 < argc) numRanks = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--check")) checks = true;
    else if (!strcmp(argv[i], "--time")) times = true;
    else if (!strcmp(argv[i], "--grids")) everyGrid = true;
    else if (!strcmp(argv[i], "--no-symmetric")) symmetric = false;
    else if (!strcmp(argv[i], "--selections")) selections = times = true;
    else if (!strcmp(argv[i], "--kernels") && i + 1 < argc) kernels = argv[++i];
    else if (!strcmp(argv[i], "--path") && i + 1 < argc) onlyPath = argv[++i];
    else if (!strcmp(argv[i], "--ctas") && i + 1 < argc)
      for (char *at = strtok(argv[++i], ","); at != nullptr; at = strtok(nullptr, ",")) onlyCtas.push_back(atoi(at));
    else if (!strcmp(argv[i], "--round") && i + 1 < argc) roundPacks = strtoull(argv[++i], nullptr, 10);
    else if (!strcmp(argv[i], "--sizes") && i + 1 < argc) {
      sizes.clear();
      fused = false;
      for (char *at = strtok(argv[++i], ","); at != nullptr; at = strtok(nullptr, ",")) sizes.push_back(strtoull(at, nullptr, 10));
    } else {
      fprintf(stderr, "usage: lsa [--ranks N] [--check] [--time] [--sizes BYTES,...] [--round PACKS] [--grids] [--path NAME] [--ctas N,...] [--no-symmetric] [--kernels FILE]\n");
      return 2;
    }
  }
  if (!checks && !times) checks = times = true;
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  numGpus = countGpus();
  if (numRanks == 0) numRanks = numGpus;
  if (numGpus < 1 || numRanks < 2 || numRanks > kMaxRanks) {
    fprintf(stderr, "lsa: %d ranks, %d GPUs: 2 to %d ranks are needed, and a GPU\n", numRanks, numGpus, kMaxRanks);
    return 2;
  }
  if (gpusShared() && selections) {
    fprintf(stderr, "lsa: --selections are NCCL's, which is not asked where %d ranks share %d GPUs\n", numRanks, numGpus);
    return 2;
  }
  symmetric &= !gpusShared();
  if (roundPacks == 0) roundPacks = (16 << 20) / dyn_bulk_bytes(1, numRanks);
  setvbuf(stdout, nullptr, _IOLBF, 0); /* what was measured stays if a rank is killed */
  pid_t children[kMaxRanks];
  for (rank = 0; rank < numRanks; rank++)
    if ((children[rank] = fork()) == 0) break;
  if (rank < numRanks) {
    alarm(gpusShared() ? 580 : 280);
    Rank k = start(kernels);
    int version = 0;
    NCCL(ncclGetVersion(&version));
    if (!gpusShared()) joinNccl();
    if (rank == 0) printBegin(version);
    if (checks) check(k);
    barrier();
    if (times) timeAll(k, sizes, symmetric, fused);
    barrier(); /* rank 0 has printed everything */
    _exit(shared->wrong != 0);
  }
  int failed = 0;
  for (int left = numRanks; left > 0; left--) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) break;
    for (int r = 0; r < numRanks; r++)
      if (children[r] == ended) children[r] = 0;
    if (status == 0) continue;
    if (failed == 0) failed = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (int r = 0; r < numRanks; r++) /* it would wait for ever for who has gone */
      if (children[r] != 0) kill(children[r], SIGKILL);
  }
  if (failed == kNoWindows) printNoWindows("a rank could not go on with them: standard error says more");
  return failed;
}
