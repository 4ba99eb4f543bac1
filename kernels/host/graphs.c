/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels in CUDA graphs. Two graphs of one communicator must not run at once, for they share a lane, and nobody on the
 * host sees when a graph runs. So the graphs see to it themselves, as NCCL's do (src/misc/strongstream.cc): before the first
 * kernel of a capture waits an event for what ran last, and behind the newest one it is recorded, both whenever the graph
 * runs. One node each: the one that records moves on with each kernel. Within a capture streams order their own kernels; where a
 * call comes on another stream than the one before, which may wait for nothing there, an edge does.
 * Who promises NCCL that graphs run alone (NCCL_GRAPH_MIXING_SUPPORT=0, or a config's graphUsageMode) has neither event: some graphs may have
 * none, such as the bodies of conditional nodes.
 *
 * A graph that is gone is told by an object of the program's that it holds, as NCCL has it told (ncclCudaGraphAddDestructor): CUDA lets go of it
 * when neither the graph nor what was instantiated or cloned of it exists, and no replay is under way.
 */
#include "lsa.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NODES 1000

/* The variable, where it says anything, goes before the config (envConfigOverride, src/init.cc). */
static bool run_alone(const struct dyn_lsa *lsa) {
  const char *mixing = getenv("NCCL_GRAPH_MIXING_SUPPORT"); /* as NCCL reads it */
  if (mixing == NULL || *mixing == '\0') return lsa->graphsAlone;
  const long long value = strtoll(mixing, NULL, 0);
  return value == 0 || (value != 1 && lsa->graphsAlone);
}

void dyn_lsa_graphs(struct dyn_lsa *lsa, bool alone) { lsa->graphsAlone = alone; }

struct place {
  int status;
  dyn_graph graph;
  const dyn_node *nodes;
  const struct dyn_edge *edges; /* asked for alone: without them edges with data are an error */
  size_t count;
};

static int place_of(void *stream, struct place *p) {
  uint64_t id;
  return dyn_host_driver()->cuStreamGetCaptureInfo_v3(stream, &p->status, &id, &p->graph, &p->nodes, &p->edges, &p->count);
}

/* By the one node before each, as kernels of a stream come: further than that, to where several streams met, or past a kernel that began
 * before the one before it had ended (an edge with data), nobody looks, and there is an edge more than is needed. */
static bool is_behind(dyn_node node, dyn_node other) {
  for (int i = 0; i < MOST_NODES && node != other; i++) {
    dyn_node from[2];
    struct dyn_edge edges[2];
    size_t n = 2;
    if (dyn_host_driver()->cuGraphNodeGetDependencies_v2(node, from, edges, &n) != 0 || n != 1) return false;
    if (memcmp(edges, &(struct dyn_edge){0}, sizeof *edges) != 0) return false;
    node = from[0];
  }
  return node == other;
}

/* What the stream waits for may be behind the call before, as it is where both came on one stream. Which stream that was says nothing: one
 * that joined another may be destroyed, and its handle be that of a new one, within a capture; and to ask a captured one for its id ends
 * the capture with an error (cuStreamGetId; both measured). An edge that is there already is an error, too. */
static int find_edge(struct dyn_lsa *lsa, void *stream) {
  struct place p = {0}; /* nowhere: another thread may have ended the capture with an error since it was looked at */
  int error = place_of(stream, &p);
  lsa->needsEdge = true;
  for (size_t i = 0; error == 0 && i < p.count; i++) lsa->needsEdge &= p.nodes[i] != lsa->capture->lastNode;
  if (error == 0 && p.count == 1 && lsa->needsEdge) lsa->needsEdge = !is_behind(p.nodes[0], lsa->capture->lastNode);
  return error;
}

/* In a thread of CUDA's, which may ask CUDA nothing. */
static void graph_goes(void *graphs) { atomic_fetch_sub((atomic_uint *)graphs, 1); }

/* Where CUDA does not take the object, the graph counts for ever; and where graphs run alone, for such a one may be the body of a conditional node,
 * of whose objects nobody says that they live as long as what is instantiated around it. */
static void count_graph(struct dyn_lsa *lsa, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct place p = {0};
  dyn_user_object object;
  atomic_fetch_add(&lsa->scratch->graphs, 1);
  if (run_alone(lsa)) return;
  if (place_of(stream, &p) != 0 || p.status != DYN_CAPTURE_ACTIVE) return;
  if (driver->cuUserObjectCreate(&object, &lsa->scratch->graphs, graph_goes, 1, DYN_OBJECT_WITHOUT_WAIT) != 0) return;
  driver->cuGraphRetainUserObject(p.graph, object, 1, DYN_OBJECT_MOVES);
}

int dyn_graph_before(struct dyn_lsa *lsa, void *stream, uint64_t captureId) {
  lsa->needsEdge = false;
  for (int i = 0; i < MAX_CAPTURES; i++) {
    lsa->capture = &lsa->captures[i];
    if (lsa->capture->id == captureId) return find_edge(lsa, stream);
  }
  int error = run_alone(lsa) ? 0 : dyn_host_driver()->cuStreamWaitEvent(stream, lsa->scratch->done[LANE_GRAPHS], DYN_EVENT_WAIT_EXTERNAL);
  if (error != 0) return error;
  lsa->capture = &lsa->captures[lsa->numCaptures++ % MAX_CAPTURES];
  *lsa->capture = (struct capture){.id = captureId};
  count_graph(lsa, stream);
  return 0;
}

int dyn_graph_after(struct dyn_lsa *lsa, void *stream) {
  const struct dyn_host_driver *driver = dyn_host_driver();
  struct capture *c = lsa->capture;
  struct place p;
  int error = place_of(stream, &p);
  if (error != 0) return error;
  if (p.status != DYN_CAPTURE_ACTIVE || p.count != 1) return DYN_CUDA_INVALID_VALUE; /* our kernel, just launched */
  dyn_node kernel = p.nodes[0];
  if (lsa->needsEdge && c->lastNode != NULL) error = driver->cuGraphAddDependencies_v2(p.graph, &c->lastNode, &kernel, NULL, 1);
  if (error == 0 && c->lastNode == NULL) {
    if (!run_alone(lsa)) error = driver->cuGraphAddEventRecordNode(&c->recordNode, p.graph, &kernel, 1, lsa->scratch->done[LANE_GRAPHS]);
  } else if (error == 0 && c->recordNode != NULL) {
    error = driver->cuGraphRemoveDependencies_v2(p.graph, &c->lastNode, &c->recordNode, NULL, 1);
    if (error == 0) error = driver->cuGraphAddDependencies_v2(p.graph, &kernel, &c->recordNode, NULL, 1);
  }
  c->lastNode = kernel;
  return error;
}
