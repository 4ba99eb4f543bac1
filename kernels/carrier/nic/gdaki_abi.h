/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's device code for GIN of type GDAKI reads (nccl_device/gin/gdaki/gin_gdaki_device_host_common.h and
 * doca_gpunetio/common/doca_gpunetio_verbs_dev.h in its include folder), and the requests and completions that it writes and
 * waits for: those of an mlx5 NIC, big-endian. Queues have two layouts, by NCCL_GIN_GDAKI_VERSION: 100, read from 2.28.9's headers,
 * and 200, read from 2.32.3's; all else is the same in both. test/gdaki_check.cu holds the structs against the headers of each.
 */
#ifndef DYN_GDAKI_ABI_H
#define DYN_GDAKI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { GDAKI_100 = 100, GDAKI_200 = 200, GDAKI_RING_FOR_PROXY = 1, GDAKI_MEMORY_OF_GPU = 2 };

struct gdaki_completions100 {
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
struct gdaki_queue100 {
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
  struct gdaki_completions100 done, received;
  int32_t ringer, memory;
};

/* Completions of each request, in memory of their own (kind 0); what is reserved is added to a request's number. */
struct gdaki_completions200 {
  uint8_t *at;
  uint32_t number, count;
  uint32_t *record;
  uint64_t consumed;
  uint32_t mask;
  uint8_t bytes, kind, none1[2];
  uint64_t reserved;
  int32_t memory;
  uint8_t none2[12];
};

struct gdaki_queue200 {
  uint64_t reserved, ready, rung;
  uint32_t number, shifted, shiftedBe, shiftedBeOf[5];
  int32_t lock;
  uint16_t count, mask;
  uint8_t *requests;
  uint32_t *record;
  uint64_t *doorbell;
  uint8_t none1[72];
  struct gdaki_completions200 done;
  uint8_t none2[64];
  int32_t ringer, memory;
};

struct gdaki_table {
  uint64_t *at;
  uint32_t *keys; /* of each rank, big-endian */
  uint32_t key, first; /* first: where in what the keys stand for it begins, in words; 100 has none, and there it is 0 */
};

/* One of an array: of 200 as it is here; of 100 there is one alone, up to sinkKey. */
struct gdaki_context {
  void *queues, *sideQueues; /* [nRanks] */
  struct gdaki_table counters, signals;
  uint32_t sinkKey; /* where an atomic addition leaves what was there before, which nobody reads */
  uint8_t dumps;    /* a flush behind gets posts a request of its own, since a NIC's completion says too little there */
  uint64_t *got, *seen; /* [nRanks]: requests up to the last get, and up to the last flush behind gets; the device code's */
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
  GDAKI_BYTES = 8,    /* of a write or read; with GDAKI_INLINE they follow at once */
  GDAKI_LOCAL_KEY = 9,
  GDAKI_LOCAL = 10,   /* two words */
  GDAKI_ADDEND = 8,   /* two words */
  GDAKI_WAIT_INDEX = 6,
  GDAKI_WAIT_QUEUE = 7,
  GDAKI_WORDS = 16,
};
#define GDAKI_INLINE 0x80000000u

enum { GDAKI_NOP = 0x00, GDAKI_WRITE = 0x08, GDAKI_WAIT = 0x0f, GDAKI_READ = 0x10, GDAKI_FETCH_ADD = 0x12, GDAKI_DUMP = 0x23 };

/* A completion's last word as bytes: index, big-endian, 16 bits; 0; what << 4 | owner, which changes with each lap. */
enum { GDAKI_DONE = 0, GDAKI_DONE_BADLY = 13, GDAKI_NOT_YET = 15 };

/* What both layouts have. */
#define GDAKI_QUEUE_LAYOUT(SIZE, OFFSET, version) \
  SIZE(gdaki_queue##version, doca_gpu_dev_verbs_qp) \
  OFFSET(gdaki_queue##version, reserved, doca_gpu_dev_verbs_qp, sq_rsvd_index) \
  OFFSET(gdaki_queue##version, ready, doca_gpu_dev_verbs_qp, sq_ready_index) \
  OFFSET(gdaki_queue##version, rung, doca_gpu_dev_verbs_qp, sq_wqe_pi) \
  OFFSET(gdaki_queue##version, lock, doca_gpu_dev_verbs_qp, sq_lock) \
  OFFSET(gdaki_queue##version, number, doca_gpu_dev_verbs_qp, sq_num) \
  OFFSET(gdaki_queue##version, shifted, doca_gpu_dev_verbs_qp, sq_num_shift8) \
  OFFSET(gdaki_queue##version, shiftedBe, doca_gpu_dev_verbs_qp, sq_num_shift8_be) \
  OFFSET(gdaki_queue##version, shiftedBeOf, doca_gpu_dev_verbs_qp, sq_num_shift8_be_1ds) \
  OFFSET(gdaki_queue##version, count, doca_gpu_dev_verbs_qp, sq_wqe_num) \
  OFFSET(gdaki_queue##version, mask, doca_gpu_dev_verbs_qp, sq_wqe_mask) \
  OFFSET(gdaki_queue##version, requests, doca_gpu_dev_verbs_qp, sq_wqe_daddr) \
  OFFSET(gdaki_queue##version, record, doca_gpu_dev_verbs_qp, sq_dbrec) \
  OFFSET(gdaki_queue##version, doorbell, doca_gpu_dev_verbs_qp, sq_db) \
  OFFSET(gdaki_queue##version, done, doca_gpu_dev_verbs_qp, cq_sq) \
  OFFSET(gdaki_queue##version, ringer, doca_gpu_dev_verbs_qp, nic_handler) \
  OFFSET(gdaki_queue##version, memory, doca_gpu_dev_verbs_qp, mem_type) \
  SIZE(gdaki_completions##version, doca_gpu_dev_verbs_cq) \
  OFFSET(gdaki_completions##version, number, doca_gpu_dev_verbs_cq, cq_num) \
  OFFSET(gdaki_completions##version, count, doca_gpu_dev_verbs_cq, cqe_num) \
  OFFSET(gdaki_completions##version, record, doca_gpu_dev_verbs_cq, dbrec) \
  OFFSET(gdaki_completions##version, consumed, doca_gpu_dev_verbs_cq, cqe_ci) \
  OFFSET(gdaki_completions##version, mask, doca_gpu_dev_verbs_cq, cqe_mask) \
  OFFSET(gdaki_completions##version, bytes, doca_gpu_dev_verbs_cq, cqe_size) \
  OFFSET(gdaki_completions##version, reserved, doca_gpu_dev_verbs_cq, cqe_rsvd) \
  OFFSET(gdaki_completions##version, memory, doca_gpu_dev_verbs_cq, mem_type) \
  OFFSET(gdaki_context, sideQueues, ncclGinGdakiGPUContext, companion_gdqp) \
  OFFSET(gdaki_context, counters, ncclGinGdakiGPUContext, counters_table) \
  OFFSET(gdaki_context, signals, ncclGinGdakiGPUContext, signals_table) \
  OFFSET(gdaki_context, sinkKey, ncclGinGdakiGPUContext, sink_buffer_lkey) \
  SIZE(gdaki_memory, ncclGinGdakiMemHandle) \
  OFFSET(gdaki_memory, key, ncclGinGdakiMemHandle, lkey)

/* What 200 has besides. */
#define GDAKI_LAYOUT_200(SIZE, OFFSET) \
  OFFSET(gdaki_completions200, kind, doca_gpu_dev_verbs_cq, cq_type) \
  SIZE(gdaki_context, ncclGinGdakiGPUContext) \
  OFFSET(gdaki_context, dumps, ncclGinGdakiGPUContext, use_mcst) \
  OFFSET(gdaki_context, got, ncclGinGdakiGPUContext, last_issued_get) \
  OFFSET(gdaki_context, seen, ncclGinGdakiGPUContext, last_visible_get)

#endif
