/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the preload library: timing a call by CUDA events. probe.c has the events and what a call does with them,
 * poller.c the thread that waits for them and makes samples, driver.c the functions of CUDA's driver.
 */
#ifndef DYN_PROBE_H
#define DYN_PROBE_H

#include "../../kernels/host/driver.h"
#include "../../kernels/host/host.h"
#include "forward.h"

#define DYN_MAX_GPUS 32   /* CUDA contexts of a process whose calls are timed, at a time */
#define DYN_MAX_PROBES 512 /* timed calls of one context in flight: more are dropped and counted */
#define DYN_KNOWN_STREAMS 64 /* of one context */
_Static_assert(DYN_MAX_PROBES <= DYN_TIMED_CALLS, "what a kernel says of itself is read before its place is another one's");

#define DYN_HOST_LIMIT_NS 500000 /* of a call: enqueueing takes some us; the first of an algorithm connects, in ms */
#define DYN_SETTLE_NS 20000000 /* at most, when a communicator goes */

/* X(result by pointer, name as libcuda.so.1 exports it, arguments) */
#define DYN_DRIVER_FUNCTIONS(X) \
  X(cuStreamGetCtx, (void *stream, dyn_context *context)) \
  X(cuCtxSetCurrent, (dyn_context context)) \
  X(cuCtxPushCurrent_v2, (dyn_context context)) \
  X(cuCtxPopCurrent_v2, (dyn_context * context)) \
  X(cuEventCreate, (dyn_event * event, unsigned flags)) \
  X(cuEventRecord, (dyn_event event, void *stream)) \
  X(cuEventQuery, (dyn_event event)) \
  X(cuEventElapsedTime, (float *milliseconds, dyn_event start, dyn_event end)) \
  X(cuThreadExchangeStreamCaptureMode, (int *mode)) \
  X(cuCtxGetId, (dyn_context context, unsigned long long *id)) /* from CUDA 12.0 on; without, nothing is timed */

struct dyn_driver {
#define DYN_DRIVER_MEMBER(name, arguments) int(*name) arguments;
  DYN_DRIVER_FUNCTIONS(DYN_DRIVER_MEMBER)
#undef DYN_DRIVER_MEMBER
};
/* NULL: the driver is not loaded, or too old. */
const struct dyn_driver *dyn_driver(void);

struct dyn_gpu;

/* One timed call. Its thread has it from begin to end, then the poller until it is free again. */
struct dyn_probe {
  struct dyn_timed timed;
  dyn_event start, end; /* NULL: not made yet */
  void *stream;
  uint64_t beganNs; /* host's */
  struct dyn_gpu *gpu;
  struct dyn_probe *next;
  bool lost; /* no times: only start was recorded, and must be over before it is used again */
  bool slow; /* of one that is lost: since its host took longer than DYN_HOST_LIMIT_NS, which is told */
};

/* One CUDA context. */
struct dyn_gpu {
  dyn_context context;
  unsigned long long id; /* of the context, whose address may be used again */
  unsigned forks;        /* of probe.c's, when it was made */
  atomic_bool dead;      /* the driver refused something: nothing of it is used any more */
  struct dyn_probe *free;          /* under lock */
  unsigned out;                    /* under lock: probes that are not */
  struct dyn_probe *issued, **last; /* under lock: handed to the poller, oldest first */
  struct dyn_probe *flying, **flyingLast; /* poller: taken over, oldest first */
  const void *streams[DYN_KNOWN_STREAMS]; /* under lock: that have had a call which could be timed */
  unsigned numStreams;                  /* under lock */
  dyn_event anchor;  /* poller: GPU instants count from here; NULL: none yet */
  uint64_t anchorNs; /* poller */
  uint64_t caughtNs; /* poller: host's time of the last end that was waited for without sleep */
  struct dyn_probe probes[DYN_MAX_PROBES];
};

/* ---- probe.c ---- */

/* Begins timing a call on the stream. NULL: it cannot be timed. */
struct dyn_probe *dyn_probe_begin(void *stream);
static inline struct dyn_timed *dyn_probe_timed(struct dyn_probe *probe) { return &probe->timed; }
/* The call has returned: it is waited for if the plugin described it, else nothing comes of it. issuedNs: the host's clock, since when
 * it has been issued; 0: that is no matter. */
void dyn_probe_end(struct dyn_probe *probe, bool ok, uint64_t issuedNs);

extern atomic_uint dyn_probes_missed; /* calls without a free probe, since the poller last looked */

/* ---- for the poller ---- */

/* Sleeps until probes were handed over, and takes them over; false: the process ends. linger: does not sleep. */
bool dyn_probes_take(bool linger);
/* Gives back a list that next joins. */
void dyn_probes_give(struct dyn_gpu *gpu, struct dyn_probe *list);
extern _Atomic(struct dyn_gpu *) dyn_gpus[DYN_MAX_GPUS];
extern atomic_bool dyn_probes_ended; /* the process ends: no call of the driver any more */

/* ---- poller.c ---- */

/* Starts the thread; false: it cannot be had. */
bool dyn_poller_start(void);

#endif
