/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA graphs of several calls: inputs, NCCL calls and checks are all captured, and a counter in device memory gives
 * every replay values of its own. Also in the body of a loop, which runs a few times in each replay.
 */
#ifndef DYN_MIX_GRAPH_H
#define DYN_MIX_GRAPH_H

#include "mix_rank.h"

// Whether a loop's body is to run again.
__global__ void mixAgain(cudaGraphConditionalHandle again, const unsigned *run, unsigned times) { cudaGraphSetConditional(again, *run % times != 0); }

struct Graph {
  Rank *owner = nullptr;
  int index = 0;             // whose buffers and counter of the owner's it uses
  cudaGraphExec_t exec = nullptr;
  cudaEvent_t done = nullptr;
  bool lanes[kLanes] = {};
  bool launched = false;
  int kinds[kKinds] = {};
  int calls = 0, inFlight = 0;
  int times = 0;  // that the calls are to run in a replay, as the body of a loop; 0: once, without one
  uint64_t elements = 0, bytes = 0;

  // At most kGraphCalls calls; with `grouped` they are one ncclGroup. All lanes' calls but the first one's, or with
  // `alternate` every second one, are captured on `second`, which forks from `first` and joins it again. Nothing runs on
  // the GPU during this.
  void capture(Rank &r, int at, const std::vector<Rank::Member> &members, bool grouped, uint32_t seed, int first,
               int second, bool alternate = false) {
    owner = &r, index = at;
    drop();
    if (members.size() > kGraphCalls)
      fail("a graph of %zu calls: there are buffers for %d", members.size(), kGraphCalls);
    if (!done) CU(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    cudaEvent_t fork;
    CU(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    const cudaStream_t a = r.streams[first], b = r.streams[second];
    bool forked = false;
    std::vector<Ready> ready;
    std::vector<cudaStream_t> on;
    const int lane = members.empty() ? 0 : members[0].comm->lane;
    for (auto &l : lanes) l = false;
    doing("capturing graph %d", index);
    cudaGraph_t graph = nullptr;
    cudaGraphConditionalHandle again = 0;
    if (times == 0) CU(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    else again = beginLoop(&graph, a);
    mixBump<<<1, 1, 0, a>>>(r.replays + index);
    CU(cudaGetLastError());
    for (size_t i = 0; i < members.size(); i++) {
      const Rank::Member &m = members[i];
      if (!m.comm->member()) continue;
      lanes[m.comm->lane] = true;
      const bool beside = alternate ? i % 2 == 1 : m.comm->lane != lane;
      if (beside && !forked) {
        CU(cudaEventRecord(fork, a));
        CU(cudaStreamWaitEvent(b, fork, 0));
        forked = true;
      }
      ready.push_back(
          r.prepare(*m.comm, m.call, r.graphBuffers[index][i], Rank::seedOf(seed, i), r.replays + index));
      on.push_back(beside ? b : a);
      Rank::fill(ready.back(), on.back());
      if (!grouped) {
        settle(m.comm->comm, Rank::nccl(ready.back(), on.back()), "captured call");
        Rank::check(ready.back(), on.back());
      }
    }
    if (grouped) {
      NC(ncclGroupStart());
      for (size_t i = 0; i < ready.size(); i++) Rank::settleInGroup(Rank::nccl(ready[i], on[i]));
      NC(ncclGroupEnd());
      for (size_t i = 0; i < ready.size(); i++) Rank::check(ready[i], on[i]);
    }
    if (forked) {
      CU(cudaEventRecord(fork, b));
      CU(cudaStreamWaitEvent(a, fork, 0));
    }
    if (times > 0) mixAgain<<<1, 1, 0, a>>>(again, r.replays + index, times);
    cudaGraph_t captured;
    CU(cudaStreamEndCapture(a, &captured));
    if (times == 0) graph = captured;
    doing("instantiating graph %d", index);
    CU(cudaGraphInstantiate(&exec, graph, 0));
    CU(cudaGraphDestroy(graph));
    CU(cudaEventDestroy(fork));
    calls = (int)ready.size(), elements = bytes = 0;
    memset(kinds, 0, sizeof kinds);
    for (const Ready &x : ready) elements += x.spec.recvCount, bytes += Rank::bytesOf(x), kinds[x.call.kind]++;
    if (times > 0) {
      calls *= times, elements *= times, bytes *= times;
      for (int &k : kinds) k *= times;
    }
    Rank::add(&r.mine->captures, 1);
    beat();
  }

  // Begins a capture into the body of a loop, which is all that the graph has.
  cudaGraphConditionalHandle beginLoop(cudaGraph_t *graph, cudaStream_t stream) {
    cudaGraphConditionalHandle again;
    cudaGraphNode_t node;
    CU(cudaGraphCreate(graph, 0));
    CU(cudaGraphConditionalHandleCreate(&again, *graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams loop = {cudaGraphNodeTypeConditional};
    loop.conditional.handle = again, loop.conditional.type = cudaGraphCondTypeWhile, loop.conditional.size = 1;
    CU(cudaGraphAddNode(&node, *graph, nullptr, nullptr, 0, &loop));
    CU(cudaStreamBeginCaptureToGraph(stream, loop.conditional.phGraph_out[0], nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    return again;
  }

  void replay(int stream) {
    Rank &r = *owner;
    if (inFlight >= options.ahead) wait();
    doing("replaying graph %d of %d calls", index, calls);
    if (launched) CU(cudaStreamWaitEvent(r.streams[stream], done, 0));
    for (int l = 0; l < kLanes; l++)
      if (lanes[l]) r.enterLane(l, stream);
    CU(cudaGraphLaunch(exec, r.streams[stream]));
    for (int l = 0; l < kLanes; l++)
      if (lanes[l]) r.leaveLane(l, stream);
    CU(cudaEventRecord(done, r.streams[stream]));
    launched = true, inFlight++;
    Rank::add(&r.mine->replays, 1);
    for (int k = 0; k < kKinds; k++) r.issued(k, kinds[k]);
  }

  // Until all replays ended.
  void wait() {
    if (!inFlight) return;
    doing("waiting for the GPU to end %d replays of graph %d", inFlight, index);
    CU(cudaEventSynchronize(done));
    owner->count((uint64_t)inFlight * calls, inFlight * elements, inFlight * bytes);
    inFlight = 0;
  }

  void drop() {
    if (!exec) return;
    wait();
    doing("destroying graph %d", index);
    CU(cudaGraphExecDestroy(exec));
    exec = nullptr;
    beat();
  }
};

#endif
