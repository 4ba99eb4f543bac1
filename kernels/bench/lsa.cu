/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of this folder beside NCCL, on the GPUs of one machine, a process a GPU:
 *   lsa [--ranks N] [--check] [--time] [--sizes B,B,...] [--round PACKS] [--grids] [--kernels FILE]
 * --check compares every element of calls of all types, operators, sizes and alignments; --time measures bfloat16 in CUDA
 * graphs of 20 calls: median of 30 replays, largest over ranks; bytes are nccl-tests'. Both without either. --round: of 16 bytes, the
 * room of a part of what goes in bulk (default: as with 64 MiB of scratch memory and 4 ranks). --grids: every number of CTAs and
 * threads has a line, and not the best alone. --kernels: lib/dynamiccl-kernels.fatbin. JSON lines.
 */
#include "fused.cuh"

constexpr size_t kCounts[] = {1, 2, 3, 7, 8, 9, 63, 1000, 4097, 65536, 300001};

template <typename T>
static void checkOp(Rank &k, Op op) {
  const Kernels<T> kernels;
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 5; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        bool scatters = kind == 2 || kind == 4;
        int blocks = 1 + seed % 7 * 9;
        T *in = (T *)k.in + shift, *out = seed & 1 ? in + (scatters ? rank * count : 0) : (T *)k.out + shift;
        fill<T><<<32, 256, 0, k.stream>>>(in, scatters ? count * numRanks : count, rank, op, seed);
        Call c = {in, out, count, (int32_t)op, 0, k.domain};
        if (kind == 0) launchOn(k, kernels.oneShot, blocks, kThreads, c);
        else if (kind == 1) launchOn(k, kernels.twoShot, blocks, kThreads, c);
        else if (kind == 2) launchOn(k, kernels.reduceScatter, blocks, kThreads, c);
        else if (kind == 3) launchOn(k, kernels.bulk, blocks, kThreads, c, k.bulk);
        else launchOn(k, kernels.reduceScatterBulk, blocks, kThreads, c, k.bulk);
        verify<T><<<32, 256, 0, k.stream>>>(out, count, scatters ? rank * count : 0, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

static void checkMoves(Rank &k) {
  const cudaKernel_t allGather = kernelOf("allGather"), allGatherBulk = kernelOf("allGatherBulk"), allToAll = kernelOf("allToAll"), broadcast = kernelOf("broadcast");
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 4; kind++)
      for (size_t shift = 0; shift < 2; shift++, seed++) {
        int blocks = 1 + seed % 7 * 9, root = (int)(seed % (unsigned)numRanks);
        bool inPlace = seed & 1;
        Byte *out = (Byte *)k.out + shift, *in = inPlace ? out + (kind == 0 || kind == 3 ? rank * count : 0) : (Byte *)k.in + shift;
        fill<Byte><<<32, 256, 0, k.stream>>>(in, kind == 1 ? count * numRanks : count, rank, Op::sum, seed);
        Call c = {in, out, count, (int32_t)Op::sum, 0, k.domain};
        if (kind == 0) launchOn(k, allGather, blocks, kThreads, c);
        else if (kind == 1) launchOn(k, allToAll, blocks, kThreads, c);
        else if (kind == 2) launchOn(k, broadcast, blocks, kThreads, c, root);
        else launchOn(k, allGatherBulk, blocks, kThreads, c, k.bulk);
        verifyMoved<<<32, 256, 0, k.stream>>>(out, count, kind == 2 ? 1 : numRanks, kind == 2 ? root : 0, kind == 1 ? rank * count : 0, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
}

template <typename T>
static void checkType(Rank &k) {
  unsigned long long before = *k.wrong;
  for (Op op : {Op::sum, Op::prod, Op::max, Op::min, Op::avg}) checkOp<T>(k, op);
  if (*k.wrong != before) printf("{\"figure\":\"lsa check\",\"type\":\"%s\",\"rank\":%d,\"wrong\":%llu}\n", Kernels<T>::name, rank, *k.wrong - before);
}

static void check(Rank &k) {
#define CHECK_TYPE(NAME, TYPE) checkType<TYPE>(k);
  DYN_TYPES(CHECK_TYPE)
  checkMoves(k);
  checkAllFused(k);
  shared->wrong += (long)*k.wrong;
  barrier();
  if (rank == 0)
    printf("{\"figure\":\"lsa check\",\"ranks\":%d,\"elements\":%ld,\"wrong\":%ld}\n", numRanks, shared->compared.load(), shared->wrong.load());
}

static bool everyGrid;
static void printTime(const char *collective, size_t bytes, const char *path, int blocks, int threads, double us) {
  printf("{\"figure\":\"lsa time\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"%s\",\"blocks\":%d,\"threads\":%d,\"us\":%.2f}\n", numRanks,
         collective, bytes, path, blocks, threads, us);
}

/* One path of one collective, with every number of blocks and threads that makes sense. */
template <typename Launch>
static void timePath(Rank &k, const char *collective, const char *path, size_t bytes, size_t packs, Launch launch, bool fits = true) {
  double best = 0;
  int with = 0, threads = 0;
  if (!fits) return;
  for (int blocks = 1; blocks <= kMaxBlocks; blocks *= 2)
    for (int t : {128, 256, 512}) {
      if ((size_t)blocks * t >= 2 * packs + 128 && (blocks > 1 || t > 128)) break;
      if (packs > (size_t)blocks * t * 128 && blocks * t < kMaxBlocks * kThreads) continue;
      double us = timed(k, [&] { launch(blocks, t); });
      if (rank == 0 && everyGrid) printTime(collective, bytes, path, blocks, t, us);
      if (with == 0 || us < best) best = us, with = blocks, threads = t;
    }
  if (rank == 0 && with > 0 && !everyGrid) printTime(collective, bytes, path, with, threads, best);
  fflush(stdout);
}
template <typename Enqueue>
static void timeNccl(Rank &k, const char *collective, size_t bytes, Enqueue enqueue) {
  double us = timed(k, enqueue);
  if (rank == 0) printf("{\"figure\":\"lsa time\",\"ranks\":%d,\"collective\":\"%s\",\"bytes\":%zu,\"path\":\"nccl\",\"us\":%.2f}\n", numRanks, collective, bytes, us);
}

static void time(Rank &k, const std::vector<size_t> &sizes) {
  using T = __nv_bfloat16;
  const Kernels<T> kernels;
  const cudaKernel_t allGather = kernelOf("allGather"), allGatherBulk = kernelOf("allGatherBulk"), allToAll = kernelOf("allToAll");
  for (size_t bytes : sizes) {
    size_t count = bytes / sizeof(T), part = count / numRanks, lines = dyn_lines(count * sizeof(T)), partLines = dyn_lines(part * sizeof(T));
    Call all = {k.in, k.out, count, (int32_t)Op::sum, 0, k.domain}, parts = all, moved = all;
    parts.count = part, moved.count = part * sizeof(T);
    timeNccl(k, "AllReduce", bytes, [&] { NCCL(ncclAllReduce(k.in, k.out, count, ncclBfloat16, ncclSum, k.comm, k.stream)); });
    timePath(k, "AllReduce", "one shot", bytes, lines * kLineLanes, [&](int n, int t) { launchOn(k, kernels.oneShot, n, t, all); }, lines <= kLines);
    timePath(k, "AllReduce", "two shots", bytes, lines * kLineLanes / numRanks + 1, [&](int n, int t) { launchOn(k, kernels.twoShot, n, t, all); },
             dyn_two_shot_lines(lines, numRanks) <= kLines);
    size_t part16 = dyn_part(dyn_packs(count * sizeof(T), DYN_BULK_BYTES), numRanks);
    timePath(k, "AllReduce", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, kernels.bulk, n, t, all, k.bulk); });
    timeNccl(k, "ReduceScatter", bytes, [&] { NCCL(ncclReduceScatter(k.in, k.out, part, ncclBfloat16, ncclSum, k.comm, k.stream)); });
    timePath(k, "ReduceScatter", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, kernels.reduceScatter, n, t, parts); }, partLines <= kLines);
    timePath(k, "ReduceScatter", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, kernels.reduceScatterBulk, n, t, parts, k.bulk); });
    timeNccl(k, "AllGather", bytes, [&] { NCCL(ncclAllGather(k.in, k.out, part, ncclBfloat16, k.comm, k.stream)); });
    timePath(k, "AllGather", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, allGather, n, t, moved); }, partLines <= kLines);
    timePath(k, "AllGather", "bulk", bytes, part16, [&](int n, int t) { launchOn(k, allGatherBulk, n, t, moved, k.bulk); });
    timeNccl(k, "AllToAll", bytes, [&] {
      NCCL(ncclGroupStart());
      for (int r = 0; r < numRanks; r++) {
        NCCL(ncclSend(k.in + r * part * sizeof(T), part, ncclBfloat16, r, k.comm, k.stream));
        NCCL(ncclRecv(k.out + r * part * sizeof(T), part, ncclBfloat16, r, k.comm, k.stream));
      }
      NCCL(ncclGroupEnd());
    });
    timePath(k, "AllToAll", "lines", bytes, partLines * kLineLanes, [&](int n, int t) { launchOn(k, allToAll, n, t, moved); }, partLines <= kLines);
  }
}

int main(int argc, char **argv) {
  const char *kernels = "lib/dynamiccl-kernels.fatbin";
  bool checks = false, times = false, fused = true;
  std::vector<size_t> sizes = {1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--ranks") && i + 1 < argc) numRanks = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--check")) checks = true;
    else if (!strcmp(argv[i], "--time")) times = true;
    else if (!strcmp(argv[i], "--grids")) everyGrid = true;
    else if (!strcmp(argv[i], "--kernels") && i + 1 < argc) kernels = argv[++i];
    else if (!strcmp(argv[i], "--round") && i + 1 < argc) roundPacks = strtoull(argv[++i], nullptr, 10);
    else if (!strcmp(argv[i], "--sizes") && i + 1 < argc) {
      sizes.clear();
      fused = false;
      for (char *at = strtok(argv[++i], ","); at != nullptr; at = strtok(nullptr, ",")) sizes.push_back(strtoull(at, nullptr, 10));
    } else {
      fprintf(stderr, "usage: lsa [--ranks N] [--check] [--time] [--sizes BYTES,...] [--round PACKS] [--grids] [--kernels FILE]\n");
      return 2;
    }
  }
  if (!checks && !times) checks = times = true;
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (numRanks == 0) { /* asked in a process of its own: CUDA must not be started before the fork */
    pid_t child = fork();
    if (child == 0) {
      int n = 0;
      _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    numRanks = WEXITSTATUS(status);
  }
  if (numRanks < 2 || numRanks > kMaxRanks) {
    fprintf(stderr, "lsa: %d GPUs: 2 to %d are needed\n", numRanks, kMaxRanks);
    return 2;
  }
  pid_t children[kMaxRanks];
  for (rank = 0; rank < numRanks; rank++)
    if ((children[rank] = fork()) == 0) break;
  if (rank < numRanks) {
    alarm(120);
    if (rank == 0) NCCL(ncclGetUniqueId(&shared->id));
    barrier();
    Rank k = start(kernels);
    int version = 0;
    NCCL(ncclGetVersion(&version));
    if (rank == 0) printf("{\"figure\":\"lsa\",\"ranks\":%d,\"nccl\":%d}\n", numRanks, version);
    if (checks) check(k);
    barrier();
    if (times) time(k, sizes);
    if (times && fused) timeFused(k);
    fflush(stdout);
    _exit(shared->wrong != 0);
  }
  int failed = 0;
  for (int r = 0; r < numRanks; r++) {
    int status;
    waitpid(children[r], &status, 0);
    if (status != 0) { /* the others would wait for it for ever */
      failed = 1;
      for (int other = 0; other < numRanks; other++) kill(children[other], SIGKILL);
    }
  }
  return failed;
}
