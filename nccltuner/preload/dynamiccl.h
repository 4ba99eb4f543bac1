/* SPDX-License-Identifier: Apache-2.0
 *
 * What libdynamiccl.so offers to programs that know it. It has to be preloaded (`dynamiccld run`, `dynamiccld env`), so a
 * program finds these functions with dlsym(RTLD_DEFAULT), or does without. No header of CUDA's or NCCL's is needed: comm is
 * an ncclComm_t, stream a cudaStream_t, datatype an ncclDataType_t, and what gives an error gives an ncclResult_t.
 */
#ifndef DYNAMICCL_H
#define DYNAMICCL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DYNAMICCL_API_VERSION 2 /* 2: dynamicclAllToAllv */
#define DYNAMICCL_API __attribute__((visibility("default")))

/* DYNAMICCL_API_VERSION of the library. */
DYNAMICCL_API int dynamicclVersion(void);

struct dynamicclCalls {
  const char *name;           /* "ncclAllReduce"; stays */
  unsigned long long calls;   /* of the program; NCCL calls some of its functions itself, which are not counted */
  unsigned long long kernels; /* of these, run by our kernels */
};
/* Fills up to room of out, in no order, and gives how many functions of NCCL's the library stands in front of. With DYNAMICCL_COUNT_CALLS=1 the
 * process says as much on stderr when it ends. */
DYNAMICCL_API size_t dynamicclIntercepted(struct dynamicclCalls *out, size_t room);

/* 1: our kernels can run on this communicator; else 0. It comes with the communicator, or with its first call, and may come
 * to one rank before another: ranks must agree on an answer before they act on it, with an AllReduce of the least, say. */
DYNAMICCL_API int dynamicclHasKernels(void *comm);

/* For each of tokens rows of width elements, in one kernel:
 *   x = the ranks' inputs, added up in their order and rounded to the type
 *   residual = x + residual, in place
 *   output = residual * rsqrt(mean(residual^2) + epsilon), rounded to the type, * weight
 * of ncclHalf, ncclFloat or ncclBfloat16, computed as float. All buffers but weight, which is one row, have tokens rows
 * without gaps; output may be input, no others may overlap. All ranks must call it in the same place among the
 * communicator's calls, with the same tokens, width and type; where residuals and weights are the same, so are outputs, bit
 * by bit. It may be captured into a CUDA graph. Results, which but for the last two are the same on all ranks:
 *   4, ncclInvalidArgument   a buffer is missing, nothing is to be done, or this type or size cannot be done: there is room
 *                            for some hundred KiB (DYNAMICCL_SCRATCH_MIB)
 *   5, ncclInvalidUsage      the communicator has no kernels, or the call stands in a group
 *   6, ncclRemoteError       a rank has died, or the communicator was stopped: abort it
 *   1, ncclUnhandledCudaError */
DYNAMICCL_API int dynamicclAllReduceAddRmsNorm(const void *input, void *residual, const void *weight, void *output, size_t tokens,
                                               size_t width, float epsilon, int datatype, void *comm, void *stream);

/* Ways for dynamicclAllToAllv: load and store within a node, put and signal over the network. */
#define DYNAMICCL_LSA 3
#define DYNAMICCL_GIN 4

/* 1: this rank can run dynamicclAllToAllv on this communicator that way; else 0. As with dynamicclHasKernels, ranks must agree
 * before they act on it, on each way by itself. */
DYNAMICCL_API int dynamicclHasAllToAllv(void *comm, int way);

/* For each rank r of the communicator: sendCounts[r] elements from send + sendOffsets[r] on go to rank r, and recvCounts[r]
 * elements come of it, to recv + recvOffsets[r]. Any of them may be 0. The arrays are read before the call returns; offsets
 * are in elements, in any order. recvCounts[r] here is what sendCounts of rank r has for this rank; parts of recv overlap
 * neither each other nor send. All ranks must call it in the same place among the communicator's calls, the same way, also those
 * that have nothing to send or to get. It may be captured into a CUDA graph, which replays these counts.
 * Where recv lies on every rank in what the same ncclCommWindowRegister registered (NCCL_WIN_COLL_SYMMETRIC), at any place in it,
 * larger parts are written there by their senders (DYNAMICCL_LSA). Nobody has to promise that: ranks tell each other. Results:
 *   4, ncclInvalidArgument   this rank cannot do it that way, the type is unknown, an array or a buffer is missing, or this
 *                            rank does not give itself what it gets of itself: other ranks would wait for it
 *   5, ncclInvalidUsage      the communicator has no kernels, or the call stands in a group
 *   6, ncclRemoteError       a rank has died, or the communicator was stopped: abort it
 *   1, ncclUnhandledCudaError */
DYNAMICCL_API int dynamicclAllToAllv(const void *send, const size_t *sendCounts, const size_t *sendOffsets, void *recv, const size_t *recvCounts,
                                     const size_t *recvOffsets, int datatype, int way, void *comm, void *stream);

#ifdef __cplusplus
}
#endif

#endif
