/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches, events and captures: what is refused, and what time says.
 */
#include <math.h>
#include <unistd.h>

#include "rig.h"

int fakegpu_is_loaded(void);

/* A kernel that has no peers. */
static struct rank alone;
static CUfunction function;
static struct dyn_call call;
static void *arguments[] = {&call, NULL};

static CUresult launch(unsigned grid, unsigned gridY, unsigned block, unsigned blockZ, unsigned sharedBytes, void **extra) {
  return cuLaunchKernel(function, grid, gridY, 1, block, 1, blockZ, sharedBytes, alone.streams[0], arguments, extra);
}

static void launches(void) {
  CUcontext other;
  CUmodule module;
  void *extra[] = {NULL};
  rank_open(&alone, 0, 1);
  rank_connect(&alone, &alone.shared);
  call = (struct dyn_call){(void *)(uintptr_t)alone.in, (void *)(uintptr_t)alone.out, 250, 0, 0, NULL, alone.domain};
  WANT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, alone.module, "oneShot_float16"));
  MUST(cuModuleGetFunction(&function, alone.module, "oneShot_float"));
  MUST(launch(64, 1, 512, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(0, 1, 512, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(129, 1, 512, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 2, 512, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 0, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 513, 1, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 32, 2, 0, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 32, 1, 16, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, launch(1, 1, 32, 1, 0, extra));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, alone.streams[0], NULL, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, "no image"));
  MUST(cuCtxSetCurrent(NULL));
  WANT(CUDA_ERROR_INVALID_CONTEXT, launch(1, 1, 1, 1, 0, NULL));
  MUST(cuDevicePrimaryCtxRetain(&other, 1));
  MUST(cuCtxSetCurrent(other));
  /* Its legacy stream. */
  WANT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
  MUST(cuCtxSetCurrent(alone.context));
  MUST(cuStreamSynchronize(alone.streams[0]));
}

static void took(CUevent from, CUevent to, double us) {
  float ms;
  MUST(cuEventElapsedTime(&ms, from, to));
  CHECK(fabs(ms * 1e3 - us) < 1e-3);
}

/* Ours take what the variables say and are nobody's load; a kernel of PTX is. */
static void times(void) {
  static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry other() { ret; }\n";
  CUevent events[4];
  CUmodule module;
  CUfunction others;
  for (int i = 0; i < 4; i++) MUST(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
  MUST(cuEventRecord(events[0], alone.streams[0]));
  MUST(launch(8, 1, 128, 1, 0, NULL));
  MUST(cuEventRecord(events[1], alone.streams[0]));
  CHECK(setenv("FAKEGPU_KERNEL_US", "7", 1) == 0 && setenv("FAKEGPU_KERNEL_GBS", "0.5", 1) == 0);
  MUST(launch(8, 1, 128, 1, 0, NULL));
  MUST(cuEventRecord(events[2], alone.streams[0]));
  MUST(cuStreamWaitEvent(alone.streams[1], events[2], 0)); /* the other stream's clock is not behind */
  MUST(cuEventRecord(events[3], alone.streams[1]));
  took(events[0], events[1], 4 + 1000 / 100e3);
  took(events[1], events[2], 7 + 1000 / 0.5e3);
  took(events[2], events[3], 0);
  CHECK(!fakegpu_is_loaded());
  MUST(cuModuleLoadData(&module, ptx));
  MUST(cuModuleGetFunction(&others, module, "other"));
  MUST(cuLaunchKernel(others, 1, 1, 1, 1, 1, 1, 0, alone.streams[1], arguments, NULL));
  CHECK(fakegpu_is_loaded());
  MUST(cuStreamSynchronize(alone.streams[1]));
  CHECK(!fakegpu_is_loaded());
  MUST(cuModuleUnload(module));
  for (int i = 0; i < 4; i++) MUST(cuEventDestroy_v2(events[i]));
}

static void fills(void) {
  unsigned char in[1000], out[1000];
  MUST(cuMemsetD8_v2(alone.in, 1, sizeof in));
  MUST(cuMemsetD8_v2(alone.out, 2, sizeof out));
  MUST(launch(8, 1, 128, 1, 0, NULL));
  MUST(cuMemsetD8Async(alone.in, 3, sizeof in, alone.streams[0]));
  MUST(cuMemcpyDtoH_v2(in, alone.in, sizeof in));
  MUST(cuMemcpyDtoH_v2(out, alone.out, sizeof out));
  for (size_t i = 0; i < sizeof in; i++) CHECK(in[i] == 3 && out[i] == 1);
}

static void events(void) {
  CUstream stream = alone.streams[0];
  CUevent event;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(NULL));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(stream, NULL, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, 8));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL)); /* nothing is captured */
  MUST(cuStreamWaitEvent(stream, event, 0));                                                /* nothing was recorded */
  MUST(cuEventRecord(event, alone.streams[1]));
  MUST(cuStreamWaitEvent(stream, event, 0));
  MUST(cuEventDestroy_v2(event));
}

static void dependencies(CUgraph graph, const CUgraphNode *kernel, const CUgraphNode *record) {
  CUgraphEdgeData plain = {0}, other = {.from_port = 1};
  CUgraphNode foreign;
  CUgraph none = NULL;
  MUST(cuGraphAddDependencies_v2(graph, kernel, record, NULL, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, kernel, record, 1)); /* is there already */
  MUST(cuGraphRemoveDependencies(graph, kernel, record, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies_v2(graph, kernel, record, &plain, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies_v2(graph, kernel, record, &other, 1));
  MUST(cuGraphAddDependencies_v2(graph, kernel, record, &plain, 1));
  MUST(cuGraphRemoveDependencies_v2(graph, kernel, record, NULL, 1));
  MUST(cuGraphAddDependencies(graph, NULL, NULL, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, kernel, kernel, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(none, kernel, record, 1));
  /* Of another graph. */
  CUgraph second;
  MUST(cuStreamBeginCapture_v2(alone.streams[1], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, alone.streams[1], arguments, NULL));
  MUST(cuStreamEndCapture(alone.streams[1], &second));
  MUST(cuGraphGetNodes(second, &foreign, (size_t[]){1}));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &foreign, record, 1));
  MUST(cuGraphDestroy(second));
}

static void captures(void) {
  CUstream stream = alone.streams[0];
  CUstreamCaptureStatus status;
  CUgraph graph, done;
  CUgraphExec exec;
  CUgraphNode nodes[4], record;
  const CUgraphNode *last;
  const CUgraphEdgeData *edges;
  CUgraphNodeType types[4];
  CUDA_KERNEL_NODE_PARAMS_v2 params;
  CUevent event;
  cuuint64_t id = 0, next = 0;
  unsigned long long streamId;
  size_t count;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  MUST(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &last, &count));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE && id == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamGetCaptureInfo_v2(stream, NULL, &id, &graph, &last, &count));
  MUST(cuEventRecord(event, alone.streams[1]));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamGetId(stream, &streamId)); /* as CUDA 13.0 */
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &done));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &done));
  MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &last, &count));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && count == 0);
  WANT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, event, 0));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(stream, NULL, CU_EVENT_WAIT_EXTERNAL));
  MUST(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
  MUST(launch(40, 1, 96, 1, 0, NULL));
  call.count = 500; /* an argument of the next one alone */
  MUST(launch(50, 1, 64, 1, 0, NULL));
  call.count = 250;
  MUST(cuStreamGetCaptureInfo_v3(stream, &status, &next, &graph, &last, &edges, &count));
  CHECK(next == id && count == 1 && edges == NULL);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEventRecordNode(&record, graph, last, 1, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEventRecordNode(&record, graph, NULL, 1, event));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEventRecordNode(NULL, graph, NULL, 0, event));
  MUST(cuGraphAddEventRecordNode(&record, graph, NULL, 0, event));
  dependencies(graph, last, &record);
  MUST(cuStreamEndCapture(stream, &done));
  CHECK(done == graph);
  MUST(cuGraphGetNodes(graph, NULL, &count));
  CHECK(count == 4);
  MUST(cuGraphGetNodes(graph, nodes, &count));
  for (int i = 0; i < 4; i++) MUST(cuGraphNodeGetType(nodes[i], &types[i]));
  CHECK(types[0] == CU_GRAPH_NODE_TYPE_WAIT_EVENT && types[1] == CU_GRAPH_NODE_TYPE_KERNEL);
  CHECK(types[2] == CU_GRAPH_NODE_TYPE_KERNEL && types[3] == CU_GRAPH_NODE_TYPE_EVENT_RECORD && nodes[3] == record);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams_v2(nodes[0], &params));
  MUST(cuGraphKernelNodeGetParams_v2(nodes[1], &params));
  CHECK(params.gridDimX == 40 && params.blockDimX == 96);
  MUST(cuGraphKernelNodeGetParams_v2(nodes[2], &params));
  CHECK(params.gridDimX == 50 && params.blockDimX == 64);
  /* The event is the graph's as well, and told in it: behind both kernels. */
  CUevent start;
  MUST(cuEventCreate(&start, CU_EVENT_DEFAULT));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphDestroy(graph));
  MUST(cuEventRecord(start, stream));
  MUST(cuGraphLaunch(exec, stream));
  took(start, event, 2 * 7 + (1000 + 2000) / 0.5e3); /* as times has set the variables */
  MUST(cuEventDestroy_v2(event));
  MUST(cuGraphLaunch(exec, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuEventDestroy_v2(start));
}

/* A peer that never comes: the kernel gives up, and says for whom it waited. So it does when it is told to stop. */
static void gives_up(void) {
  CUdeviceptr shared[2];
  struct rank r;
  rank_open(&r, 0, 2);
  shared[0] = r.shared;
  MUST(cuMemAlloc_v2(&shared[1], 8 << 20));
  rank_connect(&r, shared);
  r.domain.waitNs = 20000000;
  call.domain = r.domain;
  MUST(cuModuleGetFunction(&function, r.module, "oneShot_float"));
  MUST(cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, r.streams[0], arguments, NULL));
  MUST(cuStreamSynchronize(r.streams[0]));
  CHECK(*r.fault == ((uint64_t)2 << DYN_FAULT_PEER_SHIFT | 1));
  *r.fault = 0;
  call.domain.waitNs = 1000000000000;
  *r.stop = 1;
  MUST(cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, r.streams[0], arguments, NULL));
  MUST(cuStreamSynchronize(r.streams[0]));
  rank_close(&r);
}

static void names(void) {
  const CUresult codes[] = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_MAP_FAILED, CUDA_ERROR_INVALID_HANDLE,
                            CUDA_ERROR_NOT_FOUND, CUDA_ERROR_STREAM_CAPTURE_ISOLATION};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    const char *name, *text;
    MUST(cuGetErrorName(codes[i], &name));
    MUST(cuGetErrorString(codes[i], &text));
  }
}

int main(void) {
  alarm(60);
  launches();
  fills();
  times();
  events();
  captures();
  gives_up();
  names();
  rank_close(&alone);
  return 0;
}
