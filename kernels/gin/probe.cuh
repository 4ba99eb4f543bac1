/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe: on every context each rank puts a word with signal and counter to every peer, and notes what came back. There are
 * backends that start without an error and whose signals never arrive (NCCL issue 2255): that is to be found before the first
 * collective waits for one.
 */
#ifndef DYN_GIN_PROBE_CUH
#define DYN_GIN_PROBE_CUH

#include "calls.cuh"

namespace dyn {

/* A block a context. stamps: host memory, [blocks][nRanks]: the own put to that peer, and the signal and data from it. */
template <typename Net>
__device__ __forceinline__ void ginProbe(const Net &net, const Gin &g, typename Net::Window window, dyn_gin_stamp *stamps) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const size_t at = blockIdx.x * sizeof(uint64_t), own = ginSlot(g, g.rank, call) + at;
  if (threadIdx.x == 0) *(uint64_t *)net.local(window, own) = ginProbeWord(g.rank, blockIdx.x, call);
  __syncthreads();
  eachGinPeer(g, [&](int peer) {
    dyn_gin_stamp *s = &stamps[blockIdx.x * g.nRanks + peer];
    const uint64_t issued = globalNs();
    net.putCounted(peer, window, own, window, own, sizeof(uint64_t), ownSignal(g, DYN_GIN_DATA), ownCounter(g, peer));
    storeHost(&s->issuedNs, issued);
    storeHost(&s->postedNs, globalNs());
  });
  eachGinPeer(g, [&](int peer) {
    dyn_gin_stamp *s = &stamps[blockIdx.x * g.nRanks + peer];
    if (!awaitSignal(net, g, DYN_GIN_DATA, peer, call)) return;
    storeHost(&s->signalNs, globalNs());
    const uint64_t word = *(const volatile uint64_t *)net.local(window, ginSlot(g, peer, call) + at);
    storeHost(&s->right, word == ginProbeWord(peer, blockIdx.x, call));
  });
  eachGinPeer(g, [&](int peer) {
    if (awaitCounter(net, g, peer, call)) storeHost(&stamps[blockIdx.x * g.nRanks + peer].counterNs, globalNs());
  });
  ginEnd(g, call);
}

/* What signals and counters hold before anybody uses them: NCCL does not begin at 0 with a device communicator that gets
 * those of one before it. A block for each of the blocks that there may be, of each context. And how deep queues are that were
 * granted, which stands nowhere but in what the device code is handed. stamps: as the probe's, [contexts][nRanks]. */
template <typename Net>
__device__ __forceinline__ void ginLook(const Net &net, const Gin &g, dyn_gin_stamp *stamps) {
  uint64_t *seen = ginSeenOf(net, g);
  for (int peer = (int)threadIdx.x; peer < g.nRanks; peer += (int)blockDim.x) {
    if (blockIdx.x == 0 && peer != g.rank) storeHost(&stamps[net.context * g.nRanks + peer].depth, net.depth(peer));
    for (int kind = 0; kind < DYN_GIN_KINDS; kind++) {
      const uint32_t signal = ginSignalOf(g.nRanks, kind, blockIdx.x, peer);
      seen[signal] = net.signalValue(g.firstSignal + signal);
    }
    const uint32_t counter = ginCounterOf(g.nRanks, blockIdx.x, peer);
    seen[ginSignals(g.nRanks) + counter] = net.counterValue(g.firstCounter + counter);
  }
}

}  // namespace dyn

#endif
