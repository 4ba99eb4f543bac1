/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL 2.28.9's device code for GIN of type GDAKI reads (nccl_device/gin/gdaki/gin_gdaki_device_host_common.h and
 * doca_gpunetio/common/doca_gpunetio_verbs_dev.h in its include folder), and the requests and completions that it writes and
 * waits for: those of an mlx5 NIC, big-endian. test/gdaki_check.cu holds the structs against NCCL's headers.
 */
#ifndef DYN_GDAKI_ABI_H
#define DYN_GDAKI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { GDAKI_VERSION = 100, GDAKI_RING_FOR_PROXY = 1, GDAKI_MEMORY_OF_GPU = 2 };

struct gdaki_completions {
  uint8_t *at;
  uint32_t number, count; /* a power of two */
  uint32_t *record;
  uint64_t consumed;
  uint32_t mask;
  uint8_t bytes;
  uint64_t reserved;
  int32_t memory;
};

/* Who posts reserves, writes, marks ready, and rings. The least that it can do is to ring for a proxy: it makes the doorbell
 * the number of requests rung for, if that is more; no lock, no record in memory, no second ring. */
struct gdaki_queue {
  uint64_t reserved, ready, rung;
  uint32_t number, shifted, shiftedBe, shiftedBeOf[4]; /* << 8, big-endian, and with 1 to 4 segments of 16 bytes */
  int32_t lock;
  uint16_t count, mask;
  uint8_t *requests;
  uint32_t *record;
  uint64_t *doorbell;
  uint32_t receiveNumber;
  uint64_t receiveRung;
  uint32_t receiveCount, receiveMask;
  uint8_t *receives;
  uint32_t *receiveRecord;
  uint32_t receiveBytes;
  uint64_t receiveReserved, receiveReady;
  int32_t receiveLock;
  struct gdaki_completions done, received;
  int32_t ringer, memory;
};

struct gdaki_table {
  uint64_t *at;
  uint32_t *keys; /* of each rank, big-endian */
  uint32_t key;
};

struct gdaki_context {
  struct gdaki_queue *queues, *sideQueues; /* [nRanks] */
  struct gdaki_table counters, signals;
  uint32_t sinkKey; /* where an atomic addition leaves what was there before, which nobody reads */
};

/* What is registered is known to the device code by a pointer to this. */
struct gdaki_memory {
  uint32_t *keys;
  uint32_t key;
};

/* Words of 32 bits of a request, all but inline data big-endian. */
enum {
  GDAKI_OPCODE = 0,   /* index << 8 | opcode */
  GDAKI_REMOTE = 4,   /* two words: offset in what the key stands for */
  GDAKI_REMOTE_KEY = 6,
  GDAKI_BYTES = 8,    /* of a write; with GDAKI_INLINE they follow at once */
  GDAKI_LOCAL_KEY = 9,
  GDAKI_LOCAL = 10,   /* two words */
  GDAKI_ADDEND = 8,   /* two words */
  GDAKI_WAIT_INDEX = 6,
  GDAKI_WAIT_QUEUE = 7,
  GDAKI_WORDS = 16,
};
#define GDAKI_INLINE 0x80000000u

enum { GDAKI_NOP = 0x00, GDAKI_WRITE = 0x08, GDAKI_WAIT = 0x0f, GDAKI_FETCH_ADD = 0x12 };

/* A completion's last word as bytes: index, big-endian, 16 bits; 0; what << 4 | owner, which changes with each lap. */
enum { GDAKI_DONE = 0, GDAKI_DONE_BADLY = 13, GDAKI_NOT_YET = 15 };

#define GDAKI_LAYOUT(SIZE, OFFSET) \
  SIZE(gdaki_queue, doca_gpu_dev_verbs_qp) \
  OFFSET(gdaki_queue, lock, doca_gpu_dev_verbs_qp, sq_lock) \
  OFFSET(gdaki_queue, number, doca_gpu_dev_verbs_qp, sq_num) \
  OFFSET(gdaki_queue, shiftedBe, doca_gpu_dev_verbs_qp, sq_num_shift8_be) \
  OFFSET(gdaki_queue, shiftedBeOf, doca_gpu_dev_verbs_qp, sq_num_shift8_be_1ds) \
  OFFSET(gdaki_queue, count, doca_gpu_dev_verbs_qp, sq_wqe_num) \
  OFFSET(gdaki_queue, mask, doca_gpu_dev_verbs_qp, sq_wqe_mask) \
  OFFSET(gdaki_queue, requests, doca_gpu_dev_verbs_qp, sq_wqe_daddr) \
  OFFSET(gdaki_queue, record, doca_gpu_dev_verbs_qp, sq_dbrec) \
  OFFSET(gdaki_queue, doorbell, doca_gpu_dev_verbs_qp, sq_db) \
  OFFSET(gdaki_queue, done, doca_gpu_dev_verbs_qp, cq_sq) \
  OFFSET(gdaki_queue, ringer, doca_gpu_dev_verbs_qp, nic_handler) \
  OFFSET(gdaki_queue, memory, doca_gpu_dev_verbs_qp, mem_type) \
  SIZE(gdaki_completions, doca_gpu_dev_verbs_cq) \
  OFFSET(gdaki_completions, number, doca_gpu_dev_verbs_cq, cq_num) \
  OFFSET(gdaki_completions, count, doca_gpu_dev_verbs_cq, cqe_num) \
  OFFSET(gdaki_completions, consumed, doca_gpu_dev_verbs_cq, cqe_ci) \
  OFFSET(gdaki_completions, mask, doca_gpu_dev_verbs_cq, cqe_mask) \
  OFFSET(gdaki_completions, reserved, doca_gpu_dev_verbs_cq, cqe_rsvd) \
  OFFSET(gdaki_completions, memory, doca_gpu_dev_verbs_cq, mem_type) \
  SIZE(gdaki_context, ncclGinGdakiGPUContext) \
  OFFSET(gdaki_context, sideQueues, ncclGinGdakiGPUContext, companion_gdqp) \
  OFFSET(gdaki_context, counters, ncclGinGdakiGPUContext, counters_table) \
  OFFSET(gdaki_context, signals, ncclGinGdakiGPUContext, signals_table) \
  OFFSET(gdaki_context, sinkKey, ncclGinGdakiGPUContext, sink_buffer_lkey) \
  SIZE(gdaki_memory, ncclGinGdakiMemHandle) \
  OFFSET(gdaki_memory, key, ncclGinGdakiMemHandle, lkey)

#endif
