/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake NCCL keeps of the last call of a thread, and the fake driver's GPUs.
 */
#ifndef DYN_FAKE_H
#define DYN_FAKE_H

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_ARGUMENTS 9
#define FAKE_RESULT 6 /* ncclRemoteError: nothing that the preload would answer by itself */

struct fake_id { char bytes[128]; };

struct fake_call {
  const char *name;
  uintptr_t arguments[FAKE_ARGUMENTS];
  struct fake_id id;
  int mask; /* as read in the call */
  unsigned calls;
  int (*inside)(void); /* runs in the call, and gives its result; NULL: FAKE_RESULT */
};

/* What a window's handle may point to, for ncclGetLsaDevicePointer. */
#define FAKE_PEERS 0x7065657273u
struct fake_peers {
  uint64_t magic;
  char *base[8]; /* where it begins, of each rank */
};

#define FAKE_LONE 0x7100u /* and the 255 behind it: communicators of one rank */

/* Streams of the fake driver; any other is not captured. */
#define FAKE_CAPTURED 0x1000u
#define FAKE_INVALIDATED 0x2000u /* CU_STREAM_CAPTURE_STATUS_INVALIDATED */
#define FAKE_UNKNOWN 0x3000u     /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a legacy stream while another one is captured */

/* Streams that do work: their number, and context and end of what they were given, in GPU ns. */
#define FAKE_STREAMS 16
#define FAKE_STREAM(I) (0x4000u + (I)) /* a driver's streams are addresses; these are none */
struct fake_gpu {
  atomic_uint_fast64_t now;                /* what ends later has not ended yet */
  atomic_uint_fast64_t ends[FAKE_STREAMS]; /* of each stream's work so far */
  atomic_uintptr_t context[FAKE_STREAMS];  /* 0: no context, as for a stream that is gone */
  atomic_ullong contextId;                 /* of every context */
  atomic_int failing;                      /* one of FAKE_FAIL_*; 0: none */
  atomic_uint failed;                      /* calls so far that it made fail */
  atomic_uint made, records, queries;      /* calls so far */
  atomic_uint modes;                       /* threads that let captures be */
  atomic_uint calls;                       /* of the driver, so far */
  atomic_uintptr_t capturing;              /* another stream that is captured; 0: none */
  atomic_bool gone;                        /* the driver has taken itself down: any further call aborts */
};
enum { FAKE_FAIL_CREATE = 1, FAKE_FAIL_RECORD, FAKE_FAIL_QUERY, FAKE_FAIL_ELAPSED, FAKE_FAIL_CONTEXT };

#endif
