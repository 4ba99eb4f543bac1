/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tuner half tells the daemon about CUDA graphs: choices that went into one, and that kernels are not timed.
 */
#include "choose_rig.h"

/* Asked by the plugin. One whose kernels for LL are all classic. */
int ncclGetVersion(int *version);
__attribute__((visibility("default"))) int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

#define CHOSEN (uint32_t)ACTION(1, 2, 16)

static int pop(struct dyn_process *process, struct dyn_sample *out) {
  struct dyn_sample *cell = &process->cells[process->ring->tail % DYN_RING_CELLS];
  if (cell->cell != process->ring->tail + 1) return 0;
  *out = *cell;
  cell->cell = process->ring->tail++ + DYN_RING_CELLS;
  return 1;
}

/* What goes into a graph is told once and at once, sampling or not, while a daemon lives. */
static void captured(void) {
  struct dyn_sample s;
  join(true);
  struct dyn_process *process = dyn_process_get(test_log);
  publish(one_entry(1, CHOSEN, 0, NULL));
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!comm->sampling && !pop(process, &s), "a call that is not captured is told");
  comm->captured = 1;
  uint64_t seq = comm->seq;
  check(test_call(context, ALLREDUCE, BYTES, 0) == CHOSEN, "captured calls are chosen like others");
  check(pop(process, &s) && s.commId == comm->commId && s.seq == seq && s.bytes == BYTES, "%lu", s.seq);
  check(s.flags == (DYN_SAMPLE_UNTIMED | DYN_SAMPLE_CAPTURED) && s.action == CHOSEN, "%x %x", s.flags, s.action);
  check(s.planVersion == 1 && s.collective == ALLREDUCE && s.algorithm == 255 && s.protocol == 255 && s.channels == 0 &&
        s.signalNs == 0 && s.nRanks == comm->nRanks && s.rank == comm->rank, "what is not known is said");
  test_call(context, ALLREDUCE, 1 << 12, 0);
  check(pop(process, &s) && s.action == 0 && s.bytes == 1 << 12, "a size that nothing is planned for");
  test_call(context, ALLREDUCE, 0, 0);
  check(!pop(process, &s), "an empty call is none");
  comm->captured = 0;
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!pop(process, &s), "the graph has ended");
  for (int epoch = 0; epoch <= 4096; epoch++) finish_epoch(), test_call(context, ALLREDUCE, BYTES, 0);
  comm->captured = 1;
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!pop(process, &s), "nobody would read it");
  ncclTunerPlugin_v6.finalize(context);
}

/* A graph keeps what it captured: never a trial, and the trials go on behind it where they stood. */
static void no_trials(void) {
  const uint32_t trials[] = {ACTION(1, 2, 1), ACTION(1, 2, 2), ACTION(1, 2, 4)};
  join(true);
  publish(one_entry(1, CHOSEN, 3, trials));
  check(test_call(context, ALLREDUCE, BYTES, 0) == trials[0], "the first trial");
  comm->captured = 1;
  for (int i = 0; i < 5; i++) check(test_call(context, ALLREDUCE, BYTES, 0) == CHOSEN, "a trial in a graph");
  comm->captured = 0;
  check(test_call(context, ALLREDUCE, BYTES, 0) == trials[1], "the second one");
  check(test_call(context, ALLREDUCE, BYTES, 0) == trials[2], "the third one");
  check(test_call(context, ALLREDUCE, BYTES, 0) == CHOSEN, "then the base");
  ncclTunerPlugin_v6.finalize(context);
}

/* What is compared among calls for a while, with NCCL's default for them or for graphs, is not in the other ones. Calls that pass through use up no trial. */
static void apart(void) {
  const uint32_t trial = ACTION(1, 2, 1);
  join(true);
  for (uint32_t defaults = 0; defaults < 4; defaults++) {
    struct dyn_plan plan = one_entry(defaults + 1, CHOSEN, 1, &trial);
    plan.defaults = defaults;
    publish(plan);
    uint32_t calls = defaults & DYN_PLAN_DEFAULT_CALLS ? 0 : CHOSEN, graphs = defaults & DYN_PLAN_DEFAULT_GRAPHS ? 0 : CHOSEN;
    check(test_call(context, ALLREDUCE, BYTES, 0) == (calls ? trial : 0), "the trial, %u", defaults);
    for (int i = 0; i < 6; i++) {
      comm->captured = i % 2;
      uint32_t action = test_call(context, ALLREDUCE, BYTES, 0);
      check(action == (i % 2 ? graphs : calls), "%u: call %d runs %x", defaults, i, action);
    }
    comm->captured = 0;
    plan.defaults = 0;
    publish(plan);
    check(test_call(context, ALLREDUCE, BYTES, 0) == (calls ? CHOSEN : trial), "behind it, %u", defaults);
  }
  ncclTunerPlugin_v6.finalize(context);
}

/* The answer to NCCL's question for a device kernel is the call, and is told like any other. */
static void captured_device_kernel(void) {
  struct dyn_sample s;
  float costs[21] = {[0 ... 20] = 0.5f};
  int channels = 0;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  join(true);
  struct dyn_process *process = dyn_process_get(test_log);
  publish(one_entry(1, ACTION(1, 0, 1), 0, NULL));
  comm->captured = 1;
  uint64_t seq = comm->seq;
  ncclTunerPlugin_v6.getCollInfo(context, ALLREDUCE, BYTES, 0, (float **)costs, 7, 3, 0, &channels);
  check(comm->seq == seq + 1 && pop(process, &s), "the call is not told");
  check(s.flags == (DYN_SAMPLE_UNTIMED | DYN_SAMPLE_CAPTURED) && s.action == ACTION(1, 0, 1) && s.seq == seq, "%x", s.action);
  ncclTunerPlugin_v6.finalize(context);
}

static void refused(void) {
  join(true);
  check(!(comm->self->flags & DYN_RANK_NO_TIMES), "flags %x", comm->self->flags);
  atomic_store(&dyn_process_get(test_log)->refused, 64);
  finish_epoch();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(comm->self->flags & DYN_RANK_NO_TIMES, "found out after it joined: flags %x", comm->self->flags);
  ncclTunerPlugin_v6.finalize(context);
  join(true);
  check(comm->self->flags & DYN_RANK_NO_TIMES, "known when it joins: flags %x", comm->self->flags);
  ncclTunerPlugin_v6.finalize(context);
}

int main(void) {
  test_directory();
  run("captured", captured);
  run("no trials", no_trials);
  run("apart", apart);
  run("captured device kernel", captured_device_kernel);
  run("refused", refused);
  test_remove_directory();
  return 0;
}
