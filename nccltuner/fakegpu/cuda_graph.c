/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture and CUDA graphs: a list of work, each a kernel node.
 */
#include <stdlib.h>

#include "cuda_stream.h"

struct CUgraphNode_st { struct fakegpu_work *work; };
struct CUgraph_st {
  size_t n, room;
  struct CUgraphNode_st *nodes;
};
struct CUgraphExec_st { struct CUgraph_st graph; };

int fakegpu_capturing(CUstream stream) { return stream_of(stream)->capture != NULL; }

void fakegpu_capture(CUstream stream, struct fakegpu_work *work) {
  struct CUgraph_st *graph = stream_of(stream)->capture;
  if (graph->n == graph->room) {
    graph->room = 2 * graph->room + 16;
    graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
    if (graph->nodes == NULL) abort(); /* a test's machine is out of memory */
  }
  work->references = 1;
  graph->nodes[graph->n++].work = work;
}

static void drop(struct CUgraph_st *graph) {
  for (size_t i = 0; i < graph->n; i++)
    if (--graph->nodes[i].work->references == 0) graph->nodes[i].work->release(graph->nodes[i].work);
  free(graph->nodes);
}

FAKEGPU_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  if (stream == NULL || stream->capture != NULL || mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = calloc(1, sizeof *stream->capture);
  return stream->capture == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
}

FAKEGPU_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  if (stream == NULL || stream->capture == NULL) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  *graph = stream->capture;
  stream->capture = NULL;
  return 0;
}

FAKEGPU_API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  *status = fakegpu_capturing(stream);
  return 0;
}

FAKEGPU_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  if (nodes == NULL) *count = graph->n;
  for (size_t i = 0; nodes != NULL && i < *count; i++) nodes[i] = i < graph->n ? &graph->nodes[i] : NULL;
  return 0;
}

FAKEGPU_API CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
  *type = CU_GRAPH_NODE_TYPE_KERNEL;
  return node == NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
  *params = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = node->work->grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 512,
                                      .blockDimY = 1, .blockDimZ = 1};
  return 0;
}

FAKEGPU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *exec = calloc(1, sizeof **exec);
  if (*exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct CUgraph_st *own = &(*exec)->graph;
  *own = *graph;
  own->nodes = calloc(graph->n + 1, sizeof *own->nodes);
  if (own->nodes == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < graph->n; i++) {
    own->nodes[i] = graph->nodes[i];
    own->nodes[i].work->references++;
  }
  return 0;
}

FAKEGPU_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return exec == NULL || stream_of(stream)->capture != NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

FAKEGPU_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (stream_of(stream)->capture != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (size_t i = 0; i < exec->graph.n; i++) exec->graph.nodes[i].work->run(exec->graph.nodes[i].work, stream);
  return 0;
}

FAKEGPU_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  drop(&exec->graph);
  free(exec);
  return 0;
}

FAKEGPU_API CUresult cuGraphDestroy(CUgraph graph) {
  drop(graph);
  free(graph);
  return 0;
}
