/* SPDX-License-Identifier: Apache-2.0
 *
 * Every kernel a few times, small and once at a time, for compute-sanitizer (sanitize.sh), which makes each load and store a
 * hundred times as slow:
 *   sanitize RANK RANKS FILE [KERNELS]
 * One rank; each has a process and a GPU of its own, so that no lock or queue of the tool or of CUDA's driver stands between
 * kernels that wait for each other. FILE, of zeros, is what the processes share. No NCCL, for the tool would rewrite its
 * kernels, too. Buffers are exactly as large as a call needs, so that an access behind them is one outside of any memory.
 * A JSON line of rank 0's; exit 0 if every element is right.
 */
#include <fcntl.h>

#include "differ.cuh"
#include "fused.cuh"

constexpr size_t kCounts[] = {1, 301, 512}; /* 301 is no whole number of packs, 512 is; both take several rounds */
constexpr int kFewThreads = 64;             /* two warps: a line's threads in different ones, barriers between them */
constexpr unsigned kSeconds = 100;          /* for all */

static volatile int calls;

/* Memory of one call. */
template <typename T>
struct Exactly {
  T *at = nullptr;
  explicit Exactly(size_t count) {
    if (count > 0) CUDA(cudaMalloc(&at, count * sizeof(T)));
  }
  ~Exactly() { CUDA(cudaFree(at)); }
  Exactly(const Exactly &) = delete;
};

/* The call is over, on this rank. Waiting for each names the one that a fault came from. */
static void settle(const Rank &k, size_t elements) {
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  healthy(k);
  shared->compared += (long)elements;
  calls = calls + 1;
}

/* Kernels of a type: one shot, two shots, in bulk; ReduceScatter in lines, in bulk. */
template <typename T>
static void sums(const Rank &k) {
  const Kernels<T> kernels;
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (Op op : {Op::sum, Op::max}) /* the one is added up in packs, the other element by element */
      for (int kind = 0; kind < 5; kind++)
        for (bool inPlace : {false, true}) {
          const bool scatters = kind > 2;
          const int blocks = (kind + inPlace + (op == Op::max)) % 2 ? 1 : 3;
          const size_t all = scatters ? count * numRanks : count, shift = count == 301 && op == Op::max;
          const Exactly<T> in(all + shift), out(inPlace ? 0 : count + shift);
          T *from = in.at + shift, *to = inPlace ? from + (scatters ? rank * count : 0) : out.at + shift;
          fill<T><<<1, kFewThreads, 0, k.stream>>>(from, all, rank, op, ++seed);
          const Call c = {from, to, count, (int32_t)op, 0, k.stamps, k.domain};
          if (kind == 0) launchOn(k, kernels.oneShot, blocks, kFewThreads, c);
          else if (kind == 1) launchOn(k, kernels.twoShot, blocks, kFewThreads, c);
          else if (kind == 2) launchOn(k, kernels.bulk, blocks, kFewThreads, c, k.bulk);
          else if (kind == 3) launchOn(k, kernels.reduceScatter, blocks, kFewThreads, c);
          else launchOn(k, kernels.reduceScatterBulk, blocks, kFewThreads, c, k.bulk);
          verify<T><<<1, kFewThreads, 0, k.stream>>>(to, count, scatters ? rank * count : 0, numRanks, op, seed, k.wrong);
          settle(k, count);
        }
}

/* AllGather, AllToAll and Broadcast in lines and in bulk. */
static void moves(const Rank &k) {
  const cudaKernel_t kernels[] = {kernelOf("allGather"), kernelOf("allGatherBulk"), kernelOf("allToAll"), kernelOf("allToAllBulk"), kernelOf("broadcast"), kernelOf("broadcastBulk")};
  unsigned seed = 1;
  for (size_t count : kCounts)
    for (int kind = 0; kind < 6; kind++)
      for (bool inPlace : {false, true}) {
        const bool gathers = kind < 2, broadcasts = kind >= 4, exchanges = !gathers && !broadcasts;
        const int blocks = (kind + inPlace + (count == 301)) % 2 ? 1 : 3, root = (int)(count % (size_t)numRanks);
        const size_t sent = exchanges ? count * numRanks : count, all = broadcasts ? count : count * numRanks, shift = count == 301 && inPlace;
        const Exactly<Byte> in(inPlace ? 0 : sent + shift), out(all + shift);
        Byte *to = out.at + shift, *from = inPlace ? to + (gathers ? rank * count : 0) : in.at + shift;
        fill<Byte><<<1, kFewThreads, 0, k.stream>>>(from, sent, rank, Op::sum, ++seed);
        const Call c = {from, to, count, (int32_t)Op::sum, 0, k.stamps, k.domain};
        Bulk b = k.bulk;
        b.root = root;
        if (kind == 1 || kind == 3 || kind == 5) launchOn(k, kernels[kind], blocks, kFewThreads, c, b);
        else if (broadcasts) launchOn(k, kernels[kind], blocks, kFewThreads, c, root);
        else launchOn(k, kernels[kind], blocks, kFewThreads, c);
        verifyMoved<<<1, kFewThreads, 0, k.stream>>>(to, count, broadcasts ? 1 : numRanks, broadcasts ? root : 0, exchanges ? rank * count : 0, seed, k.wrong);
        settle(k, all);
      }
}

/* AllToAllv. */
static void differing(const Rank &k) {
  const cudaKernel_t kernel = kernelOf("allToAllV");
  unsigned seed = 1;
  for (size_t most : {2, 100, 900}) {
    const dyn_parts p = partsOf(++seed, most);
    const int last = numRanks - 1;
    const Exactly<Byte> in(p.sendAt[last] + p.sendBytes[last]), out(p.recvAt[last] + p.recvBytes[last]);
    for (int r = 0; r < numRanks; r++) fill<Byte><<<1, kFewThreads, 0, k.stream>>>(in.at + p.sendAt[r], p.sendBytes[r], rank, Op::sum, seed * 16 + r);
    launchOn(k, kernel, seed % 2 ? 1 : 3, kFewThreads, Call{in.at, out.at, 0, (int32_t)Op::sum, 0, k.stamps, k.domain}, k.bulk, p);
    for (int r = 0; r < numRanks; r++) verifyMoved<<<1, kFewThreads, 0, k.stream>>>(out.at + p.recvAt[r], p.recvBytes[r], 1, r, 0, seed * 16 + rank, k.wrong);
    settle(k, p.recvAt[last] + p.recvBytes[last]);
  }
}

/* Out of time: how far it came tells what is slow from what hangs. */
static void late(int) {
  dprintf(STDOUT_FILENO, "{\"figure\":\"lsa sanitize\",\"rank\":%d,\"calls\":%d,\"ended\":false}\n", rank, calls);
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
    printf("{\"figure\":\"lsa sanitize\",\"ranks\":%d,\"calls\":%d,\"elements\":%ld,\"wrong\":%ld}\n", numRanks, calls, shared->compared.load(), shared->wrong.load());
  return shared->wrong != 0;
}
