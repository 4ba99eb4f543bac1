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

int dyn_beside_first(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream) {
  int result = 0;
  for (unsigned i = 0; i < beside->n && result == 0; i++)
    if (beside->streams[i] != stream) result = dyn_lsa_order(lsa, beside->streams[i], stream);
  return result;
}

int dyn_beside_then(const struct dyn_beside *beside, struct dyn_lsa *lsa, void *stream) {
  int result = 0;
  for (unsigned i = 0; i < beside->n && result == 0; i++)
    if (beside->streams[i] != stream) result = dyn_lsa_order(lsa, stream, beside->streams[i]);
  return result;
}
