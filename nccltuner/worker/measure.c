/* SPDX-License-Identifier: Apache-2.0
 *
 * Times a collective by CUDA events on its own stream, or the host that enqueues it. Every rank must make the same calls,
 * so what depends on time (how many replays fit) is agreed on: the slowest rank's estimate counts, known to all by one
 * collective of 4 bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker.h"

#define MAX_REPLAYS 10000

static CUevent events[2 * MAX_REPLAYS]; /* of each replay its begin and its end */
static double hostUs[MAX_REPLAYS];      /* of its calls, until the last one was enqueued */
static int numEvents;
static volatile unsigned *gate; /* pinned: the replay up to which stream calls may run */
static unsigned gated;

double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int calls_of(struct worker *worker, const struct shape *shape, int calls) {
  for (int i = 0; i < calls; i++)
    if (shape_call(worker, shape) != 0) return -1;
  return 0;
}

/* The last call runs alone, because what it must overwrite is spoiled before it. */
int measure_call(struct worker *worker, const struct shape *shape, int calls, struct reply *reply) {
  size_t wrong;
  double us = -now_us();
  if (calls_of(worker, shape, calls - 1) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  us += now_us();
  if (pattern_poison(worker, shape) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  us -= now_us();
  if (shape_call(worker, shape) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  us += now_us();
  if (pattern_verify(worker, shape, &wrong) != 0) return -1;
  reply_format(reply, "{\"us\":%.4f,\"wrong\":%zu}", us / calls, wrong);
  return 0;
}

/* What is replayed: a graph, or stream calls when exec is NULL. */
struct replay {
  const struct shape *shape;
  int calls;
  enum mode mode;
  CUgraphExec exec;
};

static int replay_once(struct worker *worker, const struct replay *replay) {
  if (replay->exec == NULL) return calls_of(worker, replay->shape, replay->calls);
  CUDA(worker, cuGraphLaunch, replay->exec, worker->stream);
  return 0;
}

/* A replay between two events. Stream calls of a small size take the host longer than the GPU, and their time would be the
 * host's: a gate holds the stream until all of them are enqueued, and one call more, not timed, takes what ranks' gates
 * open apart. Free ones have no gate: their time is what a program sees that keeps no further ahead. */
static int replay_timed(struct worker *worker, const struct replay *replay, int i) {
  if (replay->exec == NULL) {
    if (replay->mode != MODE_FREE)
      CUDA(worker, cuStreamWaitValue32_v2, worker->stream, (CUdeviceptr)(uintptr_t)gate, ++gated, 0 /* at least */);
    if (shape_call(worker, replay->shape) != 0) return -1;
  }
  CUDA(worker, cuEventRecord, events[2 * i], worker->stream);
  hostUs[i] = -now_us();
  int failed = replay_once(worker, replay);
  hostUs[i] += now_us();
  if (!failed) CUDA(worker, cuEventRecord, events[2 * i + 1], worker->stream);
  *gate = gated;
  return failed;
}

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

static int capture(struct worker *worker, struct replay *replay, unsigned *grid) {
  CUgraph graph;
  CUDA(worker, cuStreamBeginCapture_v2, worker->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  if (calls_of(worker, replay->shape, replay->calls) != 0) return -1;
  CUDA(worker, cuStreamEndCapture, worker->stream, &graph);
  if (grid_of(worker, graph, grid) != 0) return -1;
  CUDA(worker, cuGraphInstantiateWithFlags, &replay->exec, graph, 0);
  CUDA(worker, cuGraphDestroy, graph);
  CUDA(worker, cuGraphUpload, replay->exec, worker->stream);
  CUDA(worker, cuStreamSynchronize, worker->stream);
  return 0;
}

static int prepare(struct worker *worker, int replays) {
  for (; numEvents < 2 * replays; numEvents++) CUDA(worker, cuEventCreate, &events[numEvents], CU_EVENT_DEFAULT);
  if (gate == NULL) CUDA(worker, cuMemAllocHost_v2, (void **)&gate, sizeof *gate);
  *gate = gated;
  return 0;
}

static int took(struct worker *worker, const struct replay *replay, int i, double *us) {
  float ms;
  if (replay->mode == MODE_HOST) {
    *us = hostUs[i];
    return 0;
  }
  CUDA(worker, cuEventElapsedTime, &ms, events[2 * i], events[2 * i + 1]);
  *us = (double)ms * 1e3;
  return 0;
}

/* One replay on the slowest rank; the one before takes what ranks were late by. */
static int estimate(struct worker *worker, const struct replay *replay, double *us) {
  if (replay_once(worker, replay) != 0 || replay_timed(worker, replay, 0) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  if (took(worker, replay, 0, us) != 0) return -1;
  float largest = (float)*us;
  if (rank_largest(worker, &largest) != 0) return -1;
  *us = largest > 0.1f ? largest : 0.1; /* a clock that stands still must not ask for endless replays */
  return 0;
}

static int at_most(double x, int most) { return x < most ? (int)x : most; }

static int timed(struct worker *worker, const struct replay *replay, const struct measurement *want, double *us,
                 int *replays) {
  int warm = 1;
  *replays = want->replays;
  if (want->warmUs > 0 || want->minReplays < want->replays) {
    double once = 1;
    if (estimate(worker, replay, &once) != 0) return -1;
    warm += at_most(want->warmUs / once, MAX_REPLAYS);
    *replays = at_most(want->budgetUs / once, want->replays);
    if (*replays < want->minReplays) *replays = want->minReplays;
  }
  for (int i = 0; i < warm; i++)
    if (replay_once(worker, replay) != 0) return -1;
  for (int i = 0; i < *replays; i++)
    if (replay_timed(worker, replay, i) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  for (int i = 0; i < *replays; i++)
    if (took(worker, replay, i, &us[i]) != 0) return -1;
  return 0;
}

/* One more replay, which is not timed: recv is spoiled before it and checked after it. It runs beside the load, if there
 * is one, since what learns from these calls must see one machine. */
static int replay_spoiled(struct worker *worker, const struct replay *replay) {
  if (pattern_poison(worker, replay->shape) != 0 || replay_once(worker, replay) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  return 0;
}

int measure(struct worker *worker, const struct shape *shape, const struct measurement *want, struct reply *reply) {
  static double us[MAX_REPLAYS];
  struct replay replay = {shape, want->calls, want->mode, NULL};
  unsigned grid = 0;
  size_t wrong;
  int replays;
  double began, captureUs = 0;
  if (prepare(worker, want->replays > 1 ? want->replays : 1) != 0) return -1;
  began = now_us();
  if (want->mode == MODE_GRAPH) {
    if (capture(worker, &replay, &grid) != 0) return -1;
    captureUs = now_us() - began;
  }
  if (load_turn(worker, 1) != 0 || timed(worker, &replay, want, us, &replays) != 0 ||
      replay_spoiled(worker, &replay) != 0 || load_turn(worker, 0) != 0)
    return -1;
  if (pattern_verify(worker, shape, &wrong) != 0) return -1;
  if (replay.exec != NULL) CUDA(worker, cuGraphExecDestroy, replay.exec);
  reply_format(reply, "{\"us\":[");
  for (int i = 0; i < replays; i++) reply_format(reply, "%s%.4f", i == 0 ? "" : ",", us[i] / want->calls);
  reply_format(reply, "],\"wrong\":%zu,\"grid\":%u,\"capture_us\":%.1f}", wrong, grid, captureUs);
  return 0;
}
