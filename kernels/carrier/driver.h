/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of CUDA's driver that the carrier needs, by the names that libcuda.so.1 exports: CUDA 12 or newer.
 */
#ifndef DYN_CARRIER_DRIVER_H
#define DYN_CARRIER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct CUctx_st *carrier_context;
typedef uint64_t carrier_address; /* CUdeviceptr */
struct carrier_ipc { uint8_t bytes[64]; }; /* CUipcMemHandle: passed by value */
struct carrier_access { int locationType, locationId, flags; }; /* CUmemAccessDesc */

enum { /* cuda.h */
  CARRIER_EVENT_DISABLE_TIMING = 2,
  CARRIER_STREAM_NON_BLOCKING = 1,
  CARRIER_IPC_LAZY_PEER_ACCESS = 1,
  CARRIER_RELAXED_CAPTURE = 2,
  CARRIER_HANDLE_POSIX_FD = 1,   /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
  CARRIER_LOCATION_DEVICE = 1,   /* CU_MEM_LOCATION_TYPE_DEVICE */
  CARRIER_ACCESS_READ_WRITE = 3, /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
  CARRIER_NOT_READY = 600,
};

#define CARRIER_FUNCTIONS(X) \
  X(cuGetErrorName, (int error, const char **name)) \
  X(cuCtxGetCurrent, (carrier_context * context)) \
  X(cuCtxGetDevice, (int *device)) \
  X(cuDeviceGetUuid_v2, (uint8_t uuid[16], int device)) \
  X(cuCtxGetId, (carrier_context context, unsigned long long *id)) \
  X(cuCtxPushCurrent_v2, (carrier_context context)) \
  X(cuCtxPopCurrent_v2, (carrier_context * context)) \
  X(cuThreadExchangeStreamCaptureMode, (int *mode)) \
  X(cuModuleLoadData, (void **module, const void *image)) \
  X(cuModuleUnload, (void *module)) \
  X(cuModuleGetFunction, (void **function, void *module, const char *name)) \
  X(cuFuncLoad, (void *function)) \
  X(cuLaunchKernel, (void *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ, \
                     unsigned sharedBytes, void *stream, void **arguments, void **extra)) \
  X(cuCtxGetStreamPriorityRange, (int *least, int *greatest)) \
  X(cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority)) \
  X(cuStreamDestroy_v2, (void *stream)) \
  X(cuStreamSynchronize, (void *stream)) \
  X(cuEventCreate, (void **event, unsigned flags)) \
  X(cuEventDestroy_v2, (void *event)) \
  X(cuEventRecord, (void *event, void *stream)) \
  X(cuEventQuery, (void *event)) \
  X(cuMemcpyDtoDAsync_v2, (carrier_address to, carrier_address from, size_t bytes, void *stream)) \
  X(cuMemcpyHtoDAsync_v2, (carrier_address to, const void *from, size_t bytes, void *stream)) \
  X(cuMemcpyDtoHAsync_v2, (void *to, carrier_address from, size_t bytes, void *stream)) \
  X(cuMemsetD8Async, (carrier_address at, unsigned char byte, size_t bytes, void *stream)) \
  X(cuMemAlloc_v2, (carrier_address * at, size_t bytes)) \
  X(cuMemFree_v2, (carrier_address at)) \
  X(cuMemAllocHost_v2, (void **at, size_t bytes)) \
  X(cuMemFreeHost, (void *at)) \
  X(cuIpcGetMemHandle, (struct carrier_ipc * handle, carrier_address memory)) \
  X(cuIpcOpenMemHandle_v2, (carrier_address * memory, struct carrier_ipc handle, unsigned flags)) \
  X(cuIpcCloseMemHandle, (carrier_address memory)) \
  X(cuMemGetAddressRange_v2, (carrier_address * base, size_t *bytes, carrier_address address)) \
  X(cuMemRetainAllocationHandle, (uint64_t *handle, void *address)) \
  X(cuMemRelease, (uint64_t handle)) \
  X(cuMemExportToShareableHandle, (void *shareable, uint64_t handle, int type, unsigned long long flags)) \
  X(cuMemImportFromShareableHandle, (uint64_t *handle, void *shareable, int type)) \
  X(cuMemAddressReserve, (carrier_address * at, size_t bytes, size_t alignment, carrier_address where, unsigned long long flags)) \
  X(cuMemAddressFree, (carrier_address at, size_t bytes)) \
  X(cuMemMap, (carrier_address at, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)) \
  X(cuMemUnmap, (carrier_address at, size_t bytes)) \
  X(cuMemSetAccess, (carrier_address at, size_t bytes, const struct carrier_access *access, size_t count))

struct carrier_driver {
#define CARRIER_MEMBER(name, arguments) int(*name) arguments;
  CARRIER_FUNCTIONS(CARRIER_MEMBER)
#undef CARRIER_MEMBER
};

/* NULL: the program has not loaded the driver, or it is older; *missing names what it lacks. */
const struct carrier_driver *carrier_driver(const char **missing);
const char *carrier_cuda_error(int error); /* "CUDA_ERROR_..." */
/* Is it an error? Then it is said what failed, as carrier_warn has it. */
#define carrier_failed(result, what) carrier_failed_at(__FILE__, __LINE__, result, what)
bool carrier_failed_at(const char *file, int line, int result, const char *what);

/* A context, and which one by that name: behind cudaDeviceReset it is another. */
struct carrier_home {
  carrier_context context;
  unsigned long long id;
};
/* The current one. False: there is none, which was said. */
bool carrier_home_here(struct carrier_home *home);
/* False: the program has destroyed it, and all that was made in it went with it: what names it names nothing, or something else. */
bool carrier_lives(const struct carrier_home *home);

/* NCCL's proxy thread has no context, and a capture on another thread must not forbid what is done here. False: the context does not live. */
struct carrier_entered { bool pushed; int mode; };
bool carrier_enter(const struct carrier_home *home, struct carrier_entered *entered);
void carrier_leave(struct carrier_entered *entered);

#endif
