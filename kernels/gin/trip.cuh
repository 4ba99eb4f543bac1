/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call's puts take, one call in DYN_GIN_TRIP_EVERY or, where its plan says so, DYN_GIN_TRIP_CLOSELY, of its first block on each context to each peer: until the counter says that
 * the source is read, and until the peer's answer says that it has seen the signal. Clocks of two GPUs are not one, so only
 * the way there and back can be timed, and in a timed call every peer answers as soon as it sees the signal.
 *
 * A peer that comes late answers late. Of two ranks the later one waits for nobody: of the two trips of a pair in one call the
 * shorter is what the network takes, which whoever joins them by the call's number has to see to (tuner/trip.go).
 */
#ifndef DYN_GIN_TRIP_CUH
#define DYN_GIN_TRIP_CUH

#include "calls.cuh"

namespace dyn {

/* The same on all ranks: they count calls alike, and all have memory for it or none has. */
__device__ __forceinline__ bool ginTimes(const Gin &g, uint32_t call) {
  const bool closely = g.closely != 0 && (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_RARELY || g.rank != 0);
  return g.trips != nullptr && dyn_gin_timed(call, closely) && blockIdx.x < g.contexts;
}

__device__ __forceinline__ dyn_gin_legs *ginLegs(const Gin &g, int peer) { return &g.legs[blockIdx.x * g.nRanks + peer]; }

/* bytes may be 0: the signal alone. */
template <typename Net>
__device__ __forceinline__ void ginPut(const Net &net, const Gin &g, bool timed, int peer, typename Net::Window window, size_t to, size_t from, size_t bytes) {
  const uint32_t signal = ownSignal(g, DYN_GIN_DATA);
  if (timed) *ginLegs(g, peer) = {globalNs(), 0, 0};
  if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_HASTY_ANSWER && timed) net.raise(peer, ownSignal(g, DYN_GIN_READY));
  if (bytes == 0) net.raise(peer, signal);
  else if (timed) net.putCounted(peer, window, to, window, from, bytes, signal, ownCounter(g, peer));
  else net.put(peer, window, to, window, from, bytes, signal);
}

/* What peers have put is there. bytesTo(peer): that this block has put to it. */
template <typename Net, typename Bytes>
__device__ __forceinline__ bool ginAwaitData(const Net &net, const Gin &g, bool timed, uint32_t call, Bytes bytesTo) {
  bool fine = true;
  eachGinPeer(g, [&](int peer) {
    fine = awaitSignal(net, g, DYN_GIN_DATA, peer, call) && fine;
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_HASTY_ANSWER && timed) net.raise(peer, ownSignal(g, DYN_GIN_READY));
  });
  if (!timed) return fine;
  /* Looks at counters may go to the host's memory: threads of another warp make them, where there are two. */
  eachGinPeerFrom(g, blockDim.x / 2, [&](int peer) {
    if (bytesTo(peer) == 0) return;
    if (fine = awaitCounter(net, g, peer, call) && fine; fine) ginLegs(g, peer)->counterNs = globalNs();
  });
  eachGinPeer(g, [&](int peer) {
    if (fine = awaitSignal(net, g, DYN_GIN_READY, peer, call) && fine; fine) ginLegs(g, peer)->signalNs = globalNs();
  });
  return fine;
}

/* Behind a barrier behind ginAwaitData. */
template <typename Bytes>
__device__ __forceinline__ void ginTellTrips(const Gin &g, uint32_t call, Bytes bytesTo) {
  eachGinPeer(g, [&](int peer) {
    const dyn_gin_legs legs = *ginLegs(g, peer);
    dyn_gin_trip *at = &g.trips[(dyn_gin_trip_place(call, true) * DYN_GIN_TRIP_BLOCKS + blockIdx.x) * g.nRanks + peer];
    if (legs.signalNs == 0) return; /* given up */
    storeHost(&at->times, dyn_gin_trip_times(legs.issuedNs, legs.counterNs, legs.signalNs));
    storeHost(&at->word, dyn_gin_trip_word(call, gridDim.x, g.contexts, bytesTo(peer)));
  });
}

}  // namespace dyn

#endif
