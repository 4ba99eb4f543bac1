/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that move over GIN through slots and circular buffers, as they are shipped: hierarchical ones beside flat ones,
 * where nodes have several ranks, and AllToAllv. Every element checked, and times beside NCCL's.
 */
#ifndef DYN_BENCH_GIN_RAILS_CUH
#define DYN_BENCH_GIN_RAILS_CUH

#include "../gin/pipes.h"
#include "differ.cuh"
#include "gin_time.cuh"

/* Of the fatbin for the version of NCCL that this program was compiled with (dynamiccl-gin.fatbin, dynamiccl-gin-2.32.3.fatbin). */
#define LAYOUT_NAME_OF(version) DYN_GIN_LAYOUT_PREFIX #version
#define LAYOUT_NAME(version) LAYOUT_NAME_OF(version)
struct ShippedGin {
  bool there;
  cudaKernel_t move, moveSums[3], moveParts, gather, exchange, scatter, differ;
};
static ShippedGin loadShipped(const char *file) {
  ShippedGin s = {};
  cudaKernel_t layout;
  const bool fits = access(file, R_OK) == 0 &&
                    cudaLibraryLoadFromFile(&library, file, nullptr, nullptr, 0, nullptr, nullptr, 0) == cudaSuccess && cudaLibraryGetKernel(&layout, library, LAYOUT_NAME(NCCL_VERSION_CODE)) == cudaSuccess;
  s.there = everybody(fits);
  launchEarly = false; /* as kernels/host has it for these */
  if (!s.there) {
    (void)cudaGetLastError();
    if (rank == 0) printf("{\"figure\":\"gin rails\",\"ranks\":%d,\"nodes\":%d,\"left_out\":\"%s is not there, does not load, or is of another build\"}\n", numRanks, numNodes, file);
    return s;
  }
  s.move = kernelOf("ginMove"), s.gather = kernelOf("ginAllGather"), s.exchange = kernelOf("ginAllToAll"), s.scatter = kernelOf("ginReduceScatter_bfloat16"), s.differ = kernelOf("ginAllToAllV");
  s.moveParts = kernelOf("ginMoveParts");
  s.moveSums[0] = kernelOf("ginMoveSums_float"), s.moveSums[1] = kernelOf("ginMoveSums_bfloat16"), s.moveSums[2] = kernelOf("ginMoveSums_half");
  return s;
}

static bool hasRails(const GinLife &life) { return dyn_gin_hierarchical(numRanks, life.gin.localRanks); }

static void launchShipped(const Rank &k, const GinLife &life, cudaKernel_t kernel, int blocks, const void *send, void *recv, size_t count, bool same, Op op = Op::sum) {
  dyn_gin_call c = {};
  c.gin = life.gin, c.slots = life.slots.window, c.send = send, c.recv = recv, c.count = count, c.op = (int32_t)op, c.same = same;
  launchOn(k, kernel, blocks, DYN_KERNEL_THREADS, life.device, c);
}

/* Parts of less than a cell of a channel, of some, and of many times all. */
static std::vector<size_t> railParts() {
  return {1, 17, 4097, ginCellBytes, ginCellBytes + 5, 5 * ginCellBytes * DYN_GIN_CELLS + 33, 4 << 20};
}

static void checkMoves(const Rank &k, const GinLife &life, const ShippedGin &s) {
  unsigned seed = 1;
  for (size_t part : railParts())
    for (bool same : {true, false})
      for (bool inPlace : {false, true}) {
        if (part * numRanks > bufferBytes) continue;
        Byte *out = (Byte *)k.out, *in = !inPlace ? (Byte *)k.in + seed % 3 : same ? out + rank * part : out;
        fill<Byte><<<32, 256, 0, k.stream>>>(in, same ? part : part * numRanks, rank, Op::sum, ++seed);
        launchShipped(k, life, s.move, DYN_GIN_ROLES * (1 + (int)(seed % DYN_GIN_CHANNELS)), in, out, part, same);
        verifyMoved<<<32, 256, 0, k.stream>>>(out, part, numRanks, 0, same ? 0 : rank * part, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)(part * numRanks);
      }
  CUDA(cudaStreamSynchronize(k.stream));
}

template <typename T>
static void checkMoveSums(const Rank &k, const GinLife &life, cudaKernel_t kernel) {
  unsigned seed = 1;
  for (Op op : {Op::sum, Op::max})
    for (size_t bytes : railParts())
      for (bool inPlace : {false, true}) {
        const size_t count = dyn_packs(bytes, sizeof(T));
        if (count * sizeof(T) * numRanks > bufferBytes) continue;
        T *in = (T *)k.in, *out = inPlace ? in + rank * count : (T *)k.out;
        fill<T><<<32, 256, 0, k.stream>>>(in, count * numRanks, rank, op, ++seed);
        launchShipped(k, life, kernel, DYN_GIN_ROLES * (1 + (int)(seed % DYN_GIN_CHANNELS)), in, out, count, false, op);
        verify<T><<<32, 256, 0, k.stream>>>(out, count, rank * count, numRanks, op, seed, k.wrong);
        CUDA(cudaGetLastError());
        shared->compared += (long)count;
      }
  CUDA(cudaStreamSynchronize(k.stream));
}

static void launchDiffer(const Rank &k, const GinLife &life, cudaKernel_t kernel, int blocks, const dyn_parts &p) {
  dyn_gin_call c = {};
  c.gin = life.gin, c.slots = life.slots.window, c.send = k.in, c.recv = k.out;
  launchOn(k, kernel, blocks, DYN_GIN_PARTS_THREADS, life.device, c, p);
}
static void checkShipped(const Rank &k, GinLife &life, const ShippedGin &s) {
  step("check of AllToAllv", 120);
  checkDiffering(k, {2, 100, 5000, ginSlotBytes / 2, 3 * ginSlotBytes}, [&](const dyn_parts &p) { launchDiffer(k, life, s.differ, DYN_GIN_PARTS_CTAS, p); });
  needHealthy(life);
  printCheck(k, "alltoallv");
  if (!hasRails(life)) return;
  step("check of hierarchical kernels", 240);
  checkMoves(k, life, s);
  needHealthy(life);
  printCheck(k, "hierarchical allgather, alltoall");
  checkMoveSums<float>(k, life, s.moveSums[0]), checkMoveSums<__nv_bfloat16>(k, life, s.moveSums[1]), checkMoveSums<__half>(k, life, s.moveSums[2]);
  needHealthy(life);
  printCheck(k, "hierarchical reducescatter");
  /* Every number of channels, then the one that programs get, with flat calls between. */
  int calls = 0;
  checkDiffering(k, {1, 2, 100, 5000, ginCellBytes + 5, 5 * ginCellBytes * DYN_GIN_CELLS + 33, std::min(bufferBytes / numRanks - 1, mostChecked)}, [&](const dyn_parts &p) {
    launchDiffer(k, life, s.moveParts, DYN_GIN_ROLES * (1 + calls++ % DYN_GIN_CHANNELS), p);
  });
  checkDiffering(k, {100, 5000, 3 * ginSlotBytes}, [&](const dyn_parts &p) {
    if (calls++ % 3 == 0) launchDiffer(k, life, s.differ, DYN_GIN_PARTS_CTAS, p);
    launchDiffer(k, life, s.moveParts, DYN_GIN_ROLES * DYN_GIN_CHANNELS, p);
  });
  needHealthy(life);
  printCheck(k, "hierarchical alltoallv");
}

/* AllToAllv with the grids that programs get: of equal parts, and of none to twice as much. */
static void timeDiffering(const Rank &k, const GinLife &life, const ShippedGin &s, size_t part) {
  for (bool equal : {true, false}) {
    const auto bytesOf = [&](int from, int to) { return equal ? part : (size_t)((from * 5 + to * 7) % 3) * part; };
    dyn_parts p = {};
    for (int r = 0; r < numRanks; r++) p.sendBytes[r] = bytesOf(rank, r), p.recvBytes[r] = bytesOf(r, rank), p.sendAt[r] = p.recvAt[r] = 2 * r * part;
    const char *flat = equal ? "gin, equal parts" : "gin, differing parts", *rails = equal ? "gin, hierarchical, equal parts" : "gin, hierarchical, differing parts";
    printTime("alltoallv", part * numRanks, flat, DYN_GIN_PARTS_CTAS, timed(k, [&] { launchDiffer(k, life, s.differ, DYN_GIN_PARTS_CTAS, p); }));
    for (int channels = 1; channels <= DYN_GIN_CHANNELS && hasRails(life); channels *= 2)
      printTime("alltoallv", part * numRanks, rails, channels, timed(k, [&] { launchDiffer(k, life, s.moveParts, DYN_GIN_ROLES * channels, p); }));
  }
}

/* Of one size, with each number of contexts; hierarchical ones have three blocks for each. */
static void timePaths(const Rank &k, GinLife &life, const ShippedGin &s, size_t part) {
  const size_t bytes = part * numRanks, count = part / sizeof(__nv_bfloat16);
  for (int c = 1; c <= (int)life.device.ginContextCount; c *= 2) {
    const auto both = [&](const char *figure, cudaKernel_t flat, cudaKernel_t rails, size_t counted, bool same) {
      printTime(figure, bytes, "gin, slots", c, timed(k, [&] { launchShipped(k, life, flat, c, k.in, k.out, counted, same); }));
      if (hasRails(life)) printTime(figure, bytes, "gin, hierarchical", c, timed(k, [&] { launchShipped(k, life, rails, DYN_GIN_ROLES * c, k.in, k.out, counted, same); }));
    };
    both("allgather", s.gather, s.move, part, true);
    both("alltoall", s.exchange, s.move, part, false);
    if (count > 0) both("reducescatter", s.scatter, s.moveSums[1], count, false);
  }
  timeDiffering(k, life, s, part);
  needHealthy(life);
}

static void timeShipped(const Rank &k, GinLife &life, const ShippedGin &s, const std::vector<size_t> &sizes, bool nccl) {
  for (size_t bytes : sizes) {
    step("collectives in rounds and over rails", 120);
    if (bytes / numRanks > 0) timePaths(k, life, s, bytes / numRanks);
  }
  for (size_t bytes : sizes) {
    const size_t part = bytes / numRanks, count = part / sizeof(__nv_bfloat16);
    step("more collectives of NCCL", 60);
    if (!nccl || count == 0) continue;
    printTime("allgather", part * numRanks, "nccl", 0, timed(k, [&] { needNccl(ncclAllGather(k.in, k.out, part, ncclUint8, plain, k.stream), "ncclAllGather"); }));
    printTime("reducescatter", part * numRanks, "nccl", 0, timed(k, [&] { needNccl(ncclReduceScatter(k.in, k.out, count, ncclBfloat16, ncclSum, plain, k.stream), "ncclReduceScatter"); }));
  }
}

#endif
