/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of one rank: create communicators, call, destroy.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "log.h"
#include "rng.h"

static int is_group(const struct options *o, int comm, uint64_t seq) {
  if (o->groupSize < 2) return 0;
  return rng_unit(rng_draw(o->seed, RNG_GROUP, (uint64_t)comm, seq, 0)) < o->groupShare;
}

static int call_once(struct rank *rank, struct comm *comm, const struct phase *phase, uint64_t call) {
  const struct options *o = rank->plan->options;
  const struct item *item = plan_item(rank->plan, phase, comm->index, comm->seq);
  return comm_call(comm, rank, phase, item, is_group(o, comm->index, comm->seq) ? o->groupSize : 1, call);
}

static void remember_plugins(struct rank *rank) {
  snprintf(rank->tuner, sizeof rank->tuner, "%s", tuner_name());
  snprintf(rank->profiler, sizeof rank->profiler, "%s", profiler_name());
  rank->tunerAbi = tuner_abi();
  rank->profilerAbi = profiler_abi();
}

static void drain(struct rank *rank) {
  proxy_drain(rank->proxy);
  if (rank->kernels != NULL) proxy_drain(rank->kernels);
}

static int peer_died(struct rank *rank) {
  rank->result = EXIT_PEER_DIED;
  return -1;
}

/* The first destroyed communicator is the first created, as long as comms of them live at once. */
static int churn(struct rank *rank) {
  const struct options *o = rank->plan->options;
  uint64_t call = 0;
  for (uint64_t i = 0; i < o->churn + (uint64_t)o->comms; i++) {
    struct comm *comm = &rank->comms[i % (uint64_t)o->comms];
    if (i >= (uint64_t)o->comms) {
      drain(rank);
      if (comm_destroy(comm, rank) != 0) return -1;
    }
    if (i >= o->churn) continue;
    if (comm_create(comm, rank, (int)(i % (uint64_t)o->comms), i) != 0) return -1;
    if (i == 0) remember_plugins(rank);
    rank->numComms++;
    if (sync_barrier(rank->sync, rank->rank, i + 1, -1, rank->error, sizeof rank->error) != 0) return peer_died(rank);
    for (int k = 0; k < o->churnCalls; k++)
      if (call_once(rank, comm, &rank->plan->phases[0], call++) != 0) return -1;
    sync_progress(rank->sync, rank->rank, call);
  }
  return 0;
}

/* Waits for the moment of this call when calls are paced. */
static void pace(const struct options *o, uint64_t beganNs, uint64_t call) {
  if (!(o->rate > 0)) return;
  uint64_t due = beganNs + (uint64_t)((double)call * 1e9 / o->rate), now = host_now_ns();
  if (due > now) usleep((useconds_t)((due - now) / 1000));
}

static void leave(struct rank *rank) {
  if (rank->log != NULL) (void)log_close(rank->log);
  rank->log = NULL;
  rank->result = EXIT_LEFT;
  sync_leave(rank->sync, rank->rank, EXIT_LEFT);
  if (rank->plan->options->threads == 1) _exit(EXIT_LEFT); /* nothing of this process is tidied up */
}

static int work(struct rank *rank) {
  const struct plan *plan = rank->plan;
  const struct options *o = plan->options;
  uint64_t beganNs = host_now_ns();
  const struct phase *phase = plan->phases;
  for (uint64_t call = 0; call < plan->calls; call++) {
    while (call >= phase->endCall) phase++;
    sync_progress(rank->sync, rank->rank, call);
    if (o->leaveRank == rank->rank && call == o->leaveCall) return leave(rank), -1;
    if (sync_wait(rank->sync, rank->rank, call, o->window, rank->error, sizeof rank->error) != 0)
      return peer_died(rank);
    pace(o, beganNs, call);
    int index = o->comms == 1 ? 0 : (int)(rng_draw(o->seed, RNG_WORK, UINT64_MAX, call, 0) % (uint64_t)o->comms);
    if (call_once(rank, &rank->comms[index], phase, call) != 0) return -1;
  }
  sync_progress(rank->sync, rank->rank, plan->calls);
  return 0;
}

static int live(struct rank *rank) {
  const struct options *o = rank->plan->options;
  if (o->churn > 0) return churn(rank);
  /* NCCL's rank creation is a rendezvous: nobody calls before all have joined, but for one late by option. */
  if (o->lateRank == rank->rank &&
      sync_wait(rank->sync, rank->rank, o->lateCalls, 1, rank->error, sizeof rank->error) != 0)
    return peer_died(rank);
  for (int i = 0; i < o->comms; i++) {
    if (comm_create(&rank->comms[i], rank, i, 0) != 0) return -1;
    rank->numComms++;
  }
  remember_plugins(rank);
  if (sync_barrier(rank->sync, rank->rank, 1, o->lateRank, rank->error, sizeof rank->error) != 0)
    return peer_died(rank);
  int failed = work(rank);
  if (failed && rank->result == EXIT_LEFT) return -1;
  drain(rank);
  for (int i = 0; i < o->comms; i++)
    if (comm_destroy(&rank->comms[i], rank) != 0) failed = -1;
  return failed;
}

static int prepare(struct rank *rank) {
  const struct plan *plan = rank->plan;
  const struct options *o = plan->options;
  if (sync_enter(rank->sync, rank->rank, rank->error, sizeof rank->error) != 0) return -1;
  timeline_init(&rank->timeline, &o->model, rank->rank);
  rank->comms = calloc((size_t)o->comms, sizeof *rank->comms);
  rank->sums = calloc((size_t)plan->numPhases * MAX_ITEMS, sizeof *rank->sums);
  if (o->measure) rank->latency = calloc(1, sizeof *rank->latency);
  rank->proxy = proxy_start(o->proxyLag);
  int apart = o->ncclVersion >= 23100;
  if (apart) rank->kernels = proxy_start(o->proxyLag);
  if (rank->comms == NULL || rank->sums == NULL || rank->proxy == NULL || (apart && rank->kernels == NULL) ||
      (o->measure && rank->latency == NULL)) {
    snprintf(rank->error, sizeof rank->error, "out of memory or threads");
    return -1;
  }
  (void)tick_ns(); /* finds out its unit */
  if (o->logPath == NULL) return 0;
  struct log_header header = {LOG_MAGIC, LOG_VERSION, sizeof(struct log_record), o->seed, (uint32_t)rank->rank,
                              (uint32_t)plan->nRanks, (uint32_t)o->comms, (uint32_t)plan->numPhases,
                              (uint32_t)o->ncclVersion, 0};
  rank->log = log_open(o->logPath, &header, rank->error, sizeof rank->error);
  return rank->log == NULL ? -1 : 0;
}

void rank_run(struct rank *rank) {
  uint64_t beganNs = host_now_ns();
  if (prepare(rank) != 0) {
    rank->result = EXIT_USAGE;
  } else if (live(rank) == 0) {
    rank->result = 0;
  }
  if (rank->result == EXIT_LEFT) return; /* as it stood: no finalize, nothing freed */
  rank->seconds = (double)(host_now_ns() - beganNs) * 1e-9;
  sync_leave(rank->sync, rank->rank, rank->result);
  if (rank->proxy != NULL) proxy_stop(rank->proxy);
  if (rank->kernels != NULL) proxy_stop(rank->kernels);
  if (rank->log != NULL && log_close(rank->log) != 0 && rank->result == 0) {
    char name[sizeof rank->error - 64]; /* the message is whole */
    int named = log_path(rank->plan->options->logPath, (unsigned)rank->rank, name, sizeof name) == 0;
    snprintf(rank->error, sizeof rank->error, "log %s: not everything could be written: is the disk full?",
             named ? name : rank->plan->options->logPath);
    rank->result = EXIT_USAGE;
  }
  if (rank->plan->options->summary && rank->sums != NULL && summary_write(rank) != 0 && rank->result == 0)
    rank->result = EXIT_USAGE;
  free(rank->comms);
  free(rank->sums);
  free(rank->latency);
}
