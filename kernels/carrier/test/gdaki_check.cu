/* SPDX-License-Identifier: Apache-2.0
 *
 * nic/gdaki_abi.h against the headers of the NCCL that it is compiled with, and its words of a request against those that NCCL's
 * device code writes.
 */
#include <nccl.h>
#include <nccl_device.h>
#include <nccl_device/gin/gdaki/gin_gdaki.h>

#include "../nic/gdaki_abi.h"

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #ours);
#define SAME_OFFSET(ours, field, theirs, member) static_assert(offsetof(ours, field) == offsetof(theirs, member), #ours "." #field);
#define SAME(ours, theirs) static_assert((int)ours == (int)theirs, #ours);

#if NCCL_GIN_GDAKI_VERSION == 100
GDAKI_QUEUE_LAYOUT(SAME_SIZE, SAME_OFFSET, 100)
static_assert(sizeof(ncclGinGdakiGPUContext) <= offsetof(gdaki_context, got), "what lies behind is 200's");
#else
GDAKI_QUEUE_LAYOUT(SAME_SIZE, SAME_OFFSET, 200)
GDAKI_LAYOUT_200(SAME_SIZE, SAME_OFFSET)
SAME_OFFSET(gdaki_table, first, ncclGinGdakiGlobalGPUBufferTable<uint64_t>, offset)
SAME(GDAKI_200, NCCL_GIN_GDAKI_VERSION)
static_assert(DOCA_GPUNETIO_VERBS_CQ_64B == 0 && sizeof(doca_gpu_dev_verbs_cq_type) == 1, "completions of each request");
SAME(GDAKI_READ, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ)
SAME(GDAKI_DUMP, DOCA_GPUNETIO_IB_MLX5_OPCODE_DUMP)
#endif
SAME_SIZE(gdaki_table, ncclGinGdakiGlobalGPUBufferTable<uint64_t>)
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
SAME(GDAKI_NOP, DOCA_GPUNETIO_IB_MLX5_OPCODE_NOP)
SAME(GDAKI_WRITE, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE)
SAME(GDAKI_WAIT, DOCA_GPUNETIO_IB_MLX5_OPCODE_WAIT)
SAME(GDAKI_FETCH_ADD, DOCA_GPUNETIO_IB_MLX5_OPCODE_ATOMIC_FA)
SAME(GDAKI_DONE, DOCA_GPUNETIO_IB_MLX5_CQE_REQ)
SAME(GDAKI_DONE_BADLY, DOCA_GPUNETIO_IB_MLX5_CQE_REQ_ERR)
SAME(GDAKI_NOT_YET, DOCA_GPUNETIO_IB_MLX5_CQE_INVALID)
SAME(GDAKI_RING_FOR_PROXY, DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY)
SAME(GDAKI_MEMORY_OF_GPU, DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU)
static_assert(GDAKI_INLINE == (unsigned)DOCA_GPUNETIO_IB_MLX5_INLINE_SEG, "inline");
