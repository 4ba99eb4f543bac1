/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch of the network card in software: a kernel of one warp before each launch of the card. The card takes whole
 * multiprocessors, so it goes when nobody posts; but who would start it again may be kept away by whoever has CUDA's lock, the
 * longer the more the GPU waits for the card. So one of both is always there, and neither goes before the next launch of both
 * stands in the stream behind it. Launches follow each other all the same, for a program that waits for all kernels waits for
 * those that it finds.
 *
 * And where nobody launches for long, and the program's kernel puts, is silent, and puts again, as often as it likes: behind the card there
 * is another watch, which costs no place, and behind that a card that stays as long as that kernel does. It has the blocks of queues alone,
 * of which there are so few on a GPU that the program's kernels always find places (port.c); the first card's, which are more, go whenever
 * they have nothing to do.
 */
#ifndef DYN_NIC_WATCH_CUH
#define DYN_NIC_WATCH_CUH

namespace dyn {

using Nic = ::nic;

/* As the host has said, to which none being needed is as good. */
__device__ __forceinline__ bool nicHasNext(const Nic &n) { return (int32_t)(loadHost(&n.report->next) - n.number) > 0; }

/* A kernel of the program's that puts was launched, or of a graph's has begun, and has not ended, which may ask for something however long nothing
 * was, with nobody to launch what would be needed then. */
__device__ __forceinline__ bool nicIsExpected(const Nic &n) {
  if (NIC_MUTATE == NIC_MUTATE_UNEXPECTED) return false;
  return loadHost(n.launched) != loadCount(&n.ended[DYN_EXPECTED_OVER]) || loadCount(&n.replayed[DYN_EXPECTED_BEGUN]) != loadCount(&n.replayed[DYN_EXPECTED_OVER]);
}

/* Another launch stands behind this one, or none is needed. Who frees memory has CUDA's lock and waits for this kernel: then none comes,
 * and it goes when nothing was asked for long enough and nothing is expected: what is, he waits for as well. */
__device__ __forceinline__ bool nicMayEnd(const Nic &n, uint64_t usedNs) {
  return NIC_MUTATE == NIC_MUTATE_LEAVES || nicHasNext(n) || (nicNowNs() - usedNs > n.lateNs && !nicIsExpected(n));
}

/* When a request was done last: just now, or before this launch. */
__device__ __forceinline__ uint64_t nicUsed(const Nic &n, bool now) {
  if (!now) return loadNs(n.usedNs);
  const uint64_t ns = nicNowNs();
  storeNs(n.usedNs, ns);
  return ns;
}

/* A warp, until a request may be taken (queues.h: what is ready, or rung for); where none is it goes after a while, so that who waits for all kernels does not wait for ever. */
__device__ __forceinline__ void nicWatch(const Nic &n) {
  const uint32_t queues = (uint32_t)n.nRanks * NIC_SIDES;
  const uint64_t from = nicNowNs(), usedNs = nicUsed(n, false);
  if (nicLane() == 0) storeHost(&n.report->begun, n.number);
  if (nicIsExpected(n)) tellUsed(n.report, n.number); /* launches go on following each other */
  for (;; nicNap()) {
    const uint32_t dead = loadCount(&n.control[NIC_DEAD]);
    const uint64_t stayed = nicNowNs() - from;
    bool over = loadCount(&n.control[NIC_STOP]) != 0 || (stayed > n.watchNs && (stayed > n.leastNs || nicHasNext(n)) && nicMayEnd(n, usedNs));
    for (uint32_t at = nicLane(); at < queues && !over; at += NIC_MUTATE == NIC_MUTATE_SLEEPS ? 2 * kNicLanes : kNicLanes)
      over = !(dead >> at / NIC_SIDES & 1) && loadRung(n.posted[at]) != (loadConsumed(&n.consumed[at]) & NIC_CONSUMED);
    if (anyLane(over)) return;
  }
}

}  // namespace dyn

#endif
