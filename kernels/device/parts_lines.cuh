/* SPDX-License-Identifier: Apache-2.0
 *
 * Small parts of an AllToAllv, in lines (line.cuh), before and beside what goes in bulk (parts_differ.cuh).
 *
 * Who decides is the part: one that has no more lines than the call allows goes in lines, whatever the others are. Both ends know its
 * size, so no word is needed about it. But whether anything goes in bulk no rank knows by itself, and all must: so each block sends
 * each of its likes one line more, also to whom it sends nothing, which says whether its rank sends anything in bulk. A rank that does,
 * or gets such a part, knows enough and does not wait for these lines; any other waits for those of all peers, and then either joins in
 * bulk or is done.
 *
 * Two halves of the scratch memory suffice here as well (domain.cuh): a rank ends a call only when it has had a line of each peer's
 * same call, also where neither sends the other anything, or has met each peer in bulk. What it did not wait for it does not read later.
 *
 * Of a slot, line b is block b's word, and b + n, b + 2n, ... of n blocks are its lines of the part: so a part of few lines is spread
 * over all blocks, and each waits for its likes alone. A line's threads have one peer's, their neighbours another's.
 */
#ifndef DYN_PARTS_LINES_CUH
#define DYN_PARTS_LINES_CUH

#include "copy.cuh"

namespace dyn {

using Parts = ::dyn_parts;
using AnyShape = Shape<false, kMaxRanks>; /* parts begin anywhere */

__device__ __forceinline__ bool inBulk(size_t bytes, size_t most) { return bytes > most * kLineData; }
/* Of a part, what goes in bulk, and the lines of what does not: all of it, or nothing. */
__device__ __forceinline__ size_t bulkBytes(size_t bytes, size_t most) { return inBulk(bytes, most) ? bytes : 0; }
__device__ __forceinline__ uint32_t smallLines(size_t bytes, size_t most) { return inBulk(bytes, most) ? 0 : (uint32_t)dyn_lines(bytes); }

/* What this rank has for the others and gets of them. */
struct Kinds {
  bool sendsBulk, bulk, small;
};
__device__ __forceinline__ Kinds kindsOf(const Domain &d, const Parts &p, size_t most) {
  Kinds k = {};
#pragma unroll 1
  for (int r = 0; r < d.nRanks; r++) {
    if (r == d.rank) continue;
    const size_t sends = p.sendBytes[r], gets = p.recvBytes[r];
    k.sendsBulk |= inBulk(sends, most);
    k.bulk |= inBulk(sends, most) || inBulk(gets, most);
    k.small |= (sends > 0 && !inBulk(sends, most)) || (gets > 0 && !inBulk(gets, most));
  }
  return k;
}

/* The block's word alone, of a rank that has nothing small: by the block's last threads, for the first ones have other work. */
__device__ __forceinline__ void sendWords(const Domain &d, uint32_t call, bool bulk) {
  const uint32_t lines = blockDim.x / kLineLanes;
#pragma unroll 1
  for (uint32_t n = lines - 1 - threadIdx.x / kLineLanes; n + 1 < (uint32_t)d.nRanks; n += lines) {
    Piece piece = {};
    piece.words[0] = make_uint2(bulk, 0); /* of the line's first thread */
    sendLineTo(d, peerOf(d, 1 + (int)n), blockIdx.x, piece, call);
  }
}

/* what(peer, row, line) for each of the block's lines of all peers, row 0 the block's word: as many for each thread of a warp, so some
 * are behind the end. bytes: by peer. */
template <typename Do>
__device__ __forceinline__ void eachSmallLine(const Domain &d, const size_t *bytes, size_t most, Do what) {
  const uint32_t peers = (uint32_t)d.nRanks - 1, ahead = threadIdx.x % kWarp / kLineLanes;
  uint32_t lines = 0;
#pragma unroll 1
  for (int r = 0; r < d.nRanks; r++)
    if (r != d.rank && smallLines(bytes[r], most) > lines) lines = smallLines(bytes[r], most);
  const uint32_t rows = 1 + (lines + gridDim.x - 1) / gridDim.x;
#pragma unroll 1
  for (uint32_t n = threadIdx.x / kLineLanes; n - ahead < rows * peers; n += blockDim.x / kLineLanes) {
    const uint32_t row = n / peers;
    what(peerOf(d, 1 + (int)(n - row * peers)), row, row * gridDim.x + blockIdx.x);
  }
}
/* A line that is there, of the part. */
__device__ __forceinline__ bool isSmallLine(size_t bytes, size_t most, uint32_t row, uint32_t line) { return row > 0 && line - gridDim.x < smallLines(bytes, most); }

__device__ __forceinline__ void sendSmall(const Domain &d, const Byte *send, const Parts &p, size_t most, uint32_t call, bool bulk) {
  eachSmallLine(d, p.sendBytes, most, [&](int r, uint32_t row, uint32_t line) {
    Piece piece = {};
    if (row == 0) {
      if (DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_SILENT && p.sendBytes[r] == 0) return;
      piece.words[0] = make_uint2(bulk, 0); /* of the line's first thread */
    } else if (isSmallLine(p.sendBytes[r], most, row, line)) {
      piece = Buffer<AnyShape, Byte>(send + p.sendAt[r], p.sendBytes[r]).loadLine(line - gridDim.x);
    } else {
      return;
    }
    sendLineTo(d, r, line, piece, call);
  });
}

/* words: those of blocks are waited for as well. True, to some thread of the block: a peer sends something in bulk. */
__device__ __forceinline__ bool takeSmall(const Domain &d, Byte *recv, const Parts &p, size_t most, uint32_t call, bool words) {
  bool bulk = false;
  eachSmallLine(d, p.recvBytes, most, [&](int r, uint32_t row, uint32_t line) {
    const bool part = isSmallLine(p.recvBytes[r], most, row, line);
    const bool word = row == 0 && words && (DYN_KERNEL_MUTATE != DYN_KERNEL_MUTATE_SILENT || p.recvBytes[r] > 0);
    Piece piece = {};
    awaitLine(d, r, line, call, part || word, piece);
    if (word && laneOfLine() == 0) bulk |= piece.words[0].x != 0;
    if (part) Buffer<AnyShape, Byte>(recv + p.recvAt[r], p.recvBytes[r]).storeLine(line - gridDim.x, piece);
  });
  return bulk;
}

/* The same of a rank that has parts of both kinds, which is rare: out of the way of the others. */
__attribute__((noinline)) inline __device__ void sendSmallBeside(const Domain &d, const Byte *send, const Parts &p, size_t most, uint32_t call, bool bulk) {
  sendSmall(d, send, p, most, call, bulk);
}
__attribute__((noinline)) inline __device__ void takeSmallBehind(const Domain &d, Byte *recv, const Parts &p, size_t most, uint32_t call) {
  takeSmall(d, recv, p, most, call, false);
}

}  // namespace dyn

#endif
