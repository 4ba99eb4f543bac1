/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures calls into CUDA graphs, one of each communicator. Several are captured at the same moment, each by a thread with
 * a stream of its own: what capturing with a plugin does must show also where other captures are under way.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

/* One graph's. */
struct capture {
  struct worker worker; /* as the caller's, with the graph's communicator and stream, and errors of its own */
  const struct shape *shape;
  int calls;
  pthread_barrier_t *together;
  CUgraphExec *exec;
  unsigned grid;
  int failed;
};

/* Blocks of the first kernel in the graph; NCCL runs one a channel. 0: no kernel. */
static int grid_of(struct worker *worker, CUgraph graph, unsigned *grid) {
  size_t n = 0;
  *grid = 0;
  CUDA(worker, cuGraphGetNodes, graph, NULL, &n);
  CUgraphNode *nodes = calloc(n + 1, sizeof *nodes);
  if (nodes == NULL) return worker_fail(worker, "measure: out of memory");
  CUresult result = cuda.cuGraphGetNodes(graph, nodes, &n);
  for (size_t i = 0; i < n && *grid == 0 && result == 0; i++) {
    int type;
    CUDA_KERNEL_NODE_PARAMS params = {0};
    result = cuda.cuGraphNodeGetType(nodes[i], &type);
    if (result != 0 || type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    result = cuda.cuGraphKernelNodeGetParams_v2(nodes[i], &params);
    *grid = params.gridDimX;
  }
  free(nodes);
  return result == 0 ? 0 : cuda_failed(worker, "reading the graph's kernels", result);
}

/* All begin at once, and no call is made before all captures have begun. */
static int capture(struct capture *c) {
  struct worker *worker = &c->worker;
  CUgraph graph;
  CUresult began = cuda.cuCtxSetCurrent(worker->context);
  pthread_barrier_wait(c->together);
  if (began == 0) began = cuda.cuStreamBeginCapture_v2(worker->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  pthread_barrier_wait(c->together);
  if (began != 0) return cuda_failed(worker, "cuStreamBeginCapture_v2", began);
  if (shape_calls(worker, c->shape, c->calls) != 0) return -1;
  CUDA(worker, cuStreamEndCapture, worker->stream, &graph);
  if (grid_of(worker, graph, &c->grid) != 0) return -1;
  CUDA(worker, cuGraphInstantiateWithFlags, c->exec, graph, 0);
  CUDA(worker, cuGraphDestroy, graph);
  CUDA(worker, cuGraphUpload, *c->exec, worker->stream);
  CUDA(worker, cuStreamSynchronize, worker->stream);
  return 0;
}

static void *run(void *argument) {
  struct capture *c = argument;
  c->failed = capture(c);
  return NULL;
}

/* The first one in this thread. */
int capture_graphs(struct worker *worker, const struct shape *shape, int calls, CUgraphExec *execs, unsigned *grid) {
  static struct capture captures[MAX_COMMS];
  pthread_t threads[MAX_COMMS];
  pthread_barrier_t together;
  int n = worker->numComms, failed = 0;
  pthread_barrier_init(&together, NULL, (unsigned)n);
  for (int i = 0; i < n; i++) {
    captures[i] = (struct capture){.worker = *worker, .shape = shape, .calls = calls, .together = &together, .exec = &execs[i]};
    captures[i].worker.comm = worker->comms[i].comm;
    captures[i].worker.stream = worker->comms[i].stream;
    worker->unusable = i > 0 && pthread_create(&threads[i], NULL, run, &captures[i]) != 0; /* the others wait for it until the process ends */
    if (worker->unusable) return worker_fail(worker, "measure: no thread for graph %d of %d", i + 1, n);
  }
  run(&captures[0]);
  for (int i = 1; i < n; i++) pthread_join(threads[i], NULL);
  for (int i = n - 1; i >= 0; i--) {
    if (!captures[i].failed) continue;
    failed = -1;
    worker->unusable |= captures[i].worker.unusable;
    memcpy(worker->error, captures[i].worker.error, sizeof worker->error);
  }
  pthread_barrier_destroy(&together);
  *grid = captures[0].grid;
  return failed;
}
