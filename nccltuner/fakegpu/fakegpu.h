/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-ins for libcuda.so.1 and libnccl.so.2, so that programs that measure NCCL run from end to end without a GPU,
 * with the real plugin in them:
 * - device memory is host memory, a stream does its work in order, a CUDA graph is a list of such work;
 * - NCCL is the rank harness (nccltuner/harness): it loads and calls the plugins as NCCL does and takes costs from a
 *   recorded table;
 * - CUDA's time is virtual: a collective takes what the table says, any other kernel and copies between GPUs 25 ms;
 * - collectives really move data, between the processes of a communicator;
 * - so do our own kernels (kernels/), which a module has that is loaded from a fatbin, whatever is in it: their source is
 *   compiled into libcuda.so.1. Memory of 64 KiB and more can be mapped by other processes (IPC). Their time is virtual as
 *   well, and they are nobody's load.
 * - copies between addresses and the carrier's additions (kernels/carrier) are done in a thread of their stream, in its order,
 *   and virtual memory is shared by descriptors. Its kernel that plays a network card runs from its own source, in threads
 *   of its own, until it ends.
 * What differs from the real ones: of equal collectives that follow each other data is moved once, since each would write the same again,
 * unless the thread has looked in between (nccl_jobs.c); other ranks' virtual clocks are not looked at. Of collectives and our kernels:
 * - Nothing runs until the host waits: for a stream, event or context, or in a copy, fill or free that is not asynchronous.
 *   Asking after an event starts them as well, and it is not over before they are. Then all streams of the process run, each
 *   in a thread of its own or that of who waits for it; who waits waits for its stream, or the streams of its context. A process that never
 *   waits keeps its peers waiting.
 * - A collective waits for nobody, and a launch for nobody but a thread that frees memory of the same context, which keeps the context's lock
 *   until all is done that the context was given before.
 * - Collectives that a thread gives to communicators of one GPU, and those of one communicator, keep their order whatever their streams.
 * Of our kernels:
 * - Of a grid two blocks of two threads run at most, for the kernels give the same with any grid that is the same on all
 *   ranks. So a grid that differs between ranks is not noticed.
 * - A launch is refused (CUDA_ERROR_INVALID_VALUE) where a GPU would overrun memory: more than 64 blocks. A function
 *   belongs to the context that its module was loaded in, and so must the stream (CUDA_ERROR_INVALID_HANDLE).
 * - In a graph work has the order of its capture, whatever dependencies would allow; events that a graph records it records
 *   behind all of its work. A wait for an event of another capture, by which captures fork and join, is refused.
 * - IPC handles of memory below 64 KiB are refused, and another process's memory counts as of the device that opened it.
 *
 * - A process may have several ranks of a communicator, in one thread or in one each (nccl_group.c).
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
 *   FAKEGPU_KERNEL_US    microseconds that one of our kernels takes (4), and besides
 *   FAKEGPU_KERNEL_GBS   at how many GB a second it moves the bytes of its count (100)
 *   FAKEGPU_KERNEL_SENT_US  microseconds until all that it sends is sent (half of what it takes), as a call that is timed tells
 *   FAKEGPU_KERNEL_FILE  FILE has both of these microseconds from now on, and may be replaced meanwhile
 *   FAKEGPU_GRAPH_REGISTER  times the cost of a captured collective between buffers of ncclMemAlloc's (1); "refuse": there is no such memory
 *   FAKEGPU_CAPTURES     so many captures of a process are under way at once, each begun by a thread of its own to which the stream's context
 *                        is current: else they fail
 *   FAKEGPU_IPC          "refuse": no IPC handle can be opened (CUDA_ERROR_MAP_FAILED)
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
  int type;                                   /* CU_GRAPH_NODE_TYPE_*; of a kernel: */
  unsigned grid, block;
  unsigned references;
};

/* libcuda's inside, for libnccl. The NULL stream is the legacy one. */
FAKEGPU_API double *fakegpu_now_ns(CUstream stream); /* virtual time at the stream's end */
FAKEGPU_API int fakegpu_capturing(CUstream stream);
/* Only while the stream captures: the graph takes the work. */
FAKEGPU_API void fakegpu_capture(CUstream stream, struct fakegpu_work *work);
FAKEGPU_API CUstream fakegpu_stream(CUstream stream); /* never NULL: of the context that is current */
/* A stream has its place in the GPU's front end from its first work on: so many streams had theirs before, and 1; 0: it has none. NCCL takes
 * places for streams of its own, which it makes and destroys for memory that it clears. */
FAKEGPU_API int fakegpu_place(CUstream stream);
FAKEGPU_API void fakegpu_take_place(void);
/* Calls run in the stream's thread when what the stream was given before is done. How many jobs the stream has had with it. */
FAKEGPU_API uint64_t fakegpu_job(CUstream stream, void (*run)(void *argument), void *argument);
/* What the stream is given from now on comes behind so many jobs of another. */
FAKEGPU_API void fakegpu_after(CUstream stream, CUstream other, uint64_t jobs);
FAKEGPU_API void fakegpu_wait(CUstream stream, uint64_t jobs); /* until so many are done */
/* looked is called in the thread whose wait, copy, fill or kernel depends on what a stream did, NULL: on what any did. */
FAKEGPU_API void fakegpu_on_look(void (*looked)(CUstream stream));
/* told is called in a thread that asked after an event, with the virtual time at which it was over; 0: it is not. */
FAKEGPU_API void fakegpu_on_query(void (*told)(double nowNs));
/* Kernels or copies that are not NCCL's were launched, and the host has not waited for their stream since. */
FAKEGPU_API int fakegpu_is_loaded(void);

#endif
