/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: what a stream is given becomes a graph, each node behind the one before.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda_graph.h"

/* 2: an error has ended it, and nothing comes of it but at its end. */
int fakegpu_capturing(CUstream stream) {
  const struct CUgraph_st *capture = stream_of(stream)->capture;
  return capture == NULL ? 0 : capture->invalid ? 2 : 1;
}

/* What cannot be captured ends the capture, too. */
int capture_refuses(struct CUstream_st *s) {
  if (s->capture == NULL) return 0;
  s->capture->invalid = 1;
  return 1;
}

void fakegpu_capture(CUstream stream, struct fakegpu_work *work) {
  struct CUstream_st *s = stream_of(stream);
  CUgraphNode node = graph_add(s->capture, work);
  if (s->captured != NULL) graph_depend(node, s->captured);
  s->captured = node;
}

/* Captures of the process that are under way; how many were at once since there were none; and those that this thread began. */
static atomic_int under, most;
static _Thread_local int own;

/* What FAKEGPU_CAPTURES wants of a capture that begins, and of one that ends. */
static int begins_well(CUstream stream) {
  int now = atomic_fetch_add(&under, 1) + 1, seen = atomic_load(&most);
  while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now)) continue;
  return ++own == 1 && stream->context == fakegpu_current();
}

static int ends_well(void) {
  int enough = atomic_load(&most) >= atoi(getenv("FAKEGPU_CAPTURES"));
  own--;
  if (atomic_fetch_sub(&under, 1) == 1) atomic_store(&most, 0);
  return enough;
}

FAKEGPU_API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  static atomic_ullong captures;
  if (stream == NULL || stream->capture != NULL || mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (getenv("FAKEGPU_CAPTURES") != NULL && !begins_well(stream)) return CUDA_ERROR_INVALID_CONTEXT;
  stream->capture = calloc(1, sizeof *stream->capture);
  stream->captured = NULL;
  stream->captureId = atomic_fetch_add(&captures, 1) + 1;
  return stream->capture == NULL ? CUDA_ERROR_OUT_OF_MEMORY : 0;
}

FAKEGPU_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  if (stream == NULL || stream->capture == NULL) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  *graph = stream->capture;
  stream->capture = NULL;
  if (getenv("FAKEGPU_CAPTURES") != NULL && !ends_well()) (*graph)->invalid = 1;
  (*graph)->over = 1;
  for (size_t i = 0; i < (*graph)->numForks; i++) (*graph)->forks[i]->capture = NULL;
  if (!(*graph)->invalid) return 0;
  objects_drop(&(*graph)->objects);
  *graph = NULL;
  return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

static void do_nothing(struct fakegpu_work *work, CUstream stream) { (void)work, (void)stream; }
static void release_nothing(struct fakegpu_work *work) { free(work); }

/* A stream that waits for two nodes has one here that is behind both, and does nothing. */
CUresult capture_wait(struct CUstream_st *s, struct CUgraph_st *capture, unsigned long long captureId, CUgraphNode node) {
  if (capture->over) return CUDA_ERROR_CAPTURED_EVENT;
  if (s->capture == NULL) {
    if (capture->numForks == sizeof capture->forks / sizeof *capture->forks) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->forks[capture->numForks++] = s;
    s->capture = capture;
    s->captureId = captureId;
    s->captured = node;
  } else if (s->capture != capture) {
    s->capture->invalid = capture->invalid = 1;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  } else if (node != NULL && node != s->captured) {
    struct fakegpu_work *both = calloc(1, sizeof *both);
    if (both == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *both = (struct fakegpu_work){.run = do_nothing, .release = release_nothing, .type = CU_GRAPH_NODE_TYPE_EMPTY};
    fakegpu_capture(s, both);
    graph_depend(s->captured, node);
  }
  return 0;
}

FAKEGPU_API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  *status = fakegpu_capturing(stream);
  return 0;
}

/* Of a stream that is not captured only the status is told. */
FAKEGPU_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                               const CUgraphNode **dependencies, size_t *count) {
  struct CUstream_st *s = stream_of(stream);
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  *status = fakegpu_capturing(stream);
  if (*status != 1) return 0;
  if (id != NULL) *id = s->captureId;
  if (graph != NULL) *graph = s->capture;
  if (dependencies != NULL) *dependencies = &s->captured;
  if (count != NULL) *count = s->captured != NULL;
  return 0;
}

/* From 12.3 on; all edges here are plain, which no data says. */
FAKEGPU_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                               const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                                               size_t *count) {
  if (edges != NULL && dependencies == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (edges != NULL) *edges = NULL;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
