/* SPDX-License-Identifier: Apache-2.0
 *
 * The chained profiler: found by NCCL's search rules (src/plugin/plugin_open.cc, v2.30.7), called in the newest version
 * that both it and the NCCL at hand know.
 */
#include "chain.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_NCCL 255 /* MAX_STR_LEN there: longer names are cut */
#define LOG(log, level, ...) \
  do { \
    if ((log) != NULL) (log)(level, ~0ul, __FILE__, __LINE__, "DynamICCL: chained profiler: " __VA_ARGS__); \
  } while (0)
enum { WARN = 2, INFO = 3 }; /* ncclDebugLogLevel, src/include/nccl_common.h */

/* What every version's table has at the same place behind init; called through the right type below. */
struct table {
  const char *name;
  void (*init)(void);
  int (*startEvent)(void *context, void **handle, void *descr);
  int (*stopEvent)(void *handle);
  int (*recordEventState)(void *handle, int state, void *args);
  int (*finalize)(void *context);
};

extern const ncclProfiler_v4_t ncclProfiler_v4;

static void *library;
static const struct table *table;
static int version;    /* of table */
static int contexts;   /* communicators that hand on to it */
static int failed;     /* looked for in vain: said once, not tried again */

static void *try_open(const char *name, dyn_logger log) {
  void *handle = dlopen(strcasecmp(name, "STATIC_PLUGIN") == 0 ? NULL : name, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) LOG(log, INFO, "%s", dlerror());
  return handle;
}

/* The name as it is; then, unless it is a path or a library's name, libnccl-profiler-NAME.so. */
static void *open_library(const char *name, dyn_logger log) {
  char full[NAME_MAX_NCCL];
  snprintf(full, sizeof full, "%s", name);
  void *handle = try_open(full, log);
  size_t n = strlen(name);
  int isLibrary = strncmp(name, "lib", 3) == 0 && n >= 3 && strcmp(name + n - 3, ".so") == 0;
  if (handle != NULL || strchr(name, '/') != NULL || isLibrary) return handle;
  int length = snprintf(full, sizeof full, "libnccl-profiler-%s.so", name);
  return length < (int)sizeof full ? try_open(full, log) : NULL;
}

/* A second copy of this library, under whatever path, would hand on to itself for ever. */
static int is_ourselves(const struct table *t) {
  return (const void *)t == (const void *)&ncclProfiler_v4 || strcmp(t->name, ncclProfiler_v4.name) == 0;
}

static int open_chain(int ncclVersion, dyn_logger log) {
  const char *name = getenv("DYNAMICCL_CHAIN_PROFILER");
  if (table != NULL) return dyn_chain_converts(ncclVersion, version);
  if (failed || name == NULL || name[0] == '\0' || strcasecmp(name, "none") == 0) return 0;
  failed = 1;
  library = open_library(name, log);
  if (library == NULL) {
    LOG(log, WARN, "DYNAMICCL_CHAIN_PROFILER=%s: no such library; set a path, or put libnccl-profiler-%s.so into "
        "LD_LIBRARY_PATH", name, name);
    return 0;
  }
  for (int v = ncclVersion; v >= 1 && table == NULL; v--) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", v);
    const struct table *t = dyn_chain_converts(ncclVersion, v) ? dlsym(library, symbol) : NULL;
    if (t == NULL) continue;
    if (t->name == NULL || t->init == NULL || t->startEvent == NULL || t->stopEvent == NULL ||
        t->recordEventState == NULL || t->finalize == NULL) {
      LOG(log, WARN, "%s: %s is incomplete and is not used", name, symbol);
      break;
    }
    if (is_ourselves(t)) {
      LOG(log, WARN, "DYNAMICCL_CHAIN_PROFILER=%s is DynamICCL itself; name the other profiler", name);
      break;
    }
    table = t;
    version = v;
  }
  if (table == NULL) {
    LOG(log, WARN, "%s has no ncclProfiler_v%d, nor an older version that this can be turned into; it gets no events",
        name, ncclVersion);
    dlclose(library);
    library = NULL;
    return 0;
  }
  failed = 0;
  LOG(log, INFO, "%s (v%d) gets the events of NCCL's profiler v%d", table->name, version, ncclVersion);
  return 1;
}

static void close_chain(void) {
  dlclose(library);
  library = NULL;
  table = NULL;
}

static int call_init(const struct dyn_profiler_init *in, void **context, int *mask) {
  const void *t = table;
  switch (version) {
    case 1:
    case 2:
    case 3: return ((const ncclProfiler_v1_t *)t)->init(context, mask);
    case 4:
      return ((const ncclProfiler_v4_t *)t)->init(context, mask, in->commName, in->commId, in->nNodes, in->nRanks,
                                                  in->rank, in->log);
    default:
      return ((const ncclProfiler_v5_t *)t)->init(context, in->commId, mask, in->commName, in->nNodes, in->nRanks,
                                                  in->rank, in->log);
  }
}

int dyn_chain_init(struct dyn_context *context, const struct dyn_profiler_init *in) {
  if (!open_chain(in->version, in->log)) return 0;
  /* Its mask is process-wide, as NCCL's is, and may change at any time: dyn_mask_update reads it at every epoch. */
  atomic_int *mask = &context->process->chainMask;
  int result = call_init(in, &context->chainContext, (int *)mask);
  if (result != 0) {
    LOG(in->log, WARN, "%s: init failed with error %d; this communicator's events are not handed on", table->name,
        result);
    if (contexts == 0) {
      atomic_store(mask, 0);
      close_chain();
    }
    return 0;
  }
  atomic_fetch_and(mask, dyn_chain_types(version)); /* as NCCL does: bits of newer versions mean nothing to it */
  contexts++;
  return 1;
}

void dyn_chain_finalize(struct dyn_context *context) {
  if (table == NULL) return;
  table->finalize(context->chainContext);
  if (--contexts > 0) return;
  atomic_store(&context->process->chainMask, 0);
  close_chain();
}

void *dyn_chain_start(struct dyn_context *context, const struct dyn_event *event, const void *descr) {
  struct dyn_process *process = context->process;
  int wanted = atomic_load_explicit(&process->chainMask, memory_order_relaxed);
  union dyn_chain_descr converted;
  void *handle = NULL;
  /* It changed its mind since the mask was last written. */
  if (process->mask != NULL && (wanted & ~atomic_load_explicit(process->mask, memory_order_relaxed)))
    dyn_mask_update(process, 0);
  if (!(wanted & dyn_chain_starters(event->type))) return NULL; /* of our sampling only */
  if (!dyn_chain_convert(&converted, context->version, version, event, descr)) return NULL;
  if (table->startEvent(context->chainContext, &handle, &converted) != 0) return NULL;
  return handle;
}

void dyn_chain_stop(void *handle) {
  const struct table *t = table;
  if (t != NULL) t->stopEvent(handle);
}

void dyn_chain_state(void *handle, int state, void *args) {
  const struct table *t = table;
  if (t != NULL && dyn_chain_knows_state(version, state)) t->recordEventState(handle, state, args);
}
