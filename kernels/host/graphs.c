/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels in CUDA graphs. Two graphs of one communicator must not run at once, for they share a lane, and nobody on the
 * host sees when a graph runs. So the graphs see to it themselves, as NCCL's do (src/misc/strongstream.cc): before the first
 * kernel of a capture waits an event for what ran last, and behind the newest one it is recorded, both whenever the graph
 * runs. One node each: the one that records moves on with each kernel. Within a capture streams order their own kernels; where a
 * call comes on another stream than the one before, which may wait for nothing there, an edge does.
 */
#include "lsa.h"

struct place {
  int status;
  dyn_graph graph;
  const dyn_node *nodes;
  size_t count;
};

static int place_of(void *stream, struct place *p) {
  uint64_t id;
  return dyn_host_driver()->cuStreamGetCaptureInfo_v2(stream, &p->status, &id, &p->graph, &p->nodes, &p->count);
}

/* An edge that is there already is an error to CUDA. */
static int find_edge(struct dyn_lsa *lsa, void *stream) {
  struct place p;
  int error = place_of(stream, &p);
  lsa->needsEdge = true;
  for (size_t i = 0; error == 0 && i < p.count; i++) lsa->needsEdge &= p.nodes[i] != lsa->lastNode;
  return error;
}

/* A captured stream has no id that could be asked for: the capture would end with an error (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
 * measured). Handles do, since no stream of a capture goes before its end; but that of a thread's default stream is every thread's. */
static bool is_same(const void *stream, const void *last) { return stream == last && (uintptr_t)stream > DYN_PER_THREAD_STREAM; }

int dyn_graph_before(struct dyn_lsa *lsa, void *stream, uint64_t captureId) {
  bool same = is_same(stream, lsa->captureStream);
  lsa->captureStream = stream;
  lsa->needsEdge = false;
  if (lsa->captureId == captureId) return same ? 0 : find_edge(lsa, stream);
  int error = dyn_host_driver()->cuStreamWaitEvent(stream, lsa->scratch->done[LANE_GRAPHS], DYN_EVENT_WAIT_EXTERNAL);
  if (error != 0) return error;
  lsa->captureId = captureId;
  lsa->recordNode = NULL;
  return 0;
}

int dyn_graph_after(struct dyn_lsa *lsa, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct place p;
  int error = place_of(stream, &p);
  if (error != 0) return error;
  if (p.status != DYN_CAPTURE_ACTIVE || p.count != 1) return DYN_CUDA_INVALID_VALUE; /* our kernel, just launched */
  dyn_node kernel = p.nodes[0];
  if (lsa->recordNode == NULL) {
    error = driver->cuGraphAddEventRecordNode(&lsa->recordNode, p.graph, &kernel, 1, lsa->scratch->done[LANE_GRAPHS]);
  } else {
    if (lsa->needsEdge) error = driver->cuGraphAddDependencies_v2(p.graph, &lsa->lastNode, &kernel, NULL, 1);
    if (error == 0) error = driver->cuGraphRemoveDependencies_v2(p.graph, &lsa->lastNode, &lsa->recordNode, NULL, 1);
    if (error == 0) error = driver->cuGraphAddDependencies_v2(p.graph, &kernel, &lsa->recordNode, NULL, 1);
  }
  lsa->lastNode = kernel;
  return error;
}
