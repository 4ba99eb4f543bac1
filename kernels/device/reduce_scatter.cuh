/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter over load and store within one NVLink domain, with inline flags: the first half of AllReduce's two shots.
 */
#ifndef DYN_REDUCE_SCATTER_CUH
#define DYN_REDUCE_SCATTER_CUH

#include "all_reduce.cuh"

namespace dyn {

/* count: elements of a part. Every rank's send has nRanks parts; recv is a part, and may be send's own one. */
template <typename T>
__device__ void reduceScatter(const Call &c) {
  const Domain &d = c.domain;
  const T *send = (const T *)c.send;
  const uint32_t call = callNumber(d);
  const bool fast = alignedParts(c, sizeof(T));
  const size_t packs = packsOf(c.count, sizeof(T)), first = firstPack(), stride = packStride();
  for (size_t i = first; i < packs; i += stride)
    for (int k = 1; k < d.nRanks; k++) {
      int peer = peerOf(d, k);
      storeLine(slot(d, peer, d.rank, call) + i * kLineBytes, loadPack(send + peer * c.count, i, c.count, fast).bits, call);
    }
  for (size_t i = first; i < packs; i += stride) {
    Pack<T> own = loadPack(send + d.rank * c.count, i, c.count, fast);
    Pack<T> out = sumLines<T>(d, (Op)c.op, own, i, call);
    storePack((T *)c.recv, i, c.count, fast, out);
  }
  endCall(d, call);
}

}  // namespace dyn

#endif
