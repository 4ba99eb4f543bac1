/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, and what other processes see of it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum { SHARED = 1 << 20, SMALL = 1000 };

static CUdeviceptr allocated(size_t bytes) {
  CUdeviceptr memory;
  MUST(cuMemAlloc_v2(&memory, bytes));
  return memory;
}

static void wants_zeros(CUdeviceptr memory, size_t bytes) {
  char *host = malloc(bytes);
  MUST(cuMemcpyDtoH_v2(host, memory, bytes));
  for (size_t i = 0; i < bytes; i++) CHECK(host[i] == 0);
  free(host);
}

static void ordinal(int want, CUdeviceptr address) {
  int is = -1;
  MUST(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  CHECK(is == want);
}

static void use_device(int device) {
  CUcontext context, current;
  CUdevice is;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuCtxGetCurrent(&current));
  MUST(cuCtxGetDevice(&is));
  CHECK(current == context && is == device);
}

static void memory(void) {
  int other = 0, can = 0;
  void *pinned;
  CUdevice device;
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
  use_device(3);
  MUST(cuDeviceCanAccessPeer(&can, 3, 4));
  CHECK(can == 1);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&can, 3, 99));
  for (int round = 0; round < 2; round++) { /* also where something was before */
    CUdeviceptr large = allocated(SHARED), small = allocated(SMALL);
    wants_zeros(large, SHARED);
    wants_zeros(small, SMALL);
    MUST(cuMemsetD8_v2(large, 7, SHARED));
    MUST(cuMemsetD8_v2(small, 7, SMALL));
    ordinal(3, large);
    ordinal(3, large + SHARED - 1);
    ordinal(3, small);
    WANT(CUDA_ERROR_INVALID_VALUE,
         cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)&other));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(large + 64));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)(uintptr_t)small));
    MUST(cuMemFree_v2(large));
    MUST(cuMemFree_v2(small));
    WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(small));
    WANT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, large));
  }
  MUST(cuMemFree_v2(0));
  MUST(cuMemAllocHost_v2(&pinned, 4096));
  ordinal(3, (CUdeviceptr)(uintptr_t)pinned);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((CUdeviceptr)(uintptr_t)pinned));
  MUST(cuMemFreeHost(pinned));
}

/* Virtual memory: what is mapped twice is the same, and only what asked for a descriptor has one. */
static void virtual_memory(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 3}};
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle, same, imported, bare;
  CUdeviceptr room, base, plain = allocated(SHARED);
  CUstream stream;
  size_t whole = 0, bytes;
  int fd = -1;
  MUST(cuMemGetAllocationGranularity(&whole, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, whole + 1, &prop, 0));
  MUST(cuMemCreate(&handle, whole, &prop, 0));
  MUST(cuMemAddressReserve(&room, 2 * whole, 0, 0, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)room));
  MUST(cuMemMap(room, whole, 0, handle, 0));
  MUST(cuMemSetAccess(room, whole, &access, 1));
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CHECK(close(fd) == 0);
  MUST(cuMemMap(room + whole, whole, 0, imported, 0));
  MUST(cuMemSetAccess(room + whole, whole, &access, 1));
  MUST(cuMemRelease(imported));
  MUST(cuMemGetAddressRange_v2(&base, &bytes, room + whole - 1));
  CHECK(base == room && bytes == whole);
  MUST(cuMemGetAddressRange_v2(&base, &bytes, plain + 5));
  CHECK(base == plain && bytes == SHARED);
  MUST(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(room + whole - 1)));
  CHECK(same == handle);
  MUST(cuMemRelease(same));
  MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  MUST(cuMemcpyHtoDAsync_v2(room + 8, "copied", 7, stream));
  MUST(cuMemcpyDtoDAsync_v2(plain, room + whole + 8, 7, stream));
  MUST(cuStreamSynchronize(stream));
  CHECK(strcmp((const char *)(uintptr_t)plain, "copied") == 0);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  MUST(cuMemCreate(&bare, whole, &prop, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, bare, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  MUST(cuMemRelease(bare));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(room, whole / 2));
  MUST(cuMemUnmap(room, whole));
  MUST(cuMemUnmap(room + whole, whole));
  MUST(cuMemRelease(handle));
  MUST(cuMemAddressFree(room, 2 * whole));
  MUST(cuMemFree_v2(plain));
}

/* A process that shows memory and does the other's bidding: 'f' frees it, 'a' makes as much anew, 'w' writes to it. */
static pid_t exporter(int *orders, int *handles) {
  int to[2], from[2];
  CHECK(pipe(to) == 0 && pipe(from) == 0);
  pid_t child = fork();
  *orders = to[1];
  *handles = from[0];
  if (child != 0) {
    close(to[0]);
    close(from[1]);
    return child;
  }
  CUdeviceptr at = 0;
  CUipcMemHandle handle;
  close(to[1]);
  use_device(5);
  for (char order; read(to[0], &order, 1) == 1;) {
    if (order == 'a') at = allocated(SHARED);
    if (order == 'f') MUST(cuMemFree_v2(at));
    if (order == 'w') MUST(cuMemsetD8_v2(at, 0x77, SHARED));
    memset(&handle, 0, sizeof handle);
    if (order == 'a') MUST(cuIpcGetMemHandle(&handle, at + 100)); /* of all of it */
    CHECK(write(from[1], &handle, sizeof handle) == sizeof handle);
  }
  _exit(0);
}

static CUipcMemHandle told(int orders, int handles, char order) {
  CUipcMemHandle handle;
  CHECK(write(orders, &order, 1) == 1 && read(handles, &handle, sizeof handle) == sizeof handle);
  return handle;
}

static void ipc(void) {
  const unsigned lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  int orders, handles, status;
  CUdeviceptr own, at, again;
  CUipcMemHandle handle, nonsense;
  unsigned char byte;
  pid_t child = exporter(&orders, &handles);
  CUipcMemHandle first = told(orders, handles, 'a'), second;
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&at, first, lazy)); /* no context yet */
  use_device(2);
  own = allocated(SHARED);
  MUST(cuIpcGetMemHandle(&handle, own));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&at, handle, lazy));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, allocated(SMALL)));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(own));
  memset(&nonsense, 0x5a, sizeof nonsense);
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&at, nonsense, lazy));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&at, first, 0));
  CHECK(setenv("FAKEGPU_IPC", "refuse", 1) == 0);
  WANT(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&at, first, lazy));
  CHECK(unsetenv("FAKEGPU_IPC") == 0);

  MUST(cuIpcOpenMemHandle_v2(&at, first, lazy));
  MUST(cuIpcOpenMemHandle_v2(&again, first, lazy));
  CHECK(at == again);
  ordinal(2, at + SHARED - 1);
  wants_zeros(at, SHARED);
  told(orders, handles, 'w');
  MUST(cuMemcpyDtoH_v2(&byte, at + SHARED - 1, 1));
  CHECK(byte == 0x77);
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(at));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, at));
  use_device(4); /* another context has it elsewhere */
  MUST(cuIpcOpenMemHandle_v2(&again, first, lazy));
  CHECK(at != again);
  MUST(cuIpcCloseMemHandle(again));
  use_device(2);
  MUST(cuIpcCloseMemHandle(at));
  MUST(cuMemcpyDtoH_v2(&byte, at, 1));
  MUST(cuIpcCloseMemHandle(at));
  WANT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(at));

  told(orders, handles, 'f');
  WANT(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&at, first, lazy));
  second = told(orders, handles, 'a'); /* most likely at the same address, in a file of the same number */
  CHECK(memcmp(&first, &second, sizeof first) != 0);
  WANT(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&at, first, lazy));
  MUST(cuIpcOpenMemHandle_v2(&at, second, lazy));
  close(orders);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  MUST(cuIpcCloseMemHandle(at));
  WANT(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&at, second, lazy));
  close(handles);
}

int main(void) {
  alarm(60);
  ipc(); /* first: it forks */
  MUST(cuCtxSetCurrent(NULL));
  memory();
  virtual_memory();
  return 0;
}
