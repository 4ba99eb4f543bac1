/* SPDX-License-Identifier: Apache-2.0
 *
 * Where LL would be a device kernel on some ranks alone, or one that is wrong or missing: part of test_device.c.
 */
#ifndef DYN_DEVICE_RANKS_H
#define DYN_DEVICE_RANKS_H

/* A question of the three collectives that have device kernels, or of another: which of LL's entries are left to NCCL. */
static uint32_t left_of_ll(int collective, int numPipeOps, uint32_t usable) {
  float costs[21];
  int channels = 0;
  uint32_t left = 0;
  for (int i = 0; i < 21; i++) costs[i] = usable >> i & 1 ? 0.23f : -1.0f;
  ncclTunerPlugin_v6.getCollInfo(context, collective, BYTES, numPipeOps, (float **)costs, 7, 3, 0, &channels);
  for (int i = 0; i < 21; i++) {
    check((costs[i] < 0) == !(usable >> i & 1), "entry %d is marked, which NCCL 2.31 would take", i);
    left |= (uint32_t)(costs[i] >= 0 && costs[i] < 3.6e9f) << i;
  }
  check((left & ~01111111u) == (usable & ~01111111u), "%x of %x", left, usable);
  return left & 01111111u;
}

/* NCCL has no device kernel in a process with several ranks: an answer to its question is no call there, and no mark is made. Where some ranks
 * have a process of their own, LL would be two kernels in one call, and before 2.30.3 it would read some memory wrongly: nobody runs it, by a
 * plan or by NCCL's own choice. */
static void ranks_share_processes(void) {
  enum { OWN, ALIKE, PARTED, PARTED_OLD, SHARING, MISLOADS, SHARING_MISLOADS, WAYS };
  const uint32_t all = (1u << 21) - 1, ll = 01111111u;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  for (int way = 0; way < WAYS; way++) {
    void *profilers[4], *ranks[4];
    if (way == SHARING || way == SHARING_MISLOADS) setenv("NCCL_SINGLE_PROC_MEM_REG_ENABLE", "1", 1);
    for (int r = 0; r < 4; r++) ranks[r] = join_of(4, r, &profilers[r]);
    unsetenv("NCCL_SINGLE_PROC_MEM_REG_ENABLE");
    context = ranks[0];
    comm = context;
    struct dyn_rank *rank = dyn_ranks_of(comm->record);
    for (int r = 0; r < 4; r++) rank[r].ncclVersion = way == PARTED_OLD ? 22809 : way >= MISLOADS ? 22907 : 23203;
    if (way == OWN || way == MISLOADS) for (uint32_t r = 1; r < 4; r++) rank[r].pid = r;
    if (way == ALIKE) rank[2].pid = rank[3].pid = 1; /* two processes */
    if (way == PARTED || way == PARTED_OLD) rank[3].pid = 1;
    check(publisher_open(&daemon_, COMM_ID), "publisher");
    struct dyn_plan plan = one_entry(1, ACTION(1, 0, 0), 0, NULL);
    check(publisher_publish(&daemon_, &plan), "no buffer is free");
    for (int r = 0; r < 4; r++) {
      context = ranks[r];
      comm = context;
      finish_epoch();
      test_call(context, ALLREDUCE, BYTES, 0);
      uint64_t seq = comm->seq;
      bool kernel = way == OWN || way == SHARING, parted = way == PARTED || way >= MISLOADS;
      check(left_of_ll(ALLREDUCE, 0, all) == (parted ? 0 : ll) && comm->seq == seq + kernel, "way %d, rank %d: %d calls", way, r, (int)(comm->seq - seq));
      check(!!(comm->self->marks[ALLREDUCE][BUCKET] >> 30 & 1) == kernel, "way %d, rank %d: marks %x", way, r, comm->self->marks[ALLREDUCE][BUCKET]);
      check(left_of_ll(ALLREDUCE, 1, all) == (parted ? 0 : ll), "way %d, rank %d: LL is left", way, r);
      check(!parted || left_of_ll(ALLREDUCE, 1, ll) == ll, "way %d, rank %d: nothing is left", way, r);
      check(left_of_ll(0, 1, all) == ll, "way %d, rank %d: a Broadcast has no device kernel", way, r);
    }
    publisher_close(&daemon_);
    leave(4, ranks, profilers);
  }
}

/* NCCL takes an AllReduce that averages for one of its device kernels', which have none: from the first on no AllReduce of the communicator
 * runs as LL, nor any where a rank does not hear of them. Other collectives stay as they are. */
static void averages_have_none(void) {
  enum { HEARD, DEAF, ALONE, WAYS, ALL_GATHER = 2, REDUCE_SCATTER };
  const uint32_t all = (1u << 21) - 1, ll = 01111111u;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  for (int way = 0; way < WAYS; way++) {
    void *profilers[4], *ranks[4];
    deaf = way == DEAF ? 2 : -1;
    if (way == ALONE) setenv("NCCL_ALLGATHERV_ENABLE", "0", 1); /* nobody has to tell AllGather and broadcasts apart */
    for (int r = 0; r < 4; r++) ranks[r] = join_of(4, r, &profilers[r]);
    comm = ranks[0];
    for (uint32_t r = 1; r < 4; r++) dyn_ranks_of(comm->record)[r].pid = r;
    check(publisher_open(&daemon_, COMM_ID), "publisher");
    struct dyn_plan plan = one_entry(1, ACTION(1, 0, 0), 0, NULL);
    plan.index[ALL_GATHER][BUCKET] = 1;
    check(publisher_publish(&daemon_, &plan), "no buffer is free");
    for (int averaged = 0; averaged < 2; averaged++)
      for (int r = 0; r < 4; r++) {
        context = ranks[r];
        comm = context;
        finish_epoch();
        test_call(context, REDUCE_SCATTER, BYTES, 0);
        atomic_store(&heard[r].averages, averaged);
        bool kernel = way != DEAF && !averaged;
        uint64_t seq = comm->seq;
        check(left_of_ll(ALLREDUCE, 0, all) == (kernel ? ll : 0) && comm->seq == seq + kernel, "way %d, rank %d, averaged %d: %d calls", way, r, averaged, (int)(comm->seq - seq));
        check(left_of_ll(ALLREDUCE, 1, all & ~010u) == (kernel ? ll & ~010u : 0), "way %d, rank %d, averaged %d: LL is left", way, r, averaged);
        seq = comm->seq;
        check(left_of_ll(ALL_GATHER, 0, all) == ll && left_of_ll(REDUCE_SCATTER, 0, all) == ll, "way %d, rank %d, averaged %d: others", way, r, averaged);
        check(way == DEAF || comm->self->flags & DYN_RANK_SEES_AVERAGES, "rank %d: flags %x", r, comm->self->flags);
      }
    comm = ranks[0]; /* one without a record, which hears the same */
    __atomic_store_n(&comm->record->joined, 3, __ATOMIC_RELEASE);
    comm->deviceRanks = 0;
    context = ranks[0];
    check(left_of_ll(ALLREDUCE, 1, all) == 0 && left_of_ll(ALL_GATHER, 1, all) == ll, "way %d: one is missing", way);
    atomic_store(&heard[0].averages, false);
    check(left_of_ll(ALLREDUCE, 1, all) == ll, "way %d: one is missing, and nothing averages", way);
    __atomic_store_n(&comm->record->joined, 4, __ATOMIC_RELEASE);
    publisher_close(&daemon_);
    leave(4, ranks, profilers);
    check(listening == 0, "%d were not given back", listening);
  }
  deaf = -1;
}

/* Likewise without a record, where no daemon's word or other rank's is to be had. */
static void averages_without_record(void) {
  const uint32_t all = (1u << 21) - 1, ll = 01111111u;
  for (int way = 0; way < 2; way++) {
    void *profiler, *rank;
    setenv("NCCL_SYM_NOWIN_ENABLE", way == 0 ? "1" : "0", 1);
    context = rank = join_with(DYN_MAX_RANKS + 1, 0, &profiler);
    comm = context;
    check(!comm->record && listening == !way, "%d are listened to", listening);
    for (int averaged = 0; averaged < 2; averaged++) {
      atomic_store(&heard[0].averages, averaged);
      for (int ask = 0; ask < 2; ask++)
        check(left_of_ll(ALLREDUCE, ask, all) == (averaged && !way ? 0 : ll) && left_of_ll(0, ask, all) == ll, "way %d, averaged %d, ask %d", way, averaged, ask);
    }
    leave(1, &rank, &profiler);
    check(listening == 0, "%d were not given back", listening);
  }
}

/* Where its device kernels read some addresses wrongly, or nobody could keep calls from them, LL is the classic kernel: NCCL is told so in time. */
static void wrong_ones_are_let_alone(void) {
  static const struct { int release; const char *is, *becomes, *user; } ways[] = {
      {22901, "1", "1", NULL}, {22902, "1", "0", NULL}, {22907, "1", "0", NULL}, {22907, "0x1", "0", NULL}, {22907, "0", "0", NULL}, {22907, NULL, NULL, NULL},
      {23003, "1", "1", NULL}, {23203, "1", "1", NULL}, {0, "1", "0", NULL}, {23203, "1", "0", "NCCL_PROTO"}, {23203, "1", "0", "NCCL_ALGO"}};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    pid_t child = fork(); /* the release is asked for once a process */
    int status;
    if (child == 0) {
      void *profiler, *rank;
      release = ways[i].release;
      if (ways[i].user) setenv(ways[i].user, "Ring", 1);
      if (ways[i].is) setenv("NCCL_SYM_NOWIN_ENABLE", ways[i].is, 1);
      else unsetenv("NCCL_SYM_NOWIN_ENABLE");
      comm = rank = join_of(1, 0, &profiler);
      const char *now = getenv("NCCL_SYM_NOWIN_ENABLE");
      check(ways[i].becomes ? now && strcmp(now, ways[i].becomes) == 0 : !now, "way %zu: %s", i, now ? now : "none");
      check(!!(comm->self->flags & DYN_RANK_DEVICE_LL) == (now && *now == '1'), "way %zu: flags %x", i, comm->self->flags);
      leave(1, &rank, &profiler);
      _exit(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "way %zu: status %d", i, status);
  }
}

#endif
