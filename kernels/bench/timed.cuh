/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of calls in CUDA graphs.
 */
#ifndef DYN_BENCH_TIMED_CUH
#define DYN_BENCH_TIMED_CUH

#include <algorithm>
#include <chrono>

#include "rig.cuh"

constexpr int kCalls = 20, kReplays = 30;

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

/* kCalls calls. */
template <typename Enqueue>
static cudaGraph_t captured(const Rank &k, Enqueue enqueue) {
  cudaGraph_t graph;
  enqueue(); /* connections are made outside of the capture */
  CUDA(cudaStreamSynchronize(k.stream));
  CUDA(cudaStreamBeginCapture(k.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; i++) enqueue();
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
  for (int i = 0; i < 10; i++) CUDA(cudaGraphLaunch(exec, k.stream));
  for (int i = 0; i < kReplays; i++) {
    CUDA(cudaEventRecord(begin, k.stream));
    CUDA(cudaGraphLaunch(exec, k.stream));
    CUDA(cudaEventRecord(end, k.stream));
    CUDA(cudaEventSynchronize(end));
    float ms;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    us.push_back(ms * 1e3 / kCalls);
  }
  std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
  shared->us[rank] = us[kReplays / 2];
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
