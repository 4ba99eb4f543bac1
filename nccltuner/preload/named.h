/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that NCCL is given with the name of what is to run them: ncclAllReduceConfig and its siblings.
 */
#ifndef DYN_PRELOAD_NAMED_H
#define DYN_PRELOAD_NAMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ncclCollConfig_v23100, nccl.h 2.31.2. Fields are added at the end and never moved (nccl.h); NCCL takes a configuration of this size
 * and version, copies as many bytes as both the caller and itself know of, and has its defaults for the rest (ncclParseCollConfig of
 * libnccl.so.2 2.31.2 and 2.32.3, called with every size and version; 2.31.2 refuses shorter ones). */
struct dyn_coll_config {
  size_t size;
  unsigned magic, version;
  void *ext;
  int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
  const char *algSelection;
  int forceAlgSelection, CTAPolicy;
  uint64_t userProfilerTag;
};
_Static_assert(sizeof(struct dyn_coll_config) == 64, "ncclCollConfig_v23100");

/* The program's NCCL has the functions, and a configuration of this layout. */
bool dyn_names_can(void);
/* must: NCCL refuses the call where it cannot do that, with ncclInvalidArgument on every rank and before anything runs; else it
 * does as it likes. name lives as long as the program. */
struct dyn_coll_config dyn_named_config(const char *name, bool must);

#endif
