/* SPDX-License-Identifier: Apache-2.0
 *
 * nic/gdaki_abi.h against the headers of the NCCL that it is compiled with, and its words of a request against those that NCCL's
 * device code writes.
 */
#include <nccl.h>
#include <nccl_device.h>
#include <nccl_device/gin/gdaki/gin_gdaki.h>

#include "../nic/gdaki_abi.h"

#if NCCL_VERSION_CODE < 23000 /* what nic/ speaks; newer releases ask the plugin for another version */
#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #ours);
#define SAME_OFFSET(ours, field, theirs, member) static_assert(offsetof(ours, field) == offsetof(theirs, member), #ours "." #field);
GDAKI_LAYOUT(SAME_SIZE, SAME_OFFSET)
SAME_OFFSET(gdaki_table, keys, ncclGinGdakiGlobalGPUBufferTable<uint64_t>, rkeys)
SAME_OFFSET(gdaki_table, key, ncclGinGdakiGlobalGPUBufferTable<uint64_t>, lkey)

using Request = doca_gpu_dev_verbs_wqe;
#define AT(word, segment, member) static_assert(offsetof(Request, segment.member) == 4 * word, #word);
AT(GDAKI_OPCODE, rw_cseg, opmod_idx_opcode)
AT(GDAKI_REMOTE, rw_rseg, raddr)
AT(GDAKI_REMOTE_KEY, rw_rseg, rkey)
AT(GDAKI_BYTES, rw_dseg0, byte_count)
AT(GDAKI_LOCAL_KEY, rw_dseg0, lkey)
AT(GDAKI_LOCAL, rw_dseg0, addr)
AT(GDAKI_REMOTE, at_rseg, raddr)
AT(GDAKI_ADDEND, at_seg, swap_add)
AT(GDAKI_WAIT_INDEX, wait_dseg, max_index)
AT(GDAKI_WAIT_QUEUE, wait_dseg, qpn_cqn)
static_assert(sizeof(Request) == 4 * GDAKI_WORDS, "request");
static_assert(offsetof(doca_gpunetio_ib_mlx5_cqe64, wqe_counter) == 60 && sizeof(doca_gpunetio_ib_mlx5_cqe64) == 64, "completion");
#define SAME(ours, theirs) static_assert((int)ours == (int)theirs, #ours);
SAME(GDAKI_NOP, DOCA_GPUNETIO_IB_MLX5_OPCODE_NOP)
SAME(GDAKI_WRITE, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE)
SAME(GDAKI_WAIT, DOCA_GPUNETIO_IB_MLX5_OPCODE_WAIT)
SAME(GDAKI_FETCH_ADD, DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_FA)
SAME(GDAKI_DONE, DOCA_GPUNETIO_IB_MLX5_CQE_REQ)
SAME(GDAKI_DONE_BADLY, DOCA_GPUNETIO_IB_MLX5_CQE_REQ_ERR)
SAME(GDAKI_NOT_YET, DOCA_GPUNETIO_IB_MLX5_CQE_INVALID)
SAME(GDAKI_VERSION, NCCL_GIN_GDAKI_VERSION)
SAME(GDAKI_RING_FOR_PROXY, DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY)
SAME(GDAKI_MEMORY_OF_GPU, DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU)
static_assert(GDAKI_INLINE == (unsigned)DOCA_GPUNETIO_IB_MLX5_INLINE_SEG, "inline");
#endif
