/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL may run as a device kernel where one buffer of a call lies in a window: part of test_device.c.
 */
#ifndef DYN_DEVICE_WINDOWS_H
#define DYN_DEVICE_WINDOWS_H

/* Whether the plan's LL, which is that of Ring, is answered; what else NCCL has to choose from, LL among it, is as it was. */
static bool plan_says_ll(int collective, int numPipeOps) {
  float costs[21];
  int channels = 0;
  for (int i = 0; i < 21; i++) costs[i] = 0.23f;
  ncclTunerPlugin_v6.getCollInfo(context, collective, BYTES, numPipeOps, (float **)costs, 7, 3, 0, &channels);
  bool answered = costs[3] == 0.0f;
  for (int i = 0; i < 21; i++) check(costs[i] == (i == 3 && answered ? 0.0f : 0.23f), "entry %d costs %g", i, (double)costs[i]);
  check(channels == (answered ? 4 : 0), "%d channels", channels);
  return answered;
}

/* NCCL 2.29.2 to 2.30 take LL for a call with one buffer in a window to be its device kernel, whatever NCCL_SYM_NOWIN_ENABLE says: once the program
 * has called for a window no plan's LL is in force, nor before where a rank does not hear of it. What NCCL takes by itself stays. */
static void windows_have_nccls_ll(void) {
  enum { ALL_GATHER = 2, REDUCE_SCATTER, BROADCAST = 0, NEVER, BEHIND, ALWAYS };
  static const struct { int release, deaf, never; const char *nowin, *windows; bool shares, forced; } ways[] = {
      {22902, -1, BEHIND, NULL, NULL, false, false}, {22907, -1, BEHIND, "0", NULL, true, false}, {23007, -1, BEHIND, "1", NULL, true, false},
      {23007, -1, BEHIND, "0", NULL, false, false}, {22907, 2, ALWAYS, NULL, NULL, false, false}, {23007, 3, ALWAYS, "1", NULL, true, false},
      {22902, 2, NEVER, NULL, "0", false, false}, {23003, 2, ALWAYS, NULL, "1", false, false}, {23007, 2, NEVER, "0", NULL, false, true},
      {23007, -1, NEVER, "0", NULL, true, true}, {22901, 2, NEVER, NULL, NULL, false, false}, {22901, -1, NEVER, NULL, NULL, false, false},
      {0, 2, ALWAYS, NULL, NULL, false, false}, {0, -1, BEHIND, NULL, NULL, false, false},
      {23100, 2, NEVER, NULL, NULL, false, false}, {23203, -1, NEVER, "1", NULL, true, false}};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    pid_t child = fork(); /* the release is asked for once a process */
    int status;
    if (child == 0) {
      void *profilers[4], *ranks[4];
      release = ways[i].release;
      deaf = ways[i].deaf;
      setenv("NCCL_ALLGATHERV_ENABLE", "0", 1); /* nobody has to tell AllGather and broadcasts apart */
      unsetenv("NCCL_SYM_NOWIN_ENABLE");
      if (ways[i].nowin) setenv("NCCL_SYM_NOWIN_ENABLE", ways[i].nowin, 1);
      if (ways[i].forced) setenv("DYNAMICCL_FORCED", "1", 1);
      if (ways[i].windows) setenv("NCCL_WIN_ENABLE", ways[i].windows, 1);
      for (int r = 0; r < 4; r++) ranks[r] = join_of(4, r, &profilers[r]);
      comm = ranks[0];
      for (uint32_t r = 1; r < 4 && !ways[i].shares; r++) dyn_ranks_of(comm->record)[r].pid = r;
      check(publisher_open(&daemon_, COMM_ID), "publisher");
      struct dyn_plan plan = one_entry(1, ACTION(1, 0, 4), 0, NULL);
      plan.index[ALL_GATHER][BUCKET] = plan.index[REDUCE_SCATTER][BUCKET] = plan.index[BROADCAST][BUCKET] = 1;
      check(publisher_publish(&daemon_, &plan), "no buffer is free");
      for (int windows = 0; windows < 2; windows++)
        for (int r = 0; r < 4; r++) {
          context = ranks[r];
          comm = context;
          finish_epoch();
          atomic_store(&heard[r].windows, windows);
          bool ll = ways[i].never == NEVER || (ways[i].never == BEHIND && !windows);
          uint64_t seq = comm->seq;
          for (int c = ALL_GATHER; c <= ALLREDUCE; c++) {
            check(plan_says_ll(c, 1) == ll, "way %zu, rank %d, windows %d, collective %d", i, r, windows, c);
            uint32_t marks = comm->self->marks[c][BUCKET];
            check((marks >> 3 & 1) == ll, "way %zu, rank %d, windows %d, collective %d: marks %x", i, r, windows, c, marks);
          }
          check(plan_says_ll(BROADCAST, 1), "way %zu, rank %d: a Broadcast has no device kernel", i, r);
          check(comm->seq == seq + 4, "way %zu, rank %d: %d calls", i, r, (int)(comm->seq - seq));
        }
      publisher_close(&daemon_);
      leave(4, ranks, profilers);
      check(listening == 0, "%d were not given back", listening);
      _exit(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "way %zu: status %d", i, status);
  }
}

#endif
