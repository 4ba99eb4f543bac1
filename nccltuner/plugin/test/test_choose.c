/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call answers, given a plan: trials and base, counting by entry id, NCCL's -1 marks, odd tables and sizes,
 * vetoes, the interfaces without an id, and the switch for samples.
 */
#include <math.h>

#include "../../hosts/fence.h"
#include "../everywhere.h"
#include "../plan.h"
#include "choose_rig.h"
#include "sampled_epochs.h"

static void trials_then_base(void) {
  join(false);
  uint32_t base = ACTION(1, 0, 8);
  publish(one_entry(7, base, 4, trials));
  for (int i = 0; i < 4; i++) expect(trials[i], 0);
  for (int i = 0; i < 40; i++) expect(base, 0);
  publish(one_entry(7, ACTION(0, 1, 0), 4, trials)); /* the same id: its trials are over */
  expect(ACTION(0, 1, 0), 0);
  publish(one_entry(8, base, 1, trials)); /* a new id: trials start anew */
  expect(trials[0], 0);
  expect(base, 0);
  check(test_call(context, 0, BYTES, 0) == 0, "another collective");
  check(test_call(context, ALLREDUCE, BYTES / 2, 0) == 0, "another bucket");
  check(test_call(context, ALLREDUCE, 2 * BYTES - 1, 0) == base, "the bucket's last size");
}

/* So many calls run the base before the trials. */
static void trials_behind_others(void) {
  uint32_t base = ACTION(0, 0, 4);
  join(false);
  struct dyn_plan plan = one_entry(7, base, 4, trials);
  plan.entries[1].skip = 3;
  publish(plan);
  for (int i = 0; i < 3; i++) expect(base, 0);
  for (int i = 0; i < 4; i++) expect(trials[i], 0);
  for (int i = 0; i < 9; i++) expect(base, 0);
  plan.entries[1] = (struct dyn_entry){.id = 8, .base = base, .skip = DYN_MAX_SKIP};
  publish(plan);
  for (int i = 0; i < DYN_MAX_SKIP + 2; i++) expect(base, 0);
}

static void changes_only_at_epochs(void) {
  join(false);
  struct dyn_plan plan = one_entry(1, trials[0], 0, NULL);
  check(publisher_publish(&daemon_, &plan), "publish");
  for (int i = 0; i < DYN_EPOCH_CALLS; i++) expect(0, 0); /* epoch 0 is always NCCL's */
  expect(trials[0], 0);
  check(comm->self->position == (1u << 8 | (daemon_.record->newest & 255)), "position");
  plan_clear(&plan);
  check(publisher_publish(&daemon_, &plan), "publish");
  for (int i = 1; i < DYN_EPOCH_CALLS; i++) expect(trials[0], 0);
  expect(0, 0);
}

static void marks_are_respected(void) {
  join(false);
  uint32_t base = ACTION(1, 1, 4), bit = 3 * 1 + 1, all = (1u << 21) - 1;
  publish(one_entry(1, base, 0, NULL));
  expect(base, 0);
  uint32_t *marks = &comm->self->marks[ALLREDUCE][BUCKET];
  check(*marks == (1u << 31 | all), "marks %x", *marks);
  expect(0, 1u << bit);
  check(comm->self->ignored == 1, "an ignored action must be counted");
  check(*marks == ((1u << 31 | all) & ~(1u << bit)), "marks %x", *marks);
  expect(base, 1); /* marks remember, the call decides by its own table */
  expect(0, all);
  check(*marks == 1u << 31, "marks %x", *marks);
  check(comm->self->marks[0][BUCKET] == 0, "marks of a bucket that was never seen");
}

/* Where any rank's NCCL may forget to divide, no ReduceScatter is told to run PAT, and the marks say so; all else may. */
static void averages_need_division(void) {
  enum { REDUCE_SCATTER = 3, ALL_GATHER = 2, PAT = 6 };
  static const struct { uint32_t version; bool divides; } nccls[] = {{22809, true}, {23007, true}, {23100, false}, {23203, false}, {0, false}};
  uint32_t pat = ACTION(PAT, 2, 0);
  join(false);
  for (size_t i = 0; i < sizeof nccls / sizeof *nccls; i++) {
    uint32_t bucket = BUCKET + (uint32_t)i, size = 1u << bucket;
    struct dyn_plan plan = one_entry((uint32_t)i + 1, pat, 0, NULL);
    plan.index[REDUCE_SCATTER][bucket] = plan.index[ALL_GATHER][bucket] = 1;
    comm->self->ncclVersion = nccls[i].version;
    publish(plan);
    finish_epoch();
    check(test_call(context, REDUCE_SCATTER, size, 0) == (nccls[i].divides ? pat : 0), "ReduceScatter, NCCL %u", nccls[i].version);
    check(test_call(context, ALL_GATHER, size, 0) == pat, "AllGather, NCCL %u", nccls[i].version);
    check((comm->self->marks[REDUCE_SCATTER][bucket] >> 3 * PAT & 7) == (nccls[i].divides ? 7 : 0), "marks, NCCL %u", nccls[i].version);
  }
}

/* Asked by the plugin; 0: it does not say. */
static int release = 22809; /* LL is the classic kernel */
int ncclGetVersion(int *version);
__attribute__((visibility("default"))) int ncclGetVersion(int *version) {
  *version = release;
  return 0;
}

/* Where any rank's NCCL may ask about an AllGather for broadcasts, it answers no number of channels there; elsewhere it does. */
static void channels_of_broadcasts(void) {
  enum { ALL_GATHER = 2 };
  static const struct { const char *enabled; uint32_t flag; } envs[] = {{NULL, 0}, {"1", 0}, {"", 0}, {"0", DYN_RANK_ALONE_GATHERS}};
  release = 0;
  for (size_t i = 0; i < sizeof envs / sizeof *envs; i++) {
    if (envs[i].enabled) setenv("NCCL_ALLGATHERV_ENABLE", envs[i].enabled, 1);
    join(false);
    check((comm->self->flags & DYN_RANK_ALONE_GATHERS) == envs[i].flag, "NCCL_ALLGATHERV_ENABLE=%s", envs[i].enabled);
    struct dyn_plan plan = one_entry(1, ACTION(1, 1, 32), 0, NULL);
    plan.index[ALL_GATHER][BUCKET] = 1;
    publish(plan);
    finish_epoch();
    check(test_call(context, ALL_GATHER, BYTES, 0) == (envs[i].flag ? ACTION(1, 1, 32) : ACTION(1, 1, 0)), "AllGather, %s", envs[i].enabled);
    expect(ACTION(1, 1, 32), 0);
    ncclTunerPlugin_v6.finalize(context);
    publisher_close(&daemon_);
  }
  setenv("NCCL_ALLGATHERV_ENABLE", "0", 1); /* on several hosts ranks promise such a plan, each by what it knows itself, or none has it (hosts/rank.c) */
  join(false);
  struct dyn_fence fence = {.plan = one_entry(1, ACTION(1, 1, 32), 0, NULL)};
  fence.plan.index[ALL_GATHER][BUCKET] = 1;
  dyn_fence_open(&fence, 1);
  comm->fence = &fence;
  comm->seesGathers = true; /* of the record's ranks, which are not all */
  finish_epoch();
  check(test_call(context, ALL_GATHER, BYTES, 0) == ACTION(1, 1, 32) && !comm->seesGathers, "AllGather on several hosts");
  expect(ACTION(1, 1, 32), 0);
  comm->fence = NULL;
  ncclTunerPlugin_v6.finalize(context);
  publisher_close(&daemon_);
  check(dyn_alone_gathers(22809) && !dyn_alone_gathers(22902) && !dyn_alone_gathers(23203) && !dyn_alone_gathers(0), "releases");
  check(dyn_tells_gathers(23007, true) && dyn_tells_gathers(23102, false) && dyn_tells_gathers(23203, false), "releases of which it is known");
  check(!dyn_tells_gathers(23102, true) && !dyn_tells_gathers(23203, true) && !dyn_tells_gathers(23204, false) && !dyn_tells_gathers(23300, false) && !dyn_tells_gathers(0, false), "releases of which it is not");
}

static void odd_costs(void) {
  join(false);
  publish(one_entry(1, ACTION(0, 0, 0), 0, NULL));
  finish_epoch();
  float odd[] = {NAN, -INFINITY, -0.5f};
  for (int i = 0; i < 3; i++) {
    float costs[21] = {0};
    int channels = 0;
    costs[0] = odd[i];
    ncclTunerPlugin_v6.getCollInfo(context, ALLREDUCE, BYTES, 1, (float **)costs, 7, 3, 0, &channels);
    check(costs[0] != 0.0f, "an entry that NCCL would not take was chosen");
  }
}

/* A table of a newer NCCL has more columns and rows; of an older, fewer. */
static void odd_tables(void) {
  join(false);
  publish(one_entry(1, ACTION(1, 2, 3), 0, NULL));
  finish_epoch();
  static const int shapes[][2] = {{6, 3}, {7, 3}, {8, 4}, {64, 64}, {2, 3}, {2, 2}, {1, 3}, {0, 3}, {7, 0}, {-1, -1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    int numAlgo = shapes[i][0], numProto = shapes[i][1], channels = 0, chosen = -1;
    int cells = numAlgo > 0 && numProto > 0 ? numAlgo * numProto : 0;
    float *costs = malloc((size_t)cells * sizeof *costs + 1); /* exact, for the address sanitizer */
    for (int c = 0; c < cells; c++) costs[c] = 2.0f;
    ncclTunerPlugin_v5.getCollInfo(context, ALLREDUCE, BYTES, 1, (float **)costs, numAlgo, numProto, 1, &channels);
    for (int c = 0; c < cells; c++)
      if (costs[c] == 0.0f) chosen = c;
    bool possible = numAlgo >= 2 && numProto >= 3;
    check(chosen == (possible ? numProto + 2 : -1), "table %dx%d: chose %d", numAlgo, numProto, chosen);
    check(channels == (possible ? 3 : 0), "table %dx%d: %d channels", numAlgo, numProto, channels);
    free(costs);
  }
  check(ncclTunerPlugin_v6.getCollInfo(context, ALLREDUCE, BYTES, 1, NULL, 7, 3, 0, NULL) == 0, "no table");
}

static void odd_calls(void) {
  join(true);
  struct dyn_plan plan = one_entry(1, trials[0], 0, NULL);
  for (int c = 0; c < DYN_NUM_COLLECTIVES; c++) memset(plan.index[c], 1, sizeof plan.index[c]);
  publish(plan);
  finish_epoch();
  check(test_call(context, ALLREDUCE, 0, 0) == 0, "zero bytes are not tuned");
  check(test_call(context, ALLREDUCE, 1, 0) == trials[0], "one byte");
  check(test_call(context, ALLREDUCE, SIZE_MAX, 0) == trials[0], "huge");
  check(test_call(context, ALLREDUCE, (size_t)1 << 47, 0) == trials[0], "last bucket");
  int unknown[] = {-1, 5, 14, 255, 1 << 30};
  for (int i = 0; i < 5; i++) check(test_call(context, unknown[i], BYTES, 0) == 0, "collective %d", unknown[i]);
  struct dyn_decision d;
  check(dyn_decision_newest(comm, 255, &d) == 1 && d.action == 0 && d.seq == comm->seq - 1, "decision");
  check(dyn_decision_find(comm, ALLREDUCE, SIZE_MAX, &d) == 1 && d.action == trials[0] && d.bytes == SIZE_MAX, "find");
  check(dyn_decision_find(comm, ALLREDUCE, 12345, &d) == 0, "a size that never came");
  for (int i = 0; i < DYN_NUM_DECISIONS; i++) test_call(context, 0, 64, 0);
  check(dyn_decision_newest(comm, ALLREDUCE, &d) == 0, "a decision older than the array");
}

static void unknown_actions(void) {
  uint64_t random = test_seed();
  join(false);
  for (int round = 0; round < 300; round++) {
    uint32_t action = (uint32_t)test_random(&random);
    publish(one_entry((uint32_t)round, action, 0, NULL));
    finish_epoch();
    uint32_t got = test_call(context, ALLREDUCE, BYTES, 0);
    bool known = (action & 15) == DYN_PATH_COLLECTIVE && (action >> 4 & 15) < 7 && (action >> 8 & 15) < 3 &&
                 (action >> 16 & 255) <= 64;
    check(got == (known ? action & 0xff0fff : 0), "action %x: chose %x", action, got);
  }
}

/* Not fit to be run: the same for every rank, so all pass through. */
static void unfit_plans(void) {
  join(false);
  for (int what = 0; what < 6; what++) {
    struct dyn_plan plan = one_entry((uint32_t)what, trials[0], 0, NULL);
    if (what == 1) plan.index[0][0] = DYN_NUM_ENTRIES;
    if (what == 2) plan.entries[1].numTrials = DYN_NUM_TRIALS + 1;
    if (what == 3) plan.sampleEvery = 3;
    if (what == 5) plan.entries[1].skip = DYN_MAX_SKIP + 1;
    publish(plan);
    if (what == 4) daemon_.record->plans[(daemon_.record->newest & 255) - 1].entries[63].base ^= 1;
    finish_epoch();
    expect(what == 0 ? trials[0] : 0, 0);
    check(comm->slot != 0, "the buffer is in force all the same");
  }
}

static void user_veto(void) {
  setenv("NCCL_PROTO", "LL", 1);
  join(false);
  check(strstr(test_last_message(), "NCCL_PROTO=LL is set"), "message is '%s'", test_last_message());
  check(comm->self->flags == (DYN_RANK_VETO | DYN_RANK_NO_PROFILER | DYN_RANK_ALONE_GATHERS) && comm->record->veto == 1, "veto");
  publish(one_entry(1, trials[0], 0, NULL));
  for (int i = 0; i < 100; i++) expect(0, 0);
  check(comm->slot == 0, "a plan came into force");
}

static void users_switches(void) {
  setenv("DYNAMICCL_NO_EXPLORE", "true", 1);
  setenv("DYNAMICCL_FIXED_NUMERICS", "1", 1);
  setenv("DYNAMICCL_RUN", "00c0ffee00000001", 1);
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  join(false);
  check(comm->self->flags == (DYN_RANK_NO_PROFILER | DYN_RANK_NO_EXPLORE | DYN_RANK_FIXED_NUMERICS |
                              DYN_RANK_DEVICE_LL | DYN_RANK_ALONE_GATHERS), "flags are %x",
        comm->self->flags);
  check(comm->self->run == 0xc0ffee00000001, "run is %lx", (unsigned long)comm->self->run);
}

static void users_switches_off(void) {
  setenv("DYNAMICCL_NO_EXPLORE", "false", 1);
  setenv("DYNAMICCL_FIXED_NUMERICS", "", 1);
  setenv("NCCL_SYM_NOWIN_ENABLE", "0", 1);
  join(false);
  check(comm->self->flags == (DYN_RANK_NO_PROFILER | DYN_RANK_ALONE_GATHERS) && comm->self->run == 0, "flags are %x, run %lx", comm->self->flags,
        (unsigned long)comm->self->run);
}

static void no_id(void) {
  void *other;
  check(ncclTunerPlugin_v4.init(1, 1, test_log, &other) == 0, "v4");
  check(strstr(test_last_message(), "no communicator id"), "message is '%s'", test_last_message());
  check(!((struct dyn_comm *)other)->record && test_count_files("comm-") == 0, "v4 alone must pass through");
  for (int i = 0; i < 100; i++) check(test_call(other, ALLREDUCE, BYTES, 0) == 0, "v4 alone chose");
  check(ncclTunerPlugin_v4.destroy(other) == 0, "destroy");

  struct dyn_comm *a = dyn_comm_open(1, 4, 1, 3, test_log), *b = dyn_comm_open(2, 4, 1, 0, test_log);
  struct dyn_comm *c = dyn_comm_open(3, 2, 1, 1, test_log);
  check(ncclTunerPlugin_v5.init(&other, 1, 4, 1, test_log, NULL, NULL) == 0 && other == a, "the id decides");
  check(ncclTunerPlugin_v4.init(4, 1, test_log, &other) == 0 && other == b && b->record, "v4 beside a profiler");
  check(ncclTunerPlugin_v4.init(3, 1, test_log, &other) == 0 && other != c, "another number of ranks");
  check(b->self->rank == 0 && b->self->flags == DYN_RANK_ALONE_GATHERS, "what the profiler knows is in the record");

  int algorithm = -7, protocol = -7, channels = -7;
  float costs[18] = {0};
  check(ncclTunerPlugin_v2.init(4, 1, test_log, &other) == 0, "v2");
  check(ncclTunerPlugin_v2.getCollInfo(other, ALLREDUCE, BYTES, 0, 0, 1, &algorithm, &protocol, &channels) == 0, "v2");
  check(algorithm == -7 && protocol == -7 && channels == -7, "v2 must leave its outputs alone");
  check(ncclTunerPlugin_v2.destroy(other) == 0, "v2");
  check(ncclTunerPlugin_v3.init(4, 1, test_log, &other) == 0, "v3");
  check(ncclTunerPlugin_v3.getCollInfo(other, ALLREDUCE, BYTES, 1, (float **)costs, 6, 3, &channels) == 0 &&
        channels == -7, "v3");
  check(ncclTunerPlugin_v3.destroy(other) == 0, "v3");
}

static void no_logger(void) {
  setenv("DYNAMICCL_DIR", "/nowhere/at/all", 1);
  void *other;
  check(ncclTunerPlugin_v6.init(&other, 9, 1, 1, NULL, NULL, NULL) == 0, "init");
  check(test_call(other, ALLREDUCE, BYTES, 0) == 0 && ncclTunerPlugin_v6.finalize(other) == 0, "no directory");
}

static void waits_for_all_ranks(void) {
  void *first, *second;
  check(ncclTunerPlugin_v6.init(&first, COMM_ID, 2, 1, test_log, NULL, NULL) == 0, "init");
  context = first;
  comm = first;
  check(publisher_open(&daemon_, COMM_ID), "publisher");
  publish(one_entry(1, trials[0], 0, NULL));
  for (int i = 0; i < 10 * DYN_EPOCH_CALLS; i++) expect(0, 0);
  check(ncclTunerPlugin_v6.init(&second, COMM_ID, 2, 1, test_log, NULL, NULL) == 0, "init");
  finish_epoch();
  expect(trials[0], 0);
  uint64_t change = (comm->seq - 1) / DYN_EPOCH_CALLS;
  for (uint64_t seq = 0; seq < comm->seq; seq++) { /* the late one makes the same choices at the same calls */
    uint32_t got = test_call(second, ALLREDUCE, BYTES, 0);
    check(got == (seq / DYN_EPOCH_CALLS >= change ? trials[0] : 0), "call %lu: %x", seq, got);
  }
}

static void sampling(void) {
  static int mask;
  join(true);
  struct dyn_process *process = dyn_process_get(test_log);
  struct dyn_ring *ring = process->ring;
  process->mask = (atomic_int *)&mask;
  check(comm->sampling && process->samplingComms == 1, "samples from the first epoch on");
  finish_epoch();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(mask == 0, "nobody asked");
  atomic_store(&process->chainMask, 64);
  __atomic_store_n(&ring->wantMask, 2 | 256, __ATOMIC_RELAXED);
  finish_epoch();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(mask == (2 | 64 | 256), "mask %d without a plan", mask);
  atomic_store(&process->refused, 256);
  struct dyn_plan plan = one_entry(1, trials[0], 0, NULL);
  plan.sampleEvery = 4;
  publish(plan);
  for (int epoch = 0; epoch < 16; epoch++) {
    test_call(context, ALLREDUCE, BYTES, 0);
    check(comm->slot && comm->sampling == dyn_epoch_sampled(comm->epoch, 4), "epoch %lu: sampling %d", comm->epoch,
          comm->sampling);
    check(mask == (dyn_epoch_sampled(comm->epoch, 4) ? 2 | 64 : 64), "epoch %lu: mask %d", comm->epoch, mask);
    finish_epoch();
  }
  plan = one_entry(1, trials[0], 0, NULL);
  publish(plan);
  test_call(context, ALLREDUCE, BYTES, 0);
  check(!comm->sampling && mask == 64, "sampleEvery 0 samples nothing");
  plan.sampleEvery = 1;
  publish(plan);
  test_call(context, ALLREDUCE, BYTES, 0);
  check(mask == (2 | 64), "mask %d", mask);
  ring->header.heartbeat++;
  uint64_t beat = comm->epoch;
  while (mask == (2 | 64) && comm->epoch < beat + 100000) test_call(context, ALLREDUCE, BYTES, 0);
  check(mask == 64 && comm->epoch > beat + 1000, "a daemon that is silent for %lu epochs", comm->epoch - beat);
  expect(trials[0], 0); /* choices do not change */
  ring->header.heartbeat++;
  finish_epoch();
  test_call(context, ALLREDUCE, BYTES, 0);
  check(mask == (2 | 64), "the daemon is back");
  ncclTunerPlugin_v6.finalize(context);
  check(mask == 64 && process->samplingComms == 0, "the last communicator is gone: mask %d", mask);
}

int main(void) {
  test_directory();
  run("trials, then base", trials_then_base);
  run("trials behind others", trials_behind_others);
  run("changes only at epochs", changes_only_at_epochs);
  run("marks", marks_are_respected);
  run("averages need division", averages_need_division);
  run("channels of broadcasts", channels_of_broadcasts);
  run("odd costs", odd_costs);
  run("odd tables", odd_tables);
  run("odd calls", odd_calls);
  run("unknown actions", unknown_actions);
  run("unfit plans", unfit_plans);
  run("user's veto", user_veto);
  run("user's switches", users_switches);
  run("user's switches, off", users_switches_off);
  run("no id", no_id);
  run("no logger", no_logger);
  run("waits for all ranks", waits_for_all_ranks);
  run("every part of a step", every_part_of_a_step);
  run("every part of any step", every_part_of_any_step);
  run("sampling", sampling);
  test_remove_directory();
  return 0;
}
