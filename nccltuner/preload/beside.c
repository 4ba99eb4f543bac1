/* SPDX-License-Identifier: Apache-2.0 */
#include "beside.h"

#include <stdlib.h>

bool dyn_beside_add(struct dyn_beside *beside, void *stream) {
  for (unsigned i = 0; i < beside->n; i++)
    if (beside->streams[i] == stream) return true;
  if (beside->n == beside->room) {
    unsigned room = beside->room == 0 ? 4 : 2 * beside->room;
    void **streams = realloc(beside->streams, room * sizeof *streams);
    if (streams == NULL) return false;
    beside->streams = streams;
    beside->room = room;
  }
  beside->streams[beside->n++] = stream;
  return true;
}

static int order(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream, bool isLast) {
  int result = 0;
  for (unsigned i = 0; i < beside->n && result == 0; i++) {
    void *other = beside->streams[i];
    if (other != stream) result = isLast ? dyn_lsa_order(lsa, other, stream) : dyn_lsa_order(lsa, stream, other);
  }
  return result;
}

int dyn_beside_first(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream) { return order(beside, lsa, stream, true); }
int dyn_beside_then(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream) { return order(beside, lsa, stream, false); }
