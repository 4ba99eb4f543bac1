/* SPDX-License-Identifier: Apache-2.0
 *
 * DYNAMICCL_CHAIN_PROFILER: NCCL loads one profiler plugin; the user's own gets everything handed on by us. Its
 * handles, its context and its activation mask are its own; its errors never reach NCCL. Internal to the profiler half.
 */
#ifndef DYN_CHAIN_H
#define DYN_CHAIN_H

#include "profiler.h"

/* Loads it with the first communicator. 1: this communicator's events are handed on. Under the init lock. */
int dyn_chain_init(struct dyn_context *context, const struct dyn_profiler_init *in);
/* Unloads it with the last communicator. Under the init lock. */
void dyn_chain_finalize(struct dyn_context *context);

/* descr is NCCL's, in the version that NCCL speaks with us. The chained profiler's handle, or NULL. */
void *dyn_chain_start(struct dyn_context *context, const struct dyn_event *event, const void *descr);
void dyn_chain_stop(void *handle);
void dyn_chain_state(void *handle, int state, void *args);

/* ---- chain_convert.c ---- */

union dyn_chain_descr {
  ncclProfilerEventDescr_v1_t v1;
  ncclProfilerEventDescr_v2_t v2;
  ncclProfilerEventDescr_v3_t v3;
  ncclProfilerEventDescr_v4_t v4;
  ncclProfilerEventDescr_v5_t v5;
  ncclProfilerEventDescr_v6_t v6;
  ncclProfilerEventDescr_v7_t v7;
};
/* NCCL's version from, the chained profiler's version to: the same, or from 5, 6, 7 down to 4, 5, 6. */
int dyn_chain_converts(int from, int to);
/* The descriptor in version to, with parents replaced by the chained profiler's. 0: that version has no such event. */
int dyn_chain_convert(union dyn_chain_descr *out, int from, int to, const struct dyn_event *event, const void *descr);
/* Whether version to knows the state. */
int dyn_chain_knows_state(int to, int state);
/* Event types of version to. */
int dyn_chain_types(int to);
/* Bits of the activation mask that make NCCL start an event of this type. */
int dyn_chain_starters(uint64_t type);

#endif
