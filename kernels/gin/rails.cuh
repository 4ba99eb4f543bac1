/* SPDX-License-Identifier: Apache-2.0
 *
 * AllGather and AllToAll between nodes of several ranks each. What is to cross the network goes from a rank to that of its rail
 * alone, once, and from there to the ranks of the node over load and store:
 *   sender     own parts into cells, and from there to the rail's other ranks.
 *   forwarder  own parts, and what comes of the rail, to the ranks of the node.
 *   receiver   what comes of the node, to where the program wants it.
 * Item s of a rail is share s of this channel; item s * nodes + k within a node is share s of what comes of the k-th node from
 * its own on.
 *
 * In place (AllToAll alone: AllGather writes nothing that it sends) the forwarder and the receiver write a share where the
 * sender, and the forwarder, have read it, and wait for that.
 */
#ifndef DYN_GIN_RAILS_CUH
#define DYN_GIN_RAILS_CUH

#include "pipes.cuh"
#include "rounds.cuh"

namespace dyn {

/* part: bytes for each rank, or of each rank if all get the same. */
template <typename Net>
struct GinMove {
  GinPipes<Net> p;
  const char *send;
  char *recv;
  size_t part;
  bool same; /* AllGather */
  GinRounds rounds;

  __device__ GinMove(const GinPipes<Net> &p, const char *send, char *recv, size_t part, bool same)
      : p(p), send(send), recv(recv), part(part), same(same),
        rounds(ginRoundsOf(part, (same ? p.g.cellBytes : p.g.cellBytes / p.locals / DYN_GIN_UNIT * DYN_GIN_UNIT) * ginChannels(), ginChannels())) {}

  __device__ __forceinline__ bool inPlace() const { return !same && send == recv && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_IN_PLACE; }
  /* False: there is none, nor any further one. */
  __device__ __forceinline__ bool share(uint32_t s, GinShare *share) const {
    if (s < rounds.count) *share = ginRoundShare(rounds, part, s, p.channel);
    return s < rounds.count && share->begin < share->end;
  }
  /* Shares that there are, if any: of the last round this channel may have none. */
  __device__ __forceinline__ uint32_t items() const {
    GinShare last;
    return share(rounds.count - 1, &last) ? rounds.count : rounds.count - 1;
  }
  __device__ __forceinline__ const char *from(int node, int local) const { return same ? send : send + (size_t)(node * p.locals + local) * part; }
  __device__ __forceinline__ char *to(int node, int local) const { return recv + (size_t)(node * p.locals + local) * part; }
  __device__ __forceinline__ size_t inCell(int local) const { return same ? 0 : local * rounds.each; }
  __device__ __forceinline__ size_t cellBytes(const GinShare &s) const {
    return inCell(p.locals - 1) + dyn_packs(s.end - s.begin, sizeof(uint4)) * sizeof(uint4);
  }

  __device__ __forceinline__ void sender() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++) {
      bool fine = true;
      p.eachNode([&](int n) { fine = p.railRoom(n, s) && fine; });
      if (!p.net.all(fine)) return;
      for (int k = 1; k < (same ? 2 : p.nodes); k++)
        for (int l = 0; l < (same ? 1 : p.locals); l++)
          ginToSlot(p.own(p.toNode(p.nodeAfter(k), s) + inCell(l)), from(p.nodeAfter(k), l) + at.begin, at.end - at.begin);
      ginMoved();
      p.eachNode([&](int n) { p.railPut(n, p.toNode(same ? p.nodeAfter(1) : n, s), s, cellBytes(at)); });
      if (threadIdx.x == 0 && inPlace()) p.tell(kSenderToForwarder, s), p.tell(kSenderToReceiver, s);
    }
    p.railsEmpty(s);
    if (inPlace()) p.ownCounted(DYN_GIN_HEAD, kSenderToForwarder, s), p.ownCounted(DYN_GIN_HEAD, kSenderToReceiver, s);
  }

  /* Share s of a node's parts, to all of this node. */
  __device__ __forceinline__ bool forward(uint32_t s, int k, const GinShare &at) const {
    const int n = p.nodeAfter(k);
    const uint32_t item = s * p.nodes + k;
    bool fine = true;
    if (threadIdx.x == 0 && k > 0) fine = p.railFull(n, s);
    if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_EARLY_HEAD && threadIdx.x == 0 && k > 0) p.railTaken(n, ginHead(s, items()));
    if (threadIdx.x == 0 && k > 0 && inPlace()) fine = p.told(kSenderToForwarder, s) && fine;
    p.eachNear([&](int l) { fine = p.nearRoom(l, item) && fine; });
    if (!p.net.all(fine)) return false;
    const auto source = [&](int l) { return k == 0 ? from(p.node, l) + at.begin : p.own(p.fromNode(n, s) + inCell(l)); };
    for (int m = 1; m < p.locals; m++) {
      const int l = p.localAfter(m);
      ginToSlot(p.of(l, p.fromNear(p.local, item)), source(l), at.end - at.begin);
    }
    char *own = to(n, p.local) + at.begin;
    if (own != source(p.local)) ginCopy(own, source(p.local), at.end - at.begin);
    ginMoved();
    p.eachNear([&](int l) { p.nearPut(l, item); });
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_EARLY_HEAD && threadIdx.x == 0 && k > 0) p.railTaken(n, ginHead(s, items()));
    if (threadIdx.x == 0 && k == 0 && inPlace()) p.tell(kForwarderToReceiver, s);
    return true;
  }
  __device__ __forceinline__ void forwarder() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++)
      for (int k = 0; k < p.nodes; k++)
        if (!forward(s, k, at)) return;
    p.railsCounted(DYN_GIN_DATA, s);
    p.nearEmpty(s * p.nodes);
    if (inPlace()) p.ownCounted(DYN_GIN_TAIL, kSenderToForwarder, s), p.ownCounted(DYN_GIN_HEAD, kForwarderToReceiver, s);
  }

  __device__ __forceinline__ void receiver() const {
    uint32_t s = 0;
    for (GinShare at; share(s, &at); s++)
      for (int k = 0; k < p.nodes; k++) {
        const uint32_t item = s * p.nodes + k;
        bool fine = true;
        p.eachNear([&](int l) { fine = p.nearFull(l, item) && fine; });
        if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_EARLY_HEAD) p.eachNear([&](int l) { p.nearTaken(l, item); });
        if (threadIdx.x == 0 && inPlace() && k == 0) fine = p.told(kSenderToReceiver, s) && p.told(kForwarderToReceiver, s) && fine;
        if (!p.net.all(fine)) return;
        for (int m = 1; m < p.locals; m++) {
          const int l = p.localAfter(m);
          ginFromSlot(to(p.nodeAfter(k), l) + at.begin, p.own(p.fromNear(l, item)), at.end - at.begin);
        }
        ginMoved();
        p.eachNear([&](int l) { p.nearTaken(l, item); });
      }
    p.nearCounted(DYN_GIN_TAIL, s * p.nodes);
    if (inPlace()) p.ownCounted(DYN_GIN_TAIL, kSenderToReceiver, s), p.ownCounted(DYN_GIN_TAIL, kForwarderToReceiver, s);
  }
};

/* In 3 blocks, or a multiple of it up to 3 * DYN_GIN_CHANNELS; the net is of context ginChannel(). */
template <typename Net>
__device__ __forceinline__ void ginMove(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, size_t part, bool same) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinMove<Net> move(GinPipes<Net>(net, g, window, call), send, recv, part, same);
  ginPlay(move);
  ginEnd(g, call);
}

}  // namespace dyn

#endif
