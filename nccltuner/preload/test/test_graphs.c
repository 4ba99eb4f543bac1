/* SPDX-License-Identifier: Apache-2.0
 *
 * Edges between kernels of a capture (kernels/host/graphs.c), over a driver that knows graphs and nothing else: where the graph orders
 * a call behind the one before there is none, else there is one, after so many questions at most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/host/lsa.h"

#define MOST_NODES 1000
#define CHECK(condition) ((condition) ? (void)0 : (printf("test_graphs: line %d: %s\n", __LINE__, #condition), exit(1)))

struct CUgraphNode_st {
  size_t n;
  dyn_node from[4];
  struct dyn_edge edges[4];
};
struct CUgraph_st { int none; };

/* One stream, or what was made of it by waits: a call on it comes behind these. */
static struct CUgraph_st graph;
static dyn_node behind[4];
static size_t numBehind, asked;
static int status = DYN_CAPTURE_ACTIVE;
static struct CUgraphNode_st nodes[4000], records[4];
static size_t numNodes, numRecords;
static struct scratch scratch;
static struct dyn_lsa lsa = {.scratch = &scratch};
static bool graphsAlone; /* by the config */

static dyn_node add(size_t n, dyn_node const *from) {
  dyn_node node = &nodes[numNodes++];
  *node = (struct CUgraphNode_st){.n = n};
  for (size_t i = 0; i < n; i++) node->from[i] = from[i];
  return node;
}

static int place(void *stream, int *at, uint64_t *id, dyn_graph *in, const dyn_node **from, const struct dyn_edge **edges, size_t *count) {
  (void)stream;
  *at = status;
  if (status != DYN_CAPTURE_ACTIVE) return 0; /* and nothing else is told */
  *id = 1, *in = &graph, *from = behind, *edges = NULL, *count = numBehind;
  return 0;
}
static int before(dyn_node node, dyn_node *from, struct dyn_edge *edges, size_t *n) {
  size_t room = *n;
  asked++;
  for (size_t i = 0; i < room; i++) from[i] = i < node->n ? node->from[i] : NULL;
  for (size_t i = 0; i < room && i < node->n; i++) edges[i] = node->edges[i];
  if (room > node->n) *n = node->n;
  return 0;
}
static int wait_event(void *stream, dyn_event event, unsigned flags) {
  (void)stream, (void)event;
  CHECK(flags == DYN_EVENT_WAIT_EXTERNAL);
  behind[0] = add(numBehind, behind);
  numBehind = 1;
  return 0;
}
static int record(dyn_node *node, dyn_graph in, const dyn_node *after, size_t count, dyn_event event) {
  (void)event;
  CHECK(in == &graph && count == 1 && numRecords < 4);
  *node = &records[numRecords++];
  **node = (struct CUgraphNode_st){.n = 1, .from = {*after}};
  return 0;
}
static int add_edge(dyn_graph in, const dyn_node *from, const dyn_node *to, const void *edges, size_t count) {
  CHECK(in == &graph && edges == NULL && count == 1 && (*to)->n < 4);
  for (size_t i = 0; i < (*to)->n; i++) CHECK((*to)->from[i] != *from);
  (*to)->edges[(*to)->n] = (struct dyn_edge){0};
  (*to)->from[(*to)->n++] = *from;
  return 0;
}
static int remove_edge(dyn_graph in, const dyn_node *from, const dyn_node *to, const void *edges, size_t count) {
  CHECK(in == &graph && edges == NULL && count == 1 && (*to)->n == 1 && (*to)->from[0] == *from);
  (*to)->n = 0;
  return 0;
}
/* What the graph holds; one of these is refused, if any. */
enum { NONE, CREATE, RETAIN } refuses;
static struct CUuserObject_st { void *about; void (*goes)(void *about); } objects[4];
static size_t numObjects, numHeld;
static int create(dyn_user_object *object, void *about, void (*goes)(void *), unsigned references, unsigned flags) {
  CHECK(references == 1 && flags == DYN_OBJECT_WITHOUT_WAIT && numObjects < 4);
  *object = &objects[numObjects];
  objects[numObjects++] = (struct CUuserObject_st){about, goes};
  return refuses == CREATE;
}
static int retain(dyn_graph in, dyn_user_object object, unsigned references, unsigned flags) {
  CHECK(in == &graph && object == &objects[numObjects - 1] && references == 1 && flags == DYN_OBJECT_MOVES);
  numHeld += refuses != RETAIN;
  return refuses == RETAIN;
}
static const struct dyn_host_driver driver = {.cuStreamGetCaptureInfo_v3 = place,
                                              .cuGraphNodeGetDependencies_v2 = before,
                                              .cuStreamWaitEvent = wait_event,
                                              .cuUserObjectCreate = create,
                                              .cuGraphRetainUserObject = retain,
                                              .cuGraphAddEventRecordNode = record,
                                              .cuGraphAddDependencies_v2 = add_edge,
                                              .cuGraphRemoveDependencies_v2 = remove_edge};
const struct dyn_host_driver *dyn_host_driver(void) { return &driver; }

static void comes_behind(size_t n, dyn_node a, dyn_node b) {
  numBehind = n;
  behind[0] = a, behind[1] = b;
}

/* A call of ours in this capture, where the stream is; its kernel, behind which the capture records. */
static dyn_node call_in(uint64_t capture, size_t record) {
  CHECK(dyn_graph_before(&lsa, NULL, capture) == 0);
  dyn_node kernel = add(numBehind, behind);
  comes_behind(1, kernel, NULL);
  CHECK(dyn_graph_after(&lsa, NULL) == 0 && record < numRecords && records[record].n == 1 && records[record].from[0] == kernel);
  return kernel;
}
static dyn_node last;
/* Whether the call after the last one has an edge that we added; what lies between is set by then. */
static bool adds_edge(void) {
  size_t n = numBehind;
  dyn_node kernel = call_in(1, 0);
  CHECK(kernel->n == n || (kernel->n == n + 1 && kernel->from[n] == last));
  last = kernel;
  return kernel->n > n;
}
static void anew(void) {
  numNodes = numRecords = numBehind = asked = numObjects = numHeld = scratch.graphs = 0;
  lsa = (struct dyn_lsa){.scratch = &scratch};
  dyn_lsa_graphs(&lsa, graphsAlone);
  last = call_in(1, 0);
}
static dyn_node chain(dyn_node from, int length) {
  for (int i = 0; i < length; i++) from = add(1, &from);
  return from;
}

static void edges(void) {
  anew();
  CHECK(!adds_edge() && asked == 0); /* the same stream */
  dyn_node other = add(0, NULL);
  comes_behind(1, chain(last, 5), NULL);
  CHECK(!adds_edge() && asked == 5);
  comes_behind(1, other, NULL); /* another stream */
  CHECK(adds_edge());
  comes_behind(0, NULL, NULL); /* where nothing was yet */
  CHECK(adds_edge());
  comes_behind(2, other, last);
  CHECK(!adds_edge());
  comes_behind(2, other, chain(last, 1)); /* streams met: nobody looks */
  CHECK(adds_edge());
  dyn_node both = add(2, (dyn_node[]){last, other});
  comes_behind(1, both, NULL);
  CHECK(adds_edge());
  /* What begins before the kernel in front of it has ended. */
  dyn_node early = chain(last, 1);
  early->edges[0].bytes[2] = 1; /* CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC */
  comes_behind(1, chain(early, 1), NULL);
  CHECK(adds_edge());
}

static void bounded(void) {
  anew();
  comes_behind(1, chain(last, MOST_NODES), NULL);
  CHECK(!adds_edge() && asked == MOST_NODES);
  asked = 0;
  comes_behind(1, chain(last, MOST_NODES + 1), NULL);
  CHECK(adds_edge() && asked == MOST_NODES);
}

/* Calls of several captures in turn: each has one order, and records behind its newest. */
static void beside(void) {
  anew();
  for (int i = 0; i < 3; i++) {
    dyn_node mine = last;
    comes_behind(0, NULL, NULL);
    call_in(2, 1);
    comes_behind(0, NULL, NULL);
    CHECK(adds_edge() && last->from[0] == mine && numRecords == 2);
  }
}

static __attribute__((noinline)) void dirty_stack(void) {
  uint64_t words[512];
  for (int i = 0; i < 512; i++) words[i] = 1; /* a count and no address */
  __asm__ volatile("" : : "r"(words) : "memory");
}
/* Another thread's mistake ends a capture between two questions of a call. */
static void lost(void) {
  anew();
  status = DYN_CAPTURE_INVALIDATED;
  dirty_stack();
  CHECK(dyn_graph_before(&lsa, NULL, 1) == 0);
  dirty_stack();
  CHECK(dyn_graph_after(&lsa, NULL) != 0);
  status = DYN_CAPTURE_ACTIVE;
}

/* A kernel that CUDA refused has left nothing behind it. */
static void refused(void) {
  anew();
  comes_behind(0, NULL, NULL);
  CHECK(dyn_graph_before(&lsa, NULL, 3) == 0);
  comes_behind(1, add(0, NULL), NULL);
  dyn_node kernel = call_in(3, 1);
  CHECK(kernel->n == 1);
}

/* The program promises that graphs run alone: no event is in them, and calls of one come one after the other all the same. */
static void alone(void) {
  numNodes = numRecords = numBehind = numObjects = 0;
  lsa = (struct dyn_lsa){.scratch = &scratch};
  dyn_lsa_graphs(&lsa, graphsAlone);
  dyn_node kernels[3];
  for (int i = 0; i < 3; i++) {
    comes_behind(0, NULL, NULL); /* each on a stream of its own */
    CHECK(dyn_graph_before(&lsa, NULL, 1) == 0);
    kernels[i] = add(numBehind, behind);
    comes_behind(1, kernels[i], NULL);
    CHECK(dyn_graph_after(&lsa, NULL) == 0 && kernels[i]->n == (i > 0) && (i == 0 || kernels[i]->from[0] == kernels[i - 1]));
  }
  CHECK(numNodes == 3 && numRecords == 0 && numObjects == 0);
}

/* Each capture is counted once, until CUDA tells that its graph is gone; where CUDA does not take the object, for ever. */
static void counted(void) {
  for (refuses = NONE; refuses <= RETAIN; refuses++) {
    anew();
    adds_edge(); /* another call of the same capture */
    call_in(2, 1);
    CHECK(scratch.graphs == 2 && numHeld == (refuses == NONE ? 2 : 0));
    for (size_t i = 0; i < numHeld; i++) {
      objects[i].goes(objects[i].about);
      CHECK(scratch.graphs == 1 - i);
    }
  }
  refuses = NONE;
}

int main(void) {
  unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
  edges();
  counted();
  bounded();
  beside();
  lost();
  refused();
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
  alone();
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "1", 1);
  edges();
  graphsAlone = true;
  edges(); /* the variable goes before the config */
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "2", 1); /* as if it said nothing */
  alone();
  unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
  alone();
  return 0;
}
