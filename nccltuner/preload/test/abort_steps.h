/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in the stream behind a call that a rank gives up, and is a graph's, whose kernels have a lane of their own. Included by
 * test_lsa.c.
 */
#ifndef DYN_ABORT_STEPS_H
#define DYN_ABORT_STEPS_H

/* Rank 0 aborts while the others are late. What its call left is no result, and the graph behind has it for input: the others wait for rank
 * 0 there in vain. */
static void aborts_before_a_graph(void) {
  begin();
  struct step call = {.collective = ALL_REDUCE, .count = 100, .stream = streams[0], .action = LSA(0, 1), .seed = 1}, inGraph = call;
  CUgraph captured;
  CUgraphExec graph;
  inGraph.seed = 2;
  fill(&call, 0);
  fill(&inGraph, 1);
  capturing = true;
  CHECK(cuda.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 0);
  make_call(&inGraph, 1, 0);
  capturing = false;
  CHECK(cuda.cuStreamEndCapture(streams[0], &captured) == 0 && cuda.cuGraphInstantiateWithFlags(&graph, captured, 0) == 0);
  if (rank > 0) meet();
  make_call(&call, 0, 0);
  if (rank > 0) wait_for_all();
  if (rank > 0) compare(&call, 0, true);
  CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
  pthread_t waiter; /* the stand-in runs for who waits */
  CHECK(pthread_create(&waiter, NULL, (void *(*)(void *))(void *)wait_for_all, NULL) == 0);
  if (rank > 0) usleep(500000);
  if (rank > 0) compare(&inGraph, 1, false);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  CHECK(pthread_join(waiter, NULL) == 0);
  preload->device->close(lsa);
  if (rank == 0) meet();
  meet();
}

#endif
