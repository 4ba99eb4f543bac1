/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the stand-in for libcuda share: ranks with scratch memory of each other, and calls whose every element
 * is known. Against CUDA's own header, so that names and arguments are the driver's.
 */
#ifndef FAKEGPU_TEST_RIG_H
#define FAKEGPU_TEST_RIG_H

#define __CUDA_API_VERSION_INTERNAL /* every symbol under its own name */
#include <cuda.h>

#include "../../../kernels/device/call.h"

enum { MAX_RANKS = 4, MAX_CALLS = 12, MOST = 4000, STREAMS = 2, NUM_TYPES = 12 };

/* Ends the program where a call does not give this code. */
#define WANT(CODE, CALL) rig_want(CODE, CALL, #CALL, __FILE__, __LINE__)
#define MUST(CALL) WANT(0, CALL)
#define CHECK(WHAT) rig_check(WHAT, #WHAT, __FILE__, __LINE__)
void rig_want(int want, int code, const char *call, const char *file, int line);
void rig_check(int holds, const char *what, const char *file, int line);

/* One call, the same on all ranks. */
struct step {
  int kind, type, op, root, stream, inPlace;
  unsigned grid, block;
  size_t count, shift; /* of a part where there are parts; elements that buffers begin later */
  uint64_t seed;
};
void steps_of(struct step *steps, uint64_t seed, int nRanks); /* MAX_CALLS */
size_t type_bytes(int type);
const char *kernel_name(const struct step *step); /* until the next call */
size_t step_sent(const struct step *step, int nRanks), step_got(const struct step *step, int nRanks); /* elements */
/* Element i of what a rank sends, and of what it gets; gives the bytes of the type. */
size_t step_value(const struct step *step, int nRanks, int rank, size_t i, void *out);
size_t step_wanted(const struct step *step, int nRanks, int rank, size_t i, void *out);

struct rank {
  int rank, nRanks;
  CUcontext context;
  CUmodule module;
  CUstream streams[STREAMS];
  CUevent tail;            /* the last kernel, where the stream changes */
  int last;                /* stream of the last kernel; -1: none yet; -2: tail was recorded behind it already */
  CUdeviceptr shared;      /* what peers write */
  CUdeviceptr in, out, counters;
  uint32_t *stop;
  uint64_t *fault;
  struct dyn_domain domain;
  struct dyn_bulk bulk;
};

void rank_open(struct rank *r, int rank, int nRanks);
void rank_connect(struct rank *r, const CUdeviceptr *shared); /* every rank's, as this process has it */
void rank_close(struct rank *r);
/* Of MAX_CALLS calls, each with buffers of its own, those from one to before another. */
void rank_fill(struct rank *r, const struct step *steps, int from, int to);  /* what they send; what they write is spoiled */
void rank_issue(struct rank *r, const struct step *steps, int from, int to); /* in streams by turns, ordered by events */
CUgraphExec rank_capture(struct rank *r, const struct step *steps, int from, int to);
void rank_replay(struct rank *r, CUgraphExec exec);
void rank_wait(struct rank *r, int how); /* 0 to 4 */
/* Ends the program where an element is wrong; gives how many there are. */
uint64_t rank_verify(struct rank *r, const struct step *steps, int from, int to);

#endif
