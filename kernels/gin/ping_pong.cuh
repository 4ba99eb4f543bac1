/* SPDX-License-Identifier: Apache-2.0
 *
 * The two latencies of a put between two ranks: until the counter (the source is read, local completion) and until the signal
 * of the answer (there and back). Of the answer, because clocks of two GPUs are not one. Many rounds in one kernel; a block a
 * context, all at once.
 *
 * The last 8 bytes of each message are its round's number. Who sees a signal and not yet that number has found a backend that
 * signals too early.
 */
#ifndef DYN_GIN_PING_PONG_CUH
#define DYN_GIN_PING_PONG_CUH

#include "calls.cuh"

namespace dyn {

constexpr unsigned kPingThreads = 2 * kWarp; /* one thread waits for the signal, one of another warp for the counter */

template <typename Net>
struct GinPath {
  typename Net::Window send, recv;
  int peer;
  size_t bytes; /* a message, at least 8 and a multiple of it: block b's lies at b * bytes of both windows */
  uint32_t rounds;
  bool counted; /* who begins counts its puts, too: that takes longer to post */
};

template <typename Net>
__device__ __forceinline__ void writeRound(const Net &net, const GinPath<Net> &p, uint64_t round) {
  *(volatile uint64_t *)net.local(p.send, (blockIdx.x + 1) * p.bytes - sizeof round) = round;
}
template <typename Net>
__device__ __forceinline__ uint64_t readRound(const Net &net, const GinPath<Net> &p) {
  return *(const volatile uint64_t *)net.local(p.recv, (blockIdx.x + 1) * p.bytes - sizeof(uint64_t));
}

/* stamps: [blocks][rounds]. A look at a counter may go to host memory and a signal's does not, so neither thread waits for the
 * other within a round; the next one begins when both have what they wait for, so the queue never fills. */
template <typename Net>
__device__ __forceinline__ void ginPing(const Net &net, const Gin &g, const GinPath<Net> &p, dyn_gin_stamp *stamps) {
  const size_t at = blockIdx.x * p.bytes;
  const uint32_t signal = ginSignalOf(g.nRanks, DYN_GIN_DATA, blockIdx.x, p.peer);
  uint64_t *reached = ginSeenOf(net, g) + signal;
  const uint64_t before = *reached;
  bool fine = true;
  for (uint32_t i = 0; i < p.rounds && net.all(fine); i++) {
    dyn_gin_stamp *s = &stamps[blockIdx.x * p.rounds + i];
    if (threadIdx.x == 0) {
      writeRound(net, p, i + 1);
      const uint64_t issued = globalNs();
      if (p.counted) net.putCounted(p.peer, p.recv, at, p.send, at, p.bytes, ownSignal(g, DYN_GIN_DATA), ownCounter(g, p.peer));
      else net.put(p.peer, p.recv, at, p.send, at, p.bytes, ownSignal(g, DYN_GIN_DATA));
      const uint64_t posted = globalNs();
      fine = awaitSignalOf(net, g, DYN_GIN_DATA, p.peer, i + 1, before + i + 1);
      const uint64_t seen = globalNs(), round = readRound(net, p);
      if (fine) s->signalNs = seen, s->right = round == i + 1, *reached = before + i + 1;
      s->issuedNs = issued, s->postedNs = posted;
    } else if (threadIdx.x == kWarp && p.counted) {
      fine = awaitCounter(net, g, p.peer, i + 1);
      if (fine) s->counterNs = globalNs();
    }
  }
}

/* The other side. wrong: [blocks], messages that were not there with their signal: what it reads then is looked at when the
 * answer is on its way. What it sends it may write again in the next
 * round: the peer's next message says that the last answer has arrived. */
template <typename Net>
__device__ __forceinline__ void ginPong(const Net &net, const Gin &g, const GinPath<Net> &p, uint64_t *wrong) {
  if (threadIdx.x != 0) return;
  const size_t at = blockIdx.x * p.bytes;
  const uint32_t signal = ginSignalOf(g.nRanks, DYN_GIN_DATA, blockIdx.x, p.peer);
  uint64_t *reached = ginSeenOf(net, g) + signal;
  const uint64_t before = *reached;
  uint64_t missing = 0;
  for (uint32_t i = 0; i < p.rounds; i++) {
    if (!awaitSignalOf(net, g, DYN_GIN_DATA, p.peer, i + 1, before + i + 1)) break;
    const uint64_t round = readRound(net, p);
    writeRound(net, p, i + 1);
    net.put(p.peer, p.recv, at, p.send, at, p.bytes, ownSignal(g, DYN_GIN_DATA));
    missing += round != i + 1;
    *reached = before + i + 1;
  }
  wrong[blockIdx.x] = missing;
}

}  // namespace dyn

#endif
