/* SPDX-License-Identifier: Apache-2.0
 *
 * When a kernel began, when this rank's sends were issued (counter) and when it had all that it gets (signal), on the GPU's
 * clock. Graphs are replayed unseen by anybody on the host, so kernels leave that in host memory, one in DYN_STAMP_EVERY of
 * those that are tagged. Of a call that the host times by events it leaves it, too: events cannot tell the two ends apart. The first thread of the first block speaks for all: other blocks run beside it, with as much to do.
 * It stores behind its last wait, so that nothing which the kernel does waits for the host's memory.
 */
#ifndef DYN_STAMP_CUH
#define DYN_STAMP_CUH

#include "domain.cuh"

namespace dyn {

using Call = ::dyn_call;

__device__ __forceinline__ bool stamps(const Call &c, uint32_t call) {
  const bool is = DYN_KERNEL_MUTATE == DYN_KERNEL_MUTATE_BY_TURN ? c.tag != 0 && dyn_stamped(call) : dyn_stamps(c.tag, call);
  return is && blockIdx.x == 0 && threadIdx.x == 0;
}

__device__ __forceinline__ void stampBegin(const Call &c, uint32_t call) {
  if (stamps(c, call)) ownTimes()[0] = globalNs();
}
/* The last one counts. */
__device__ __forceinline__ void stampSent(const Call &c, uint32_t call) {
  if (stamps(c, call)) ownTimes()[1] = globalNs();
}
/* Behind the block's last use of what it gets. */
__device__ __forceinline__ void stampEnd(const Call &c, uint32_t call) {
  if (!stamps(c, call)) return;
  dyn_stamp *at = c.stamps + dyn_stamp_place(c.tag, call);
  storeHost(&at->beginNs, ownTimes()[0]);
  storeHost(&at->counterNs, ownTimes()[1]);
  storeHost(&at->signalNs, globalNs());
  storeHost(&at->word, dyn_stamp_word(call, c.tag));
}

}  // namespace dyn

#endif
