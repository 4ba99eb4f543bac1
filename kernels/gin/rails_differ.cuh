/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll whose parts are of any sizes, also none (AllToAllv), between nodes of several ranks each: the ways of rails.cuh.
 *   sender     what ranks of other nodes get, into cells, and from there to the rail's ranks; then the own part.
 *   forwarder  what ranks of its node get of this one, and what comes of the rail for each of them.
 *   receiver   what comes of the node, to where the program wants it.
 * A rank knows what it sends and gets itself, and nothing of what it passes on. So every cell says what it has: a cell of a rail
 * has a head for each rank of the node, and one within a node that of its rank. A stream is what a rank sends to a node over a
 * channel: as many cells as that takes, each full as long as there is enough, and at least one, so that every rank hears of
 * every other one also where there is nothing to move (calls.cuh). The last one says so, in all of its heads.
 *
 * Nobody waits in a circle: in step s each block is at item s of all streams that have so many, forwarders and receivers of a
 * node take the nodes of a step in one order, and whatever is waited for is of an earlier step, an earlier node of the same
 * step, or of the same by a role that comes before.
 */
#ifndef DYN_GIN_RAILS_DIFFER_CUH
#define DYN_GIN_RAILS_DIFFER_CUH

#include "../device/parts_differ.cuh"
#include "pipes.cuh"
#include "rounds.cuh"

namespace dyn {

/* Head of a cell, for one rank: which bytes of its part are there. */
struct alignas(sizeof(uint4)) GinPiece {
  uint64_t at;    /* in the part */
  uint32_t bytes; /* may be 0 */
  uint32_t last;  /* 1: no cell of this stream comes behind this one, for no rank of the node */
};

template <typename Net>
struct GinMoveParts {
  static constexpr size_t kHead = sizeof(GinPiece);
  GinPipes<Net> p;
  const char *send;
  char *recv;
  const Parts &parts;

  __device__ GinMoveParts(const GinPipes<Net> &p, const char *send, char *recv, const Parts &parts) : p(p), send(send), recv(recv), parts(parts) {}

  __device__ __forceinline__ int rankOf(int node, int local) const { return node * p.locals + local; }
  /* This channel's share of a part. */
  __device__ __forceinline__ GinShare share(size_t bytes) const { return ginShareOf(bytes, ginChannels(), p.channel); }
  static __device__ __forceinline__ size_t whole(size_t bytes) { return dyn_packs(bytes, DYN_GIN_UNIT) * DYN_GIN_UNIT; }
  /* Takes up to so much of what is left. */
  static __device__ __forceinline__ GinPiece next(GinShare *left, uint32_t most, bool last) {
    const GinPiece piece = {left->begin, left->end - left->begin < most ? (uint32_t)(left->end - left->begin) : most, last};
    left->begin += piece.bytes;
    return piece;
  }

  /* Nobody writes beside a part, also where a program gives counts that do not fit each other. */
  __device__ __forceinline__ void take(int from, const GinPiece &piece, const char *cell) const {
    const size_t left = piece.at < parts.recvBytes[from] ? parts.recvBytes[from] - piece.at : 0;
    ginFromSlot(recv + parts.recvAt[from] + piece.at, cell, piece.bytes < left ? piece.bytes : left);
  }

  /* The next cell for a node: of each rank's part that has some left as much as of any other's. left: by ranks. Bytes of it. */
  __device__ __forceinline__ size_t fill(int n, uint32_t s, GinShare *left, bool *last) const {
    const size_t cell = p.toNode(n, s), heads = p.locals * kHead;
    size_t in = heads;
    uint32_t some = 0;
    for (int l = 0; l < p.locals; l++) some += left[rankOf(n, l)].begin < left[rankOf(n, l)].end;
    const uint32_t most = some == 0 ? 0 : (uint32_t)(p.g.cellBytes - heads) / some / DYN_GIN_UNIT * DYN_GIN_UNIT;
    *last = true;
    for (int l = 0; l < p.locals; l++) *last = *last && left[rankOf(n, l)].end - left[rankOf(n, l)].begin <= most;
    for (int l = 0; l < p.locals; l++) {
      const int to = rankOf(n, l);
      const GinPiece piece = next(&left[to], most, *last);
      if (threadIdx.x == 0) *(GinPiece *)p.own(cell + l * kHead) = piece;
      ginToSlot(p.own(cell + in), send + parts.sendAt[to] + piece.at, piece.bytes);
      in += whole(piece.bytes);
    }
    return in;
  }
  __device__ __forceinline__ void sender() const {
    GinShare left[kMaxRanks];
    size_t bytes[kMaxRanks];
    uint32_t open = 0, items[kMaxRanks] = {}; /* by nodes */
    for (int r = 0; r < p.g.nRanks; r++) left[r] = share(parts.sendBytes[r]);
    for (int k = 1; k < p.nodes; k++) open |= 1u << p.nodeAfter(k);
    for (uint32_t s = 0; open != 0; s++) {
      bool fine = true;
      p.eachNode([&](int n) { fine = (!(open >> n & 1) || p.railRoom(n, s)) && fine; });
      if (!p.net.all(fine)) return;
      uint32_t ended = 0;
      for (int k = 1; k < p.nodes; k++) {
        const int n = p.nodeAfter(k);
        bool last = false;
        if (!(open >> n & 1)) continue;
        bytes[n] = fill(n, s, left, &last), items[n] = s + 1;
        if (last) ended |= 1u << n;
      }
      ginMoved();
      p.eachNode([&](int n) {
        if (open >> n & 1) p.railPut(n, p.toNode(n, s), s, bytes[n]);
      });
      open &= ~ended;
    }
    const GinShare own = share(parts.sendBytes[p.g.rank]);
    ginCopy(recv + parts.recvAt[p.g.rank] + own.begin, send + parts.sendAt[p.g.rank] + own.begin, own.end - own.begin);
    p.eachNode([&](int n) { p.railEmpty(n, items[n]); });
  }

  /* Into the cell of a rank of the node. */
  __device__ __forceinline__ void pass(int l, uint32_t item, const GinPiece &piece, const char *from) const {
    char *cell = p.of(l, p.fromNear(p.local, item));
    if (threadIdx.x == 0) *(GinPiece *)cell = piece;
    ginToSlot(cell + kHead, from, piece.bytes);
  }
  /* What the node's ranks get of this one. True: that was the last of it. left: by ranks of the node. */
  __device__ __forceinline__ bool passOwn(uint32_t item, GinShare *left) const {
    const uint32_t most = (uint32_t)(p.g.cellBytes - kHead);
    bool last = true;
    for (int m = 1; m < p.locals; m++) last = last && left[p.localAfter(m)].end - left[p.localAfter(m)].begin <= most;
    for (int m = 1; m < p.locals; m++) {
      const int l = p.localAfter(m);
      const GinPiece piece = next(&left[l], most, last);
      pass(l, item, piece, send + parts.sendAt[p.near(l)] + piece.at);
    }
    return last;
  }
  /* What has come from another node. */
  __device__ __forceinline__ bool passOn(int n, uint32_t s, uint32_t item) const {
    const char *cell = p.own(p.fromNode(n, s));
    size_t in = p.locals * kHead;
    bool last = true;
    for (int l = 0; l < p.locals; l++) {
      const GinPiece piece = *(const GinPiece *)(cell + l * kHead);
      if (l == p.local) take(rankOf(n, l), piece, cell + in);
      else pass(l, item, piece, cell + in);
      in += whole(piece.bytes), last = piece.last != 0;
    }
    return last;
  }
  __device__ __forceinline__ bool forward(uint32_t s, int k, uint32_t item, GinShare *left, bool *last) const {
    const int n = p.nodeAfter(k);
    bool fine = true;
    if (threadIdx.x == 0 && k > 0) fine = p.railFull(n, s);
    if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_EARLY_HEAD && threadIdx.x == 0 && k > 0) p.railTaken(n);
    p.eachNear([&](int l) { fine = p.nearRoom(l, item) && fine; });
    if (!p.net.all(fine)) return false;
    *last = k == 0 ? passOwn(item, left) : passOn(n, s, item);
    ginMoved();
    p.eachNear([&](int l) { p.nearPut(l, item); });
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_EARLY_HEAD && threadIdx.x == 0 && k > 0) p.railTaken(n);
    return true;
  }
  __device__ __forceinline__ void forwarder() const {
    GinShare left[kMaxRanks];
    uint32_t open = (1u << p.nodes) - 1, item = 0, items[kMaxRanks] = {}; /* by nodes, counted from the own one on */
    for (int l = 0; l < p.locals; l++) left[l] = share(parts.sendBytes[p.near(l)]);
    for (uint32_t s = 0; open != 0; s++)
      for (int k = 0; k < p.nodes; k++) {
        bool last = false;
        if (!(open >> k & 1)) continue;
        if (!forward(s, k, item++, left, &last)) return;
        items[k] = s + 1;
        if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OWN_ROUNDS && k > 0) last = !(open & 1);
        if (last) open &= ~(1u << k);
      }
    p.eachNode([&](int n) { p.railCounted(DYN_GIN_DATA, n, items[DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_COUNTED_ALIKE ? 1 : (n - p.node + p.nodes) % p.nodes]); });
    p.nearEmpty(item);
  }

  __device__ __forceinline__ void receiver() const {
    uint32_t open = 0, items[kMaxRanks] = {}; /* by ranks of the node */
    const auto bit = [&](int k, int l) { return 1u << (k * p.locals + l); };
    for (int k = 0; k < p.nodes; k++)
      for (int m = 1; m < p.locals; m++) open |= bit(k, p.localAfter(m));
    while (open != 0)
      for (int k = 0; k < p.nodes; k++) {
        bool fine = true;
        uint32_t ended = 0;
        if ((open & (bit(k + 1, 0) - bit(k, 0))) == 0) continue;
        p.eachNear([&](int l) { fine = (!(open & bit(k, l)) || p.nearFull(l, items[l])) && fine; });
        if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_EARLY_HEAD) p.eachNear([&](int l) { if (open & bit(k, l)) p.nearTaken(l, items[l]); });
        if (!p.net.all(fine)) return;
        for (int m = 1; m < p.locals; m++) {
          const int l = p.localAfter(m);
          if (!(open & bit(k, l))) continue;
          const char *cell = p.own(p.fromNear(l, items[l]));
          const GinPiece piece = *(const GinPiece *)cell;
          take(rankOf(p.nodeAfter(k), l), piece, cell + kHead);
          if (piece.last != 0) ended |= bit(k, l);
        }
        ginMoved();
        p.eachNear([&](int l) { if (open & bit(k, l)) p.nearTaken(l, items[l]); });
        for (int l = 0; l < p.locals; l++) items[l] += (open & bit(k, l)) != 0;
        open &= ~ended;
      }
    p.eachNear([&](int l) { p.nearCounted(DYN_GIN_TAIL, l, items[l]); });
  }
};

/* Grid and net as of ginMove. Parts of send and recv begin anywhere; they do not overlap. */
template <typename Net>
__device__ __forceinline__ void ginMoveParts(const Net &net, const Gin &g, typename Net::Window window, const char *send, char *recv, const Parts &parts) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinMoveParts<Net> move(GinPipes<Net>(net, g, window, call), send, recv, parts);
  ginPlay(move);
  ginEnd(g, call);
}

}  // namespace dyn

#endif
