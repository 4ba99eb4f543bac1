/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_gin.c: calls on several streams of one capture, of which one is several kernels (dyn_gin_kernels). All of them come
 * behind the call before, and behind each other.
 */
#ifndef DYN_TEST_GIN_CAPTURED_H
#define DYN_TEST_GIN_CAPTURED_H

/* Where the stream is in the capture: its newest kernel. */
static dyn_node newest_on(CUstream stream) {
  int status;
  uint64_t id;
  dyn_graph graph;
  const dyn_node *nodes;
  const struct dyn_edge *edges;
  size_t count = 0;
  CHECK(dyn_host_driver()->cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &nodes, &edges, &count) == 0 && count == 1, "%zu", count);
  return nodes[0];
}

static size_t before_it(dyn_node node, dyn_node from[4]) {
  struct dyn_edge edges[4];
  size_t n = 4;
  CHECK(dyn_host_driver()->cuGraphNodeGetDependencies_v2(node, from, edges, &n) == 0 && n <= 4);
  return n;
}

/* Streams part before the first call and meet behind the second one. */
static void captured_kernels(void) {
  const struct step small = {.collective = DYN_ALL_REDUCE, .count = 700, .ctas = 1}, large = {.collective = DYN_ALL_REDUCE, .count = 150001, .ctas = 2, .stream = 1};
  struct step steps[2] = {small, large};
  dyn_event parts, meets;
  CUgraph captured;
  CUgraphExec graph;
  dyn_node from[4];
  begin();
  const struct dyn_host_driver *driver = dyn_host_driver();
  CHECK(driver->cuEventCreate(&parts, 2) == 0 && driver->cuEventCreate(&meets, 2) == 0);
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  CHECK(driver->cuEventRecord(parts, streams[0]) == 0 && driver->cuStreamWaitEvent(streams[1], parts, 0) == 0);
  CHECK(issue(&steps[0], 0) == 0);
  dyn_node first = newest_on(streams[0]);
  CHECK(issue(&steps[1], 1) == 0);
  dyn_node node = newest_on(streams[1]);
  for (int k = 0; k < 2; k++) {
    CHECK(before_it(node, from) == 1, "the %d-th kernel from the end comes behind others than the one before", k);
    node = from[0];
  }
  size_t n = before_it(node, from), found = 0;
  for (size_t i = 0; i < n; i++) found += from[i] == first;
  CHECK(found == 1, "the first kernel does not come behind the call before");
  CHECK(driver->cuEventRecord(meets, streams[1]) == 0 && driver->cuStreamWaitEvent(streams[0], meets, 0) == 0);
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  for (uint64_t round = 0; round < 5; round++) {
    for (int i = 0; i < 2; i++) steps[i].seed = random_of(round * 2 + (uint64_t)i), fill(&steps[i], i);
    meet();
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    wait_for_all();
    for (int i = 0; i < 2; i++) compare(&steps[i], i);
    meet();
  }
  end(dyn_gin_now(lsa));
}

/* What GIN has stays behind a communicator with graphs, and NCCL's communicator for it, also where the graphs are gone: ranks see that at
 * different times, and to give it back takes all of them. So it is counted. */
static void behind_graphs(void) {
  const struct step s = {.collective = DYN_ALL_REDUCE, .count = 10, .ctas = 1};
  struct dyn_offer own;
  load();
  for (int n = 0; n < 16; n++) {
    CUgraph captured;
    CHECK(make_gin(), "communicator %d", n);
    meet();
    CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0 && issue(&s, 0) == 0);
    CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphDestroy(captured) == 0);
    end(dyn_gin_now(lsa));
    meet();
  }
  CHECK(dyn_gin_offer(7, (uint32_t)numRanks, (uint32_t)rank, &own) == NULL, "more of it stays behind with each communicator");
}

#endif
