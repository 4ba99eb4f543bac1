/* SPDX-License-Identifier: Apache-2.0
 *
 * Times over GIN: of one put there and back, by the GPU's clock within one kernel, and of collectives in CUDA graphs beside
 * NCCL's on the same communicator.
 */
#ifndef DYN_BENCH_GIN_TIME_CUH
#define DYN_BENCH_GIN_TIME_CUH

#include "../gin/ping_pong.cuh"
#include "gin_check.cuh"

static __global__ void ginPingKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, __grid_constant__ const GinPath<GinNet> path, dyn_gin_stamp *stamps) {
  ginPing(GinNet(comm, g), g, path, stamps);
}
static __global__ void ginPongKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, __grid_constant__ const GinPath<GinNet> path, uint64_t *wrong) {
  ginPong(GinNet(comm, g), g, path, wrong);
}

/* Not timed: more puts and signals than a queue of 512 has room for, since only then NCCL looks for room before it posts. */
constexpr uint32_t kWarmRounds = 300, kRounds = 200;

struct Spread {
  double p50, p99, least;
};
static Spread spreadOf(std::vector<double> us) {
  if (us.empty()) return {};
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[us.size() * 99 / 100], us[0]};
}
static std::string spread(const char *name, const Spread &s) {
  char text[200];
  snprintf(text, sizeof text, "\"%s\":{\"p50\":%.2f,\"p99\":%.2f,\"min\":%.2f}", name, s.p50, s.p99, s.least);
  return text;
}

/* Rank 0 and the last one, which are of different nodes if there are any; the others wait. */
static void timeRoundTrip(const Rank &k, GinLife &life, const GinBuffers &b, size_t bytes, int contexts, bool counted) {
  const int last = numRanks - 1;
  const uint32_t rounds = kWarmRounds + kRounds;
  const size_t count = (size_t)contexts * rounds;
  GinPath<GinNet> path = {b.send.window, b.recv.window, rank == 0 ? last : 0, bytes, rounds, counted};
  dyn_gin_stamp *stamps = nullptr;
  uint64_t *missing = nullptr;
  CUDA(cudaMalloc(&stamps, count * sizeof *stamps));
  CUDA(cudaMemset(stamps, 0, count * sizeof *stamps));
  CUDA(cudaMalloc(&missing, contexts * sizeof *missing));
  CUDA(cudaMemset(missing, 0, contexts * sizeof *missing));
  /* No message of a row before is to be taken for one of this. */
  CUDA(cudaMemset(b.recv.memory, 0, contexts * bytes));
  CUDA(cudaDeviceSynchronize());
  barrier();
  if (rank == 0) ginPingKernel<<<contexts, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, stamps);
  if (rank == last) ginPongKernel<<<contexts, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, missing);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  std::vector<dyn_gin_stamp> all(count);
  std::vector<uint64_t> gone(contexts);
  CUDA(cudaMemcpy(all.data(), stamps, count * sizeof *stamps, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(gone.data(), missing, contexts * sizeof *missing, cudaMemcpyDeviceToHost));
  CUDA(cudaFree(stamps));
  CUDA(cudaFree(missing));
  for (uint64_t n : gone) shared->wrong += (long)n;
  needHealthy(life);
  if (rank != 0) return;
  std::vector<double> posted, counter, roundTrip;
  long early = 0;
  for (size_t i = 0; i < count; i++) {
    const dyn_gin_stamp &s = all[i];
    early += s.right == 0;
    if (i % rounds < kWarmRounds) continue;
    if (counted) counter.push_back((double)(s.counterNs - s.issuedNs) / 1e3);
    posted.push_back((double)(s.postedNs - s.issuedNs) / 1e3), roundTrip.push_back((double)(s.signalNs - s.issuedNs) / 1e3);
  }
  shared->wrong += early;
  printf("{\"figure\":\"gin round trip\",\"ranks\":%d,\"nodes\":%d,\"type\":\"%s\",\"bytes\":%zu,\"contexts\":%d,\"rounds\":%u,%s,%s%s%s,\"early_signals\":%ld}\n", numRanks, numNodes,
         ginTypeName(ginTypeOf(life.device, 0)), bytes, contexts, kRounds, spread("post_us", spreadOf(posted)).c_str(), counted ? spread("counter_us", spreadOf(counter)).c_str() : "", counted ? "," : "",
         spread("round_trip_us", spreadOf(roundTrip)).c_str(), early + (long)std::accumulate(gone.begin(), gone.end(), (uint64_t)0));
}

/* As a kernel copies: 16 bytes at a time, all loads of a thread under way before its first store. */
static __global__ void copyKernel(uint4 *to, const uint4 *from, unsigned packs) {
  constexpr int kDeep = 8;
  const unsigned stride = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += kDeep * stride) {
    uint4 some[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      if (i + k * stride < packs) some[k] = __ldcg(from + i + k * stride);
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      if (i + k * stride < packs) to[i + k * stride] = some[k];
  }
}

static __global__ void peersMemory(ncclWindow_t window, int peer, void **at) { *at = ncclGetPeerPointer(window, 0, peer); }

static void printTime(const char *figure, size_t bytes, const char *path, int blocks, double us) {
  if (rank == 0)
    printf("{\"figure\":\"gin %s\",\"ranks\":%d,\"nodes\":%d,\"bytes\":%zu,\"path\":\"%s\",\"contexts\":%d,\"us\":%.2f}\n", figure, numRanks, numNodes, bytes, path, blocks, us);
}

/* bytes are nccl-tests': of a rank's whole buffer. */
static void timeOverGin(const Rank &k, GinLife &life, const GinBuffers &b, size_t bytes, int contexts) {
  using T = __nv_bfloat16;
  const size_t part = bytes / numRanks;
  if (part > 0) {
    printTime("alltoall", part * numRanks, "gin, counter", contexts, timed(k, [&] { exchangeOver(k, life, life.gin, b, 0, part, Locally::counter, contexts); }));
    printTime("alltoall", part * numRanks, "gin, flush", contexts, timed(k, [&] { exchangeOver(k, life, life.gin, b, 0, part, Locally::flush, contexts); }));
  }
  if (bytes >= sizeof(T))
    printTime("allreduce", bytes, "gin", contexts, timed(k, [&] { sumOver<T>(k, life, life.gin, (T *)k.in, (T *)k.out, bytes / sizeof(T), Op::sum, contexts); }));
  needHealthy(life);
}

/* With buffers that are not registered, as programs mostly have them. */
static void timeOfNccl(const Rank &k, size_t bytes) {
  const size_t part = bytes / numRanks;
  if (part > 0) {
    printTime("alltoall", part * numRanks, "nccl send/recv", 0, timed(k, [&] {
      needNccl(ncclGroupStart(), "ncclGroupStart");
      for (int r = 0; r < numRanks; r++) {
        needNccl(ncclSend(k.in + r * part, part, ncclUint8, r, plain, k.stream), "ncclSend");
        needNccl(ncclRecv(k.out + r * part, part, ncclUint8, r, plain, k.stream), "ncclRecv");
      }
      needNccl(ncclGroupEnd(), "ncclGroupEnd");
    }));
    printTime("alltoall", part * numRanks, "nccl", 0, timed(k, [&] { needNccl(ncclAlltoAll(k.in, k.out, part, ncclUint8, plain, k.stream), "ncclAlltoAll"); }));
  }
  if (bytes >= sizeof(__nv_bfloat16))
    printTime("allreduce", bytes, "nccl", 0, timed(k, [&] { needNccl(ncclAllReduce(k.in, k.out, bytes / sizeof(__nv_bfloat16), ncclBfloat16, ncclSum, plain, k.stream), "ncclAllReduce"); }));
}

/* What the link needs for as much: by the GPU's copy engine, straight into the next rank's memory, and by a kernel. */
static void timeCopy(const Rank &k, const GinBuffers &b, size_t bytes) {
  void **at, *peer;
  CUDA(cudaMallocManaged(&at, sizeof *at));
  peersMemory<<<1, 1, 0, k.stream>>>(b.recv.window, (rank + 1) % numRanks, at);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  peer = *at;
  CUDA(cudaFree(at));
  printTime("copy", bytes, "copy engine", 0, timed(k, [&] { CUDA(cudaMemcpyAsync(peer, b.send.memory, bytes, cudaMemcpyDeviceToDevice, k.stream)); }));
  const unsigned packs = (unsigned)(bytes / sizeof(uint4));
  if (packs > 0) printTime("copy", bytes, "kernel", 0, timed(k, [&] { copyKernel<<<std::min(64u, (packs + 511) / 512), 512, 0, k.stream>>>((uint4 *)peer, (const uint4 *)b.send.memory, packs); }));
}

/* One context: what the network alone does with a put. */
static void timeTrips(const Rank &k, GinLife &life, const GinBuffers &b, const std::vector<size_t> &sizes) {
  warm(k);
  for (size_t bytes : sizes) {
    step("trips", 30);
    if (life.device.lsaSize == numRanks) timeCopy(k, b, bytes);
    for (bool counted : {false, true}) timeRoundTrip(k, life, b, (bytes + 7) / 8 * 8, 1, counted);
  }
}

/* NCCL comes last: where nodes are only pretended, its own path may not be there, and what was measured stays. */
static void timeAll(const Rank &k, GinLife &life, const GinBuffers &b, const std::vector<size_t> &sizes, bool nccl) {
  warm(k);
  for (size_t bytes : sizes)
    if (life.device.lsaSize == numRanks) {
      step("copies", 30);
      timeCopy(k, b, bytes);
    }
  for (size_t bytes : sizes)
    for (int c = 1; c <= (int)life.device.ginContextCount; c++) {
      step("round trip", 60);
      for (bool counted : {false, true}) timeRoundTrip(k, life, b, (bytes + 7) / 8 * 8, c, counted);
    }
  for (size_t bytes : sizes)
    for (int c = 1; c <= (int)life.device.ginContextCount; c *= 2) {
      step("collectives over GIN", 90);
      timeOverGin(k, life, b, bytes, c);
    }
  for (size_t bytes : sizes) {
    step("collectives of NCCL", 60);
    if (nccl) timeOfNccl(k, bytes);
  }
}

#endif
