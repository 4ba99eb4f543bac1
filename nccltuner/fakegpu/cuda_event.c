/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: what they tell of time is virtual; what they order is jobs of streams.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda_stream.h"

struct CUevent_st {
  CUstream stream; /* last recorded on */
  int recorded, timed;
  double nowNs;
  uint64_t busyUntilNs;
  CUstream queue; /* the same stream, never NULL */
  uint64_t jobs;  /* of it, before the event */
  struct CUgraph_st *capture; /* in which it was recorded last; NULL: in none */
  unsigned long long captureId;
  CUgraphNode node; /* of that graph, behind which it stands */
  atomic_int holders;
};

static void (*told)(double nowNs);

void fakegpu_on_query(void (*function)(double nowNs)) { told = function; }

FAKEGPU_API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  *event = calloc(1, sizeof **event);
  if (*event == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  atomic_init(&(*event)->holders, 1);
  return 0;
}

static void drop(CUevent event) {
  if (atomic_fetch_sub(&event->holders, 1) == 1) free(event);
}

/* Graphs that record it or wait for it keep it. */
FAKEGPU_API CUresult cuEventDestroy_v2(CUevent event) {
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  drop(event);
  return 0;
}

static void record(CUevent event, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  stream_place(s);
  event->stream = stream;
  event->nowNs = s->nowNs;
  event->busyUntilNs = s->busyUntilNs;
  event->queue = s;
  event->jobs = queue_added(s);
  event->recorded = 1;
  event->capture = NULL;
}

FAKEGPU_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (fakegpu_capturing(stream) == 2) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (s->capture != NULL) { /* a place in the graph */
    event->capture = s->capture;
    event->captureId = s->captureId;
    event->node = s->captured;
    return 0;
  }
  record(event, stream);
  return 0;
}

FAKEGPU_API CUresult cuEventSynchronize(CUevent event) {
  if (!event->recorded) return 0; /* as CUDA: nothing to wait for */
  stream_look(event->stream);
  queue_wait(event->queue, event->jobs);
  stream_sleep_until(event->busyUntilNs);
  return 0;
}

/* From any thread; what it waits for was recorded before. */
FAKEGPU_API CUresult cuEventQuery(CUevent event) {
  int ready = !event->recorded || (stream_real_now_ns() >= event->busyUntilNs && queue_is_done(event->queue, event->jobs));
  if (told != NULL) told(ready ? event->nowNs : 0);
  return ready ? 0 : CUDA_ERROR_NOT_READY;
}

FAKEGPU_API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  if (!start->recorded || !end->recorded || !start->timed || !end->timed) return CUDA_ERROR_INVALID_VALUE;
  *milliseconds = (float)((end->nowNs - start->nowNs) * 1e-6);
  return 0;
}

/* The stream goes on when all before the event is done. */
static void wait_for(CUevent event, CUstream stream) {
  struct CUstream_st *s = stream_of(stream);
  if (!event->recorded || event->queue == s) return;
  stream_look(event->stream);
  if (s->nowNs < event->nowNs) s->nowNs = event->nowNs;
  if (s->busyUntilNs < event->busyUntilNs) s->busyUntilNs = event->busyUntilNs;
  if (event->jobs > 0) queue_add(s, &(struct job){.kind = JOB_AFTER, .after = {event->queue, event->jobs}});
}

struct event_work {
  struct fakegpu_work work;
  CUevent event;
};

static void replay_record(struct fakegpu_work *work, CUstream stream) { record(((struct event_work *)work)->event, stream); }
static void replay_wait(struct fakegpu_work *work, CUstream stream) { wait_for(((struct event_work *)work)->event, stream); }

static void release(struct fakegpu_work *work) {
  drop(((struct event_work *)work)->event);
  free(work);
}

struct fakegpu_work *event_work(CUevent event, int type) {
  struct event_work *own = calloc(1, sizeof *own);
  if (own == NULL) return NULL;
  own->work = (struct fakegpu_work){.run = type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? replay_wait : replay_record,
                                    .release = release, .type = type};
  own->event = event;
  atomic_fetch_add(&event->holders, 1);
  return &own->work;
}

/* An event that was recorded outside of the capture is none of its work, so only as an external one can it be waited for. */
FAKEGPU_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (fakegpu_capturing(stream) == 2) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags == 0 && event->capture != NULL) return capture_wait(stream_of(stream), event->capture, event->captureId, event->node);
  if (stream_of(stream)->capture == NULL) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    wait_for(event, stream);
    return 0;
  }
  if (flags == 0) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  struct fakegpu_work *work = event_work(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  if (work == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  fakegpu_capture(stream, work);
  return 0;
}
