/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of captures that several streams join. Included by test_lsa.c, behind what begins a communicator.
 */
#ifndef DYN_FORK_STEPS_H
#define DYN_FORK_STEPS_H

/* What a program asks the driver for, and no rank process does. */
static void *of_driver(const char *name) {
  void *function = dlsym(dlopen(driverPath, RTLD_NOW), name);
  CHECK(function != NULL, "%s", name);
  return function;
}
static CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
  return ((CUresult(*)(CUstream, CUevent, unsigned))of_driver("cuStreamWaitEvent"))(stream, event, flags);
}
/* How many nodes a node of a graph comes behind, directly. */
static size_t nodes_before(CUgraphNode node, CUgraphNode from[16]) {
  size_t n = 16;
  CHECK(((CUresult(*)(CUgraphNode, CUgraphNode *, size_t *))of_driver("cuGraphNodeGetDependencies"))(node, from, &n) == 0 && n <= 16);
  return n;
}

/* Whether a node of a graph comes behind another one. */
static bool is_behind(CUgraphNode node, CUgraphNode other) {
  CUgraphNode from[16];
  size_t n = nodes_before(node, from);
  for (size_t i = 0; i < n; i++)
    if (from[i] == other || is_behind(from[i], other)) return true;
  return false;
}

/* Calls of a capture on streams that wait for nothing of each other: their kernels run one after the other all the same, in the
 * order of the calls, and what is recorded behind them is behind all. joined: the second stream waits for the first call. */
static void forks(bool joined) {
  CUgraph graph;
  CUevent fork, join;
  CUgraphNode nodes[32], kernels[3], record = NULL;
  size_t n = 32, numKernels = 0;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1)};
  CHECK(cuda.cuEventCreate(&fork, 0) == 0 && cuda.cuEventCreate(&join, 0) == 0);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  capturing = true;
  if (!joined) CHECK(cuda.cuEventRecord(fork, streams[0]) == 0 && wait_event(streams[1], fork, 0) == 0);
  for (int i = 0; i < 3; i++) {
    s.stream = streams[i == 1];
    make_call(&s, i, 0);
    if (i == 0 && joined) CHECK(cuda.cuEventRecord(fork, streams[0]) == 0 && wait_event(streams[1], fork, 0) == 0);
  }
  CHECK(cuda.cuEventRecord(join, streams[1]) == 0 && wait_event(streams[0], join, 0) == 0);
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphGetNodes(graph, nodes, &n) == 0);
  for (size_t i = 0; i < n; i++) {
    int type;
    CHECK(cuda.cuGraphNodeGetType(nodes[i], &type) == 0 && (type != CU_GRAPH_NODE_TYPE_KERNEL || numKernels < 3));
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) kernels[numKernels++] = nodes[i];
    if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) record = nodes[i];
  }
  CHECK(numKernels == 3 && record != NULL && is_behind(kernels[1], kernels[0]) && is_behind(kernels[2], kernels[1]), "kernels of one lane beside each other");
  CHECK(is_behind(record, kernels[2]));
}

/* One stream orders its own kernels, also where something else is between them: no edge more. */
static void one_stream(void) {
  CUgraph graph;
  CUevent event;
  CUgraphNode nodes[32], from[16];
  size_t n = 32, numKernels = 0;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1), .stream = streams[0]};
  CHECK(cuda.cuEventCreate(&event, 0) == 0 && cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  capturing = true;
  for (int i = 0; i < 3; i++) {
    make_call(&s, i, 0);
    if (i == 1) CHECK(wait_event(streams[0], event, CU_EVENT_WAIT_EXTERNAL) == 0);
  }
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &graph) == 0 && cuda.cuGraphGetNodes(graph, nodes, &n) == 0);
  for (size_t i = 0; i < n; i++) {
    int type;
    CHECK(cuda.cuGraphNodeGetType(nodes[i], &type) == 0);
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) CHECK(nodes_before(nodes[i], from) == 1 && ++numKernels <= 3, "more edges of a kernel, or kernels");
  }
  CHECK(numKernels == 3);
}

static void forked(void) {
  begin();
  forks(false);
  forks(true);
  one_stream();
  meet();
}

/* What a capture that an error has ended loses runs on no stream: the next call there waits for the one before it, on another. */
static void invalidated_between(void) {
  begin();
  CUgraph graph;
  CUevent event;
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1)};
  CHECK(cuda.cuEventCreate(&event, 0) == 0);
  planned = s.action;
  for (int slot = 0; slot < 2; slot++) {
    s.seed = (uint64_t)slot;
    fill(&s, slot);
  }
  meet();
  for (int slot = 0; slot < 2; slot++) {
    s.stream = streams[1 - slot];
    if (slot == 1) {
      for (int i = 0; i < 2; i++) CHECK(cuda.cuStreamBeginCapture_v2(streams[2 * i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
      CHECK(cuda.cuEventRecord(event, streams[2]) == 0 && wait_event(streams[0], event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
      capturing = true;
      CHECK(issue(&s, slot, COMM) == 1);
      capturing = false;
      for (int i = 0; i < 2; i++) CHECK(cuda.cuStreamEndCapture(streams[2 * i], &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if (rank == 0) CHECK(issue(&s, slot, COMM) == 0);
  }
  usleep(100000);
  for (int slot = 0; slot < 2 && rank == 1; slot++) {
    s.stream = streams[1 - slot];
    CHECK(issue(&s, slot, COMM) == 0);
  }
  wait_for_all();
  for (int slot = 0; slot < 2; slot++) {
    s.seed = (uint64_t)slot;
    compare(&s, slot, true);
  }
}

#endif
