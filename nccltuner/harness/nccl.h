/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NCCL that loads and calls plugins, as 2.28.9, 2.30.7 and 2.32.3 do it: one library and one activation
 * mask a process, counted by communicators. Every version that an NCCL still accepts is called the way its shims
 * (src/plugin/tuner/tuner_vN.cc, src/plugin/profiler/profiler_vN.cc) call it.
 */
#ifndef HARNESS_NCCL_H
#define HARNESS_NCCL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../plugin/nccl_profiler_abi.h"
#include "../plugin/nccl_tuner_abi.h"

#define NCCL_LOG_WARN 2 /* src/include/nccl_common.h */
#define NCCL_LOG_INFO 3
#define NCCL_SUBSYS_INIT 0x1
#define NCCL_SUBSYS_TUNING 0x40
#define NCCL_SUBSYS_ENV 0x80

/* ncclDebugLog: warnings always, INFO when NCCL_DEBUG says so; to stderr. */
void nccl_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
unsigned long nccl_warnings(void); /* of any plugin so far */

enum plugin_kind { PLUGIN_TUNER, PLUGIN_PROFILER };

/* plugin_open.cc: the library by NCCL's search rules, NULL: none. name is the environment variable, NULL: not set. */
void *plugin_open(enum plugin_kind kind, const char *name);
void plugin_close(enum plugin_kind kind, void *library);
const char *plugin_path(enum plugin_kind kind); /* of the library that is open, NULL: none */

/* Which NCCL this is; limits the ABI versions that are looked up. Call before anything else. */
void nccl_version_set(int code, int maxTunerAbi, int maxProfilerAbi);
int nccl_version(void);
void nccl_version_code(int code);      /* load.c, a part of nccl_version_set ... */
void profiler_abi_limit(int newest);   /* ... and profiler.c */

/* tuner.cc. loaded is comm->tunerPluginLoaded: only the communicator that loads the library ever gets it, so only that
 * one's end is counted (tuner.cc:104 of 2.28.9): with several communicators alive at once the library stays loaded. */
int tuner_load(int *loaded); /* 1: there is a tuner */
void tuner_unload(int *loaded);
int tuner_abi(void); /* version in use, 0: none */
const char *tuner_name(void);
int tuner_init(void **context, uint64_t commId, size_t nRanks, size_t nNodes);
int tuner_get_coll_info(void *context, int func, size_t bytes, int numPipeOps, float *table, int regBuff,
                        int *nChannels);
int tuner_get_chunk_size(void *context, int func, size_t bytes, int algo, int proto, int nChannels, size_t *chunkSize);
int tuner_finalize(void *context);

/* profiler.cc */
extern atomic_int nccl_event_mask; /* ncclProfilerEventMask, one a process */
int profiler_load(void);           /* 1: there is a profiler */
void profiler_unload(void);
int profiler_abi(void);
const char *profiler_name(void);
int profiler_init(void **context, uint64_t commId, const char *commName, int nNodes, int nRanks, int rank);
/* The descriptor in its newest form; v5 and v6 are prefixes of it for all events that occur here. */
int profiler_start(void *context, void **handle, ncclProfilerEventDescr_v7_t *descr);
int profiler_stop(void *handle);
int profiler_record(void *handle, int state, ncclProfilerEventStateArgs_v7_t *args);
int profiler_finalize(void *context);
unsigned long profiler_events(void); /* startEvent calls so far */

#endif
