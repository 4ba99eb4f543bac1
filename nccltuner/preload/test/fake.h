/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake NCCL keeps of the last call of a thread.
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
};

/* Streams of the fake driver; any other is not captured. */
#define FAKE_CAPTURED 0x1000u
#define FAKE_INVALIDATED 0x2000u /* CU_STREAM_CAPTURE_STATUS_INVALIDATED */
#define FAKE_UNKNOWN 0x3000u     /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: a legacy stream while another one is captured */

#endif
