/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of calls in CUDA graphs.
 */
#ifndef DYN_BENCH_TIMED_CUH
#define DYN_BENCH_TIMED_CUH

#include <algorithm>
#include <chrono>

#include "rig.cuh"

/* Of a graph's calls and of its replays; a replay of calls that take a millisecond is as exact with fewer of them. */
constexpr int kCalls = 20, kReplays = 30, kLargeCalls = 4, kLargeReplays = 11, kWarmReplays = 10;
constexpr size_t kLargeBytes = 32 << 20;
static bool large; /* calls of kLargeBytes or more are timed: the same on all ranks */
static int calls() { return large ? kLargeCalls : kCalls; }
static int replays() { return large ? kLargeReplays : kReplays; }

/* Clocks rise with load, and fall within seconds without any. */
static void warm(const Rank &k) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < 50; i++) fill<float><<<1024, 256, 0, k.stream>>>((float *)k.in, bufferBytes / sizeof(float), rank, Op::sum, i);
    CUDA(cudaGetLastError());
    CUDA(cudaStreamSynchronize(k.stream));
  }
  barrier();
}

/* So many calls. */
template <typename Enqueue>
static cudaGraph_t captured(const Rank &k, Enqueue enqueue) {
  cudaGraph_t graph;
  enqueue(); /* connections are made outside of the capture */
  CUDA(cudaStreamSynchronize(k.stream));
  CUDA(cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls(); i++) enqueue();
  CUDA(cudaStreamEndCapture(k.stream, &graph));
  return graph;
}

/* Largest over ranks of the median of replays, us of one call. The graph goes. */
static double replayed(const Rank &k, cudaGraph_t graph) {
  cudaGraphExec_t exec;
  cudaEvent_t begin, end;
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<double> us;
  for (int i = 0; i < (large ? 2 : kWarmReplays); i++) CUDA(cudaGraphLaunch(exec, k.stream));
  for (int i = 0; i < replays(); i++) {
    CUDA(cudaEventRecord(begin, k.stream));
    CUDA(cudaGraphLaunch(exec, k.stream));
    CUDA(cudaEventRecord(end, k.stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1e3 / calls());
  }
  std::nth_element(us.begin(), us.begin() + replays() / 2, us.end());
  shared->us[rank] = us[replays() / 2];
  barrier();
  double largest = *std::max_element(shared->us, shared->us + numRanks);
  barrier();
  healthy(k);
  CUDA(cudaEventDestroy(begin));
  CUDA(cudaEventDestroy(end));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  return largest;
}
template <typename Enqueue>
static double timed(const Rank &k, Enqueue enqueue) { return replayed(k, captured(k, enqueue)); }

#endif
