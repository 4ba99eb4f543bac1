/* SPDX-License-Identifier: Apache-2.0
 *
 * ReduceScatter over load and store within one NVLink domain, in lines: the first half of AllReduce's two shots.
 */
#ifndef DYN_REDUCE_SCATTER_CUH
#define DYN_REDUCE_SCATTER_CUH

#include "all_reduce.cuh"

namespace dyn {

/* Part p to rank p: count elements. */
template <class S, typename T>
__device__ __forceinline__ void sendParts(const Call &c, const T *send, size_t lines, uint32_t call, size_t count) {
  const Domain &d = c.domain;
  eachLine(lines, [&](size_t i) {
    eachPeer<S::kRanks, 1>(d, [&](int, int) { return i < lines; }, [&](int r, int) { return Buffer<S, T>(send + r * count, count).loadLine(i); },
                        [&](int r, int, const Piece &piece) { sendLineTo(d, r, i, piece, call); });
  });
  stampSent(c, call);
}

template <class S, typename T>
__device__ __forceinline__ void reduceScatterOf(const Call &c, uint32_t call) {
  const Domain &d = c.domain;
  const Buffer<S, T> own((const T *)c.send + d.rank * c.count, c.count), recv(c.recv, c.count);
  const size_t lines = dyn_lines(c.count * sizeof(T));
  sendParts<S>(c, (const T *)c.send, lines, call, c.count);
  eachLine(lines, [&](size_t i) { recv.storeLine(i, sumLines<S, T>(d, (Op)c.op, i, call, i < lines, own.loadLine(i))); });
}
/* count: elements of a part. Every rank's send has nRanks parts; recv is a part, and may be send's own one. */
template <typename T>
__device__ void reduceScatter(const Call &c) {
  inCall<T>(c, aligned(c, c.count * sizeof(T)), [&](auto shape, uint32_t call) { reduceScatterOf<decltype(shape), T>(c, call); });
}

}  // namespace dyn

#endif
