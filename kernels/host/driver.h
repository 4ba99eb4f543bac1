/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of CUDA's driver that the device path needs, by the names that libcuda.so.1 exports: CUDA 12.4 or newer (cuFuncLoad).
 */
#ifndef DYN_HOST_DRIVER_H
#define DYN_HOST_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CUctx_st *dyn_context;
typedef struct CUevent_st *dyn_event;
typedef struct CUgraph_st *dyn_graph;
typedef struct CUgraphNode_st *dyn_node;
typedef struct CUuserObject_st *dyn_user_object;
struct dyn_edge { uint8_t bytes[8]; }; /* CUgraphEdgeData */
typedef uint64_t dyn_gpu_address; /* CUdeviceptr */
struct dyn_ipc_handle { uint8_t bytes[64]; }; /* CUipcMemHandle: passed by value */

struct dyn_launch_attribute { /* CUlaunchAttribute */
  int id;
  union { int number; char bytes[64]; } value __attribute__((aligned(8)));
};
struct dyn_launch { /* CUlaunchConfig */
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void *stream;
  const struct dyn_launch_attribute *attributes;
  unsigned numAttributes;
};

enum { /* cuda.h */
  DYN_MULTIPROCESSOR_COUNT = 16, /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
  DYN_COMPUTE_CAPABILITY_MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
  DYN_SYNC_DOMAINS = 126, /* CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT */
  DYN_LAUNCH_EARLY = 6, /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
  DYN_LAUNCH_DOMAIN = 10, /* CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN */
  DYN_REMOTE_DOMAIN = 1, /* CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE */
  DYN_EVENT_DISABLE_TIMING = 2,
  DYN_EVENT_WAIT_EXTERNAL = 1,
  DYN_STREAM_NON_BLOCKING = 1,
  DYN_IPC_LAZY_PEER_ACCESS = 1,
  DYN_CAPTURE_ACTIVE = 1,
  DYN_CAPTURE_INVALIDATED = 2,
  DYN_OBJECT_WITHOUT_WAIT = 1, /* CU_USER_OBJECT_NO_DESTRUCTOR_SYNC */
  DYN_OBJECT_MOVES = 1, /* CU_GRAPH_USER_OBJECT_MOVE */
  DYN_RELAXED_CAPTURE = 2, /* CU_STREAM_CAPTURE_MODE_RELAXED */
  DYN_CUDA_INVALID_VALUE = 1,
  DYN_CUDA_NOT_READY = 600,
  DYN_CUDA_PEER_ACCESS_ENABLED = 704,
};

#define DYN_HOST_FUNCTIONS(X) \
  X(cuCtxGetCurrent, (dyn_context * context)) \
  X(cuCtxPushCurrent_v2, (dyn_context context)) \
  X(cuCtxPopCurrent_v2, (dyn_context * context)) \
  X(cuCtxGetId, (dyn_context context, unsigned long long *id)) \
  X(cuCtxEnablePeerAccess, (dyn_context peer, unsigned flags)) \
  X(cuModuleLoadData, (void **module, const void *image)) \
  X(cuModuleGetFunction, (void **function, void *module, const char *name)) \
  X(cuFuncLoad, (void *function)) \
  X(cuCtxGetDevice, (int *device)) \
  X(cuDeviceGetUuid_v2, (uint8_t uuid[16], int device)) \
  X(cuDeviceGetAttribute, (int *value, int attribute, int device)) \
  X(cuLaunchKernelEx, (const struct dyn_launch *launch, void *function, void **arguments, void **extra)) \
  X(cuMemAlloc_v2, (dyn_gpu_address * memory, size_t bytes)) \
  X(cuMemFree_v2, (dyn_gpu_address memory)) \
  X(cuMemAllocHost_v2, (void **memory, size_t bytes)) \
  X(cuMemFreeHost, (void *memory)) \
  X(cuMemGetAddressRange_v2, (dyn_gpu_address * base, size_t *bytes, dyn_gpu_address at)) \
  X(cuPointerGetAttribute, (void *value, int attribute, dyn_gpu_address at)) \
  X(cuMemcpyDtoHAsync_v2, (void *to, dyn_gpu_address from, size_t bytes, void *stream)) \
  X(cuMemsetD8Async, (dyn_gpu_address memory, unsigned char value, size_t bytes, void *stream)) \
  X(cuIpcGetMemHandle, (struct dyn_ipc_handle * handle, dyn_gpu_address memory)) \
  X(cuIpcOpenMemHandle_v2, (dyn_gpu_address * memory, struct dyn_ipc_handle handle, unsigned flags)) \
  X(cuIpcCloseMemHandle, (dyn_gpu_address memory)) \
  X(cuStreamCreate, (void **stream, unsigned flags)) \
  X(cuStreamDestroy_v2, (void *stream)) \
  X(cuStreamSynchronize, (void *stream)) \
  X(cuStreamGetId, (void *stream, unsigned long long *id)) \
  X(cuStreamWaitEvent, (void *stream, dyn_event event, unsigned flags)) \
  X(cuStreamGetCaptureInfo_v2, (void *stream, int *status, uint64_t *id, dyn_graph *graph, const dyn_node **nodes, \
                                size_t *count)) \
  X(cuStreamGetCaptureInfo_v3, (void *stream, int *status, uint64_t *id, dyn_graph *graph, const dyn_node **nodes, \
                                const struct dyn_edge **edges, size_t *count)) \
  X(cuEventCreate, (dyn_event * event, unsigned flags)) \
  X(cuEventDestroy_v2, (dyn_event event)) \
  X(cuEventRecord, (dyn_event event, void *stream)) \
  X(cuEventQuery, (dyn_event event)) \
  X(cuGraphAddEventRecordNode, (dyn_node * node, dyn_graph graph, const dyn_node *after, size_t count, dyn_event event)) \
  X(cuGraphAddDependencies_v2, (dyn_graph graph, const dyn_node *from, const dyn_node *to, const void *edges, \
                                size_t count)) \
  X(cuGraphRemoveDependencies_v2, (dyn_graph graph, const dyn_node *from, const dyn_node *to, const void *edges, \
                                   size_t count)) \
  X(cuGraphNodeGetDependencies_v2, (dyn_node node, dyn_node *from, struct dyn_edge *edges, size_t *count)) \
  X(cuUserObjectCreate, (dyn_user_object * object, void *about, void (*destroy)(void *about), unsigned references, unsigned flags)) \
  X(cuGraphRetainUserObject, (dyn_graph graph, dyn_user_object object, unsigned references, unsigned flags)) \
  X(cuThreadExchangeStreamCaptureMode, (int *mode))

struct dyn_host_driver {
#define DYN_HOST_MEMBER(name, arguments) int(*name) arguments;
  DYN_HOST_FUNCTIONS(DYN_HOST_MEMBER)
#undef DYN_HOST_MEMBER
};

/* NULL: the program has not loaded the driver, or it is older. */
const struct dyn_host_driver *dyn_host_driver(void);

#endif
