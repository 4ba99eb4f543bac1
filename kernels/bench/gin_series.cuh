/* SPDX-License-Identifier: Apache-2.0
 *
 * Series of calls for what is to notice changes (agents: detector and diagnosis): one put there and back each, with counter and
 * signal latency as the GPU saw them, of several sizes in random order, before and after a fault on purpose. Faults are those of
 * the carrier, which looks at the file DYNAMICCL_CARRIER_FAULTS every 20 ms; nothing is called meanwhile.
 */
#ifndef DYN_BENCH_GIN_SERIES_CUH
#define DYN_BENCH_GIN_SERIES_CUH

#include "gin_time.cuh"

constexpr size_t kSeriesSizes[] = {8, 4 << 10, 32 << 10, 256 << 10};
/* Of a kernel, the last of which counts: in the first the peer's kernel may not have begun, and a late arrival is no cost of the
 * path. One of a kernel, since those of one kernel have much in common: where on the GPU it runs. */
constexpr uint32_t kSeriesRounds = 3;

struct Fault {
  const char *name, *lines; /* of the file */
};
/* The latency is what separates Proxy from GDAKI in the GIN paper: 18.0 us against 16.7 (NCCL 2.28, ConnectX-7). */
constexpr Fault kFaults[] = {{"backend-fallback", "latency_us 1.3\n"}, {"congestion", "gbs 20\n"}};

static void setFaults(const char *lines) {
  if (rank == 0) {
    const std::string path = getenv("DYNAMICCL_CARRIER_FAULTS"), fresh = path + ".new";
    FILE *file = fopen(fresh.c_str(), "w");
    const bool written = file != nullptr && fputs(lines, file) >= 0;
    if (file == nullptr || fclose(file) != 0 || !written || rename(fresh.c_str(), path.c_str()) != 0) perror(path.c_str()), _exit(2);
  }
  barrier();
  usleep(80000);
  barrier();
}

/* Rank 0 writes a line a call. phase: 0 before the fault, 1 after it. */
static void series(const Rank &k, GinLife &life, const GinBuffers &b, FILE *out, const char *what, int trial, int phase, int calls, uint64_t *random) {
  const int last = numRanks - 1;
  static dyn_gin_stamp *stamps, *seen;
  static uint64_t *missing;
  if (stamps == nullptr) {
    CUDA(cudaMalloc(&stamps, kSeriesRounds * sizeof *stamps));
    CUDA(cudaMallocHost(&seen, kSeriesRounds * sizeof *seen));
    CUDA(cudaMallocHost(&missing, sizeof *missing));
  }
  for (int l = -1; l < calls; l++) { /* the first wakes up what sleeps, and does not count */
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    const size_t bytes = l < 0 ? kSeriesSizes[0] : kSeriesSizes[(*random >> 33) % (sizeof kSeriesSizes / sizeof *kSeriesSizes)];
    const GinPath<GinNet> path = {b.send.window, b.recv.window, rank == 0 ? last : 0, bytes, kSeriesRounds, true};
    CUDA(cudaMemsetAsync(b.recv.memory, 0, bytes, k.stream));
    CUDA(cudaStreamSynchronize(k.stream));
    barrier();
    if (rank == 0) ginPingKernel<<<1, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, stamps);
    if (rank == last) ginPongKernel<<<1, kPingThreads, 0, k.stream>>>(life.device, life.gin, path, missing);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpyAsync(seen, stamps, kSeriesRounds * sizeof *stamps, cudaMemcpyDeviceToHost, k.stream));
    CUDA(cudaStreamSynchronize(k.stream));
    if (rank == last) shared->wrong += (long)*missing;
    for (uint32_t i = 0; rank == 0 && i < kSeriesRounds; i++) shared->wrong += seen[i].right == 0;
    const dyn_gin_stamp &s = seen[kSeriesRounds - 1];
    if (rank == 0 && l >= 0)
      fprintf(out, "%s,%d,%d,%zu,%llu,%llu\n", what, trial, phase, bytes, (unsigned long long)(s.counterNs - s.issuedNs), (unsigned long long)(s.signalNs - s.issuedNs));
  }
}

static void writeSeries(const Rank &k, GinLife &life, const GinBuffers &b, const char *path, int trials, int quietCalls) {
  constexpr int kCalls = 256; /* of a phase: some 64 of each size */
  FILE *out = rank == 0 ? fopen(path, "w") : nullptr;
  if (rank == 0 && out == nullptr) perror(path), _exit(2);
  if (out != nullptr) fprintf(out, "fault,trial,phase,bytes,counter_ns,signal_ns\n");
  uint64_t random = 1;
  warm(k);
  setFaults("");
  series(k, life, b, out, "none", 0, 0, quietCalls, &random);
  for (int t = 0; t < trials; t++)
    for (const Fault &fault : kFaults) {
      setFaults("");
      series(k, life, b, out, fault.name, t, 0, kCalls, &random);
      setFaults(fault.lines);
      series(k, life, b, out, fault.name, t, 1, kCalls, &random);
      needHealthy(life);
    }
  setFaults("");
  if (out != nullptr && fclose(out) != 0) perror(path), _exit(2);
}

#endif
