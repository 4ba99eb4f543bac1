/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA's driver interface that is used here, so that no CUDA toolkit is needed to build. Names, values and
 * layouts are those of cuda.h 13.0 (nvidia-cuda-runtime 13.0.96); all of it is in cuda.h 12 alike.
 */
#ifndef WORKER_CUDA_API_H
#define WORKER_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; /* 0: CUDA_SUCCESS */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;

enum {
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
};
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_EVENT_WAIT_DEFAULT = 0, CU_EVENT_WAIT_EXTERNAL = 1 };
enum { CU_GRAPH_EXEC_UPDATE_SUCCESS = 0, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2 };
enum { CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1, CU_GRAPH_USER_OBJECT_MOVE = 1 };
enum { CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
enum { CU_GRAPH_NODE_TYPE_KERNEL = 0, CU_GRAPH_NODE_TYPE_EMPTY = 5, CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6, CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7 };
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };
enum { CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 };
enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97, CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT = 126 };
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

typedef struct { /* CUDA_KERNEL_NODE_PARAMS_v2 */
  CUfunction func; /* NULL: kern */
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
  void *kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct { unsigned char from_port, to_port, type, reserved[5]; } CUgraphEdgeData; /* from 12.3 on */
typedef struct { int result; CUgraphNode errorNode, errorFromNode; } CUgraphExecUpdateResultInfo;

/* X(symbol, arguments): the symbol's name as the driver exports it; the versioned ones have other arguments without. */
#define CUDA_FUNCTIONS(X) \
  X(cuInit, (unsigned flags)) \
  X(cuDriverGetVersion, (int *version)) \
  X(cuGetErrorName, (CUresult error, const char **name)) \
  X(cuGetErrorString, (CUresult error, const char **text)) \
  X(cuDeviceGetCount, (int *count)) \
  X(cuDeviceGet, (CUdevice *device, int ordinal)) \
  X(cuDeviceGetName, (char *name, int length, CUdevice device)) \
  X(cuDeviceGetUuid_v2, (CUuuid *uuid, CUdevice device)) \
  X(cuDeviceGetPCIBusId, (char *id, int length, CUdevice device)) \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
  X(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
  X(cuCtxSetCurrent, (CUcontext context)) \
  X(cuCtxSynchronize, (void)) \
  X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags)) \
  X(cuMemAlloc_v2, (CUdeviceptr *memory, size_t bytes)) \
  X(cuMemAllocHost_v2, (void **memory, size_t bytes)) \
  X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
  X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
  X(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext, size_t bytes, \
                        CUstream stream)) \
  X(cuMemsetD8Async, (CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream)) \
  X(cuStreamCreate, (CUstream *stream, unsigned flags)) \
  X(cuStreamSynchronize, (CUstream stream)) \
  X(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr address, unsigned value, unsigned flags)) \
  X(cuStreamBeginCapture_v2, (CUstream stream, int mode)) \
  X(cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
  X(cuEventCreate, (CUevent *event, unsigned flags)) \
  X(cuEventRecord, (CUevent event, CUstream stream)) \
  X(cuEventSynchronize, (CUevent event)) \
  X(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end)) \
  X(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
  X(cuGraphNodeGetType, (CUgraphNode node, int *type)) \
  X(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)) \
  X(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
  X(cuGraphUpload, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphExecDestroy, (CUgraphExec exec)) \
  X(cuGraphDestroy, (CUgraph graph)) \
  X(cuModuleLoadData, (CUmodule *module, const void *image)) \
  X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
  X(cuFuncSetAttribute, (CUfunction function, int attribute, int value)) \
  X(cuLaunchKernel, (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, \
                     unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream stream, void **arguments, \
                     void **extra))

#endif
