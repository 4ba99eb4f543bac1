/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL asks before a call from 2.31 on: which questions are calls, and which leave no trace.
 */
#include "../../preload/gathers.h"
#include "choose_rig.h"

#include "../profiler.h"

extern const ncclProfiler_v6_t ncclProfiler_v6;

static struct dyn_preload_call call;
static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}
static bool can_time(void) { return true; }

/* What the preload library hears of each rank's calls; of one that is deaf it hears nothing. */
static struct dyn_gathers heard[4];
static int deaf = -1, listening;
static struct dyn_gathers *hear(const void *inside, uint32_t nRanks, uint32_t rank) {
  (void)inside, (void)nRanks;
  if ((int)rank == deaf) return NULL;
  listening++;
  heard[rank] = (struct dyn_gathers){.root = DYN_NO_ROOT};
  return &heard[rank];
}
static void hear_no_more(struct dyn_gathers *of) { listening -= of >= heard && of < heard + 4; }
static const struct dyn_gathers_calls hearing = {hear, hear_no_more};
extern struct dyn_preload dynamiccl_preload;
__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {
    .version = DYN_PRELOAD_VERSION, .call = this_call, .about = about, .can_time = can_time, .gathers = &hearing, .roundLock = PTHREAD_MUTEX_INITIALIZER};

/* NCCL 2.31 on: each collective asks for a symmetric kernel first (no entry is usable), then what else there is, both
 * with numPipeOps 0 and for AllGather with half the bytes; then the real question. Recorded on 2.32.3, two ranks. */
static void asks_before_the_call(void) {
  join(false);
  publish(one_entry(1, ACTION(1, 1, 4), 3, trials));
  finish_epoch();
  uint64_t seq = comm->seq;
  for (int call = 0; call < 4; call++) {
    for (int ask = 0; ask < 2; ask++) {
      float costs[21];
      int channels = 0;
      for (int i = 0; i < 21; i++) costs[i] = ask == 0 ? -1.0f : 0.23f;
      ncclTunerPlugin_v6.getCollInfo(context, ALLREDUCE, BYTES >> ask, 0, (float **)costs, 7, 3, 0, &channels);
      for (int i = 0; i < 21; i++) check(costs[i] == (ask == 0 ? -1.0f : 0.23f), "an answer to ask %d", ask);
      check(channels == 0 && comm->seq == seq + (uint64_t)call, "ask %d is counted as a call", ask);
    }
    uint32_t marks = comm->self->marks[ALLREDUCE][BUCKET];
    check(marks == (call == 0 ? 0 : 1u << 31 | ((1u << 21) - 1)), "marks %x before call %d", marks, call);
    check(comm->self->marks[ALLREDUCE][BUCKET - 1] == 0, "marks of a size that is never run");
    expect(call < 3 ? trials[call] : ACTION(1, 1, 4), 0);
  }
}

/* With our profiler and without the preload library, of whose calls it is known that none averages. */
static void join_heard(void) {
  join(true);
  comm->averages = &heard[0];
  comm->self->flags |= DYN_RANK_SEES_AVERAGES;
}

static int device_question(int collective, size_t bytes, uint32_t usable) {
  float costs[21];
  int channels = 0, answered = 0;
  for (int i = 0; i < 21; i++) costs[i] = usable >> i & 1 ? 0.23f : -1.0f;
  ncclTunerPlugin_v6.getCollInfo(context, collective, bytes, 0, (float **)costs, 7, 3, 0, &channels);
  for (int i = 0; i < 21; i++) {
    check((costs[i] == -1.0f) == !(usable >> i & 1), "entry %d marked -1 was chosen, or one was ruled out", i);
    answered += costs[i] == 0.0f;
    if (costs[i] == 0.0f) check(i % 3 == 0, "answered protocol %d", i % 3);
  }
  check(channels == 0 && answered <= 1, "%d entries", answered);
  return answered;
}

/* With NCCL_SYM_NOWIN_ENABLE=1 LL is answered to the question, which then is the call; any other choice waits for it. */
static void device_kernels(void) {
  static const uint32_t mixed[] = {ACTION(1, 0, 4), ACTION(1, 1, 4), ACTION(0, 0, 2), 0};
  const uint32_t all = (1u << 21) - 1;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  join_heard();
  publish(one_entry(1, ACTION(1, 0, 1), 4, mixed));
  finish_epoch();
  uint64_t seq = comm->seq;
  check(device_question(ALLREDUCE, BYTES, 0) == 0 && comm->seq == seq, "no entry is usable");
  check(device_question(ALLREDUCE, BYTES, all) == 1 && comm->seq == seq + 1, "the first trial is LL");
  check(comm->decisions[seq % DYN_NUM_DECISIONS].action == mixed[0] && comm->decisions[seq % DYN_NUM_DECISIONS].bytes == BYTES, "noted");
  check(device_question(ALLREDUCE, BYTES, all) == 0 && comm->seq == seq + 1, "LL128 is no device kernel");
  expect(mixed[1], 0);
  check(device_question(ALLREDUCE, BYTES, all & ~1u) == 0, "Tree's LL is marked -1 here");
  check(device_question(ALLREDUCE, BYTES, all) == 1 && comm->seq == seq + 3, "Tree's LL");
  check(device_question(ALLREDUCE, BYTES, all) == 0, "NCCL's default is not asked for");
  expect(0, 0);
  for (int i = 0; i < 3 * DYN_EPOCH_CALLS; i++) check(device_question(ALLREDUCE, BYTES, all) == 1, "base %d", i);
  check(comm->seq == seq + 4 + 3 * DYN_EPOCH_CALLS && comm->epoch > 3, "epochs go on with questions alone");
  check(device_question(ALLREDUCE, 2 * BYTES, all) == 0, "a bucket without an entry");
}

/* Where NCCL asks, and its answer is the call, the marks say so: before the call and after it, in the question's bucket. */
static void marks_tell(void) {
  const uint32_t all = (1u << 21) - 1, asked = 1u << 30, seen = 1u << 31, *marks;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  join_heard();
  marks = comm->self->marks[ALLREDUCE];
  device_question(ALLREDUCE, BYTES, 0);
  device_question(ALLREDUCE, BYTES, all & ~011111111111u);
  check(marks[BUCKET] == 0, "no LL: marks %x", marks[BUCKET]);
  device_question(ALLREDUCE, BYTES, all);
  check(marks[BUCKET] == asked, "asked, not called: marks %x", marks[BUCKET]);
  test_call(context, ALLREDUCE, BYTES, 0);
  check(marks[BUCKET] == (seen | asked | all), "called: marks %x", marks[BUCKET]);
  test_call(context, ALLREDUCE, BYTES, 2);
  check(marks[BUCKET] == (seen | asked | (all & ~2u)), "one marked -1: marks %x", marks[BUCKET]);
  test_call(context, ALLREDUCE, 2 * BYTES, 0);
  check(marks[BUCKET + 1] == (seen | all), "never asked: marks %x", marks[BUCKET + 1]);
  device_question(ALLREDUCE, 2 * BYTES, all);
  check(marks[BUCKET + 1] == (seen | asked | all), "asked late: marks %x", marks[BUCKET + 1]);
}

/* Without the variable the answer has no part in what runs, and the call follows. */
static void no_device_kernels(void) {
  join(false);
  publish(one_entry(1, ACTION(1, 0, 1), 0, NULL));
  finish_epoch();
  uint64_t seq = comm->seq;
  check(device_question(ALLREDUCE, BYTES, (1u << 21) - 1) == 0 && comm->seq == seq, "NCCL_SYM_NOWIN_ENABLE is not set");
  check(comm->self->marks[ALLREDUCE][BUCKET] == 0, "marks of a device kernel that cannot run");
  expect(ACTION(1, 0, 1), 0);
}

/* NCCL 2.29.7 to 2.30: the question is one like any other, and unless LL is answered comes again, in the same call of the
 * program's. One call counts, with one answer; and that NCCL has a device kernel there is known from then on. */
static void asks_twice(void) {
  static const uint32_t mixed[] = {ACTION(1, 0, 4), ACTION(1, 1, 4), 0, ACTION(0, 2, 2)};
  const uint32_t asked = 1u << 30;
  int mask = 0;
  void *profiler;
  setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
  atomic_store(&dynamiccl_preload.announced, 1);
  check(ncclProfiler_v6.init(&profiler, COMM_ID, &mask, "test", 1, 1, 0, test_log) == 0, "profiler");
  check(ncclTunerPlugin_v6.init(&context, COMM_ID, 1, 1, test_log, NULL, NULL) == 0 && publisher_open(&daemon_, COMM_ID), "init");
  comm = context;
  check(comm->record && dyn_event_timed(), "not timed by events: %s", test_last_message());
  publish(one_entry(1, ACTION(1, 1, 8), 4, mixed));
  finish_epoch();
  call.depth = 1;
  for (int i = 0; i < 6; i++) {
    uint64_t seq = comm->seq;
    uint32_t want = i < 4 ? mixed[i] : ACTION(1, 1, 8);
    call.number++;
    expect(want, 0);
    bool isLL = want != 0 && (want >> DYN_ACTION_PROTO_SHIFT & 15) == 0;
    if (!isLL) expect(want, 0);
    check(comm->seq == seq + 1, "call %d counts %d times", i, (int)(comm->seq - seq));
    check((comm->self->marks[ALLREDUCE][BUCKET] & asked) == (i > 0 ? asked : 0), "call %d: marks %x", i, comm->self->marks[ALLREDUCE][BUCKET]);
  }
  call = (struct dyn_preload_call){0}; /* at the end of a group nobody can tell */
  uint64_t seq = comm->seq;
  expect(ACTION(1, 1, 8), 0);
  expect(ACTION(1, 1, 8), 0);
  check(comm->seq == seq + 2, "%d calls", (int)(comm->seq - seq));
  ncclTunerPlugin_v6.finalize(context);
  ncclProfiler_v6.finalize(profiler);
}

static int release = 23203; /* the newest of which it is known what it asks about */
int ncclGetVersion(int *version);
__attribute__((visibility("default"))) int ncclGetVersion(int *version) {
  *version = release;
  return 0;
}

/* Where NCCL may ask about broadcasts of a group as about an AllGather, the preload library says which it is; a number of channels is
 * answered where it knows, about an AllGather. */
static struct dyn_gathers told = {.root = DYN_NO_ROOT};
static bool tells; /* whether it knows */
static int taken;
static struct dyn_gathers *gathers_of(const void *inside, uint32_t nRanks, uint32_t rank) {
  check(inside == &context && nRanks == 1 && rank == 0, "whose");
  taken += tells;
  return tells ? &told : NULL;
}
static void gathers_over(struct dyn_gathers *of) {
  check(of == &told, "whose end");
  taken--;
}
static void broadcasts_are_told(void) {
  enum { ALL_GATHER = 2 };
  static const struct dyn_gathers_calls calls = {gathers_of, gathers_over};
  static const int roots[] = {DYN_NO_ROOT, 0, 5, DYN_ROOTS, DYN_NO_ROOT};
  dynamiccl_preload.gathers = &calls;
  for (int way = 0; way < 4; way++) {
    const bool elsewhere = way == 3; /* NCCL chooses in another place */
    int mask = 0;
    void *profiler;
    tells = way > 0;
    told.inThread = way == 2;
    if (elsewhere) setenv("NCCL_ENQUEUE_REARCH_ENABLE", "1", 1);
    atomic_store(&dynamiccl_preload.announced, 1);
    check(ncclProfiler_v6.init(&profiler, COMM_ID, &mask, "test", 1, 1, 0, test_log) == 0, "profiler");
    check(ncclTunerPlugin_v6.init(&context, COMM_ID, 1, 1, test_log, NULL, NULL) == 0 && publisher_open(&daemon_, COMM_ID), "init");
    comm = context;
    unsetenv("NCCL_ENQUEUE_REARCH_ENABLE");
    if (elsewhere) tells = false;
    check(comm->record && !!(comm->self->flags & DYN_RANK_ALONE_GATHERS) == tells, "flags %x", comm->self->flags);
    check(!!(comm->self->flags & DYN_RANK_SEES_GATHERS) == (way == 2), "flags %x", comm->self->flags);
    struct dyn_plan plan = one_entry(1, ACTION(1, 1, 8), 0, NULL);
    plan.index[ALL_GATHER][BUCKET] = 1;
    publish(plan);
    finish_epoch();
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
      call.depth = 1;
      call.number++;
      atomic_store(&told.root, roots[i]);
      check(test_call(context, ALL_GATHER, BYTES, 0) == ACTION(1, 1, tells && roots[i] != DYN_ROOTS ? 8 : 0), "%d: root %d", way, roots[i]);
      expect(ACTION(1, 1, 8), 0);
    }
    call = (struct dyn_preload_call){0};
    comm->past = 1; /* as one rank alone may find later, by chance: an AllGather has the number that the others answer */
    bool seen = tells && way != 2; /* a call that went past the library, as far as that is known */
    check(test_call(context, ALL_GATHER, BYTES, 0) == ACTION(1, 1, seen ? 8 : 0), "%d: past", way);
    atomic_store(&told.gathers, true);
    check(test_call(context, ALL_GATHER, BYTES, 0) == ACTION(1, 1, tells ? 8 : 0), "%d: at the end of a group that has one", way);
    atomic_store(&told.gathers, false);
    dyn_ranks_of(comm->record)[0].flags &= ~DYN_RANK_SEES_GATHERS; /* another one is in the dark: none looks */
    plan.version = 2;
    publish(plan);
    finish_epoch();
    check(test_call(context, ALL_GATHER, BYTES, 0) == ACTION(1, 1, tells ? 8 : 0), "%d: not all see it", way);
    ncclTunerPlugin_v6.finalize(context);
    ncclProfiler_v6.finalize(profiler);
    publisher_close(&daemon_);
    check(taken == 0, "%d were not given back", taken);
  }
  dynamiccl_preload.gathers = &hearing;
}

/* A rank that has our profiler, or that NCCL and another library alone know of. */
static void *join_with(uint32_t nRanks, int rank, void **profiler) {
  static int mask;
  void *tuner;
  atomic_store(&dynamiccl_preload.announced, profiler != NULL);
  if (profiler) check(ncclProfiler_v6.init(profiler, COMM_ID, &mask, "test", 1, (int)nRanks, rank, test_log) == 0, "profiler");
  check(ncclTunerPlugin_v6.init(&tuner, COMM_ID, nRanks, 1, test_log, NULL, NULL) == 0, "init: %s", test_last_message());
  return tuner;
}
static void *join_of(uint32_t nRanks, int rank, void **profiler) {
  struct dyn_comm *joined = join_with(nRanks, rank, profiler);
  check(joined->record != NULL, "no record: %s", test_last_message());
  return joined;
}
static void leave(int nRanks, void **ranks, void **profilers) {
  for (int r = 0; r < nRanks; r++) {
    ncclTunerPlugin_v6.finalize(ranks[r]);
    ncclProfiler_v6.finalize(profilers[r]);
  }
}

/* A rank that cannot tell calls apart counts both questions, and so do the others: else they would take a plan in different calls. */
static void asks_twice_where_a_rank_cannot_tell(void) {
  void *profiler, *ranks[2] = {join_of(2, 0, &profiler), join_of(2, 1, NULL)};
  check(publisher_open(&daemon_, COMM_ID) && dyn_event_timed(), "publisher");
  struct dyn_plan plan = one_entry(1, ACTION(1, 1, 8), 0, NULL);
  check(publisher_publish(&daemon_, &plan), "no buffer is free");
  for (int i = 0; i < 3 * DYN_EPOCH_CALLS; i++) {
    uint32_t ran[2];
    call.depth = 1;
    call.number++;
    for (int r = 0; r < 2; r++)
      for (int ask = 0; ask < 2; ask++) ran[r] = test_call(ranks[r], ALLREDUCE, BYTES, 0);
    check(ran[0] == ran[1], "call %d: %x and %x", i, ran[0], ran[1]);
    check(((struct dyn_comm *)ranks[0])->seq == ((struct dyn_comm *)ranks[1])->seq, "call %d", i);
  }
  call = (struct dyn_preload_call){0};
  for (int r = 0; r < 2; r++) ncclTunerPlugin_v6.finalize(ranks[r]);
  ncclProfiler_v6.finalize(profiler);
}

/* Whether a call stands in a group, whose end asks, is no other rank's business. */
static void asks_twice_at_a_groups_end(void) {
  void *profilers[2], *ranks[2];
  for (int r = 0; r < 2; r++) ranks[r] = join_of(2, r, &profilers[r]);
  for (int r = 0; r < 2; r++) ((struct dyn_comm *)ranks[r])->self->ncclVersion = 22902; /* the first that asks so (ncclMakeSymmetricTaskList) */
  check(publisher_open(&daemon_, COMM_ID), "publisher");
  struct dyn_plan plan = one_entry(1, ACTION(1, 1, 8), 0, NULL);
  check(publisher_publish(&daemon_, &plan), "no buffer is free");
  for (int i = 0; i < 3 * DYN_EPOCH_CALLS; i++) {
    uint32_t ran[2];
    for (int r = 0; r < 2; r++) {
      bool grouped = r == 1 && i % 3 > 0;
      call = (struct dyn_preload_call){.depth = !grouped, .ends = grouped, .number = (uint64_t)(i + 1) << 1 | (uint64_t)r};
      for (int ask = 0; ask < 2; ask++) ran[r] = test_call(ranks[r], ALLREDUCE, BYTES, 0);
      if (grouped && i % 3 == 2) { /* another one that goes past the library, in the same thread */
        uint64_t seq = ((struct dyn_comm *)ranks[r])->seq;
        call.ends = false;
        for (int ask = 0; ask < 2; ask++) test_call(ranks[r], ALLREDUCE, BYTES, 0);
        check(((struct dyn_comm *)ranks[r])->seq == seq + 2, "call %d", i);
        call = (struct dyn_preload_call){.depth = 1, .number = (uint64_t)1 << 40 | (uint64_t)i << 1};
        for (int c = 0; c < 2; c++, call.number++) test_call(ranks[0], ALLREDUCE, BYTES, 0);
      }
    }
    check(ran[0] == ran[1], "call %d: %x and %x", i, ran[0], ran[1]);
    check(((struct dyn_comm *)ranks[0])->seq == ((struct dyn_comm *)ranks[1])->seq, "call %d: %d and %d", i, (int)((struct dyn_comm *)ranks[0])->seq, (int)((struct dyn_comm *)ranks[1])->seq);
  }
  uint64_t seq = ((struct dyn_comm *)ranks[0])->seq;
  ((struct dyn_comm *)ranks[0])->self->ncclVersion = 22809; /* asks once about each of a group's calls, which may be alike */
  call = (struct dyn_preload_call){.ends = true, .number = (uint64_t)1 << 41};
  for (int c = 0; c < 3; c++) test_call(ranks[0], ALLREDUCE, BYTES, 0);
  check(((struct dyn_comm *)ranks[0])->seq == seq + 3, "%d calls", (int)(((struct dyn_comm *)ranks[0])->seq - seq));
  call = (struct dyn_preload_call){0};
  publisher_close(&daemon_);
  leave(2, ranks, profilers);
}

/* Two ranks of one process make calls in groups, or in threads of theirs; where a third one has a process of its own, nobody knows which. */
static void asks_twice_in_processes(void) {
  for (int apart = 0; apart < 2; apart++) {
    void *profilers[3], *ranks[3];
    for (int r = 0; r < 3; r++) ranks[r] = join_of(3, r, &profilers[r]);
    comm = ranks[0];
    if (apart) dyn_ranks_of(comm->record)[2].pid = 1;
    call = (struct dyn_preload_call){.depth = 1, .number = (uint64_t)apart + 1};
    for (int ask = 0; ask < 2; ask++) test_call(ranks[0], ALLREDUCE, BYTES, 0);
    check(comm->seq == (apart ? 2 : 1), "counts %d times, apart %d", (int)comm->seq, apart);
    call = (struct dyn_preload_call){0};
    leave(3, ranks, profilers);
  }
}

#include "device_ranks.h"
#include "device_windows.h"

/* Where one rank's environment has it and another's has not, an LL would be the device kernel there and the classic one here: none runs it, by a
 * plan or by NCCL's own choice, and both make the same calls. */
static void ranks_differ(void) {
  const uint32_t all = (1u << 21) - 1;
  void *ranks[2];
  for (int r = 0; r < 2; r++) {
    if (r == 0) setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
    else unsetenv("NCCL_SYM_NOWIN_ENABLE");
    check(ncclTunerPlugin_v6.init(&ranks[r], COMM_ID, 2, 1, test_log, NULL, NULL) == 0, "init");
    check(((struct dyn_comm *)ranks[r])->record, "rank %d: %s", r, test_last_message());
  }
  check(publisher_open(&daemon_, COMM_ID), "publisher");
  struct dyn_plan plan = one_entry(1, ACTION(1, 0, 4), 0, NULL);
  check(publisher_publish(&daemon_, &plan), "no buffer is free");
  for (int call = 0; call < 5 * DYN_EPOCH_CALLS; call++) {
    uint32_t ran[2];
    for (int r = 0; r < 2; r++) {
      context = ranks[r];
      comm = context;
      uint64_t seq = comm->seq;
      if (r == 0) check(device_question(ALLREDUCE, BYTES, all) == 0 && comm->seq == seq, "call %d: the question was answered", call);
      ran[r] = test_call(context, ALLREDUCE, BYTES, 0);
    }
    check(ran[0] == ran[1] && ran[0] == 0, "call %d: %x and %x", call, ran[0], ran[1]);
    for (int r = 0; r < 2; r++) {
      context = ranks[r];
      check(left_of_ll(ALLREDUCE, 1, all) == 0, "call %d, rank %d: LL is left", call, r);
    }
  }
  for (int r = 0; r < 2; r++) ncclTunerPlugin_v6.finalize(ranks[r]);
}

int main(void) {
  test_directory();
  run("asks before the call", asks_before_the_call);
  run("device kernels", device_kernels);
  run("marks tell", marks_tell);
  run("no device kernels", no_device_kernels);
  run("asks twice", asks_twice);
  run("broadcasts are told", broadcasts_are_told);
  run("asks twice where a rank cannot tell", asks_twice_where_a_rank_cannot_tell);
  run("asks twice at a group's end", asks_twice_at_a_groups_end);
  run("asks twice in processes", asks_twice_in_processes);
  run("ranks share processes", ranks_share_processes);
  run("averages have none", averages_have_none);
  run("averages without record", averages_without_record);
  run("wrong ones are let alone", wrong_ones_are_let_alone);
  run("windows have NCCL's LL", windows_have_nccls_ll);
  run("ranks differ", ranks_differ);
  test_remove_directory();
  return 0;
}
