/* SPDX-License-Identifier: Apache-2.0
 *
 * Times a collective by CUDA events on its own stream, or the host that enqueues it. Every rank must make the same calls,
 * so what depends on time (how many replays fit) is agreed on: the slowest rank's estimate counts, known to all by one
 * collective of 4 bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "worker.h"

#define MAX_REPLAYS 10000

static CUevent events[2 * MAX_REPLAYS]; /* of each replay its begin and its end */
static double hostUs[MAX_REPLAYS];      /* of its calls, until the last one was enqueued */
static int numEvents;
static volatile unsigned *gate; /* pinned: the replay up to which stream calls may run */
static unsigned gated;

double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* On one communicator. The last call runs alone, because what it must overwrite is spoiled before it. */
static int call(struct worker *worker, const struct shape *shape, int calls, double *us, size_t *wrong) {
  *us -= now_us();
  if (shape_calls(worker, shape, calls - 1) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  *us += now_us();
  if (pattern_poison(worker, shape) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  *us -= now_us();
  if (shape_call(worker, shape) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  *us += now_us();
  return pattern_verify(worker, shape, wrong);
}

int measure_call(struct worker *worker, const struct shape *shape, int calls, struct reply *reply) {
  ncclComm_t first = worker->comm;
  size_t wrong = 0;
  double us = 0;
  int failed = 0;
  for (int i = 0; i < worker->numComms && !failed; i++) {
    size_t more = 0;
    worker->comm = worker->comms[i].comm;
    failed = call(worker, shape, calls, &us, &more);
    wrong += more;
  }
  worker->comm = first;
  if (!failed) reply_format(reply, "{\"us\":%.4f,\"wrong\":%zu}", us / calls / worker->numComms, wrong);
  return failed;
}

/* What is replayed: graphs one behind the other, one of each communicator, or stream calls when there are none. */
struct replay {
  const struct shape *shape;
  int calls;
  enum mode mode;
  int numGraphs;
  CUgraphExec graphs[MAX_COMMS];
};

static int replay_once(struct worker *worker, const struct replay *replay) {
  if (replay->numGraphs == 0) return shape_calls(worker, replay->shape, replay->calls);
  for (int i = 0; i < replay->numGraphs; i++) CUDA(worker, cuGraphLaunch, replay->graphs[i], worker->stream);
  return 0;
}

static int one_way(const struct shape *shape) { return shape->collective == BROADCAST || shape->collective == REDUCE; }

/* A replay between two events. Stream calls of a small size take the host longer than the GPU, and their time would be the
 * host's: a gate holds the stream until all of them are enqueued, and one call more, not timed, takes what ranks' gates
 * open apart; where a rank may be done with it before others have come, as a broadcast's root, they meet besides. Free
 * ones have no gate: their time is what a program sees that keeps no further ahead. */
static int replay_timed(struct worker *worker, const struct replay *replay, int i) {
  if (replay->numGraphs == 0) {
    if (replay->mode != MODE_FREE)
      CUDA(worker, cuStreamWaitValue32_v2, worker->stream, (CUdeviceptr)(uintptr_t)gate, ++gated, 0 /* at least */);
    if (shape_call(worker, replay->shape) != 0 || (one_way(replay->shape) && rank_meet(worker) != 0)) return -1;
  }
  CUDA(worker, cuEventRecord, events[2 * i], worker->stream);
  hostUs[i] = -now_us();
  int failed = replay_once(worker, replay);
  hostUs[i] += now_us();
  if (!failed) CUDA(worker, cuEventRecord, events[2 * i + 1], worker->stream);
  *gate = gated;
  return failed;
}

static int prepare(struct worker *worker, int replays) {
  for (; numEvents < 2 * replays; numEvents++) CUDA(worker, cuEventCreate, &events[numEvents], CU_EVENT_DEFAULT);
  if (gate == NULL) CUDA(worker, cuMemAllocHost_v2, (void **)&gate, sizeof *gate);
  *gate = gated;
  return 0;
}

static int took(struct worker *worker, const struct replay *replay, int i, double *us) {
  float ms;
  if (replay->mode == MODE_HOST) {
    *us = hostUs[i];
    return 0;
  }
  CUDA(worker, cuEventElapsedTime, &ms, events[2 * i], events[2 * i + 1]);
  *us = (double)ms * 1e3;
  return 0;
}

/* One replay on the slowest rank; the one before takes what ranks were late by. */
static int estimate(struct worker *worker, const struct replay *replay, double *us) {
  if (replay_once(worker, replay) != 0 || replay_timed(worker, replay, 0) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  if (took(worker, replay, 0, us) != 0) return -1;
  float largest = (float)*us;
  if (rank_largest(worker, &largest) != 0) return -1;
  *us = largest > 0.1f ? largest : 0.1; /* a clock that stands still must not ask for endless replays */
  return 0;
}

static int at_most(double x, int most) { return x < most ? (int)x : most; }

static int timed(struct worker *worker, const struct replay *replay, const struct measurement *want, double *us,
                 int *replays) {
  int warm = 1;
  *replays = want->replays;
  if (want->warmUs > 0 || want->minReplays < want->replays) {
    double once = 1;
    if (estimate(worker, replay, &once) != 0) return -1;
    warm += at_most(want->warmUs / once, MAX_REPLAYS);
    *replays = at_most(want->budgetUs / once, want->replays);
    if (*replays < want->minReplays) *replays = want->minReplays;
  }
  for (int i = 0; i < warm; i++)
    if (replay_once(worker, replay) != 0) return -1;
  for (int i = 0; i < *replays; i++)
    if (replay_timed(worker, replay, i) != 0) return -1;
  CUDA(worker, cuStreamSynchronize, worker->stream);
  for (int i = 0; i < *replays; i++)
    if (took(worker, replay, i, &us[i]) != 0) return -1;
  return 0;
}

/* One more replay of each graph by itself, which is not timed: recv is spoiled before it and checked after it. It runs beside
 * the load, if there is one, since what learns from these calls must see one machine. */
static int check(struct worker *worker, const struct replay *replay, size_t *wrong) {
  struct replay one = *replay;
  one.numGraphs = replay->numGraphs > 0;
  *wrong = 0;
  for (int i = 0; i == 0 || i < replay->numGraphs; i++) {
    size_t more;
    one.graphs[0] = replay->graphs[i];
    if (i > 0 && load_turn(worker, 1) != 0) return -1;
    if (pattern_poison(worker, replay->shape) != 0 || replay_once(worker, &one) != 0) return -1;
    CUDA(worker, cuStreamSynchronize, worker->stream);
    if (load_turn(worker, 0) != 0 || pattern_verify(worker, replay->shape, &more) != 0) return -1;
    *wrong += more;
  }
  return 0;
}

int measure(struct worker *worker, const struct shape *shape, const struct measurement *want, struct reply *reply) {
  static double us[MAX_REPLAYS];
  struct replay replay = {.shape = shape, .calls = want->calls, .mode = want->mode};
  unsigned grid = 0;
  size_t wrong;
  int replays;
  double began, captureUs = 0;
  if (prepare(worker, want->replays > 1 ? want->replays : 1) != 0) return -1;
  began = now_us();
  if (want->mode == MODE_GRAPH) {
    replay.numGraphs = worker->numComms;
    if (capture_graphs(worker, shape, want->calls, replay.graphs, &grid) != 0) return -1;
    captureUs = now_us() - began;
  }
  if (load_turn(worker, 1) != 0 || timed(worker, &replay, want, us, &replays) != 0 || check(worker, &replay, &wrong) != 0) return -1;
  for (int i = 0; i < replay.numGraphs; i++) CUDA(worker, cuGraphExecDestroy, replay.graphs[i]);
  int calls = want->calls * (replay.numGraphs > 0 ? replay.numGraphs : 1); /* of a replay */
  reply_format(reply, "{\"us\":[");
  for (int i = 0; i < replays; i++) reply_format(reply, "%s%.4f", i == 0 ? "" : ",", us[i] / calls);
  reply_format(reply, "],\"wrong\":%zu,\"grid\":%u,\"capture_us\":%.1f}", wrong, grid, captureUs);
  return 0;
}
