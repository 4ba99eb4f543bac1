/* SPDX-License-Identifier: Apache-2.0
 *
 * DYNAMICCL_CHAIN_PROFILER: another plugin gets every event it asks for, in its own version and with its own handles as
 * parents, while ours are sampled or not; what it does wrong stays with it.
 */
#include "../chain.h"
#include "chain_recorder.h"
#include "profiler_rig.h"

#include <dlfcn.h>
#include <libgen.h>
#include <stdarg.h>
#include <sys/wait.h>

static struct recorder *recorder;
static char library[512];

static void build(int version, const char *file, const char *pluginName) {
  char source[] = __FILE__, command[2048];
  const char *cc = getenv("CC");
  snprintf(library, sizeof library, "%s/%s", getenv("DYNAMICCL_DIR"), file);
  snprintf(command, sizeof command,
           "%s -std=gnu11 -O1 -Wall -Wextra -Werror -fvisibility=hidden -fPIC -shared -DRECORDER_VERSION=%d "
           "-DRECORDER_NAME='\"%s\"' -o '%s' '%s/chain_recorder.c'",
           cc != NULL ? cc : "cc", version, pluginName, library, dirname(source));
  CHECK(system(command) == 0, "%s", command);
}

/* A fresh recorder of this version behind NCCL's version. wantMask: what it asks for. */
static struct rig open_with(int ncclVersion, int wantMask) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  CHECK(handle != NULL, "%s", dlerror());
  recorder = dlsym(handle, "recorder");
  CHECK(recorder != NULL);
  memset(recorder, 0, sizeof *recorder);
  recorder->wantMask = wantMask;
  setenv("DYNAMICCL_CHAIN_PROFILER", library, 1);
  return rig_open(ncclVersion, 0xbeef, 2, 1);
}

static struct record *find(uint64_t type, int nth) {
  for (int i = 0; i < recorder->count; i++)
    if (recorder->records[i].type == type && nth-- == 0) return &recorder->records[i];
  return NULL;
}

#define OURS (ncclProfileColl | ncclProfileKernelCh | ncclProfileProxyOp)

/* One AllReduce with everything below it; sampled: we want it as well. */
static void everything(int ncclVersion, int version, int sampled) {
  struct rig r = open_with(ncclVersion, 0xffff);
  CHECK(recorder->inits == 1 && recorder->commId == 0xbeef && recorder->rank == 1);
  CHECK(rig_mask == (OURS | rig_held(ncclVersion) | dyn_chain_types(version)), "%x", rig_mask);
  if (!sampled) r.comm->sampling = 0;
  void *groupApi = NULL, *collApi = NULL;
  if (ncclVersion >= 5) {
    groupApi = rig_start(&r, &(struct rig_event){.type = ncclProfileGroupApi});
    collApi = rig_start(&r, &(struct rig_event){.type = ncclProfileCollApi, .parent = groupApi, .func = "AllReduce"});
    rig_stop(collApi);
  }
  rig_decide(&r, 4, 1024, 1, 1);
  void *group = rig_start(&r, &(struct rig_event){.type = ncclProfileGroup});
  struct rig_event e = rig_all_reduce(256, 2);
  e.parent = collApi;
  e.group = group;
  void *coll = rig_start(&r, &e);
  void *op = rig_proxy(&r, coll, 0, 1, getpid());
  void *step = rig_start(&r, &(struct rig_event){.type = ncclProfileProxyStep, .parent = op});
  rig_stop(coll);
  rig_stop(group);
  rig_stop(groupApi);
  void *k[2] = {rig_kernel(&r, coll, 0, 10), rig_kernel(&r, coll, 1, 11)};
  for (int i = 0; i < 2; i++) rig_kernel_stop(&r, k[i], 20 + (uint64_t)i);
  rig_stop(step);
  rig_stop(op);

  struct record *rc = find(ncclProfileColl, 0), *rg = find(ncclProfileGroup, 0), *ro = find(ncclProfileProxyOp, 0);
  struct record *rs = find(ncclProfileProxyStep, 0);
  struct record *ra = find(ncclProfileCollApi, 0), *rga = find(ncclProfileGroupApi, 0);
  CHECK(rc && rg && ro && rs, "v%d -> v%d: an event is missing", ncclVersion, version);
  CHECK(strcmp(rc->func, "AllReduce") == 0 && rc->count == 256 && rc->channels == 2 && rc->context == recorder);
  CHECK(ro->parent == rc && ro->isSend == 1 && rs->parent == ro, "parents: %p %p", ro->parent, rs->parent);
  if (version == 4) {
    CHECK(rc->parent == rg && ra == NULL && rga == NULL, "v4 knows no API events");
  } else {
    CHECK(ra && rga && rc->parent == ra && rc->group == rg && ra->parent == rga);
    CHECK(ra->stops == 1 && rga->stops == 1);
  }
  for (int i = 0; i < 2; i++) {
    struct record *rk = find(ncclProfileKernelCh, i);
    CHECK(rk && rk->parent == rc && rk->channels == i && rk->timer == rig_timer(&r, 20 + (uint64_t)i));
    CHECK(rk->stops == 1 && rk->state == ncclProfilerKernelChStop);
  }
  CHECK(rc->stops == 1 && rg->stops == 1 && ro->stops == 1 && rs->stops == 1);
  CHECK(recorder->starts == recorder->stops);
  struct dyn_sample s;
  CHECK(rig_pop(r.process, &s) == sampled && (!sampled || (s.signalNs == 11 && s.channels == 2 && s.flags == 0)));
  rig_close(&r);
  CHECK(recorder->finalized == 1 && atomic_load(&r.process->chainMask) == 0);
  CHECK(dyn_slots_used() == 0);
}

/* What it did not ask for it does not get; it may change its mind at any time. */
static void asks_for_little(void) {
  struct rig r = open_with(6, ncclProfileColl);
  rig_mask = 0;
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 1);
  CHECK(rig_mask & ncclProfileColl, "its mask is not in NCCL's");
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 2);
  CHECK(find(ncclProfileColl, 0) && find(ncclProfileCollApi, 0) && !find(ncclProfileKernelCh, 0));
  *recorder->mask = ncclProfileKernelCh | ncclProfileCeColl;
  dyn_mask_update(r.process, 0);
  CHECK(rig_mask == (ncclProfileKernelCh | ncclProfileCeColl | ncclProfileCollApi));
  void *ce = rig_start(&r, &(struct rig_event){.type = ncclProfileCeColl});
  CHECK(ce == find(ncclProfileCeColl, 0), "an event that only it wants has its own handle");
  rig_stop(ce);
  struct dyn_sample s;
  CHECK(rig_pop(r.process, &s));
  rig_close(&r);
}

/* An operation of another process: our handle of that process means nothing, any other one is passed as it is. */
static void foreign_pid(void) {
  struct rig r = open_with(6, ncclProfileProxyOp);
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 1);
  rig_stop(rig_proxy(&r, c.coll, 0, 1, getpid() + 1));
  CHECK(find(ncclProfileProxyOp, 0)->parent == NULL);
  rig_stop(rig_proxy(&r, &r, 0, 1, getpid() + 1));
  CHECK(find(ncclProfileProxyOp, 1)->parent == &r);
  rig_close(&r);
}

static void errors_stay(void) {
  struct rig r = open_with(6, 0xffff);
  struct dyn_sample s;
  recorder->failing = 1;
  struct rig_call c = rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 1);
  rig_kernel_stop(&r, rig_kernel(&r, c.coll, 0, 1), 2);
  CHECK(recorder->starts > 0 && rig_pop(r.process, &s) && s.signalNs == 1);
  recorder->failing = 0;
  rig_close(&r);
  r = open_with(6, 0xffff);
  rig_close(&r);
  recorder->initFails = 1; /* the recorder is still mapped, by us */
  r = rig_open(6, 1, 2, 0);
  int starts = recorder->starts;
  rig_enqueue(&r, rig_all_reduce(256, 1), 4, 1024, 1);
  CHECK(recorder->inits == 2 && recorder->starts == starts && atomic_load(&r.process->chainMask) == 0);
  rig_close(&r);
}

/* Two communicators share it; a Coll that is never finished is stopped for it. */
static void unfinished(void) {
  struct rig a = open_with(7, OURS), b = rig_open(7, 2, 2, 0);
  struct rig_event e = rig_all_reduce(256, 1);
  e.parent = rig_api(&a, 0);
  void *coll = rig_start(&a, &e);
  CHECK(coll != NULL && find(ncclProfileColl, 0)->stops == 0);
  rig_close(&a);
  CHECK(find(ncclProfileColl, 0)->stops == 1 && recorder->finalized == 1, "left open");
  rig_enqueue(&b, rig_all_reduce(256, 1), 4, 1024, 1);
  CHECK(find(ncclProfileColl, 1) != NULL, "the other communicator's events");
  rig_close(&b);
  CHECK(recorder->inits == 2 && recorder->finalized == 2 && dyn_slots_used() == 0);
}

static char said[4096];
static void log_to(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  va_list args;
  (void)level, (void)flags, (void)file, (void)line;
  va_start(args, fmt);
  size_t n = strlen(said);
  vsnprintf(said + n, sizeof said - n, fmt, args);
  va_end(args);
}

/* One name for the whole life of a process is looked for once, so each refusal runs in a child. */
static void refused(const char *name, const char *why) {
  setenv("DYNAMICCL_CHAIN_PROFILER", name, 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    void *context = NULL, *handle = NULL;
    int mask = 0;
    CHECK(ncclProfiler_v6.init(&context, 1, &mask, "", 1, 2, 0, log_to) == 0 && context != NULL);
    CHECK(!dyn_context_get(context)->chained && strstr(said, why) != NULL, "%s: said: %s", name, said);
    ncclProfilerEventDescr_v6_t d = {.type = ncclProfileProxyStep};
    CHECK(ncclProfiler_v6.startEvent(context, &handle, &d) == 0 && handle == NULL);
    ncclProfiler_v6.finalize(context);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "%s", name);
}

/* Started again with the library's directory in LD_LIBRARY_PATH, which the loader reads at start only. */
static void by_name(void) {
  struct rig r = rig_open(6, 1, 2, 0);
  CHECK(dyn_context_get(r.context)->chained, "libnccl-profiler-$DYNAMICCL_CHAIN_PROFILER.so is not found");
  rig_close(&r);
}
static void again_by_name(const char *name) {
  setenv("DYNAMICCL_CHAIN_PROFILER", name, 1);
  setenv("LD_LIBRARY_PATH", getenv("DYNAMICCL_DIR"), 1);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    execl("/proc/self/exe", "test", "by-name", (char *)NULL);
    _exit(127);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "%s", name);
}

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) {
    by_name();
    return 0;
  }
  rig_begin();
  for (int version = 4; version <= 7; version++) {
    char name[64];
    snprintf(name, sizeof name, "libnccl-profiler-rec%d.so", version);
    build(version, name, "Recorder");
    for (int nccl = version; nccl <= 7; nccl++) {
      everything(nccl, version, 1);
      everything(nccl, version, 0);
    }
  }
  unfinished();
  again_by_name("rec6");
  again_by_name("libnccl-profiler-rec5.so");
  build(6, "six.so", "Recorder");
  asks_for_little();
  foreign_pid();
  errors_stay();
  refused("/no/such/profiler.so", "no such library");
  refused("nosuchprofiler", "no such library");
  refused("libc.so.6", "has no ncclProfiler_v6");
  build(7, "newer.so", "Recorder"); /* only a version that this NCCL does not know */
  refused(library, "has no ncclProfiler_v6");
  build(6, "ourselves.so", "DynamICCL");
  refused(library, "is DynamICCL itself");
  refused("none", "");
  rig_end();
  return 0;
}
