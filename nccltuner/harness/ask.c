/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL asks a tuner about a call, and what it makes of the answer: getAlgoInfo (src/enqueue.cc:1918 of 2.28.9), and from 2.31 on the
 * question of a symmetric kernel before it.
 */
#include "ask.h"

#include <string.h>
#include <unistd.h>

#include "log.h"
#include "rng.h"

static void stall(const struct comm *comm, const struct rank *rank, int place) {
  const struct options *o = rank->plan->options;
  if (!(o->stallShare > 0)) return;
  uint64_t draw = rng_draw(o->seed, RNG_STALL, (uint64_t)comm->index, comm->seq * 2 + (uint64_t)place,
                           (uint64_t)rank->rank);
  if (rng_unit(draw) < o->stallShare) usleep((useconds_t)(rng_unit(rng_mix(draw)) * o->stallUs));
}

static void add_latency(struct latency *latency, double ns) {
  if (ns > latency->max) latency->max = ns;
  latency->bins[ns < 0 ? 0 : ns < LATENCY_BINS ? (size_t)ns : LATENCY_BINS]++;
  latency->count++;
}

int ask_broke_rule(struct rank *rank, const struct comm *comm, const char *what) {
  snprintf(rank->error, sizeof rank->error, "tuner %s, communicator %d call %llu: %s", tuner_name(), comm->index,
           (unsigned long long)comm->seq, what);
  rank->result = EXIT_PLUGIN;
  return -1;
}

/* NCCL 2.31 and later take the least cost of what they did not mark themselves, so -1 from a tuner is the best there is (ncclTuningCompute of
 * 2.32.3): whoever means to rule an entry out has it taken. */
static int rules_out(struct rank *rank, const struct comm *comm, float before[NUM_ALGOS][NUM_PROTOS], float costs[NUM_ALGOS][NUM_PROTOS]) {
  int marked = 0;
  for (int i = 0; i < NUM_ALGOS * NUM_PROTOS; i++)
    marked |= before[i / NUM_PROTOS][i % NUM_PROTOS] >= 0 && costs[i / NUM_PROTOS][i % NUM_PROTOS] < 0;
  return marked && nccl_version() >= 23100 ? ask_broke_rule(rank, comm, "marked an entry -1, which NCCL takes for the least cost") : 0;
}

static int shares_process(const struct rank *rank) {
  for (int r = 0; r < rank->plan->nRanks; r++)
    if (r != rank->rank && sync_process(rank->sync, r) == sync_process(rank->sync, rank->rank)) return 1;
  return 0;
}

/* From 2.29.2 to 2.30 NCCL asks about a call with one buffer in a window as about any other, and where that comes to LL, by itself or by the tuner's
 * answer, it is its device kernel (ncclMakeSymmetricTaskList, src/scheduler/symmetric_sched.cc; not, before 2.29.7, where ranks share a process). */
static int ask_half(struct comm *comm, struct rank *rank, int func, uint64_t bytes, struct choice *choice) {
  float costs[NUM_ALGOS][NUM_PROTOS];
  int nMaxChannels = 0;
  if (!comm->selected.half || nccl_version() >= 23100) return 0;
  tuning_cost_table(&rank->plan->tuning, func, bytes, 1, costs);
  if (comm->hasTuner && tuner_get_coll_info(comm->tunerContext, func, bytes, 1, &costs[0][0], 0, &nMaxChannels) != 0)
    return ask_broke_rule(rank, comm, "getCollInfo returned an error: NCCL fails the collective");
  if (tuning_select(costs, &choice->algo, &choice->proto) != 0 || choice->proto != PROTO_LL || (nccl_version() < 22907 && shares_process(rank))) return 0;
  choice->device = choice->chosen = 1;
  choice->nMaxChannels = tuning_channels(&rank->plan->tuning, choice->algo, choice->proto, bytes, &choice->nWarps);
  return 1;
}

/* From 2.31 on NCCL first asks for a symmetric kernel, with no other entry usable, and then what there is besides, both
 * with numPipeOps 0 and the bytes of one rank's part in cells of 1 KiB (src/scheduler/symmetric_sched.cc and
 * src/tuning/tuning.cc; recorded on 2.32.3). What it is told there has no part in what runs,
 * unless NCCL_SYM_NOWIN_ENABLE is set, or one buffer lies in a window (as in 2.30.7), and the second comes to LL, on one node. That is the call then (its cost here
 * is that of LL in the table), and nothing more is asked. Entries marked -1 must stay so. Where ranks share a process the classic kernel
 * runs whatever it is told (isOneThreadMultiGpus, as in 2.30.7; that it asks there at all is the stand-in's). 1: it is the call. */
static int ask_symmetric(struct comm *comm, struct rank *rank, int func, uint64_t bytes, struct choice *choice) {
  int parts = func == FUNC_ALLGATHER || func == FUNC_REDUCESCATTER ? rank->plan->nRanks : 1;
  if (nccl_version() < 23100 || (parts == 1 && func != FUNC_ALLREDUCE)) return 0;
  if (rank->plan->noWindows && rank->plan->nNodes > 1) return 0; /* ncclSymkAvailable, src/sym_kernels.cc */
  uint64_t cells = (bytes / (uint64_t)parts + 1023) / 1024 * 1024;
  for (int ask = 0; ask < 2; ask++) {
    float costs[NUM_ALGOS][NUM_PROTOS], before[NUM_ALGOS][NUM_PROTOS];
    int nMaxChannels = 0;
    tuning_cost_table(&rank->plan->tuning, func, cells, 1, costs);
    for (int i = 0; i < NUM_ALGOS * NUM_PROTOS && ask == 0; i++) costs[i / NUM_PROTOS][i % NUM_PROTOS] = -1.0f;
    memcpy(before, costs, sizeof costs);
    if (tuner_get_coll_info(comm->tunerContext, func, cells, 0, &costs[0][0], 0, &nMaxChannels) != 0)
      return ask_broke_rule(rank, comm, "getCollInfo returned an error: NCCL fails the collective");
    if (ask == 0 && memcmp(before, costs, sizeof costs) != 0)
      return ask_broke_rule(rank, comm, "chose an algorithm and protocol that NCCL marked -1");
    if (rules_out(rank, comm, before, costs)) return -1;
    if (ask == 0 || !(comm->selected.half || (rank->plan->noWindows && !shares_process(rank))) || tuning_select(costs, &choice->algo, &choice->proto) != 0) continue;
    choice->device = choice->proto == PROTO_LL && (comm->selected.half || costs[choice->algo][choice->proto] == 0.0f);
    if (choice->device) return 1;
  }
  return 0;
}

/* LL that nobody was asked for in the first place: NCCL's own choice is its device kernel, too (4x H200, 2.32.3: AllReduce of 1 KiB 4.2 us for 9.3). */
static int may_be_device(const struct rank *rank, const struct comm *comm, int func) {
  int has = func == FUNC_ALLREDUCE || func == FUNC_ALLGATHER || func == FUNC_REDUCESCATTER;
  return has && rank->plan->noWindows && rank->plan->nNodes == 1 && nccl_version() >= 23100 && comm->selected.classics == 0 && !shares_process(rank);
}

/* Nothing more is asked: neither whether another would be better, nor for channels. */
static int take_symmetric(struct rank *rank, uint64_t bytes, struct choice *choice) {
  choice->algo = ALGO_RING;
  choice->proto = PROTO_LL;
  choice->device = 1;
  choice->chosen = 0;
  choice->nMaxChannels = tuning_channels(&rank->plan->tuning, choice->algo, choice->proto, bytes, &choice->nWarps);
  return 0;
}

int ask_tuner(struct comm *comm, struct rank *rank, int func, uint64_t bytes, int numPipeOps, struct choice *choice) {
  const struct tuning *tuning = &rank->plan->tuning;
  float costs[NUM_ALGOS][NUM_PROTOS], before[NUM_ALGOS][NUM_PROTOS];
  int nMaxChannels = 0;
  tuning_cost_table(tuning, func, bytes, numPipeOps, costs);
  for (int i = 0; i < NUM_ALGOS * NUM_PROTOS; i++)
    if (comm->selected.classics && !(comm->selected.classics >> i & 1)) costs[i / NUM_PROTOS][i % NUM_PROTOS] = -1.0f;
  memcpy(before, costs, sizeof costs);
  int half = ask_half(comm, rank, func, bytes, choice);
  if (half != 0) {
    rank->collInfoCalls += half > 0;
    return half > 0 ? 0 : -1;
  }
  if (comm->hasTuner) {
    int device = comm->selected.classics ? 0 : ask_symmetric(comm, rank, func, bytes, choice);
    if (device < 0) return -1;
    if (comm->selected.symmetric != NULL) return take_symmetric(rank, bytes, choice);
    if (device) {
      rank->collInfoCalls++;
      choice->nMaxChannels = tuning_channels(tuning, choice->algo, choice->proto, bytes, &choice->nWarps);
      choice->chosen = 1;
      return 0;
    }
    uint64_t draw = rng_draw(rank->plan->options->seed, RNG_REGBUFF, (uint64_t)comm->index, comm->seq,
                             (uint64_t)rank->rank);
    int regBuff = rng_unit(draw) < rank->plan->options->regBuff;
    stall(comm, rank, 0);
    double began = rank->latency != NULL ? tick_ns() : 0;
    int result = tuner_get_coll_info(comm->tunerContext, func, bytes, numPipeOps, &costs[0][0], regBuff, &nMaxChannels);
    if (rank->latency != NULL) add_latency(rank->latency, tick_ns() - began);
    stall(comm, rank, 1);
    if (result != 0) return ask_broke_rule(rank, comm, "getCollInfo returned an error: NCCL fails the collective");
    if (rules_out(rank, comm, before, costs)) return -1;
  }
  if (comm->selected.symmetric != NULL) return take_symmetric(rank, bytes, choice);
  rank->collInfoCalls++;
  if (tuning_select(costs, &choice->algo, &choice->proto) != 0)
    return ask_broke_rule(rank, comm, "no algorithm and protocol left: NCCL fails the collective");
  if (before[choice->algo][choice->proto] == -1.0f)
    return ask_broke_rule(rank, comm, "chose an algorithm and protocol that NCCL marked -1");
  if (nMaxChannels < 0 || nMaxChannels > 64) return ask_broke_rule(rank, comm, "nChannels is not from 0 to 64");
  choice->nMaxChannels = tuning_channels(tuning, choice->algo, choice->proto, bytes, &choice->nWarps);
  choice->chosen = nMaxChannels != 0 || comm->selected.classics != 0 || memcmp(before, costs, sizeof costs) != 0;
  choice->device = choice->proto == PROTO_LL && may_be_device(rank, comm, func);
  if (nMaxChannels != 0) choice->nMaxChannels = nMaxChannels < tuning->nChannels ? nMaxChannels : tuning->nChannels;
  return 0;
}

int comm_ask_broadcasts(struct comm *comm, struct rank *rank, uint64_t bytes) {
  float costs[NUM_ALGOS][NUM_PROTOS];
  int nMaxChannels = 0;
  tuning_cost_table(&rank->plan->tuning, FUNC_ALLGATHER, bytes, 1, costs);
  if (comm->hasTuner && tuner_get_coll_info(comm->tunerContext, FUNC_ALLGATHER, bytes, 1, &costs[0][0], 0, &nMaxChannels) != 0)
    return ask_broke_rule(rank, comm, "getCollInfo returned an error: NCCL fails the collective");
  if (nMaxChannels < 0 || nMaxChannels > rank->plan->tuning.nChannels)
    return ask_broke_rule(rank, comm, "gave broadcasts of a group channels that the communicator has not: NCCL reads what nobody has written");
  return 0;
}
