/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays NCCL to the profiler half: the same short script of events for every ABI version. Header only; one test program
 * includes it once.
 */
#ifndef DYN_PROFILER_RIG_H
#define DYN_PROFILER_RIG_H

#include "../profiler.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

extern const ncclProfiler_v1_t ncclProfiler_v1;
extern const ncclProfiler_v2_t ncclProfiler_v2;
extern const ncclProfiler_v3_t ncclProfiler_v3;
extern const ncclProfiler_v4_t ncclProfiler_v4;
extern const ncclProfiler_v5_t ncclProfiler_v5;
extern const ncclProfiler_v6_t ncclProfiler_v6;
extern const ncclProfiler_v7_t ncclProfiler_v7;

#define CHECK(cond, ...) \
  do { \
    if (!(cond)) { \
      fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #cond); \
      fprintf(stderr, " " __VA_ARGS__); \
      fprintf(stderr, "\n"); \
      exit(1); \
    } \
  } while (0)

static int rig_mask; /* NCCL's activation mask */
/* What stays in it, sampling or not: profiler.c says why. */
static inline int rig_held(int version) {
  return (version >= 5 ? ncclProfileCollApi : 0) |
         (version >= DYN_HOLD_VERSION ? ncclProfileKernelCh | ncclProfileP2pApi : 0);
}

/* A daemon is who holds the lock of the directory. */
static inline void rig_daemon(int lives) {
  static int lock = -1;
  char path[256];
  snprintf(path, sizeof path, "%s/daemon.lock", getenv("DYNAMICCL_DIR"));
  if (lock < 0) lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(lock >= 0 && flock(lock, lives ? LOCK_EX : LOCK_UN) == 0, "%s", path);
}

/* A directory of its own, so that tests neither see nor disturb a real one. The ring is kept over the whole test. */
static inline void rig_begin(void) {
  static char dir[] = "/tmp/dynamiccl-test-XXXXXX";
  CHECK(mkdtemp(dir) != NULL, "mkdtemp");
  setenv("DYNAMICCL_DIR", dir, 1);
  setenv("DYNAMICCL_KERNEL_EVENTS", "1", 1);
  setenv("DYNAMICCL_NO_GRAPHS", "1", 1); /* what most tests play; test_profiler_capture does not */
  rig_daemon(1);
  dyn_process_ref();
}
static inline void rig_end(void) {
  char command[256];
  dyn_process_unref();
  snprintf(command, sizeof command, "rm -rf '%s'", getenv("DYNAMICCL_DIR"));
  CHECK(system(command) == 0, "%s", command);
}

struct rig {
  int version;
  void *context;
  struct dyn_comm *comm; /* NULL before v4 */
  struct dyn_process *process;
  uint64_t commId;
  int rank;
  uint64_t gpuBase; /* GPU ns at which the newest collective's kernel can begin: timers below count from it */
};
/* 0 and ~0 stay what they are: nonsense. */
static inline uint64_t rig_timer(const struct rig *r, uint64_t timer) {
  return timer == 0 || timer == UINT64_MAX ? timer : r->gpuBase + timer;
}

static inline struct rig rig_open(int version, uint64_t commId, int nRanks, int rank) {
  struct rig r = {.version = version, .commId = commId, .rank = rank};
  int result = -1;
  switch (version) {
    case 1: result = ncclProfiler_v1.init(&r.context, &rig_mask); break;
    case 2: result = ncclProfiler_v2.init(&r.context, &rig_mask); break;
    case 3: result = ncclProfiler_v3.init(&r.context, &rig_mask); break;
    case 4: result = ncclProfiler_v4.init(&r.context, &rig_mask, "test", commId, 1, nRanks, rank, NULL); break;
    case 5: result = ncclProfiler_v5.init(&r.context, commId, &rig_mask, "test", 1, nRanks, rank, NULL); break;
    case 6: result = ncclProfiler_v6.init(&r.context, commId, &rig_mask, "test", 1, nRanks, rank, NULL); break;
    case 7: result = ncclProfiler_v7.init(&r.context, commId, &rig_mask, "test", 1, nRanks, rank, NULL); break;
  }
  CHECK(result == 0 && r.context != NULL, "init v%d", version);
  r.process = dyn_process_get(NULL);
  CHECK(r.process->ring != NULL, "no ring");
  __atomic_store_n(&r.process->ring->wantMask, ncclProfileColl | ncclProfileKernelCh | ncclProfileProxyOp,
                   __ATOMIC_RELAXED);
  r.comm = dyn_context_get(r.context)->comm;
  if (r.comm != NULL) r.comm->sampling = 1;
  atomic_store(&r.process->samplingComms, 1);
  dyn_mask_update(r.process, 1);
  return r;
}

static inline void rig_close(struct rig *r) {
  int (*finalize)(void *) = r->version == 4 ? ncclProfiler_v4.finalize : ncclProfiler_v7.finalize;
  CHECK(finalize(r->context) == 0, "finalize");
  r->comm = NULL; /* freed; the context stays, to be used as a stale one */
}

/* What getCollInfo leaves behind. */
static inline void rig_decide(struct rig *r, int func, uint64_t bytes, uint32_t action, uint32_t planVersion) {
  if (r->comm == NULL) return;
  struct dyn_decision *d = &r->comm->decisions[r->comm->seq % DYN_NUM_DECISIONS];
  *d = (struct dyn_decision){r->comm->seq, bytes, action, planVersion, (uint8_t)func, (uint8_t)func};
  r->comm->seq++;
}

/* One event in the version at hand. Only what the scripts use. */
struct rig_event {
  uint64_t type;
  void *parent, *group;
  const char *func, *datatype, *algo, *proto;
  int funcNumber, datatypeNumber, algoNumber, protoNumber;
  size_t count, traffic;
  int nChannels, channel, captured, isSend;
  pid_t pid;
  uint64_t timer;
};

#define RIG_COLL_COMMON(d) \
  do { \
    (d).coll.count = e->count; \
    (d).rank = r->rank; \
  } while (0)
#define RIG_COLL_NAMES(d) \
  do { \
    (d).coll.func = e->func; \
    (d).coll.datatype = e->datatype; \
    (d).coll.algo = e->algo; \
    (d).coll.proto = e->proto; \
  } while (0)
#define RIG_PROXY(d) \
  do { \
    (d).proxyOp.pid = e->pid; \
    (d).proxyOp.isSend = e->isSend; \
    (d).proxyOp.channelId = (uint8_t)e->channel; \
  } while (0)
#define RIG_FROM_V5(N) \
  { \
    ncclProfilerEventDescr_v##N##_t d; \
    memset(&d, 0, sizeof d); \
    d.type = e->type; \
    d.parentObj = e->parent; \
    if (e->type == ncclProfileColl) { \
      RIG_COLL_COMMON(d); \
      RIG_COLL_NAMES(d); \
      d.coll.parentGroup = e->group; \
      d.coll.nChannels = (uint8_t)e->nChannels; \
    } else if (e->type == ncclProfileKernelCh) { \
      d.kernelCh.channelId = (uint8_t)e->channel; \
      d.kernelCh.pTimer = e->timer; \
    } else if (e->type == ncclProfileProxyOp) { \
      RIG_PROXY(d); \
    } else if (e->type == ncclProfileGroupApi) { \
      d.groupApi.graphCaptured = e->captured; \
    } else if (e->type == ncclProfileCollApi) { \
      d.collApi.graphCaptured = e->captured; \
      d.collApi.func = e->func; \
    } else if (e->type == ncclProfileP2pApi) { \
      d.p2pApi.graphCaptured = e->captured; \
    } else if (e->type == ncclProfileP2p) { \
      d.p2p.parentGroup = e->group; \
    } \
    result = ncclProfiler_v##N.startEvent(r->context, &handle, &d); \
    break; \
  }
#define RIG_TO_V4(N, CHANNELS) \
  { \
    ncclProfilerEventDescr_v##N##_t d; \
    memset(&d, 0, sizeof d); \
    d.type = (uint8_t)e->type; \
    d.parentObj = e->parent; \
    if (e->type == ncclProfileColl) { \
      RIG_COLL_COMMON(d); \
      d.parentObj = e->group; \
      d.coll.CHANNELS = (uint8_t)e->nChannels; \
      RIG_V##N(d); \
    } else if (e->type == ncclProfileProxyOp) { \
      RIG_PROXY(d); \
    } else if (e->type == ncclProfileKernelCh) { \
      RIG_KERNEL_V##N(d); \
    } \
    result = ncclProfiler_v##N.startEvent(r->context, &handle, &d); \
    break; \
  }
#define RIG_V1(d) \
  do { \
    (d).coll.func = (uint8_t)e->funcNumber; \
    (d).coll.datatype = (uint8_t)e->datatypeNumber; \
    (d).coll.algo = (uint8_t)e->algoNumber; \
    (d).coll.proto = (uint8_t)e->protoNumber; \
    (d).coll.commHash = r->commId; \
    (d).coll.trafficBytes = e->traffic; \
  } while (0)
#define RIG_V2(d) \
  do { \
    RIG_COLL_NAMES(d); \
    (d).coll.commHash = r->commId; \
    (d).coll.trafficBytes = e->traffic; \
  } while (0)
#define RIG_V3(d) \
  do { \
    RIG_COLL_NAMES(d); \
    (d).coll.commHash = r->commId; \
  } while (0)
#define RIG_V4(d) RIG_COLL_NAMES(d)
#define RIG_KERNEL_V1(d) CHECK(0, "v1 has no kernel events")
#define RIG_KERNEL_V2(d) CHECK(0, "v2 has no kernel events")
#define RIG_KERNEL_V3(d) (d).kernelCh.channelId = (uint8_t)e->channel
#define RIG_KERNEL_V4(d) \
  do { \
    (d).kernelCh.channelId = (uint8_t)e->channel; \
    (d).kernelCh.pTimer = e->timer; \
  } while (0)

static inline void *rig_start(struct rig *r, const struct rig_event *e) {
  void *handle = (void *)-1; /* whatever was there before must be overwritten */
  if (e->type == ncclProfileColl) r->gpuBase += 100000000000ull;
  int result = -1;
  switch (r->version) {
    case 1: RIG_TO_V4(1, nMaxChannels)
    case 2: RIG_TO_V4(2, nMaxChannels)
    case 3: RIG_TO_V4(3, nMaxChannels)
    case 4: RIG_TO_V4(4, nChannels)
    case 5: RIG_FROM_V5(5)
    case 6: RIG_FROM_V5(6)
    case 7: RIG_FROM_V5(7)
  }
  CHECK(result == 0 && handle != (void *)-1, "start v%d type %lu", r->version, (unsigned long)e->type);
  return handle;
}

static inline void rig_stop(void *handle) { CHECK(ncclProfiler_v6.stopEvent(handle) == 0, "stop"); }

static inline void rig_kernel_stop(struct rig *r, void *handle, uint64_t timer) {
  ncclProfilerEventStateArgs_v4_t args = {.kernelCh = {.pTimer = rig_timer(r, timer)}};
  int result = 0;
  if (r->version == 4) result = ncclProfiler_v4.recordEventState(handle, ncclProfilerKernelChStop, &args);
  if (r->version == 5) result = ncclProfiler_v5.recordEventState(handle, ncclProfilerKernelChStop, &args);
  if (r->version == 6) result = ncclProfiler_v6.recordEventState(handle, ncclProfilerKernelChStop, &args);
  if (r->version == 7) result = ncclProfiler_v7.recordEventState(handle, ncclProfilerKernelChStop, &args);
  CHECK(result == 0, "record");
  rig_stop(handle);
}

static inline void *rig_kernel(struct rig *r, void *coll, int channel, uint64_t start) {
  struct rig_event e = {.type = ncclProfileKernelCh, .parent = coll, .channel = channel, .timer = rig_timer(r, start)};
  return rig_start(r, &e);
}
static inline void *rig_proxy(struct rig *r, void *coll, int channel, int isSend, pid_t pid) {
  return rig_start(r, &(struct rig_event){
                        .type = ncclProfileProxyOp, .parent = coll, .channel = channel, .isSend = isSend, .pid = pid});
}
static inline void *rig_api(struct rig *r, int captured) {
  struct rig_event e = {.type = ncclProfileCollApi, .captured = captured, .func = "AllReduce"};
  return r->version < 5 ? NULL : rig_start(r, &e);
}

/* An AllReduce of count floats, Ring and LL128, up to and including the stop of its Coll. */
struct rig_call {
  void *api, *group, *coll;
};
static inline struct rig_event rig_all_reduce(size_t count, int nChannels) {
  return (struct rig_event){.type = ncclProfileColl, .func = "AllReduce", .datatype = "ncclFloat32", .algo = "RING",
                            .proto = "LL128", .funcNumber = 4, .datatypeNumber = 7, .algoNumber = 1, .protoNumber = 1,
                            .count = count, .traffic = count * 8, .nChannels = nChannels};
}
static inline struct rig_call rig_enqueue(struct rig *r, struct rig_event e, int func, uint64_t decided,
                                          uint32_t action) {
  struct rig_call call = {.api = rig_api(r, e.captured)};
  rig_stop(call.api);
  rig_decide(r, func, decided, action, 7);
  call.group = rig_start(r, &(struct rig_event){.type = ncclProfileGroup});
  e.group = call.group;
  e.parent = call.api;
  call.coll = rig_start(r, &e);
  rig_stop(call.coll);
  rig_stop(call.group);
  return call;
}

/* Takes the oldest sample out of the ring, as the daemon does. */
static inline int rig_pop(struct dyn_process *p, struct dyn_sample *out) {
  uint64_t tail = __atomic_load_n(&p->ring->tail, __ATOMIC_RELAXED);
  struct dyn_sample *cell = &p->cells[tail % DYN_RING_CELLS];
  if (__atomic_load_n(&cell->cell, __ATOMIC_ACQUIRE) != tail + 1) return 0;
  *out = *cell;
  __atomic_store_n(&cell->cell, tail + DYN_RING_CELLS, __ATOMIC_RELEASE);
  __atomic_store_n(&p->ring->tail, tail + 1, __ATOMIC_RELAXED);
  return 1;
}
static inline uint64_t rig_dropped(struct rig *r) {
  return __atomic_load_n(&r->process->ring->dropped, __ATOMIC_RELAXED);
}

#endif
