/* SPDX-License-Identifier: Apache-2.0
 *
 * Circular buffers between the ranks of a rail, over GIN, and between those of a node, over load and store: what hierarchical
 * kernels move data through. Who fills one waits until its next cell is empty, who empties one until it is full:
 *   tail  items put in so far. On a rail a signal that comes with the put; in a node a word in the taker's memory.
 *   head  items taken out so far. On a rail a signal alone, one for the last cells of a call where it is known how many these are
 *         (ginHead); in a node a word in the filler's memory.
 * Each has one block that fills and one that empties, of the same channel. A head also says that what was sent from is read:
 * no put needs a counter.
 *
 * Between calls all are empty: a kernel ends when all that its blocks have filled is taken. So no call has to know how the one
 * before it used cells, and signals of these kernels are all counted before any of a later call comes: flat kernels have the
 * same ones. Slots of flat kernels are left alone, and the argument of calls.cuh about these holds across calls of both kinds,
 * since here, too, a rank ends its call only with something that every other rank's call has made.
 */
#ifndef DYN_GIN_PIPES_CUH
#define DYN_GIN_PIPES_CUH

#include "calls.cuh"
#include "pipes.h"

namespace dyn {

enum class GinRole { send, forward, receive };
__device__ __forceinline__ GinRole ginRole() { return (GinRole)(blockIdx.x % DYN_GIN_ROLES); }
__device__ __forceinline__ unsigned ginChannel() { return blockIdx.x / DYN_GIN_ROLES; }
__device__ __forceinline__ unsigned ginChannels() { return gridDim.x / DYN_GIN_ROLES; }

/* The block's part in a move that has all three. */
template <typename Move>
__device__ __forceinline__ void ginPlay(const Move &move) {
  switch (ginRole()) {
    case GinRole::send: move.sender(); break;
    case GinRole::forward: move.forwarder(); break;
    case GinRole::receive: move.receiver(); break;
  }
}

/* Of a rank's own blocks, who tells whom how far it is: places among the flags behind those of its node's ranks. */
enum GinOwnFlag { kSenderToForwarder = DYN_GIN_MAX_LOCAL, kSenderToReceiver, kForwarderToReceiver };
static_assert(kForwarderToReceiver < DYN_KERNEL_MAX_RANKS && DYN_GIN_FLAG_WORDS * sizeof(uint32_t) <= DYN_GIN_FLAG_BYTES, "flags lie apart");

/* By how much the head goes up when item of so many of a call is taken. Who fills waits for room for the last item until the one
 * DYN_GIN_CELLS before it is taken, and then for nothing but all: so the last cells have one head, and its message, between them. */
__device__ __forceinline__ uint32_t ginHead(uint32_t item, uint32_t items) {
  const uint32_t last = items < DYN_GIN_CELLS ? items : DYN_GIN_CELLS;
  if (item + DYN_GIN_CELLS < items) return 1;
  return item == (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_JOINT_EARLY ? items - last : items - 1) ? last : 0;
}

/* Of one block in one call. Items are numbered from 0 in each buffer and call. */
template <typename Net>
struct GinPipes {
  const Net &net;
  const Gin &g;
  typename Net::Window window;
  uint32_t call;
  int nodes, locals, node, local;
  unsigned channel;

  __device__ GinPipes(const Net &net, const Gin &g, typename Net::Window window, uint32_t call)
      : net(net), g(g), window(window), call(call), nodes(g.nRanks / g.localRanks), locals(g.localRanks), node(g.rank / g.localRanks), local(g.rank % g.localRanks),
        channel(ginChannel()) {}

  /* Ranks, and what each of a block's threads does for its own. */
  __device__ __forceinline__ int rail(int ofNode) const {
    return ofNode * locals + (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_OFF_RAIL ? (local + 1) % locals : local);
  }
  __device__ __forceinline__ int near(int ofLocal) const { return node * locals + ofLocal; }
  __device__ __forceinline__ int nodeAfter(int k) const { return (node + k) % nodes; }
  __device__ __forceinline__ int localAfter(int k) const { return (local + k) % locals; }
  template <typename Do>
  __device__ __forceinline__ void eachNode(Do what) const {
    for (int k = 1 + (int)threadIdx.x; k < nodes; k += (int)blockDim.x) what(nodeAfter(k));
  }
  template <typename Do>
  __device__ __forceinline__ void eachNear(Do what) const {
    for (int k = 1 + (int)threadIdx.x; k < locals; k += (int)blockDim.x) what(localAfter(k));
  }

  /* Places in the window. */
  __device__ __forceinline__ size_t cell(int buffer, uint32_t item) const {
    return g.pipesAt + DYN_GIN_FLAG_BYTES + (((size_t)channel * dyn_gin_buffers(g.nRanks, locals) + (size_t)buffer) * DYN_GIN_CELLS + item % DYN_GIN_CELLS) * g.cellBytes;
  }
  __device__ __forceinline__ size_t fromNode(int n, uint32_t item) const { return cell(n, item); }
  __device__ __forceinline__ size_t toNode(int n, uint32_t item) const { return cell(nodes + n, item); }
  __device__ __forceinline__ size_t fromNear(int l, uint32_t item) const { return cell(2 * nodes + l, item); }
  __device__ __forceinline__ char *own(size_t at) const { return net.local(window, at); }
  __device__ __forceinline__ char *of(int ofLocal, size_t at) const { return ofLocal == local ? own(at) : net.near(window, at, ofLocal); }
  __device__ __forceinline__ uint32_t *flag(int ofLocal, int which, int from) const { return (uint32_t *)of(ofLocal, g.pipesAt + dyn_gin_flag_at(which, channel, from)); }

  /* Over GIN: signals that blocks of this channel count. */
  __device__ __forceinline__ uint32_t signalFrom(int kind, int rank) const { return ginSignalOf(g.nRanks, kind, channel, rank); }
  __device__ __forceinline__ bool awaitRail(int kind, int ofNode, uint32_t items) const {
    const int peer = rail(ofNode);
    const uint32_t signal = signalFrom(kind, peer);
    const uint64_t least = ginSeenOf(net, g)[signal] + items;
    return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NO_NUMBER || ginAwait(g, peer, kind == DYN_GIN_READY ? DYN_GIN_WAIT_ROOM : DYN_GIN_WAIT_DATA, call, [&] {
      return ginReached(net.signalValue(g.firstSignal + signal), least, kSignalBits);
    });
  }
  __device__ __forceinline__ bool railFull(int ofNode, uint32_t item) const { return awaitRail(DYN_GIN_DATA, ofNode, item + 1); }
  __device__ __forceinline__ bool railRoom(int ofNode, uint32_t item) const {
    if (item < DYN_GIN_CELLS || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NO_ROOM) return true;
    return awaitRail(DYN_GIN_READY, ofNode, item + 1 - DYN_GIN_CELLS);
  }
  __device__ __forceinline__ void railPut(int ofNode, size_t from, uint32_t item, size_t bytes) const {
    net.put(rail(ofNode), window, fromNode(node, item), window, from, bytes, g.firstSignal + signalFrom(DYN_GIN_DATA, g.rank));
  }
  __device__ __forceinline__ void railTaken(int ofNode, uint32_t by = 1) const {
    if (by > 0) net.raise(rail(ofNode), g.firstSignal + signalFrom(DYN_GIN_READY, g.rank), by);
  }
  /* At the end, by who waited: so many items came of a node, or of every one, or were taken there. */
  __device__ __forceinline__ void railCounted(int kind, int ofNode, uint32_t items) const { ginSeenOf(net, g)[signalFrom(kind, rail(ofNode))] += items; }
  __device__ __forceinline__ void railsCounted(int kind, uint32_t items) const {
    eachNode([&](int n) { railCounted(kind, n, items); });
  }
  __device__ __forceinline__ void railEmpty(int ofNode, uint32_t items) const {
    if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNDRAINED) awaitRail(DYN_GIN_READY, ofNode, items);
    railCounted(DYN_GIN_READY, ofNode, items);
  }
  __device__ __forceinline__ void railsEmpty(uint32_t items) const {
    eachNode([&](int n) { railEmpty(n, items); });
  }

  /* Over load and store. items: how many came before this call, which is known to the block alone that waits, or stores. */
  __device__ __forceinline__ uint32_t *items(int which, int peer) const { return (uint32_t *)((char *)g.items + dyn_gin_flag_at(which, channel, peer)); }
  __device__ __forceinline__ bool awaitFlag(int which, int peer, uint32_t count) const {
    const uint32_t *at = flag(local, which, peer), least = *items(which, peer) + count;
    return DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NO_NUMBER ||
           ginAwait(g, peer < locals ? near(peer) : g.rank, which == DYN_GIN_HEAD ? DYN_GIN_WAIT_ROOM : DYN_GIN_WAIT_DATA, call,
                    [&] { return (int32_t)(loadAcquire(at) - least) >= 0; });
  }
  __device__ __forceinline__ bool nearFull(int from, uint32_t item) const { return awaitFlag(DYN_GIN_TAIL, from, item + 1); }
  __device__ __forceinline__ bool nearRoom(int to, uint32_t item) const {
    if (item < DYN_GIN_CELLS || DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_NO_ROOM) return true;
    return awaitFlag(DYN_GIN_HEAD, to, item + 1 - DYN_GIN_CELLS);
  }
  __device__ __forceinline__ void nearPut(int to, uint32_t item) const { storeRelease(flag(to, DYN_GIN_TAIL, local), *items(DYN_GIN_HEAD, to) + item + 1); }
  __device__ __forceinline__ void nearTaken(int from, uint32_t item) const { storeRelease(flag(from, DYN_GIN_HEAD, local), *items(DYN_GIN_TAIL, from) + item + 1); }
  /* At the end, by who waited, or filled, for one rank of the node, or all; for this rank itself, too, if it has a buffer. */
  __device__ __forceinline__ void nearCounted(int which, int peer, uint32_t count) const { *items(which, peer) += count; }
  __device__ __forceinline__ void nearCounted(int which, uint32_t count) const {
    eachNear([&](int l) { nearCounted(which, l, count); });
  }
  __device__ __forceinline__ void nearEmpty(uint32_t count) const {
    eachNear([&](int l) {
      if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNDRAINED) awaitFlag(DYN_GIN_HEAD, l, count);
    });
    nearCounted(DYN_GIN_HEAD, count);
  }

  /* Between blocks of this rank: what a tail is, without a head. */
  __device__ __forceinline__ void tell(GinOwnFlag place, uint32_t item) const { storeRelease(flag(local, DYN_GIN_TAIL, place), *items(DYN_GIN_HEAD, place) + item + 1); }
  __device__ __forceinline__ bool told(GinOwnFlag place, uint32_t item) const { return awaitFlag(DYN_GIN_TAIL, place, item + 1); }
  __device__ __forceinline__ void ownCounted(int which, int place, uint32_t count) const {
    if (threadIdx.x == 0) *items(which, place) += count;
  }
};

/* Behind what all threads of a block have moved, before one of them says so. */
__device__ __forceinline__ void ginMoved() {
  if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_HASTE) __syncthreads();
}

}  // namespace dyn

#endif
