/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter between nodes of several ranks each: the ways of rails.cuh, backwards. What is to cross the network is added up
 * in the node first.
 *   sender     parts of others to those of its node that are on their rails.
 *   forwarder  adds up what its node has for each rank of its rail, in the order of ranks, and puts it there.
 *   receiver   adds up what nodes have, in their order.
 * Sums of a node are rounded to the type, as NCCL rounds what it hands on, so they have other bits than those of flat kernels;
 * an average is that of the nodes' averages, which does not overflow. For integers that would not be the average: they stay
 * with flat kernels (host/gin_run.c).
 */
#ifndef DYN_GIN_RAILS_SUM_CUH
#define DYN_GIN_RAILS_SUM_CUH

#include "pipes.cuh"
#include "rounds.cuh"
#include "sum.cuh"

namespace dyn {

template <typename T, typename Net>
struct GinMoveSums {
  using Elements = Buffer<Shape<false, kMaxRanks>, T, uint4>;
  GinPipes<Net> p;
  const T *send;
  T *recv;
  size_t count;
  Op op;
  GinRounds rounds;

  __device__ GinMoveSums(const GinPipes<Net> &p, const T *send, T *recv, size_t count, Op op)
      : p(p), send(send), recv(recv), count(count), op(op), rounds(ginRoundsOf(count * sizeof(T), p.g.cellBytes * ginChannels(), ginChannels())) {}

  __device__ __forceinline__ bool share(uint32_t s, GinShare *share) const {
    if (s < rounds.count) *share = ginRoundShare(rounds, count * sizeof(T), s, p.channel);
    return s < rounds.count && share->begin < share->end;
  }
  __device__ __forceinline__ uint32_t items() const { /* as in rails.cuh */
    GinShare last;
    return share(rounds.count - 1, &last) ? rounds.count : rounds.count - 1;
  }
  __device__ __forceinline__ Elements part(int node, int local, const GinShare &at) const {
    return Elements(send + (size_t)(node * p.locals + local) * count + at.begin / sizeof(T), (at.end - at.begin) / sizeof(T));
  }
  static __device__ __forceinline__ size_t packs(const GinShare &at) { return dyn_packs(at.end - at.begin, sizeof(uint4)); }

  __device__ __forceinline__ void sender() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++)
      for (int k = 1; k <= p.nodes; k++) { /* its own node last: nobody waits for that over the network */
        const uint32_t item = s * p.nodes + k - 1;
        bool fine = true;
        p.eachNear([&](int l) { fine = p.nearRoom(l, item) && fine; });
        if (!p.net.all(fine)) return;
        for (int m = 1; m < p.locals; m++) {
          const int l = p.localAfter(m);
          ginToSlot(p.of(l, p.fromNear(p.local, item)), (const char *)part(p.nodeAfter(k), l, at).at, at.end - at.begin);
        }
        ginMoved();
        p.eachNear([&](int l) { p.nearPut(l, item); });
      }
    p.nearEmpty(s * p.nodes);
  }

  /* What the node has for the rank of its rail there. */
  __device__ __forceinline__ bool forward(uint32_t s, int k, const GinShare &at) const {
    const int n = p.nodeAfter(k);
    const uint32_t item = s * p.nodes + k - 1;
    bool fine = true;
    p.eachNear([&](int l) { fine = p.nearFull(l, item) && fine; });
    if (threadIdx.x == 0) fine = (n == p.node ? p.nearRoom(p.local, s) : p.railRoom(n, s)) && fine;
    if (!p.net.all(fine)) return false;
    const size_t out = n == p.node ? p.fromNear(p.local, s) : p.toNode(n, s);
    const Elements own = part(n, p.local, at);
    for (size_t i = threadIdx.x; i < packs(at); i += blockDim.x)
      *(uint4 *)(p.own(out) + i * sizeof(uint4)) = ginSumOf<T>(p.locals, p.local, op, [&](int l) {
        return l == p.local ? own.load(i) : *(const uint4 *)(p.own(p.fromNear(l, item)) + i * sizeof(uint4));
      });
    ginMoved();
    p.eachNear([&](int l) { p.nearTaken(l, item); });
    if (threadIdx.x == 0 && n == p.node) p.nearPut(p.local, s);
    if (threadIdx.x == 0 && n != p.node) p.railPut(n, out, s, packs(at) * sizeof(uint4));
    return true;
  }
  __device__ __forceinline__ void forwarder() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++)
      for (int k = 1; k <= p.nodes; k++)
        if (!forward(s, k, at)) return;
    p.nearCounted(DYN_GIN_TAIL, s * p.nodes);
    p.railsEmpty(s);
    if (threadIdx.x == 0 && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNDRAINED) p.awaitFlag(DYN_GIN_HEAD, p.local, s);
    p.ownCounted(DYN_GIN_HEAD, p.local, s);
  }

  __device__ __forceinline__ void receiver() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++) {
      bool fine = true;
      p.eachNode([&](int n) { fine = p.railFull(n, s) && fine; });
      if (threadIdx.x == 0) fine = p.nearFull(p.local, s) && fine;
      if (!p.net.all(fine)) return;
      const Elements to(recv + at.begin / sizeof(T), (at.end - at.begin) / sizeof(T));
      for (size_t i = threadIdx.x; i < packs(at); i += blockDim.x)
        to.store(i, ginSumOf<T>(p.nodes, p.node, op, [&](int n) {
                   return *(const uint4 *)(p.own(n == p.node ? p.fromNear(p.local, s) : p.fromNode(n, s)) + i * sizeof(uint4));
                 }));
      ginMoved();
      p.eachNode([&](int n) { p.railTaken(n, ginHead(s, items())); });
      if (threadIdx.x == 0) p.nearTaken(p.local, s);
    }
    p.railsCounted(DYN_GIN_DATA, s);
    p.ownCounted(DYN_GIN_TAIL, p.local, s);
  }
};

/* Of floats; grid and net as of ginMove. count: elements for each rank. */
template <typename T, typename Net>
__device__ __forceinline__ void ginMoveSums(const Net &net, const Gin &g, typename Net::Window window, const T *send, T *recv, size_t count, Op op) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinMoveSums<T, Net> move(GinPipes<Net>(net, g, window, call), send, recv, count, op);
  ginPlay(move);
  ginEnd(g, call);
}

}  // namespace dyn

#endif
