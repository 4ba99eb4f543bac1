/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_CUDA_STREAM_H
#define FAKEGPU_CUDA_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda_queue.h"
#include "fakegpu.h"

struct CUstream_st {
  CUcontext context;
  double nowNs;          /* virtual */
  uint64_t busyUntilNs;  /* real: until then kernels that are not NCCL's keep it busy */
  int loaded;            /* with such kernels since the host last waited for the stream */
  atomic_int place;      /* in the order in which streams have had their first work, from 1; 0: it has had none */
  struct queue queue;
  struct CUgraph_st *capture; /* NULL: not capturing */
  CUgraphNode captured;       /* last into that graph; NULL: nothing yet */
  unsigned long long captureId;
};

struct CUctx_st {
  int device;
  unsigned resets;
  struct CUstream_st legacy;
  pthread_t keeper; /* who has the context's lock while it waits, */
  int keeps;        /* if anybody does */
};

#define STREAM_BEGIN_NS 1e9 /* virtual, as the harness: 0 would be no time */

CUcontext fakegpu_current(void); /* of this thread */
int device_exists(CUdevice device);
struct CUstream_st *stream_of(CUstream stream); /* the current context's legacy stream for NULL */
/* Everything before is done when it returns, NULL: on all streams of the current context. */
CUresult stream_wait(CUstream stream);
/* cuda_lock.c: while a thread keeps a context's lock others do not pass, NULL: there is none. */
void lock_pass(CUcontext context);
void lock_keep(CUcontext context);
void lock_give(CUcontext context);
void stream_place(struct CUstream_st *stream); /* it has work */
/* What comes now may read or write what NCCL's calls on this stream do, NULL: on any. */
void stream_look(CUstream stream);
void stream_sleep_until(uint64_t untilNs); /* real */
uint64_t stream_real_now_ns(void);
/* Work of other programs' kind: it takes time, and what it computes nobody looks at. */
CUresult stream_occupy(CUstream stream);

/* cuda_event.c: what a graph does with an event, a node of this type, at each launch. NULL: out of memory */
struct fakegpu_work *event_work(CUevent event, int type);
/* cuda_capture.c: whether the stream is captured, which what cannot be captured ends. */
int capture_refuses(struct CUstream_st *stream);
/* cuda_capture.c: behind the node, of the capture in which the stream is or which it joins. */
CUresult capture_wait(struct CUstream_st *stream, struct CUgraph_st *capture, unsigned long long captureId, CUgraphNode node);
/* cuda_memory.c: where what cuMemAlloc gave begins. False: it gave no such address. */
int memory_range(CUdeviceptr *base, size_t *bytes, uintptr_t address);
void memory_reset(CUcontext context);
void memory_fill(void *at, int value, size_t bytes);

#endif
