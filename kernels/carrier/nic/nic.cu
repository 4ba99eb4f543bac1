/* SPDX-License-Identifier: Apache-2.0
 *
 * The network card in software, for a GPU: a block that does what queues ask for, and blocks that help it to copy. Which of
 * them are there is counted when they are: on a GPU that is full of other kernels the first alone is enough.
 */
#include "nic.cuh"

extern "C" __global__ void __launch_bounds__(NIC_THREADS) dynamicclCarrierNic(const __grid_constant__ nic n) {
  __shared__ uint32_t idle, isOver;
  __shared__ dyn::NicBoard board;
  if (blockIdx.x > 0) {
    dyn::nicHelper(n, board);
    return;
  }
  if (threadIdx.x == 0) idle = isOver = 0;
  __syncthreads();
  const int peer = (int)(threadIdx.x / dyn::kNicLanes);
  dyn::NicIdle own = {&idle, &isOver, false};
  if (peer < n.nRanks) dyn::nicPeer(n, peer, own);
}
