/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that copy, over load and store within one NVLink domain, with inline flags. They know bytes alone.
 */
#ifndef DYN_MOVE_CUH
#define DYN_MOVE_CUH

#include "all_reduce.cuh"

namespace dyn {

using Byte = uint8_t;

/* Line i of every peer to where that peer's part lies. */
__device__ __forceinline__ void takeParts(const Domain &d, Byte *recv, size_t i, uint32_t call, size_t count, bool fast) {
  uint2 data[kMaxRanks];
  awaitLines(d, i, call, data);
#pragma unroll
  for (int r = 0; r < kMaxRanks; r++) {
    if (r >= d.nRanks || r == d.rank) continue;
    Pack<Byte> part;
    part.bits = data[r];
    storePack(recv + r * count, i, count, fast, part);
  }
}

/* count: bytes of a part. send is a part, and may be recv's own one. */
__device__ inline void allGather(const Call &c) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const uint32_t call = callNumber(d);
  const bool fast = alignedParts(c, 1), inPlace = send == recv + d.rank * c.count;
  const size_t packs = packsOf(c.count, 1), first = firstPack(), stride = packStride();
  for (size_t i = first; i < packs; i += stride) {
    Pack<Byte> own = loadPack(send, i, c.count, fast);
    for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + i * kLineBytes, own.bits, call);
    if (!inPlace) storePack(recv + d.rank * c.count, i, c.count, fast, own);
  }
  for (size_t i = first; i < packs; i += stride) takeParts(d, recv, i, call, c.count, fast);
  endCall(d, call);
}

/* count: bytes of a part. Part p of send goes to rank p; recv may be send. */
__device__ inline void allToAll(const Call &c) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const uint32_t call = callNumber(d);
  const bool fast = alignedParts(c, 1);
  const size_t packs = packsOf(c.count, 1), first = firstPack(), stride = packStride();
  for (size_t i = first; i < packs; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      storeLine(slot(d, peer, d.rank, call) + i * kLineBytes, loadPack(send + peer * c.count, i, c.count, fast).bits, call);
    }
  for (size_t i = first; i < packs; i += stride) {
    if (send != recv) storePack(recv + d.rank * c.count, i, c.count, fast, loadPack(send + d.rank * c.count, i, c.count, fast));
    takeParts(d, recv, i, call, c.count, fast);
  }
  endCall(d, call);
}

/* count: bytes. Only the root has something to say, but two halves of the scratch memory suffice only where every rank has
 * heard of every other one (domain.cuh): so all exchange one empty line, behind the data's room. */
__device__ inline void broadcast(const Call &c, int root) {
  const Domain &d = c.domain;
  const Byte *send = (const Byte *)c.send;
  Byte *recv = (Byte *)c.recv;
  const uint32_t call = callNumber(d);
  const bool fast = aligned(c);
  const size_t packs = packsOf(c.count, 1), first = firstPack(), stride = packStride();
  if (first == 0 && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNHEARD)
    for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), d.rank, call) + packs * kLineBytes, make_uint2(0, 0), call);
  for (size_t i = first; i < packs; i += stride) {
    Pack<Byte> part;
    if (d.rank == root) {
      part = loadPack(send, i, c.count, fast);
      for (int k = 1; k < d.nRanks; k++) storeLine(slot(d, peerOf(d, k), root, call) + i * kLineBytes, part.bits, call);
    } else {
      part.bits = awaitLine(d, root, i, call);
    }
    if (d.rank != root || send != recv) storePack(recv, i, c.count, fast, part);
  }
  if (first == 0 && DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_UNHEARD)
    for (int k = 1; k < d.nRanks; k++) awaitLine(d, peerOf(d, k), packs, call);
  endCall(d, call);
}

}  // namespace dyn

#endif
