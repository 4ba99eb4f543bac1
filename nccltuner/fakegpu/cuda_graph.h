/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_CUDA_GRAPH_H
#define FAKEGPU_CUDA_GRAPH_H

#include "cuda_stream.h"

struct CUgraphNode_st {
  struct CUgraph_st *graph;
  struct fakegpu_work *work;
  size_t n, room;
  CUgraphNode *from; /* what it depends on */
};

struct CUgraph_st {
  size_t n, room;
  CUgraphNode *nodes; /* in the order in which they came */
  CUstream forks[8];  /* that joined the capture of it */
  size_t numForks;
  int over, invalid; /* its capture */
};

/* The graph takes the work. */
CUgraphNode graph_add(struct CUgraph_st *graph, struct fakegpu_work *work);
void graph_depend(CUgraphNode node, CUgraphNode from);

#endif
