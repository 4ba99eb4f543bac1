/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL's gin_host_proxy.cc needs of the rest of NCCL and of CUDA, over the stand-in for CUDA's driver.
 */
#include <dlfcn.h>

#include <cstdarg>

#include "alloc.h"
#include "comm.h"
#include "gdrwrap.h"
#include "proxy_rig.h"

int ncclDebugLevel = NCCL_LOG_WARN;
uint64_t ncclDebugMask;
thread_local int ncclDebugNoWarn;
gdr_t ncclGdrCopy;
CUmemAllocationHandleType ncclCuMemHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void ncclDebugLog(ncclDebugLogLevel level, unsigned long, const char *file, int line, const char *format, ...) {
  va_list arguments;
  if (level > NCCL_LOG_WARN) return;
  va_start(arguments, format);
  fprintf(stderr, "rank %d: %s:%d ", proxy_rank(), file, line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}
void ncclLoadParam(char const *, int64_t deflt, int64_t, int64_t *cache) { *cache = deflt; }
int ncclCuMemEnable() { return 1; }
int64_t ncclParamDmaBufEnable() { return 1; }
int64_t ncclParamIbDataDirect() { return 0; }

/* No GDRCopy. */
ncclResult_t wrap_gdr_map(gdr_t, gdr_mh_t, void **, size_t) { return ncclInternalError; }
ncclResult_t wrap_gdr_unmap(gdr_t, gdr_mh_t, void *, size_t) { return ncclInternalError; }
ncclResult_t wrap_gdr_get_info(gdr_t, gdr_mh_t, gdr_info_t *) { return ncclInternalError; }
ncclResult_t wrap_gdr_pin_buffer(gdr_t, unsigned long, size_t, uint64_t, uint32_t, gdr_mh_t *) { return ncclInternalError; }
ncclResult_t wrap_gdr_unpin_buffer(gdr_t, gdr_mh_t) { return ncclInternalError; }

/* The driver's, but for the CPU's node. */
template <typename F>
static F of(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = driver == nullptr ? nullptr : dlsym(driver, name);
  if (found == nullptr) fprintf(stderr, "no %s\n", name), abort();
  return (F)found;
}
#define DRIVER(name, arguments, passed) \
  static CUresult CUDAAPI call_##name arguments { \
    static auto function = of<CUresult(CUDAAPI *) arguments>(#name); \
    return function passed; \
  } \
  decltype(pfn_##name) pfn_##name = call_##name;
#define DRIVER_V2(name, arguments, passed) \
  static CUresult CUDAAPI call_##name arguments { \
    static auto function = of<CUresult(CUDAAPI *) arguments>(#name "_v2"); \
    return function passed; \
  } \
  decltype(pfn_##name) pfn_##name = call_##name;
DRIVER(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal))
DRIVER(cuGetErrorString, (CUresult error, const char **text), (error, text))
DRIVER(cuMemAddressFree, (CUdeviceptr at, size_t bytes), (at, bytes))
DRIVER(cuMemAddressReserve, (CUdeviceptr * at, size_t bytes, size_t alignment, CUdeviceptr where, unsigned long long flags),
       (at, bytes, alignment, where, flags))
DRIVER(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags),
       (handle, bytes, prop, flags))
DRIVER_V2(cuMemGetAddressRange, (CUdeviceptr * base, size_t *bytes, CUdeviceptr at), (base, bytes, at))
DRIVER(cuMemGetAllocationGranularity, (size_t * granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
       (granularity, prop, option))
DRIVER(cuMemMap, (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
       (at, bytes, offset, handle, flags))
DRIVER(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
DRIVER(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *at), (handle, at))
DRIVER(cuMemSetAccess, (CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count), (at, bytes, access, count))
DRIVER(cuMemUnmap, (CUdeviceptr at, size_t bytes), (at, bytes))
decltype(pfn_cuMemGetHandleForAddressRange) pfn_cuMemGetHandleForAddressRange; /* the carrier wants no DMABUF */
static CUresult CUDAAPI attribute(int *value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
decltype(pfn_cuDeviceGetAttribute) pfn_cuDeviceGetAttribute = attribute;

/* The runtime: memory of the stand-in is the CPU's. */
extern "C" {
cudaError_t cudaGetDevice(int *device) { return *device = proxy_rank(), cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaMalloc(void **at, size_t bytes) { return *at = calloc(1, bytes), cudaSuccess; }
cudaError_t cudaFree(void *at) { return free(at), cudaSuccess; }
cudaError_t cudaMemset(void *at, int value, size_t bytes) { return memset(at, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t) { return memset(at, value, bytes), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) { return memcpy(to, from, bytes), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
}
