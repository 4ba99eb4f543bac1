/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card in software, for a GPU: a block for each peer, and blocks that help them to copy. Which of those are there
 * is counted when they are: on a GPU that is full of other kernels the first alone are enough. And the watch that comes before it.
 */
#include "nic.cuh"

extern "C" __global__ void __launch_bounds__(NIC_WATCH_THREADS) dynamicclCarrierWatch(const __grid_constant__ nic n) { dyn::nicWatch(n); }

/* fed: by the host. */
template <bool kFed>
__device__ __forceinline__ void nicCard(const nic &n) {
  __shared__ dyn::NicBlock block;
  __shared__ dyn::NicRings rings[NIC_SIDES];
  const int peer = (int)blockIdx.x, warp = (int)(threadIdx.x / dyn::kNicLanes);
  const bool helps = peer >= n.nRanks;
  if (threadIdx.x == 0) block.ends = false, block.consumed = helps ? 0 : (uint32_t)dyn::loadConsumed(&n.consumed[peer * NIC_SIDES + NIC_MAIN]);
  if (threadIdx.x == 0) NIC_STAMP(clear());
  __syncthreads();
  if (warp >= NIC_SIDES) block.serveCopies();
  else if (!helps) dyn::nicQueue<kFed>(n, block, rings[warp], peer, warp);
  else if (warp == 0) dyn::nicHelper<kFed>(n, block);
}

extern "C" __global__ void __launch_bounds__(NIC_THREADS, 1) dynamicclCarrierNic(const __grid_constant__ nic n) { nicCard<false>(n); }
extern "C" __global__ void __launch_bounds__(NIC_THREADS, 1) dynamicclCarrierFed(const __grid_constant__ nic n) { nicCard<true>(n); }
