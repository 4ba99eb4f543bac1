/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that copy, over load and store within one NVLink domain, in lines. They know bytes alone.
 */
#ifndef DYN_MOVE_CUH
#define DYN_MOVE_CUH

#include "copy.cuh"
#include "reduce_scatter.cuh"

namespace dyn {

/* Every peer's lines to where its part lies. */
template <class S>
__device__ __forceinline__ void takeParts(const Domain &d, Byte *recv, size_t lines, uint32_t call, size_t count) {
  eachLine(lines, [&](size_t i) {
    Piece pieces[S::kRanks];
    awaitLines(d, i, call, [&](int) { return i < lines; }, pieces);
#pragma unroll
    for (int r = 0; r < S::kRanks; r++)
      if (r < d.nRanks && r != d.rank) Buffer<S, Byte>(recv + r * count, count).storeLine(i, pieces[r]);
  });
}

template <class S>
__device__ __forceinline__ void allGatherOf(const Call &c, uint32_t call) {
  const Domain &d = c.domain;
  Byte *recv = (Byte *)c.recv, *mine = recv + d.rank * c.count;
  const Buffer<S, Byte> send(c.send, c.count);
  const size_t lines = dyn_lines(c.count);
  eachLine(lines, [&](size_t i) {
    const Piece own = send.loadLine(i);
    if (i < lines) sendLine<S::kRanks>(d, i, own, call);
    if (send.at != mine) Buffer<S, Byte>(mine, c.count).storeLine(i, own);
  });
  stampSent(c, call);
  takeParts<S>(d, recv, lines, call, c.count);
}
/* count: bytes of a part. send is a part, and may be recv's own one. */
__device__ inline void allGather(const Call &c) {
  inCall<Byte>(c, aligned(c, c.count), [&](auto shape, uint32_t call) { allGatherOf<decltype(shape)>(c, call); });
}

template <class S>
__device__ __forceinline__ void allToAllOf(const Call &c, uint32_t call) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const size_t lines = dyn_lines(c.count), mine = d.rank * c.count;
  sendParts<S>(c, send, lines, call, c.count);
  if (send != recv)
    eachLine(lines, [&](size_t i) { Buffer<S, Byte>(recv + mine, c.count).storeLine(i, Buffer<S, Byte>(send + mine, c.count).loadLine(i)); });
  takeParts<S>(d, recv, lines, call, c.count);
}
/* count: bytes of a part. Part p of send goes to rank p; recv may be send. */
__device__ inline void allToAll(const Call &c) {
  inCall<Byte>(c, aligned(c, c.count), [&](auto shape, uint32_t call) { allToAllOf<decltype(shape)>(c, call); });
}

/* Only the root has something to say, but two halves of the scratch memory suffice only where every rank has heard of every
 * other one (domain.cuh): so all exchange one empty line, behind the data's room. */
template <class S>
__device__ __forceinline__ void broadcastOf(const Call &c, int root, uint32_t call) {
  const Domain &d = c.domain;
  const Buffer<S, Byte> send(c.send, c.count), recv(c.recv, c.count);
  const size_t lines = dyn_lines(c.count);
  const bool greets = blockIdx.x == 0 && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNHEARD;
  Piece pieces[S::kRanks];
  if (greets && threadIdx.x < kLineLanes) sendLine<S::kRanks>(d, lines, Piece{}, call);
  eachLine(lines, [&](size_t i) {
    if (d.rank == root) {
      const Piece own = send.loadLine(i);
      if (i < lines) sendLine<S::kRanks>(d, i, own, call);
      if (c.send != c.recv) recv.storeLine(i, own);
      return;
    }
    awaitLines(d, i, call, [&](int r) { return r == root && i < lines; }, pieces);
#pragma unroll
    for (int r = 0; r < S::kRanks; r++)
      if (r == root) recv.storeLine(i, pieces[r]);
  });
  stampSent(c, call);
  if (greets && threadIdx.x < kWarp) awaitLines(d, lines, call, [&](int) { return threadIdx.x < kLineLanes; }, pieces);
}
/* count: bytes. */
__device__ inline void broadcast(const Call &c, int root) {
  inCall<Byte>(c, aligned(c, c.count), [&](auto shape, uint32_t call) { broadcastOf<decltype(shape)>(c, root, call); });
}

}  // namespace dyn

#endif
