/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA graphs: a list of work, each a node. A launch does the work in the order in which it was captured, whatever else
 * dependencies allow; events that the graph records it records behind all of it. An executable graph can take over the work of another graph of the
 * same shape (cuGraphExecUpdate), and what that holds of the program's in place of its own.
 */
#include "cuda_graph.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct CUgraphExec_st {
  size_t n;
  struct fakegpu_work **works;
  size_t *shape; /* of each node its type, how many it depends on, and which */
  size_t numShape;
  struct objects objects;
};

/* Room for one more of n things. */
static CUgraphNode *grown(CUgraphNode *nodes, size_t n, size_t *room) {
  if (n < *room) return nodes;
  *room = 2 * *room + 4;
  nodes = realloc(nodes, *room * sizeof *nodes);
  if (nodes == NULL) abort(); /* a test's machine is out of memory */
  return nodes;
}

CUgraphNode graph_add(struct CUgraph_st *graph, struct fakegpu_work *work) {
  CUgraphNode node = calloc(1, sizeof *node);
  if (node == NULL) abort();
  graph->nodes = grown(graph->nodes, graph->n, &graph->room);
  graph->nodes[graph->n++] = node;
  node->graph = graph;
  node->work = work;
  work->references = 1;
  return node;
}

void graph_depend(CUgraphNode node, CUgraphNode from) {
  node->from = grown(node->from, node->n, &node->room);
  node->from[node->n++] = from;
}

static void drop(struct fakegpu_work *work) {
  if (--work->references == 0) work->release(work);
}

FAKEGPU_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  for (size_t i = 0; nodes != NULL && i < *count; i++) nodes[i] = i < graph->n ? graph->nodes[i] : NULL;
  if (nodes == NULL || *count > graph->n) *count = graph->n;
  return 0;
}

FAKEGPU_API CUresult cuGraphNodeGetType(CUgraphNode node, int *type) {
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE;
  *type = node->work->type;
  return 0;
}

FAKEGPU_API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count) {
  if (node == NULL || count == NULL) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; dependencies != NULL && i < *count; i++) dependencies[i] = i < node->n ? node->from[i] : NULL;
  if (dependencies == NULL || *count > node->n) *count = node->n;
  return 0;
}

/* From 12.3 on; all edges here are plain. */
FAKEGPU_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count) {
  if (edges != NULL && dependencies == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuGraphNodeGetDependencies(node, dependencies, count);
  for (size_t i = 0; result == 0 && edges != NULL && i < *count; i++) edges[i] = (CUgraphEdgeData){0};
  return result;
}

FAKEGPU_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
  if (node == NULL || node->work->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  *params = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = node->work->grid, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = node->work->block, .blockDimY = 1, .blockDimZ = 1};
  return 0;
}

FAKEGPU_API CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                               size_t count, CUevent event) {
  if (node == NULL || graph == NULL || event == NULL || (count > 0 && dependencies == NULL)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (dependencies[i] == NULL || dependencies[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    for (size_t j = 0; j < i; j++)
      if (dependencies[j] == dependencies[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  struct fakegpu_work *work = event_work(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  if (work == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *node = graph_add(graph, work);
  for (size_t i = 0; i < count; i++) graph_depend(*node, dependencies[i]);
  return 0;
}

/* Where an edge stands in a node's list; n: nowhere. */
static size_t find(CUgraphNode from, CUgraphNode to) {
  size_t i = 0;
  while (i < to->n && to->from[i] != from) i++;
  return i;
}

/* All edges or, where one is wrong, none. Only plain edges are known here. */
static CUresult change(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
                       size_t count, int adds) {
  if (graph == NULL || (count > 0 && (from == NULL || to == NULL))) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (from[i] == NULL || to[i] == NULL || from[i] == to[i] || from[i]->graph != graph || to[i]->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
    if (edges != NULL && (edges[i].from_port != 0 || edges[i].to_port != 0 || edges[i].type != 0))
      return CUDA_ERROR_INVALID_VALUE;
    if ((find(from[i], to[i]) < to[i]->n) == adds) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; i++) {
    size_t at = find(from[i], to[i]);
    if (adds && at == to[i]->n) graph_depend(to[i], from[i]);
    else if (!adds && at < to[i]->n) to[i]->from[at] = to[i]->from[--to[i]->n];
  }
  return 0;
}

/* The plain names are of CUDA 12.0, those with edges of 12.3; drivers of 13.0 have both. */
FAKEGPU_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  return change(graph, from, to, NULL, count, 1);
}

FAKEGPU_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                               const CUgraphEdgeData *edges, size_t count) {
  return change(graph, from, to, edges, count, 1);
}

FAKEGPU_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  return change(graph, from, to, NULL, count, 0);
}

FAKEGPU_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                                  const CUgraphEdgeData *edges, size_t count) {
  return change(graph, from, to, edges, count, 0);
}

static size_t number_of(CUgraph graph, CUgraphNode node) {
  size_t i = 0;
  while (graph->nodes[i] != node) i++;
  return i;
}

static size_t *shape_of(CUgraph graph, size_t *count) {
  *count = 0;
  for (size_t i = 0; i < graph->n; i++) *count += 2 + graph->nodes[i]->n;
  size_t *shape = calloc(*count + 1, sizeof *shape), *at = shape;
  if (shape == NULL) abort();
  for (size_t i = 0; i < graph->n; i++) {
    CUgraphNode node = graph->nodes[i];
    *at++ = (size_t)node->work->type;
    *at++ = node->n;
    for (size_t j = 0; j < node->n; j++) *at++ = number_of(graph, node->from[j]);
  }
  return shape;
}

FAKEGPU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *exec = calloc(1, sizeof **exec);
  if (*exec == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*exec)->works = calloc(graph->n + 1, sizeof *(*exec)->works);
  if ((*exec)->works == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < graph->n; i++) {
    (*exec)->works[i] = graph->nodes[i]->work;
    graph->nodes[i]->work->references++;
  }
  (*exec)->n = graph->n;
  (*exec)->shape = shape_of(graph, &(*exec)->numShape);
  objects_copy(&(*exec)->objects, &graph->objects);
  return 0;
}

/* "the references in the new source graph are cloned and replace the references in the target graph" (CUDA's guide, CUDA User Objects); launches
 * that are under way have theirs. */
FAKEGPU_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  if (exec == NULL || graph == NULL || info == NULL) return CUDA_ERROR_INVALID_VALUE;
  size_t numShape;
  size_t *shape = shape_of(graph, &numShape);
  bool same = graph->n == exec->n && numShape == exec->numShape && memcmp(shape, exec->shape, numShape * sizeof *shape) == 0;
  free(shape);
  *info = (CUgraphExecUpdateResultInfo){.result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  if (!same) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  struct objects before = exec->objects;
  exec->objects = (struct objects){0};
  objects_copy(&exec->objects, &graph->objects);
  for (size_t i = 0; i < exec->n; i++) {
    graph->nodes[i]->work->references++;
    drop(exec->works[i]);
    exec->works[i] = graph->nodes[i]->work;
  }
  objects_drop(&before);
  return 0;
}

/* Its nodes are others, and do the same work. */
FAKEGPU_API CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
  if (clone == NULL || graph == NULL) return CUDA_ERROR_INVALID_VALUE;
  *clone = calloc(1, sizeof **clone);
  if (*clone == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < graph->n; i++) {
    unsigned references = graph->nodes[i]->work->references;
    graph_add(*clone, graph->nodes[i]->work)->work->references = references + 1;
  }
  for (size_t i = 0; i < graph->n; i++)
    for (size_t j = 0; j < graph->nodes[i]->n; j++) graph_depend((*clone)->nodes[i], (*clone)->nodes[number_of(graph, graph->nodes[i]->from[j])]);
  objects_copy(&(*clone)->objects, &graph->objects);
  return 0;
}

FAKEGPU_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return exec == NULL || stream_of(stream)->capture != NULL ? CUDA_ERROR_INVALID_VALUE : 0;
}

static void launch(CUgraphExec exec, CUstream stream, int records) {
  for (size_t i = 0; i < exec->n; i++)
    if ((exec->works[i]->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) == records) exec->works[i]->run(exec->works[i], stream);
}

FAKEGPU_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (capture_refuses(stream_of(stream))) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  launch(exec, stream, 0);
  launch(exec, stream, 1);
  for (size_t i = 0; i < exec->objects.n; i++) {
    object_take(exec->objects.all[i]);
    queue_add(stream_of(stream), &(struct job){.kind = JOB_LET_GO, .object = exec->objects.all[i]});
  }
  return 0;
}

FAKEGPU_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  for (size_t i = 0; i < exec->n; i++) drop(exec->works[i]);
  free(exec->works);
  free(exec->shape);
  objects_drop(&exec->objects);
  free(exec);
  return 0;
}

FAKEGPU_API CUresult cuGraphDestroy(CUgraph graph) {
  for (size_t i = 0; i < graph->n; i++) {
    drop(graph->nodes[i]->work);
    free(graph->nodes[i]->from);
    free(graph->nodes[i]);
  }
  free(graph->nodes);
  objects_drop(&graph->objects);
  free(graph);
  return 0;
}
