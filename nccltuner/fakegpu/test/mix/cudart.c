/* SPDX-License-Identifier: Apache-2.0
 *
 * What mix (nccltuner/gputest/mix.cu) calls of CUDA's runtime, made of the driver's stand-in, and of NCCL what that stand-in lacks. Nothing
 * is captured, split or shrunk here: such cases fail.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define AS(CALL) ((cudaError_t)(CALL)) /* errors have the same numbers */

static CUcontext contexts[16];

API cudaError_t cudaGetDeviceCount(int *n) {
  CUresult r = cuInit(0);
  return AS(r == 0 ? cuDeviceGetCount(n) : r);
}

API cudaError_t cudaSetDevice(int device) {
  CUresult r = cuInit(0);
  if (device < 0 || device >= 16) return cudaErrorInvalidDevice;
  if (r == 0 && contexts[device] == NULL) r = cuDevicePrimaryCtxRetain(&contexts[device], device);
  return AS(r == 0 ? cuCtxSetCurrent(contexts[device]) : r);
}

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  memset(prop, 0, sizeof *prop);
  return AS(cuDeviceGetName(prop->name, sizeof prop->name, device));
}
API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) { return AS(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device)); }
API cudaError_t cudaDeviceSynchronize(void) { return AS(cuCtxSynchronize()); }
API cudaError_t cudaGetLastError(void) { return cudaSuccess; }
API const char *cudaGetErrorString(cudaError_t error) {
  const char *text = NULL;
  return cuGetErrorString((CUresult)error, &text) == 0 && text != NULL ? text : "unknown error";
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return AS(cuStreamCreate(stream, flags)); }
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return AS(cuStreamSynchronize(stream)); }
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return AS(cuStreamWaitEvent(stream, event, flags)); }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return AS(cuEventCreate(event, flags)); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) { return AS(cuEventDestroy_v2(event)); }
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return AS(cuEventRecord(event, stream)); }
API cudaError_t cudaEventQuery(cudaEvent_t event) { return AS(cuEventQuery(event)); }
API cudaError_t cudaEventSynchronize(cudaEvent_t event) { return AS(cuEventSynchronize(event)); }

API cudaError_t cudaMalloc(void **memory, size_t bytes) {
  CUdeviceptr at = 0;
  CUresult r = cuMemAlloc_v2(&at, bytes);
  *memory = (void *)(uintptr_t)at;
  return AS(r);
}
API cudaError_t cudaFree(void *memory) { return AS(cuMemFree_v2((CUdeviceptr)(uintptr_t)memory)); }
API cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
  (void)flags;
  return AS(cuMemAllocHost_v2(memory, bytes));
}
API cudaError_t cudaFreeHost(void *memory) { return AS(cuMemFreeHost(memory)); }
/* Device memory is the host's. */
API cudaError_t cudaMemset(void *memory, int value, size_t bytes) { return memset(memory, value, bytes), cudaSuccess; }
API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  return memcpy(to, from, bytes), cudaSuccess;
}

#define LACKS(NAME, PARAMETERS) API cudaError_t NAME PARAMETERS { return fprintf(stderr, "the stand-in has no " #NAME "\n"), cudaErrorNotSupported; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
LACKS(cudaStreamQuery, (cudaStream_t stream))
LACKS(cudaStreamBeginCapture, (cudaStream_t stream, enum cudaStreamCaptureMode mode))
LACKS(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph))
LACKS(cudaStreamBeginCaptureToGraph, (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t n, enum cudaStreamCaptureMode mode))
LACKS(cudaGraphCreate, (cudaGraph_t *graph, unsigned flags))
LACKS(cudaGraphDestroy, (cudaGraph_t graph))
LACKS(cudaGraphInstantiate, (cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags))
LACKS(cudaGraphExecDestroy, (cudaGraphExec_t exec))
LACKS(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream))
LACKS(cudaGraphConditionalHandleCreate, (cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned value, unsigned flags))
LACKS(cudaGraphAddNode, (cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t n, struct cudaGraphNodeParams *params))

enum { INVALID_USAGE = 5 }; /* ncclResult_t */
/* NCCL's waits for its calls. */
API int ncclCommFinalize(void *comm) {
  (void)comm;
  return (int)cuCtxSynchronize();
}
API int ncclCommSplit(void *comm, int color, int key, void **made, void *config) { return INVALID_USAGE; }
API int ncclCommShrink(void *comm, int *without, int n, void **made, void *config, int flags) { return INVALID_USAGE; }
