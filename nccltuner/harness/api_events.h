/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HARNESS_API_EVENTS_H
#define HARNESS_API_EVENTS_H

#include "nccl.h"

/* What a task carries from the API call to its launch. */
struct api_task {
  int mask; /* eActivationMask, polled at the API call */
  void *groupApi, *collApi;
};

void api_group_start(void); /* ncclGroupStart and the group inside every API call */
/* The beginning of ncclGroupEnd; 1: it was the outermost, the tasks are to be launched. */
int api_group_end(void);
void api_group_exit(void); /* the end of ncclGroupEnd, inner ones included */
/* collTaskAppend, enqueue.cc:2451. captured: the call goes into a CUDA graph. */
struct api_task api_coll_append(void *context, const char *func, size_t count, const char *datatype, int captured);

#endif
