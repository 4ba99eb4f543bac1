/* SPDX-License-Identifier: Apache-2.0
 *
 * Random traffic over GIN: on every context each rank sends numbered messages of random sizes and places to random peers, as
 * puts with a signal, with a signal and a counter, with neither, and as signals alone. What a signal stands for is compared byte
 * by byte at the moment at which it is seen: its own message and all before it that had none. A source whose counter has
 * come is overwritten at once. A slot is used again when the receiver has acknowledged, by a signal, what was in it. Senders and
 * receivers may stop for random times, so that queues, slots and acknowledgements run empty and full.
 */
#ifndef DYN_BENCH_GIN_TRAFFIC_CUH
#define DYN_BENCH_GIN_TRAFFIC_CUH

#include <chrono>

#include "gin_rank.cuh"

constexpr uint32_t kSlots = 8, kShift = 64; /* bytes by which a message may lie further behind in its slot */
static uint32_t trafficLogBytes = 13; /* messages have at most 2 to the power of it */
static uint64_t trafficStopNs;        /* and ranks stop for at most so long */
static size_t trafficSlotBytes() { return ((size_t)1 << trafficLogBytes) + 2 * kShift; }

struct Traffic {
  ncclWindow_t send, recv; /* [blocks][nRanks][kSlots][slotBytes] */
  size_t slotBytes;
  uint32_t logBytes;
  uint64_t stopNs;
  uint32_t messages;       /* from each rank to each other one, on each context */
  uint64_t seed;
};
/* Of a rank. */
struct TrafficCount {
  unsigned long long puts, signals, counters, bytes, compared, wrong, missing;
};

__device__ __forceinline__ uint64_t scrambled(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

struct Message {
  uint32_t bytes, from, to; /* where it begins in the slots */
  bool signals, counted;
  uint64_t pattern;
};
__device__ __forceinline__ Message messageOf(const Traffic &t, unsigned block, int source, int target, uint32_t k) {
  const uint64_t x = scrambled(t.seed + ((uint64_t)block << 56 | (uint64_t)source << 48 | (uint64_t)target << 40 | k)), y = scrambled(x);
  const unsigned kind = x % 8;
  Message m;
  m.signals = kind < 5 || k % 4 == 3 || k + 1 == t.messages;
  m.counted = kind < 2;
  m.bytes = kind == 4 ? 0 : 1 + (uint32_t)((y & 0xffffffff) % (1u << (1 + (y >> 32 & 0xff) % t.logBytes))); /* small ones as often as large ones */
  m.from = (uint32_t)(y >> 40) % kShift, m.to = (uint32_t)(y >> 50) % kShift;
  m.pattern = y;
  return m;
}
__device__ __forceinline__ char byteOf(const Message &m, uint32_t i) { return (char)(m.pattern + i * 167 + (i >> 8) * 59); }
__device__ __forceinline__ size_t slotOf(const Traffic &t, int nRanks, unsigned block, int peer, uint32_t k) { return (((size_t)block * nRanks + peer) * kSlots + k % kSlots) * t.slotBytes; }

/* Once in eight messages, a sender's or a receiver's. */
__device__ __forceinline__ void stopAWhile(const Gin &g, const Traffic &t, const Message &m, unsigned who) {
  const uint64_t x = scrambled(m.pattern + who);
  if (t.stopNs == 0 || x % 8 != 0) return;
  const uint64_t until = globalNs() + (x >> 8) % t.stopNs;
  while (globalNs() < until && loadHost(g.stop) == 0) continue;
}

/* How far a rank is with one peer: messages, and how many of them had a signal. */
struct Progress {
  uint32_t next, done, signalled, acknowledged;
};

/* By a warp. True: the next message is on its way; false: there is no slot for it. */
__device__ __forceinline__ bool sendOne(const GinNet &net, const Gin &g, const Traffic &t, int peer, Progress &p, uint64_t acks, TrafficCount &count) {
  for (; (uint32_t)(net.signalValue(g.firstSignal + ginSignalOf(g.nRanks, DYN_GIN_READY, blockIdx.x, peer)) - acks) > p.acknowledged; p.acknowledged++)
    while (!messageOf(t, blockIdx.x, g.rank, peer, p.done++).signals) continue;
  __syncwarp();
  if (p.next >= p.done + kSlots) return false;
  const Message m = messageOf(t, blockIdx.x, g.rank, peer, p.next);
  const size_t at = slotOf(t, g.nRanks, blockIdx.x, peer, p.next) + m.from, to = slotOf(t, g.nRanks, blockIdx.x, g.rank, p.next) + m.to;
  stopAWhile(g, t, m, 0);
  char *source = net.local(t.send, at);
  for (uint32_t i = threadIdx.x; i < m.bytes; i += kWarp) source[i] = byteOf(m, i);
  __syncwarp();
  const uint32_t signal = ownSignal(g, DYN_GIN_DATA), counter = ownCounter(g, peer);
  uint64_t counted = 0;
  if (threadIdx.x == 0) {
    const auto world = ncclTeamWorld(net.gin.comm);
    if (m.counted) counted = net.counterValue(counter) + 1;
    if (m.signals && m.bytes == 0) net.raise(peer, signal);
    else if (m.signals && m.counted) net.putCounted(peer, t.recv, to, t.send, at, m.bytes, signal, counter);
    else if (m.signals) net.put(peer, t.recv, to, t.send, at, m.bytes, signal);
    else if (m.counted) net.gin.put(world, peer, t.recv, to, t.send, at, m.bytes, ncclGin_None{}, GinCounterInc{counter});
    else net.gin.put(world, peer, t.recv, to, t.send, at, m.bytes);
    count.puts += m.bytes > 0, count.signals += m.signals, count.bytes += m.bytes, count.counters += m.counted && !(m.signals && m.bytes == 0);
    if (m.counted && !(m.signals && m.bytes == 0))
      counted = ginAwait(g, peer, DYN_GIN_WAIT_COUNTER, p.next, [&] { return ginReached(net.counterValue(counter), counted, kCounterBits); });
    else counted = 0;
  }
  counted = __shfl_sync(0xffffffffu, counted, 0);
  for (uint32_t i = threadIdx.x; counted && i < m.bytes; i += kWarp) source[i] = (char)~byteOf(m, i);
  __syncwarp();
  p.next++;
  return true;
}

/* By a warp: the next message that has a signal, and those before it that have none. */
__device__ __forceinline__ bool receiveOne(const GinNet &net, const Gin &g, const Traffic &t, int peer, Progress &p, uint64_t before, TrafficCount &count) {
  const uint32_t first = p.next;
  while (!messageOf(t, blockIdx.x, peer, g.rank, p.next++).signals) continue;
  p.signalled++;
  bool came = threadIdx.x % kWarp != 0 || awaitSignalOf(net, g, DYN_GIN_DATA, peer, p.next, before + p.signalled);
  came = __shfl_sync(0xffffffffu, came, 0);
  if (!came) return false;
  for (uint32_t k = first; k < p.next; k++) {
    const Message m = messageOf(t, blockIdx.x, peer, g.rank, k);
    const volatile char *data = net.local(t.recv, slotOf(t, g.nRanks, blockIdx.x, peer, k) + m.to);
    for (uint32_t i = threadIdx.x % kWarp; i < m.bytes; i += kWarp) count.wrong += data[i] != byteOf(m, i);
    if (threadIdx.x % kWarp == 0) count.compared += m.bytes;
    if (k + 1 == p.next) stopAWhile(g, t, m, 1);
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) net.raise(peer, ownSignal(g, DYN_GIN_READY)), count.signals++;
  return true;
}

/* A block a context: its first warp sends, each other one receives from a peer. */
static __global__ void trafficKernel(__grid_constant__ const ncclDevComm comm, __grid_constant__ const Gin g, __grid_constant__ const Traffic t, TrafficCount *total) {
  const GinNet net(comm, g);
  const int warp = (int)threadIdx.x / kWarp;
  TrafficCount count = {};
  if (warp == 0) {
    __shared__ Progress progress[kMaxRanks];
    __shared__ uint64_t acks[kMaxRanks];
    if ((int)threadIdx.x < g.nRanks) progress[threadIdx.x] = {}, acks[threadIdx.x] = ginSeenOf(net, g)[ginSignalOf(g.nRanks, DYN_GIN_READY, blockIdx.x, (int)threadIdx.x)];
    __syncwarp();
    uint64_t random = t.seed ^ blockIdx.x * 977 ^ (uint64_t)g.rank << 32, sent = 0, all = (uint64_t)t.messages * (g.nRanks - 1);
    for (uint64_t tries = 0; sent < all && loadHost(g.stop) == 0; tries++) {
      random = scrambled(random + tries);
      const int peer = ginPeer(g, 1 + (int)(random % (unsigned)(g.nRanks - 1)));
      Progress p = progress[peer];
      if (p.next < t.messages) sent += sendOne(net, g, t, peer, p, acks[peer], count);
      __syncwarp();
      if (threadIdx.x == 0) progress[peer] = p;
      __syncwarp();
    }
    if (threadIdx.x == 0) count.missing += all - sent;
  } else if (warp < g.nRanks) {
    const int peer = ginPeer(g, warp);
    const uint64_t before = ginSeenOf(net, g)[ginSignalOf(g.nRanks, DYN_GIN_DATA, blockIdx.x, peer)];
    Progress p = {};
    while (p.next < t.messages && receiveOne(net, g, t, peer, p, before, count)) continue;
    if (threadIdx.x % kWarp == 0) count.missing += t.messages - p.next;
  }
  const unsigned long long *own = &count.puts;
  for (int i = 0; i < (int)(sizeof count / sizeof *own); i++)
    if (own[i] != 0) atomicAdd(&total->puts + i, own[i]);
}

/* False: a peer was waited for in vain. */
static bool runTraffic(const Rank &k, GinLife &life, const GinBuffers &b, uint32_t messages, uint64_t seed) {
  const int blocks = life.device.ginContextCount;
  TrafficCount *count;
  CUDA(cudaMallocManaged(&count, sizeof *count));
  *count = {};
  barrier();
  const auto begin = std::chrono::steady_clock::now();
  trafficKernel<<<blocks, kWarp * numRanks, 0, k.stream>>>(life.device, life.gin, {b.send.window, b.recv.window, trafficSlotBytes(), trafficLogBytes, trafficStopNs, messages, seed}, count);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  /* What comes next begins with what signals and counters have come to. */
  ginLookKernel<<<DYN_GIN_MAX_BLOCKS, 32, 0, k.stream>>>(life.device, life.gin, life.stamps);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(k.stream));
  printf("{\"figure\":\"gin traffic\",\"ranks\":%d,\"nodes\":%d,\"rank\":%d,\"type\":\"%s\",\"contexts\":%d,\"latency_us\":%s,\"gbs\":%s,\"most_bytes\":%u,\"most_stop_us\":%g,\"puts\":%llu,\"signals\":%llu,\"counters\":%llu,"
         "\"bytes\":%llu,\"compared\":%llu,\"wrong\":%llu,\"not_sent_or_not_come\":%llu,\"seconds\":%.2f}\n", numRanks, numNodes, rank, ginTypeName(ginTypeOf(life.device, 0)), blocks,
         variable("DYNAMICCL_CARRIER_LATENCY_US").c_str(), variable("DYNAMICCL_CARRIER_GBS").c_str(), 1u << trafficLogBytes, (double)trafficStopNs / 1e3, count->puts, count->signals, count->counters, count->bytes, count->compared,
         count->wrong, count->missing, seconds);
  shared->wrong += (long)(count->wrong + count->missing);
  return count->missing == 0;
}

#endif
