/* SPDX-License-Identifier: Apache-2.0
 *
 * AllToAllv: calls in which each rank sends each other one another number of bytes, every byte checked.
 */
#ifndef DYN_BENCH_DIFFER_CUH
#define DYN_BENCH_DIFFER_CUH

#include "rig.cuh"

/* Bytes from one rank to another; now and then none. */
static size_t differing(unsigned seed, int from, int to, size_t most) {
  const unsigned x = (seed * 31 + (unsigned)(from * kMaxRanks + to)) * 2654435761u;
  return x >> 28 < 4 ? 0 : (x >> 4) % most;
}
static dyn_parts partsOf(unsigned seed, size_t most) {
  dyn_parts p = {};
  for (int r = 0; r < numRanks; r++) {
    p.sendBytes[r] = differing(seed, rank, r, most), p.recvBytes[r] = differing(seed, r, rank, most);
    if (r + 1 < numRanks) p.sendAt[r + 1] = p.sendAt[r] + p.sendBytes[r] + 1, p.recvAt[r + 1] = p.recvAt[r] + p.recvBytes[r] + 1;
  }
  return p;
}

/* Parts of up to so many bytes. launch(parts): from k.in to k.out. */
template <typename Launch>
static void checkDiffering(const Rank &k, std::initializer_list<size_t> mosts, Launch launch) {
  unsigned seed = 1;
  for (size_t most : mosts)
    for (int i = 0; i < 4; i++, seed++) {
      if ((most + 1) * numRanks > bufferBytes) continue;
      const dyn_parts p = partsOf(seed, most);
      for (int r = 0; r < numRanks; r++) fill<Byte><<<32, 256, 0, k.stream>>>((Byte *)k.in + p.sendAt[r], p.sendBytes[r], rank, Op::sum, seed * 16 + r);
      launch(p);
      for (int r = 0; r < numRanks; r++) {
        verifyMoved<<<32, 256, 0, k.stream>>>((Byte *)k.out + p.recvAt[r], p.recvBytes[r], 1, r, 0, seed * 16 + rank, k.wrong);
        shared->compared += (long)p.recvBytes[r];
      }
      CUDA(cudaGetLastError());
    }
  CUDA(cudaStreamSynchronize(k.stream));
}

#endif
