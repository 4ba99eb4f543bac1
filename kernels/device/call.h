/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel is launched with, for the device code and for the host's C alike. No type of NCCL's in it.
 */
#ifndef DYN_CALL_H
#define DYN_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Name of a kernel that does nothing. It changes with what stands in this file, so that a library and kernels of different
 * builds do not meet. */
#define DYN_KERNEL_LAYOUT layout10
#define DYN_KERNEL_LAYOUT_NAME "layout10"

#define DYN_KERNEL_MAX_RANKS 8
#define DYN_KERNEL_MAX_BLOCKS 128
#define DYN_KERNEL_COUNTERS (DYN_KERNEL_MAX_BLOCKS + 2) /* of calls, and behind them the one in which this rank has given up, and whether it has elsewhere (count.cuh) */
#define DYN_KERNEL_THREADS 512 /* of a block, at most */

#define DYN_LINE_BYTES 128 /* in memory; of these DYN_LINE_DATA are data: line.cuh */
#define DYN_LINE_DATA 120
#define DYN_LINE_THREADS 8 /* write and read a line together */
#define DYN_BULK_BYTES 16

/* What a wait that took too long leaves in host memory, in one word: the peer that was waited for, counted from 1, shifted
 * by this, and the call. 0: all is well. */
#define DYN_FAULT_PEER_SHIFT 32
#define DYN_STOP_MISSED 2 /* beside what the host has stored: a kernel has given up by it */

/* What a wait that lasts leaves in host memory, and goes on: watch.c says so. */
struct dyn_late {
  uint64_t about; /* dyn_domain.about, before: */
  uint64_t word;  /* as of a fault; the host takes it away */
};

/* Host memory: what stands behind the counters of each lane of a communicator, over load and store and by either backend of GIN (count.cuh).
 * NULL: there is no such lane. */
#define DYN_LANES 6
struct dyn_lanes {
  uint32_t *gaveUp[DYN_LANES];
};

/* The ranks of one NVLink domain: domain.cuh. */
struct dyn_domain {
  int32_t rank, nRanks;
  char *scratch[DYN_KERNEL_MAX_RANKS]; /* of every rank, as this process addresses it: 2 halves of nRanks slots */
  size_t lines;                        /* room of a slot, which has what one peer writes */
  uint32_t *calls;                     /* [DYN_KERNEL_COUNTERS], this rank's alone, at a multiple of 8 bytes */
  const struct dyn_lanes *lanes;       /* of the communicator; NULL: it has no other than this one */
  uint32_t *stop;                      /* host memory: not 0: give up, whatever is missing */
  uint64_t *fault;                     /* host memory */
  uint64_t waitNs;                     /* no line may take longer */
  struct dyn_late *late;               /* host memory; NULL: nobody is told */
  uint64_t lateNs;                     /* each time that a wait has lasted so long, which is less than waitNs only where that is for ever */
  uint64_t about;                      /* what runs, for people: dyn_about */
};

/* What a kernel leaves of its times: stamp.cuh. */
struct dyn_stamp {
  uint64_t word; /* dyn_stamp_word; 0: none yet */
  uint64_t beginNs, counterNs, signalNs;
};
#define DYN_STAMPS 1024
#define DYN_STAMP_EVERY 64
/* In a tag: a call that the host times. Its kernel stamps whatever its number is, and stamps is the one place that is its own. */
#define DYN_STAMP_TIMED 0x80000000u

/* First argument of every kernel. */
struct dyn_call {
  const void *send;
  void *recv;   /* may be send */
  size_t count; /* elements of a part, at least 1; bytes where the kernel has no type; where parts differ, lines of one that goes in lines, at most */
  int32_t op;   /* ncclRedOp_t, of those that add up: ncclSum to ncclAvg */
  uint32_t tag; /* what its times are kept under; 0: they are not */
  struct dyn_stamp *stamps; /* host memory: [DYN_STAMPS], or of a timed call one */
  struct dyn_domain domain;
};

/* What a rank tells a peer at a call's first barrier in bulk: meet.cuh. */
struct dyn_meeting {
  uint64_t come;       /* the call, and above it DYN_IN_SEND_WINDOW, DYN_IN_RECV_WINDOW, DYN_MET_FIRST */
  uint64_t send, recv; /* dyn_window_word, of what is in a window */
  uint64_t sendMost, recvMost; /* dyn_windowed.most */
  /* Where parts differ (parts_differ.cuh); recv is then where the last part that it gets ends, and recvMost how far it can address. */
  uint64_t largest; /* bytes of the largest part that it sends */
  uint64_t partAt;  /* where what this peer sends it begins, from where the window's offsets count */
  uint64_t reserved0;
};
#define DYN_MEETINGS (2 * DYN_KERNEL_MAX_BLOCKS * DYN_KERNEL_MAX_RANKS)
#define DYN_IN_SEND_WINDOW 1u
#define DYN_IN_RECV_WINDOW 2u
#define DYN_MET_FIRST 4u /* before it sent anything */
#define DYN_MET_IN_VAIN 8u /* told by nobody: of a peer that did not come */

/* A buffer of this rank's that lies in memory which all ranks have registered together. */
struct dyn_windowed {
  uint64_t word;                    /* dyn_window_word; 0: it lies in none, or peers are not to know */
  uint64_t most;                    /* offset at which a peer's buffer may begin for this process to address all of it */
  char *base[DYN_KERNEL_MAX_RANKS]; /* where offsets count from on every rank, as this process addresses it */
};

/* Second argument of kernels in bulk: bulk.cuh. broadcast has its root there, an int. */
struct dyn_bulk {
  char *memory[DYN_KERNEL_MAX_RANKS];    /* of every rank: 2 halves of 2 * nRanks times packs */
  uint32_t *flags[DYN_KERNEL_MAX_RANKS]; /* of every rank: [DYN_KERNEL_MAX_BLOCKS][DYN_KERNEL_MAX_RANKS], who has come to which barrier */
  uint32_t *passed;                      /* [DYN_KERNEL_MAX_BLOCKS]: barriers that this rank's blocks are through; its alone */
  size_t packs;                          /* of DYN_BULK_BYTES: room of a part of AllReduce, half of that of others */
  struct dyn_meeting *meetings[DYN_KERNEL_MAX_RANKS]; /* of every rank: [2][DYN_KERNEL_MAX_BLOCKS][DYN_KERNEL_MAX_RANKS] */
  struct dyn_windowed send, recv;
  int32_t root; /* of Broadcast */
  int32_t reserved0;
};

/* Last argument of kernels whose parts differ from rank to rank: bytes that go to each rank and that come of each, and where
 * these begin. What a rank sends another is what that one gets of it. */
struct dyn_parts {
  size_t sendBytes[DYN_KERNEL_MAX_RANKS], sendAt[DYN_KERNEL_MAX_RANKS], recvBytes[DYN_KERNEL_MAX_RANKS], recvAt[DYN_KERNEL_MAX_RANKS];
};
/* Grids of these: they cannot follow from a size, for ranks do not know each other's. Over load and store as many as links and
 * memory are busy with (parts_differ.cuh), which is half of an H200's multiprocessors. */
#define DYN_PARTS_CTAS 64
#define DYN_PARTS_THREADS 512
#define DYN_PARTS_LINES 2185 /* of a part over load and store that goes in lines, at most: 256 KiB. No table can hold it, for the same reason */
/* As far as a slot has room for them and each block's word (parts_lines.cuh). */
static inline size_t dyn_parts_lines(size_t slotLines, unsigned blocks) {
  return slotLines <= blocks ? 0 : slotLines - blocks < DYN_PARTS_LINES ? slotLines - blocks : DYN_PARTS_LINES;
}
#define DYN_GIN_PARTS_CTAS 16
#define DYN_GIN_PARTS_THREADS 256

/* Second argument of allReduceAddRmsNorm: all_reduce_rms_norm.cuh. */
struct dyn_rms_norm {
  void *residual;     /* as send: rows of width elements */
  const void *weight; /* one row, the same for all */
  size_t width;
  float epsilon;
  int32_t reserved0;
};

#ifdef __CUDACC__
#define DYN_BOTH __host__ __device__
#else
#define DYN_BOTH
#endif

/* The communicator's windows are counted from 1, alike on all ranks. 0: no word can say it. */
#define DYN_WINDOW_OFFSET_BITS 40
DYN_BOTH static inline uint64_t dyn_window_word(uint64_t window, uint64_t offset) {
  return window >> (64 - DYN_WINDOW_OFFSET_BITS) != 0 || offset >> DYN_WINDOW_OFFSET_BITS != 0 ? 0 : window << DYN_WINDOW_OFFSET_BITS | offset;
}
DYN_BOTH static inline uint64_t dyn_window_of_word(uint64_t word) { return word >> DYN_WINDOW_OFFSET_BITS; }
DYN_BOTH static inline uint64_t dyn_offset_of_word(uint64_t word) { return word & (((uint64_t)1 << DYN_WINDOW_OFFSET_BITS) - 1); }

/* ncclFunc_t up to AllToAll, or what NCCL has not; and bytes, where they are known. */
#define DYN_ABOUT_EXCHANGE 6
#define DYN_ABOUT_NORM 7
#define DYN_ABOUT_OTHER 15
#define DYN_ABOUT_SHIFT 56
#define DYN_ABOUT_STEP_SHIFT 60 /* in kernels on GIN what is waited for: dyn_gin_step */
static inline uint64_t dyn_about(unsigned what, uint64_t bytes) { return (uint64_t)what << DYN_ABOUT_SHIFT | (bytes & (((uint64_t)1 << DYN_ABOUT_SHIFT) - 1)); }

/* Of consecutive calls about one in DYN_STAMP_EVERY, in no step with a program's own rhythm. */
DYN_BOTH static inline bool dyn_stamped(uint32_t call) { return call * 2654435769u < UINT32_MAX / DYN_STAMP_EVERY; }
DYN_BOTH static inline bool dyn_stamps(uint32_t tag, uint32_t call) { return tag != 0 && ((tag & DYN_STAMP_TIMED) != 0 || dyn_stamped(call)); }
/* Where among stamps. */
DYN_BOTH static inline uint32_t dyn_stamp_place(uint32_t tag, uint32_t call) { return (tag & DYN_STAMP_TIMED) != 0 ? 0 : call / DYN_STAMP_EVERY % DYN_STAMPS; }
DYN_BOTH static inline uint64_t dyn_stamp_word(uint32_t call, uint32_t tag) { return (uint64_t)call << 32 | tag; }
DYN_BOTH static inline size_t dyn_packs(size_t bytes, size_t packBytes) { return (bytes + packBytes - 1) / packBytes; }
DYN_BOTH static inline size_t dyn_lines(size_t bytes) { return dyn_packs(bytes, DYN_LINE_DATA); }
/* Of packs or lines, those that a rank adds up. */
DYN_BOTH static inline size_t dyn_part(size_t all, int nRanks) { return (all + (size_t)nRanks - 1) / (size_t)nRanks; }
/* Lines that a slot must have room for in two shots. In one shot, and where ranks have parts, it is the lines of a part; a
 * broadcast has one more. */
DYN_BOTH static inline size_t dyn_two_shot_lines(size_t lines, int nRanks) { return 2 * dyn_part(lines, nRanks); }
/* Of rows, each of which begins at a line. */
DYN_BOTH static inline size_t dyn_row_lines(size_t rows, size_t rowBytes) { return rows * dyn_lines(rowBytes); }
/* Bytes of a rank's memory for what goes in bulk. */
DYN_BOTH static inline size_t dyn_bulk_bytes(size_t packs, int nRanks) { return 4 * (size_t)nRanks * packs * DYN_BULK_BYTES; }

#endif
