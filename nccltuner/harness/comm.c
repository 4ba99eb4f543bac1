/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the program, from ncclAllReduce to the launched kernel, with the arguments, order and threads of NCCL:
 * ncclEnqueueCheck (enqueue.cc), ncclPrepareTasks (343), getAlgoInfo (1918), hostStreamPlanTask (1307) of 2.28.9.
 * All of it runs in the calling thread; only the proxy's events come from another one.
 */
#include "comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api_events.h"
#include "ask.h"
#include "log.h"
#include "rng.h"

#define MAX_GROUP 32

struct task {
  struct api_task api;
  void *handle; /* Coll event */
};

int comm_create(struct comm *comm, struct rank *rank, int index, uint64_t generation) {
  const struct options *o = rank->plan->options;
  uint64_t job = 14695981039346656037u;
  for (const char *p = o->job; *p != '\0'; p++) job = (job ^ (unsigned char)*p) * 1099511628211u;
  return comm_create_as(comm, rank, index, rng_draw(o->seed ^ job, RNG_COMM_ID, (uint64_t)index, generation, 0));
}

int comm_create_as(struct comm *comm, struct rank *rank, int index, uint64_t commId) {
  const struct plan *plan = rank->plan;
  memset(comm, 0, sizeof *comm);
  comm->index = index;
  comm->commId = commId;
  if (profiler_load()) {
    comm->hasProfiler = 1;
    int result = profiler_init(&comm->profilerContext, comm->commId, rank->commName, plan->nNodes, plan->nRanks, rank->rank);
    if (result != 0) { /* NCCL continues without; 2.30 also lets the library go */
      nccl_log(NCCL_LOG_INFO, NCCL_SUBSYS_INIT, __FILE__, __LINE__, "Profiler init failed with error '%d'.", result);
      comm->hasProfiler = nccl_version() < 23000;
      if (!comm->hasProfiler) profiler_unload();
    }
  }
  comm->hasTuner = tuner_load(&comm->tunerLoaded);
  if (plan->options->requirePlugin && (!comm->hasTuner || !comm->hasProfiler)) {
    snprintf(rank->error, sizeof rank->error, "no %s plugin: set NCCL_%s_PLUGIN and LD_LIBRARY_PATH; NCCL_DEBUG=INFO "
             "says what was tried", comm->hasTuner ? "profiler" : "tuner", comm->hasTuner ? "PROFILER" : "TUNER");
    rank->result = EXIT_PLUGIN;
    return -1;
  }
  if (!comm->hasTuner) return 0;
  int result = tuner_init(&comm->tunerContext, comm->commId, (size_t)plan->nRanks, (size_t)plan->nNodes);
  if (result == 0) return 0;
  snprintf(rank->error, sizeof rank->error, "tuner init returned %d: NCCL fails the communicator", result);
  rank->result = EXIT_PLUGIN;
  return -1;
}

int comm_destroy(struct comm *comm, struct rank *rank) {
  int result = 0;
  if (comm->hasTuner) {
    result = tuner_finalize(comm->tunerContext);
    tuner_unload(&comm->tunerLoaded);
  }
  if (comm->hasProfiler) {
    if (comm->profilerContext != NULL) profiler_finalize(comm->profilerContext);
    profiler_unload();
  }
  if (result == 0) return 0;
  snprintf(rank->error, sizeof rank->error, "tuner finalize returned %d: NCCL fails ncclCommDestroy", result);
  rank->result = EXIT_PLUGIN;
  return -1;
}

/* What the choice costs by the table. */
static int price(struct rank *rank, const struct phase *phase, const struct item *item, uint64_t bytes,
                 struct choice *choice) {
  const struct table_cell *cell = item->cell;
  choice->defaultNs = item->defaultNs;
  choice->bestNs = item->bestNs;
  if (bytes != item->bytes) { /* a group: the cost is that of all its bytes in one call */
    float costs[NUM_ALGOS][NUM_PROTOS];
    cell = table_find(&phase->table, item->func, bytes);
    tuning_cost_table(&rank->plan->tuning, item->func, bytes, 1, costs);
    choice->defaultNs = cell->defaultNs;
    choice->bestNs = table_best(cell, tuning_allowed(costs), rank->plan->tuning.nChannels).costNs;
  }
  choice->costNs = choice->defaultNs;
  if (choice->chosen) choice->costNs = table_cost(cell, choice->algo, choice->proto, choice->nMaxChannels);
  if (choice->costNs > 0) return 0;
  snprintf(rank->error, sizeof rank->error, "table %.200s: no cost of %s %s/%s near %llu bytes, which the tuner "
           "chose: record it or keep it out of the action set", phase->table.path, table_collective_name(item->func),
           tuning_algo_name(choice->algo), tuning_proto_name(choice->proto), (unsigned long long)bytes);
  rank->result = EXIT_USAGE;
  return -1;
}

/* Hands the events of one collective to the thread or threads that tell them. */
static void post(struct rank *rank, const struct proxy_work *work) {
  int proxyEvents = ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileNetPlugin;
  struct proxy_work kernels = *work, network = *work;
  kernels.mask &= ncclProfileKernelCh;
  network.mask &= proxyEvents;
  if (rank->kernels == NULL) {
    kernels.mask = work->mask & (ncclProfileKernelCh | proxyEvents);
    network.mask = 0;
  }
  if (kernels.mask != 0) proxy_post(rank->kernels != NULL ? rank->kernels : rank->proxy, &kernels);
  if (network.mask != 0) proxy_post(rank->proxy, &network);
}

/* hostStreamPlanTask, enqueue.cc:1307: Group and Coll events, and the work of the proxy thread in between. timing NULL:
 * the plan goes into a graph, and there is no such work now. */
static void launch(struct comm *comm, struct rank *rank, const struct item *item, const struct choice *choice,
                   const struct tuning_task *where, struct task *tasks, int numTasks, const struct timing *timing,
                   uint64_t shuffle) {
  int mask = 0; /* the first task that has one, ncclProfilerStartGroupEvent */
  void *groupApi = NULL, *group = NULL, *kernelLaunch = NULL;
  for (int i = 0; i < numTasks && mask == 0; i++) {
    mask = tasks[i].api.mask;
    groupApi = tasks[i].api.groupApi;
  }
  int taskEvents = ncclProfileColl | ncclProfileProxyOp | ncclProfileProxyStep | ncclProfileKernelCh |
                   ncclProfileNetPlugin;
  if (comm->hasProfiler && (mask & ncclProfileKernelLaunch)) {
    ncclProfilerEventDescr_v7_t d = {.type = ncclProfileKernelLaunch, .parentObj = groupApi};
    profiler_start(comm->profilerContext, &kernelLaunch, &d);
    if (kernelLaunch != NULL) profiler_stop(kernelLaunch);
  }
  if (comm->hasProfiler && (mask & (ncclProfileGroup | ncclProfileP2p | taskEvents))) {
    ncclProfilerEventDescr_v7_t d = {.type = ncclProfileGroup};
    profiler_start(comm->profilerContext, &group, &d);
  }
  for (int i = 0; i < numTasks; i++) {
    if (comm->hasProfiler && (tasks[i].api.mask & taskEvents)) {
      ncclProfilerEventDescr_v7_t d = {.type = ncclProfileColl, .parentObj = tasks[i].api.collApi, .rank = rank->rank};
      d.coll.parentGroup = group;
      d.coll.seqNumber = comm->seqNumber[item->func];
      d.coll.func = table_collective_name(item->func);
      d.coll.count = item->count;
      d.coll.datatype = item->datatype;
      d.coll.nChannels = (uint8_t)where[i].nChannels;
      d.coll.nWarps = (uint8_t)choice->nWarps;
      d.coll.algo = comm->selected.symmetric != NULL ? comm->selected.symmetric : choice->device ? "AGxLL_R" : tuning_algo_name(choice->algo);
      d.coll.proto = tuning_proto_name(choice->proto);
      profiler_start(comm->profilerContext, &tasks[i].handle, &d);
    }
    comm->seqNumber[item->func]++; /* whether or not anybody listens, ncclProfilerStartTaskEvents */
  }
  for (int i = 0; i < numTasks && comm->hasProfiler && timing != NULL; i++) {
    post(rank, &(struct proxy_work){comm->profilerContext, tasks[i].handle, tasks[i].api.mask & ~ncclProfileColl,
                                    rank->rank, rank->plan->nRanks, rank->plan->nNodes, choice->algo, choice->proto,
                                    where[i].channelLo, where[i].nChannels, item->bytes, rng_mix(shuffle + (uint64_t)i),
                                    *timing, rank->timeline.gpuBase});
  }
  for (int i = 0; i < numTasks; i++)
    if (tasks[i].handle != NULL) profiler_stop(tasks[i].handle);
  if (group != NULL) profiler_stop(group);
}

static void keep(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item,
                 const struct choice *choice, uint64_t bytes, int numTasks, int channels) {
  size_t bucket = (size_t)(phase - rank->plan->phases) * MAX_ITEMS + (size_t)(item - phase->items);
  struct bucket_sum *sum = &rank->sums[bucket];
  sum->calls++;
  sum->chosen += choice->chosen != 0;
  sum->costNs += choice->costNs;
  sum->defaultNs += choice->defaultNs;
  sum->bestNs += choice->bestNs;
  if (rank->log == NULL) return;
  double top = 4294967295.0;
  log_add(rank->log, &(struct log_record){
                         .bytes = bytes,
                         .seq = (uint32_t)comm->seq,
                         .costNs = (uint32_t)fmin(choice->costNs, top),
                         .defaultNs = (uint32_t)fmin(choice->defaultNs, top),
                         .bestNs = (uint32_t)fmin(choice->bestNs, top),
                         .comm = (uint16_t)comm->index,
                         .phase = (uint16_t)(phase - rank->plan->phases),
                         .collective = (uint8_t)item->func,
                         .algorithm = (uint8_t)choice->algo,
                         .protocol = (uint8_t)choice->proto,
                         .channels = (uint8_t)channels,
                         .flags = (choice->chosen ? LOG_CHOSEN : 0) | (numTasks > 1 ? LOG_AGGREGATED : 0),
                         .maxChannels = (uint8_t)choice->nMaxChannels,
                     });
}

int comm_call(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item, int groupSize,
              uint64_t call) {
  struct ran ran;
  return comm_call_as(comm, rank, phase, item, groupSize, call, CALL_RUN, &ran);
}

int comm_broadcasts_apart(void) {
  const char *enabled = getenv("NCCL_ALLGATHERV_ENABLE");
  return nccl_version() >= 22902 && (enabled == NULL || strtoll(enabled, NULL, 0) != 0);
}

/* Appended in the call, while the host is some microseconds ahead of the kernel. */
struct api_task comm_append(struct comm *comm, struct rank *rank, const struct item *item, enum call_as as) {
  clock_virtual((uint64_t)rank->timeline.nowNs);
  api_group_start();
  struct api_task task = api_coll_append(comm->profilerContext, table_collective_name(item->func), item->userCount, item->userDatatype,
                                         as == CALL_CAPTURE);
  if (!api_group_end()) api_group_exit();
  clock_virtual(0);
  return item->func == FUNC_BROADCAST && comm_broadcasts_apart() ? (struct api_task){0} : task;
}

static int run_tasks(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item, struct task *tasks,
                     int numTasks, uint64_t call, enum call_as as, struct ran *ran) {
  const struct plan *plan = rank->plan;
  uint64_t enqueueNs = (uint64_t)rank->timeline.nowNs;
  /* ncclPrepareTasks, enqueue.cc:343: tasks within four times the size share one call, their counts added up;
   * the number of operations is what falls on a channel. */
  uint64_t bytes = item->bytes * (uint64_t)numTasks;
  int numPipeOps = (numTasks + plan->tuning.nChannels - 1) / plan->tuning.nChannels;
  struct choice choice = {0};
  if (ask_tuner(comm, rank, item->func, bytes, numPipeOps, &choice) != 0) return -1;
  if (price(rank, phase, item, bytes, &choice) != 0) return -1;
  if (comm->selected.symmetric != NULL) choice.costNs = comm->selected.costNs;
  struct tuning_task where[MAX_GROUP];
  for (int i = 0; i < numTasks; i++)
    where[i] = (struct tuning_task){.count = item->count, .elementSize = item->elementSize,
                                    .nMaxChannels = choice.nMaxChannels};
  tuning_schedule(&plan->tuning, item->func, choice.proto, where, numTasks);
  for (int i = 0; i < numTasks && comm->hasTuner; i++) { /* calcCollChunking, 2.30.7 enqueue.cc:2308 */
    size_t chunk = 1 << 17;
    uint64_t share = item->bytes / (uint64_t)where[i].nChannels;
    if (tuner_get_chunk_size(comm->tunerContext, item->func, share, choice.algo, choice.proto, 1, &chunk) != 0)
      return ask_broke_rule(rank, comm, "getChunkSize returned an error: NCCL fails the collective");
  }

  int observed = 0;
  for (int i = 0; i < numTasks; i++) observed |= tasks[i].api.mask;
  struct timing timing = {0};
  if (as != CALL_CAPTURE && (observed || as == CALL_RUN_TIMED)) {
    timing = timeline_call(&rank->timeline, &plan->options->model, comm->index, comm->seq, rank->rank, plan->nRanks,
                           call, bytes, choice.costNs);
  } else if (as != CALL_CAPTURE) {
    timeline_skip(&rank->timeline, &plan->options->model, choice.costNs);
  }
  clock_virtual(enqueueNs);
  uint64_t shuffle = rng_draw(plan->options->seed, RNG_CHANNEL, (uint64_t)comm->index, comm->seq, (uint64_t)rank->rank);
  launch(comm, rank, item, &choice, where, tasks, numTasks, as == CALL_CAPTURE ? NULL : &timing, shuffle);
  api_group_exit();
  clock_virtual(0);
  keep(comm, rank, phase, item, &choice, bytes, numTasks, where[0].nChannels);
  *ran = (struct ran){choice.algo, choice.proto, where[0].nChannels, observed, choice.costNs, choice.device};
  rank->collectives += (uint64_t)numTasks;
  comm->seq++;
  return 0;
}

int comm_run(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item, const struct api_task *appended,
             uint64_t call, enum call_as as, struct ran *ran) {
  return run_tasks(comm, rank, phase, item, &(struct task){.api = *appended}, 1, call, as, ran);
}

int comm_call_as(struct comm *comm, struct rank *rank, const struct phase *phase, const struct item *item,
                 int groupSize, uint64_t call, enum call_as as, struct ran *ran) {
  struct task tasks[MAX_GROUP] = {{{0}, NULL}};
  int numTasks = groupSize < MAX_GROUP ? groupSize : MAX_GROUP;
  if (numTasks > 1) api_group_start();
  for (int i = 0; i < numTasks; i++) tasks[i].api = comm_append(comm, rank, item, as);
  if (numTasks > 1) api_group_end();
  return run_tasks(comm, rank, phase, item, tasks, numTasks, call, as, ran);
}
