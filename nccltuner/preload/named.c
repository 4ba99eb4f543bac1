/* SPDX-License-Identifier: Apache-2.0 */
#include "named.h"

#include <limits.h>

#include "forward.h"

#define LAYOUT_VERSION 23100 /* NCCL_VERSION code of the first with this layout */
#define MAGIC 0xcafebeefu    /* NCCL_API_MAGIC */

/* Asked while NCCL makes a communicator. */
bool dyn_names_can(void) {
  int version = 0;
  int (*get)(int *) = (int (*)(int *))dyn_find_behind("ncclGetVersion");
  return get != NULL && get(&version) == 0 && version >= LAYOUT_VERSION && dyn_find_behind("ncclAllReduceConfig") != NULL &&
         dyn_find_behind("ncclAllGatherConfig") != NULL && dyn_find_behind("ncclReduceScatterConfig") != NULL;
}

struct dyn_coll_config dyn_named_config(const char *name, bool must) {
  return (struct dyn_coll_config){.size = sizeof(struct dyn_coll_config), .magic = MAGIC, .version = LAYOUT_VERSION, .minCTAs = INT_MIN, .maxCTAs = INT_MIN,
                                  .nvlsCTAs = INT_MIN, .cgaClusterSize = INT_MIN, .algSelection = name, .forceAlgSelection = must, .CTAPolicy = INT_MIN};
}
