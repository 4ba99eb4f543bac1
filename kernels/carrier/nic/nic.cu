/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card in software, for a GPU: a block for each peer, and blocks that help them to copy. Which of those are there
 * is counted when they are: on a GPU that is full of other kernels the first alone are enough.
 */
#include "nic.cuh"

extern "C" __global__ void __launch_bounds__(NIC_THREADS, 1) dynamicclCarrierNic(const __grid_constant__ nic n) {
  __shared__ dyn::NicBlock block;
  __shared__ dyn::NicBoard board;
  if ((int)blockIdx.x >= n.nRanks) {
    dyn::nicHelper(n, board);
    return;
  }
  const int peer = (int)blockIdx.x, warp = (int)(threadIdx.x / dyn::kNicLanes);
  if (threadIdx.x == 0) block.ends = false, block.consumed = (uint32_t)dyn::loadConsumed(&n.consumed[peer * NIC_SIDES + NIC_MAIN]);
  __syncthreads();
  if (warp < NIC_SIDES) dyn::nicQueue(n, block, peer, warp);
  else block.serveCopies();
}
