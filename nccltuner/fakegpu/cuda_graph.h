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

struct objects {
  size_t n, room;
  CUuserObject *all;
};

struct CUgraph_st {
  size_t n, room;
  CUgraphNode *nodes; /* in the order in which they came */
  CUstream forks[8];  /* that joined the capture of it */
  size_t numForks;
  int over, invalid; /* its capture */
  struct objects objects;
};

/* The graph takes the work. */
CUgraphNode graph_add(struct CUgraph_st *graph, struct fakegpu_work *work);
void graph_depend(CUgraphNode node, CUgraphNode from);

/* cuda_object.c */
void object_take(CUuserObject object);
void object_drop(CUuserObject object, unsigned references);
void objects_add(struct objects *to, CUuserObject object); /* which has the reference then */
void objects_copy(struct objects *to, const struct objects *from);
void objects_drop(struct objects *of);

#endif
