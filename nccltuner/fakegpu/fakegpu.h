/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-ins for libcuda.so.1 and libnccl.so.2, so that programs that measure NCCL run from end to end without a GPU,
 * with the real plugin in them:
 * - device memory is host memory, a stream does its work in order and at once, a CUDA graph is a list of such work;
 * - NCCL is the rank harness (nccltuner/harness): it loads and calls the plugins as NCCL does and takes costs from a
 *   recorded table;
 * - CUDA's time is virtual: a collective takes what the table says, any other kernel and copies between GPUs 25 ms;
 * - collectives really move data, between the processes of a communicator.
 * What differs from the real ones: data is moved when the host waits for a stream and not before, and of equal calls
 * that follow each other once, since each would write the same again; other ranks' virtual clocks are not looked at.
 *
 * Environment:
 *   FAKEGPU_TABLE        CSV of recorded costs; needs AllReduce. AllToAll, which no tuner is asked about, costs what
 *                        NCCL's default of AllGather costs
 *   FAKEGPU_OPTIONS      options of dynamiccl-rank, blanks between them: "--noise 0.02 --seed 7 --nccl 2.28.9"; noise,
 *                        skew, gap and proxy lag are 0 without
 *   FAKEGPU_FAULT        what goes wrong and when (nccl_fault.c)
 *   FAKEGPU_GPUS         visible GPUs (8)
 *   FAKEGPU_LOAD_FACTOR  times the cost of a collective while kernels or copies run on other streams (1)
 *   FAKEGPU_LOADED_TABLE CSV of costs while they run, for calls that are not captured (those of FAKEGPU_TABLE)
 *   FAKEGPU_DIR          where ranks of a communicator meet (/dev/shm); nothing stays there
 * NCCL_HOSTID makes nodes as it does for NCCL. With libnccl.so.2 in LD_PRELOAD plugins see virtual time as well, and so
 * does a thread that has asked after an event and heard that it is over: a moment later, by as much on every rank.
 */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include "../worker/cuda_api.h"

#define FAKEGPU_API __attribute__((visibility("default")))

/* What a stream does: at once, or at every launch of the graph that it was captured into. */
struct fakegpu_work {
  void (*run)(struct fakegpu_work *work, CUstream stream);
  void (*release)(struct fakegpu_work *work); /* when no graph has it any more */
  unsigned grid, references;
};

/* libcuda's inside, for libnccl. The NULL stream is the legacy one. */
FAKEGPU_API double *fakegpu_now_ns(CUstream stream); /* virtual time at the stream's end */
FAKEGPU_API int fakegpu_capturing(CUstream stream);
/* Only while the stream captures: the graph takes the work. */
FAKEGPU_API void fakegpu_capture(CUstream stream, struct fakegpu_work *work);
/* settle is called before the host sees what a stream did, NULL: what any did. */
FAKEGPU_API void fakegpu_on_wait(void (*settle)(CUstream stream));
/* told is called in a thread that asked after an event, with the virtual time at which it was over; 0: it is not. */
FAKEGPU_API void fakegpu_on_query(void (*told)(double nowNs));
/* Kernels or copies that are not NCCL's were launched, and the host has not waited for their stream since. */
FAKEGPU_API int fakegpu_is_loaded(void);

#endif
