/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel a few times, small and once at a time, for compute-sanitizer (sanitize.sh), which makes each load and store a
 * hundred times as slow:
 *   sanitize RANK RANKS FILE [KERNELS]
 * One rank; each has a process of its own, and a GPU where there are as many, so that no lock or queue of the tool or of CUDA's driver
 * stands between kernels that wait for each other; on one GPU they take turns. FILE, of zeros, is what the processes share. No
 * NCCL, for the tool would rewrite its kernels, too. Buffers are exactly as large as a call needs, so that an access behind them
 * is one outside of any memory.
 *
 * That holds for a rank's own memory, of which memcheck knows what was asked for. Of a peer's it can know only what CUDA mapped
 * by the handle, and that is all that CUDA keeps together with it, up to 2 MiB: what a kernel reads behind a peer's buffer is not
 * seen, nor is what it writes there, unless it is behind all of that. So every other call on windows has guards behind its
 * buffers, which are looked at when all ranks are through.
 * A JSON line of rank 0's; exit 0 if every element is right.
 */
#include <fcntl.h>

#include "differ.cuh"
#include "fused.cuh"

constexpr size_t kCounts[] = {1, 301, 512}; /* 301 is no whole number of packs, 512 is; both take several rounds */
constexpr int kFewThreads = 64;             /* two warps: a line's threads in different ones, barriers between them */
constexpr unsigned kSeconds = 100, kSecondsInTurns = 280; /* for all */
constexpr size_t kGuardBytes = 256;
constexpr Byte kGuard = 0x5a;

static volatile int calls;

/* Memory of one call. */
template <typename T>
struct Exactly {
  T *at = nullptr;
  Byte *guard = nullptr;
  explicit Exactly(size_t count, bool guarded = false) {
    if (count == 0) return;
    CUDA(cudaMalloc(&at, count * sizeof(T) + guarded * kGuardBytes));
    if (!guarded) return;
    guard = (Byte *)(at + count);
    CUDA(cudaMemset(guard, kGuard, kGuardBytes));
    CUDA(cudaDeviceSynchronize());
  }
  ~Exactly() {
    Byte now[kGuardBytes];
    if (guard != nullptr) {
      CUDA(cudaMemcpy(now, guard, kGuardBytes, cudaMemcpyDeviceToHost));
      const long wrong = (long)kGuardBytes - std::count(now, now + kGuardBytes, kGuard);
      if (wrong > 0) fprintf(stderr, "rank %d: behind a buffer of call %d %ld bytes were written\n", rank, calls, wrong);
      shared->wrong += wrong;
    }
    CUDA(cudaFree(at));
  }
  Exactly(const Exactly &) = delete;
};

/* Both buffers of a call, one where the other is nullptr, as if all ranks had registered them. */
struct Windows {
  Rank k;
  const bool open;
  template <typename T>
  Windows(const Rank &own, bool open, const T *in, size_t inCount, const T *out) : k(own), open(open) {
    if (!open) return;
    k.in = (char *)(in != nullptr ? in : out), k.out = (char *)(out != nullptr ? out : in), k.inBytes = inCount * sizeof(T);
    openBuffers(k);
  }
  ~Windows() {
    if (open) closeBuffers(k);
  }
  Windows(const Windows &) = delete;
  /* In one call of five one rank's are in none. */
  Bulk told(const Call &c, unsigned seed, bool sends = true) const {
    return seed % 5 == 3 && (int)(seed / 5) % numRanks == rank ? k.bulk : withWindows(k, c, sends);
  }
};

/* The call is over, on this rank. Waiting for each names the one that a fault came from. */
static void settle(const Rank &k, size_t elements) {
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
  shared->compared += (long)elements;
  calls = calls + 1;
}

/* Kernels of a type: one shot, two shots, in bulk; ReduceScatter in lines, in bulk; in bulk with both buffers in windows, with the
 * sums alone, ReduceScatter. */
template <typename T>
static void sums(const Rank &k) {
  const Kernels<T> kernels;
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (Op op : {Op::sum, Op::max}) /* the one is added up in packs, the other element by element */
      for (int kind = 0; kind < 8; kind++)
        for (bool inPlace : {false, true}) {
          const bool scatters = kind == 3 || kind == 4 || kind == 7, direct = kind > 4;
          const int blocks = (kind + inPlace + (op == Op::max)) % 2 ? 1 : 3;
          const size_t all = scatters ? count * numRanks : count, shift = count == 301 && op == Op::max;
          const Exactly<T> in(all + shift, direct && inPlace), out(inPlace ? 0 : count + shift);
          const Windows windows(k, direct, in.at, all + shift, out.at);
          T *from = in.at + shift, *to = inPlace ? from + (scatters ? rank * count : 0) : out.at + shift;
          fill<T><<<1, kFewThreads, 0, k.stream>>>(from, all, rank, op, ++seed);
          const Call c = {from, to, count, (int32_t)op, 0, k.stamps, k.domain};
          if (kind == 0) launchOn(k, kernels.oneShot, blocks, kFewThreads, c);
          else if (kind == 1) launchOn(k, kernels.twoShot, blocks, kFewThreads, c);
          else if (kind == 2) launchOn(k, kernels.bulk, blocks, kFewThreads, c, k.bulk);
          else if (kind == 3) launchOn(k, kernels.reduceScatter, blocks, kFewThreads, c);
          else if (kind == 4) launchOn(k, kernels.reduceScatterBulk, blocks, kFewThreads, c, k.bulk);
          else if (kind == 7) launchOn(k, kernels.reduceScatterBulk, blocks, kFewThreads, c, windows.told(c, seed));
          else launchOn(k, kernels.bulk, blocks, kFewThreads, c, windows.told(c, seed, kind == 5));
          verify<T><<<1, kFewThreads, 0, k.stream>>>(to, count, scatters ? rank * count : 0, numRanks, op, seed, k.wrong);
          settle(k, count);
        }
}

/* AllGather, AllToAll and Broadcast in lines, in bulk, and in windows. */
static void moves(const Rank &k) {
  const cudaKernel_t kernels[] = {kernelOf("allGather"), kernelOf("allToAll"), kernelOf("broadcast"), kernelOf("allGatherBulk"), kernelOf("allToAllBulk"), kernelOf("broadcastBulk")};
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 9; kind++)
      for (bool inPlace : {false, true}) {
        const int what = kind % 3;
        const bool gathers = what == 0, exchanges = what == 1, broadcasts = what == 2, bulk = kind > 2, direct = kind > 5;
        const int blocks = (kind + inPlace + (count == 301)) % 2 ? 1 : 3, root = (int)(count % (size_t)numRanks);
        const size_t sent = exchanges ? count * numRanks : count, all = broadcasts ? count : count * numRanks, shift = count == 301 && inPlace;
        const Exactly<Byte> in(inPlace ? 0 : sent + shift), out(all + shift, direct && inPlace);
        const Windows windows(k, direct, in.at, inPlace ? all + shift : sent + shift, out.at);
        Byte *to = out.at + shift, *from = inPlace ? to + (gathers ? rank * count : 0) : in.at + shift;
        fill<Byte><<<1, kFewThreads, 0, k.stream>>>(from, sent, rank, Op::sum, ++seed);
        const Call c = {from, to, count, (int32_t)Op::sum, 0, k.stamps, k.domain};
        Bulk b = direct ? windows.told(c, seed) : k.bulk;
        b.root = root;
        if (bulk) launchOn(k, kernels[3 + what], blocks, kFewThreads, c, b);
        else if (broadcasts) launchOn(k, kernels[what], blocks, kFewThreads, c, root);
        else launchOn(k, kernels[what], blocks, kFewThreads, c);
        verifyMoved<<<1, kFewThreads, 0, k.stream>>>(to, count, broadcasts ? 1 : numRanks, broadcasts ? root : 0, exchanges ? rank * count : 0, seed, k.wrong);
        settle(k, all);
      }
}

/* AllToAllv, also into windows. */
static void differing(const Rank &k) {
  const cudaKernel_t kernel = kernelOf("allToAllV");
  unsigned seed = 1;
  for (int i = 0; i < 30; i++) { /* first in bulk alone, then also in lines */
    const size_t mosts[] = {2, 100, 900}, most = mosts[i % 3];
    const bool direct = i % 15 > 2;
    const dyn_parts p = partsOf(++seed, most);
    const unsigned blocks = seed % 2 ? 1 : 3;
    const size_t lines = i < 15 ? 0 : std::min((size_t)3, dyn_parts_lines(k.domain.lines, blocks));
    const int last = numRanks - 1;
    const size_t received = p.recvAt[last] + p.recvBytes[last];
    const Exactly<Byte> in(p.sendAt[last] + p.sendBytes[last]), out(received, direct && i % 2 == 0);
    const Windows windows(k, direct, out.at, received, out.at);
    const Call c = {in.at, out.at, lines, (int32_t)Op::sum, 0, k.stamps, k.domain};
    for (int r = 0; r < numRanks; r++) fill<Byte><<<1, kFewThreads, 0, k.stream>>>(in.at + p.sendAt[r], p.sendBytes[r], rank, Op::sum, seed * 16 + r);
    launchOn(k, kernel, (int)blocks, kFewThreads, c, direct ? windows.told(c, seed, false) : k.bulk, p);
    for (int r = 0; r < numRanks; r++) verifyMoved<<<1, kFewThreads, 0, k.stream>>>(out.at + p.recvAt[r], p.recvBytes[r], 1, r, 0, seed * 16 + rank, k.wrong);
    settle(k, received);
  }
}

/* Out of time: how far it came tells what is slow from what hangs. */
static void late(int) {
  dprintf(STDOUT_FILENO, "{\"figure\":\"lsa sanitize\",\"ranks\":%d%s,\"rank\":%d,\"calls\":%d,\"ended\":false}\n", numRanks, sharing(), rank, calls);
  _exit(4);
}

int main(int argc, char **argv) {
  if (argc < 4 || argc > 5 || (numRanks = atoi(argv[2])) < 2 || numRanks > kMaxRanks || (rank = atoi(argv[1])) < 0 || rank >= numRanks) {
    fprintf(stderr, "usage: sanitize RANK RANKS FILE [KERNELS]\n");
    return 2;
  }
  const int file = open(argv[3], O_RDWR);
  if (file < 0 || ftruncate(file, sizeof *shared) != 0) {
    perror(argv[3]);
    return 2;
  }
  shared = (Shared *)mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) {
    perror("mmap");
    return 2;
  }
  signal(SIGALRM, late);
  alarm(kSeconds);
  slotLines = 64, roundPacks = 8, bufferBytes = 64 << 10; /* as little as the largest call here asks for, and several rounds of it */
  waitNs = 60000000000;
  launchEarly = false; /* nothing is behind a kernel here that could begin before its end */
  Rank k = start(argc == 5 ? argv[4] : "lib/dynamiccl-kernels.fatbin");
  if (gpusShared()) alarm(kSecondsInTurns);
  sums<__nv_bfloat16>(k);
  sums<int64_t>(k);
  moves(k);
  differing(k);
  checkFused<__nv_bfloat16>(k, "bfloat16", {1, 128, 301}, {1, 3}, 2, kFewThreads);
  checkFused<float>(k, "float", {1, 128, 301}, {1, 3}, 2, kFewThreads);
  CUDA(cudaStreamSynchronize(k.stream));
  shared->wrong += (long)*k.wrong;
  barrier();
  if (rank == 0)
    printf("{\"figure\":\"lsa sanitize\",\"ranks\":%d%s,\"calls\":%d,\"elements\":%ld,\"wrong\":%ld}\n", numRanks, sharing(), calls, shared->compared.load(), shared->wrong.load());
  return shared->wrong != 0;
}
