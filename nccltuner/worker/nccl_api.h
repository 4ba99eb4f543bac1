/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of nccl.h that is used here; the same from NCCL 2.10 (bf16) on, ncclAlltoAll from 2.28, windows from 2.27.
 */
#ifndef WORKER_NCCL_API_H
#define WORKER_NCCL_API_H

#include <stddef.h>

#include "cuda_api.h"

typedef int ncclResult_t; /* 0: ncclSuccess */
typedef struct ncclComm *ncclComm_t;
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;

enum {
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
};
enum { ncclFloat32 = 7, ncclBfloat16 = 9 };
enum { ncclSum = 0, ncclMax = 2, ncclAvg = 4 };
enum { NCCL_WIN_COLL_SYMMETRIC = 1 };

/* X(symbol, arguments) */
#define NCCL_FUNCTIONS(X) \
  X(ncclGetVersion, (int *version)) \
  X(ncclGetUniqueId, (ncclUniqueId *id)) \
  X(ncclCommInitRank, (ncclComm_t *comm, int nRanks, ncclUniqueId id, int rank)) \
  X(ncclCommDestroy, (ncclComm_t comm)) \
  X(ncclCommAbort, (ncclComm_t comm)) \
  X(ncclGroupStart, (void)) \
  X(ncclGroupEnd, (void)) \
  X(ncclSend, (const void *send, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)) \
  X(ncclRecv, (void *recv, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)) \
  X(ncclBroadcast, (const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, CUstream stream)) \
  X(ncclReduce, (const void *send, void *recv, size_t count, int type, int op, int root, ncclComm_t comm, \
                 CUstream stream)) \
  X(ncclAllGather, (const void *send, void *recv, size_t count, int type, ncclComm_t comm, CUstream stream)) \
  X(ncclReduceScatter, (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, \
                        CUstream stream)) \
  X(ncclAllReduce, (const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, CUstream stream))
/* These give a text. */
#define NCCL_TEXT_FUNCTIONS(X) \
  X(ncclGetErrorString, (ncclResult_t result)) \
  X(ncclGetLastError, (ncclComm_t comm))
/* What an older NCCL lacks. */
#define NCCL_NEWER_FUNCTIONS(X) \
  X(ncclMemAlloc, (void **at, size_t bytes)) \
  X(ncclCommWindowRegister, (ncclComm_t comm, void *at, size_t bytes, void **window, int flags)) \
  X(ncclCommWindowDeregister, (ncclComm_t comm, void *window)) \
  X(ncclAlltoAll, (const void *send, void *recv, size_t count, int type, ncclComm_t comm, CUstream stream))

#endif
