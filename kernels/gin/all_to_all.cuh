/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAll over GIN, from one registered buffer into another with no copy between: each block has a context and a share of
 * every part.
 *
 * A put may only land where nobody reads any more. So a rank first tells its peers that it has begun, with a signal alone, and
 * puts to a peer once that has said so, too: its stream has come to this call, and what was in its buffer is used. At the end
 * all parts are there, by signals, and all of the own ones are read, by counters or by a flush: the program may write into
 * both buffers.
 */
#ifndef DYN_GIN_ALL_TO_ALL_CUH
#define DYN_GIN_ALL_TO_ALL_CUH

#include "calls.cuh"

namespace dyn {

enum class Locally { counter, flush };

/* Bytes of this block's share of the own part. They begin anywhere. */
__device__ __forceinline__ void copyOwn(char *to, const char *from, size_t bytes) {
  const size_t words = (((size_t)to | (size_t)from) & 7) == 0 ? bytes / 8 : 0;
  for (size_t i = threadIdx.x; i < words; i += blockDim.x) ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
  for (size_t i = words * 8 + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

/* part: bytes for each rank, at least 1. The two buffers are not one. */
template <typename Net>
__device__ __forceinline__ void ginAllToAll(const Net &net, const Gin &g, typename Net::Window send, size_t sendAt, typename Net::Window recv, size_t recvAt,
                                            size_t part, Locally locally) {
  const uint32_t call = ginBegin(g);
  if (call == 0) return;
  const GinShare share = ginShareOf(part, gridDim.x, blockIdx.x);
  const size_t bytes = share.end - share.begin, own = (size_t)g.rank * part + share.begin;
  bool fine = true;
  if (bytes > 0) {
    eachGinPeer(g, [&](int peer) { net.raise(peer, ownSignal(g, DYN_GIN_READY)); });
    copyOwn(net.local(recv, recvAt + own), net.local(send, sendAt + own), bytes);
    eachGinPeer(g, [&](int peer) {
      if (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNREADY) fine = fine && awaitSignal(net, g, DYN_GIN_READY, peer, call);
      if (!fine) return; /* nothing is put to who has not begun */
      const size_t to = recvAt + own, from = sendAt + (size_t)peer * part + share.begin;
      if (locally == Locally::counter) net.putCounted(peer, recv, to, send, from, bytes, ownSignal(g, DYN_GIN_DATA), ownCounter(g, peer));
      else net.put(peer, recv, to, send, from, bytes, ownSignal(g, DYN_GIN_DATA));
    });
    eachGinPeer(g, [&](int peer) { fine = fine && awaitSignal(net, g, DYN_GIN_DATA, peer, call); });
    if (locally == Locally::counter) eachGinPeer(g, [&](int peer) { fine = fine && awaitCounter(net, g, peer, call); });
    if (locally == Locally::flush && net.all(fine)) net.flush();
  }
  ginEnd(g, call);
}

}  // namespace dyn

#endif
