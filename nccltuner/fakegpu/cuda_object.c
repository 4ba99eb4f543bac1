/* SPDX-License-Identifier: Apache-2.0
 *
 * User objects: what a graph holds that is a program's. What is instantiated of the graph holds them as well, and so does each launch until it
 * has run; who lets go of one last has it destroyed, wherever that is.
 */
#include "cuda_graph.h"

#include <stdatomic.h>
#include <stdlib.h>

struct CUuserObject_st {
  void *about;
  void (*destroy)(void *about);
  atomic_uint references;
};

void object_take(CUuserObject object) { atomic_fetch_add(&object->references, 1); }

void object_drop(CUuserObject object, unsigned references) {
  if (atomic_fetch_sub(&object->references, references) != references) return;
  object->destroy(object->about);
  free(object);
}

FAKEGPU_API CUresult cuUserObjectCreate(CUuserObject *object, void *about, void (*destroy)(void *about), unsigned references, unsigned flags) {
  if (object == NULL || destroy == NULL || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  *object = calloc(1, sizeof **object);
  if (*object == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  **object = (struct CUuserObject_st){about, destroy, references};
  return 0;
}

FAKEGPU_API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references, unsigned flags) {
  if (graph == NULL || object == NULL || references == 0 || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < references; i++) {
    if (flags == 0) object_take(object);
    objects_add(&graph->objects, object);
  }
  return 0;
}

void objects_add(struct objects *to, CUuserObject object) {
  if (to->n == to->room) {
    to->room = 2 * to->room + 4;
    to->all = realloc(to->all, to->room * sizeof *to->all);
    if (to->all == NULL) abort(); /* a test's machine is out of memory */
  }
  to->all[to->n++] = object;
}

void objects_drop(struct objects *of) {
  for (size_t i = 0; i < of->n; i++) object_drop(of->all[i], 1);
  free(of->all);
  *of = (struct objects){0};
}

void objects_copy(struct objects *to, const struct objects *from) {
  for (size_t i = 0; i < from->n; i++) {
    object_take(from->all[i]);
    objects_add(to, from->all[i]);
  }
}
