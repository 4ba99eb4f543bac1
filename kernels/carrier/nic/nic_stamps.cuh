/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a put and its signal spend their time: nvcc -DNIC_STAMPS (`make -B -C kernels/carrier fatbin STAMPS=1`). A kernel that ends
 * says for each peer and each power of two of bytes how many clocks of a multiprocessor each step took in the mean. The steps are
 * those of the warp that serves the queue. What it says costs registers and shared memory, so other times are not to be taken of it.
 */
#ifndef DYN_NIC_STAMPS_CUH
#define DYN_NIC_STAMPS_CUH

#ifdef NIC_STAMPS
#include <cstdio>

namespace dyn {

enum NicStamp { NIC_READY, NIC_READ, NIC_ASKED, NIC_COPIED, NIC_ANSWERED, NIC_TOLD, NIC_ADDED, NIC_STAMP_KINDS };

/* In shared memory. By the first lane. */
struct NicStamps {
  uint32_t at[NIC_STAMP_KINDS], bytes, puts[32];
  unsigned long long clocks[32][NIC_STAMP_KINDS];
  __device__ __forceinline__ void clear() { *this = {}; }
  __device__ __forceinline__ void note(NicStamp what) {
    if (threadIdx.x == 0) at[what] = (uint32_t)clock64();
  }
  __device__ __forceinline__ void begin(uint32_t bytes_) {
    note(NIC_READ);
    if (threadIdx.x == 0) bytes = bytes_, at[NIC_ASKED] = at[NIC_READ];
  }
  __device__ __forceinline__ void end() {
    note(NIC_ADDED);
    if (threadIdx.x != 0 || bytes == 0) return;
    const int log2 = 31 - __clz((int)bytes);
    puts[log2]++;
    for (int i = 1; i < NIC_STAMP_KINDS; i++) clocks[log2][i] += at[i] - at[i - 1];
    bytes = 0;
  }
  __device__ __noinline__ void print(int rank, int peer) const {
    for (int i = 0; threadIdx.x == 0 && i < 32; i++) {
      const auto mean = [&](int kind) { return (unsigned)(clocks[i][kind] / puts[i]); };
      if (puts[i] > 0)
        printf("{\"figure\":\"card stamps\",\"rank\":%d,\"peer\":%d,\"log2_bytes\":%d,\"puts\":%u,\"clocks\":{\"read\":%u,\"ask\":%u,\"own_copy\":%u,\"answers\":%u,\"tell\":%u,\"fence\":%u}}\n", rank,
               peer, i, puts[i], mean(NIC_READ), mean(NIC_ASKED), mean(NIC_COPIED), mean(NIC_ANSWERED), mean(NIC_TOLD), mean(NIC_ADDED));
    }
  }
};

}  // namespace dyn

#define NIC_STAMP(call) block.stamps.call
#else
#define NIC_STAMP(call) (void)0
#endif

#endif
