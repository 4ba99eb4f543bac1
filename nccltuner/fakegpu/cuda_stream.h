/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_CUDA_STREAM_H
#define FAKEGPU_CUDA_STREAM_H

#include "fakegpu.h"

struct CUstream_st {
  CUcontext context;
  double nowNs;          /* virtual */
  uint64_t busyUntilNs;  /* real: until then kernels that are not NCCL's keep it busy */
  int loaded;            /* with such kernels since the host last waited for the stream */
  struct CUgraph_st *capture; /* NULL: not capturing */
};

CUcontext fakegpu_current(void); /* of this thread */
struct CUstream_st *stream_of(CUstream stream); /* the legacy stream for NULL */
/* Everything before is done when it returns; settles what NCCL has pending. */
CUresult stream_wait(CUstream stream);

#endif
