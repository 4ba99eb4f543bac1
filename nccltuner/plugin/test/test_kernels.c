/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that kernels over load and store run in NCCL's place: how ranks come to agree that they can, and that such a call
 * counts like any other. Three ranks, each a process; this program plays the preload library with its device path, and NCCL.
 */
#include "profiler_rig.h"
#include "support.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../../../kernels/host/host.h"
#include "../../preload/test/meeting.h"

#define RANKS 3
#define COMM_ID 0xab1eull
#define ALLREDUCE 4
#define ALLTOALL 5
#define BYTES ((size_t)1 << 16)
#define BUCKET 16
#define CALLS 400
#define LSA(kernel, ctas) (DYN_PATH_LSA | (uint32_t)(kernel) << DYN_ACTION_ALGO_SHIFT | (uint32_t)(ctas) << DYN_ACTION_CHANNELS_SHIFT)
#define ONE_SHOT 1u
#define BULK 4u
#define DIRECT 8u

#define SYMMETRIC(kernel) (DYN_PATH_SYMMETRIC | (uint32_t)(kernel) << DYN_ACTION_ALGO_SHIFT)
#define REFUSED SYMMETRIC(DYN_SYMMETRIC_RS_LDMC_AG_STMC) /* by this NCCL */
#define NCCLS 0xf0u /* how ran says of a call on registered memory that it is NCCL's default */

enum how { ALL, BOUNDED, NEW_GRAPHS, ONE_SAYS_NEW_GRAPHS, ONE_HAS_NO_NAMES, ONE_MISSES_WINDOWS, ONE_BINDS_LATE, ALL_BIND_LATE, ONE_REFUSES, ONE_CANNOT_OPEN, ONE_STAYS_AWAY, SWITCHED_OFF, NO_PEERS, NO_CTAS, NO_CTAS_EITHER, VETO };

/* ---- what the parent sees ---- */

static struct shared {
  struct meeting meeting;
  uint32_t ran[RANKS][CALLS], exchanged[RANKS][CALLS], exchangedThere[RANKS][CALLS], onWindows[RANKS][CALLS]; /* action of each call, as it ran */
  uint32_t early[RANKS], state[RANKS], marks[RANKS]; /* before and after the first call */
  uint32_t named[RANKS]; /* marks on registered memory, at the end */
  uint64_t took[RANKS]; /* ms, to join */
  int open, closed;
} *shared;

static void meet(void) { meet_all(&shared->meeting, RANKS); }

#include "kernels_preload.h"

/* ---- one rank ---- */

static void *tuner;
static struct dyn_comm *comm;

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void join(struct rig *profiler) {
  atomic_fetch_add(&dynamiccl_preload.announced, 1);
  *profiler = rig_open(6, COMM_ID, RANKS, rank);
  uint64_t began = now_ms();
  CHECK(ncclTunerPlugin_v6.init(&tuner, COMM_ID, RANKS, 1, test_log, NULL, NULL) == 0 && tuner == profiler->comm);
  shared->took[rank] = now_ms() - began;
  comm = tuner;
  CHECK(comm->record != NULL, "not joined: %s", test_last_message());
}

/* A call as the preload library makes it: our kernel's if the plan says so and it is able, else NCCL's. */
static uint32_t one_call(size_t bytes, uint32_t able) {
  static unsigned calls;
  call = (struct dyn_preload_call){.depth = 1, .number = ++calls, .looked = true};
  timed = (struct dyn_timed){0};
  call.timed = &timed;
  uint64_t seq = comm->seq;
  bool looked = choose != NULL && choose(chooser, ALLREDUCE, bytes, DYN_ABLE_LOOK) != 0;
  CHECK(comm->seq == seq, "a look counts");
  uint32_t action = choose == NULL ? 0 : choose(chooser, ALLREDUCE, bytes, able);
  CHECK(looked || action == 0, "not looked for: %x", action);
  if (action == 0) action = test_call(tuner, ALLREDUCE, bytes, 0);
  call = (struct dyn_preload_call){0};
  return action;
}

/* NCCL, which runs it where no kernel does, asks nobody. */
static uint32_t exchange(uint32_t able) {
  call = (struct dyn_preload_call){.depth = 1, .looked = true};
  uint32_t action = choose == NULL ? 0 : choose(chooser, ALLTOALL, BYTES, able);
  if (able & DYN_ABLE_REGISTERED && action != 0 && (action & 15) != DYN_PATH_LSA) CHECK(action == DYN_CHOSEN_NCCL && choose(chooser, ALLTOALL, BYTES, DYN_ABLE_OVER) == 0);
  call = (struct dyn_preload_call){0};
  return action == DYN_CHOSEN_NCCL ? NCCLS : action;
}

/* On registered memory; NCCL asks about a call of its own before and after it has looked at its symmetric kernels. */
static uint32_t registered(uint32_t able) {
  bool apart = how <= ONE_HAS_NO_NAMES;
  uint64_t seq = comm->seq;
  uint32_t marks = comm->self->marks[ALLREDUCE][BUCKET - 1];
  call = (struct dyn_preload_call){.depth = 1, .looked = true};
  timed = (struct dyn_timed){0};
  call.timed = &timed;
  uint32_t ran = choose == NULL ? 0 : choose(chooser, ALLREDUCE, BYTES / 2, able | DYN_ABLE_REGISTERED);
  CHECK(apart == (ran != 0) && comm->seq == seq + apart, "%x", ran);
  if (apart && (ran & 15) != DYN_PATH_LSA) {
    if (timed.asked > 0 && (ran & 15) == DYN_PATH_SYMMETRIC)
      CHECK(timed.sample.flags & DYN_SAMPLE_SYMMETRIC && timed.sample.algorithm == (ran >> 4 & 15) && timed.sample.action == ran && timed.sample.collective == 8);
    if (ran == REFUSED) CHECK(choose(chooser, ALLREDUCE, BYTES / 2, DYN_ABLE_REFUSED) == 0);
    for (int question = 0; question < 2; question++) {
      uint32_t answer = test_call(tuner, ALLREDUCE, BYTES / 2, question == 0 ? ~0u : 0);
      CHECK(answer == (question == 1 && (ran & 15) == DYN_PATH_COLLECTIVE ? ran : 0), "%x of %x", answer, ran);
    }
    float costs[21];
    int channels = 0;
    for (int i = 0; i < 21; i++) costs[i] = 1.0f;
    CHECK(ncclTunerPlugin_v6.getCollInfo(tuner, ALLREDUCE, BYTES / 2, 0, (float **)costs, 7, 3, 0, &channels) == 0); /* whether to fall back */
    for (int i = 0; i < 21; i++) CHECK(costs[i] == 1.0f && channels == 0);
    CHECK(choose(chooser, ALLREDUCE, BYTES / 2, DYN_ABLE_OVER) == 0);
    CHECK(comm->seq == seq + 1 && comm->self->marks[ALLREDUCE][BUCKET - 1] == marks, "a question about it counts");
  }
  call = (struct dyn_preload_call){0};
  return ran == DYN_CHOSEN_NCCL ? NCCLS : ran;
}

static const uint32_t named[] = {ACTION(1, 2, 0), REFUSED, LSA(0, 8), 0, ACTION(1, 1, 4), REFUSED, LSA(1, 2), SYMMETRIC(DYN_SYMMETRIC_ST)};
static const uint32_t trials[] = {LSA(0, 8), ACTION(1, 1, 4), LSA(2, 64), 0, LSA(1, 2)};

static void publish(void) {
  struct publisher daemon_;
  struct dyn_plan plan;
  plan_clear(&plan);
  plan.numEntries = 6;
  plan.sampleEvery = 1;
  plan.index[ALLREDUCE][BUCKET] = 1;
  plan.entries[1] = (struct dyn_entry){.id = 1, .base = LSA(2, 16), .numTrials = 5};
  plan.index[ALLTOALL][BUCKET] = 2;
  plan.entries[2] = (struct dyn_entry){.id = 2, .base = LSA(0, 4)};
  memcpy(plan.entries[1].trials, trials, sizeof trials);
  plan.index[ALLREDUCE + 4][BUCKET - 1] = 3;
  plan.entries[3] = (struct dyn_entry){.id = 3, .base = SYMMETRIC(DYN_SYMMETRIC_AG_LL), .numTrials = sizeof named / sizeof *named};
  memcpy(plan.entries[3].trials, named, sizeof named);
  plan.index[ALLREDUCE][BUCKET - 3] = 4;
  plan.entries[4] = (struct dyn_entry){.id = 4, .numTrials = 1, .trials = {LSA(0, 8)}};
  plan.index[ALLTOALL + 4][BUCKET] = 5;
  plan.entries[5] = (struct dyn_entry){.id = 5, .base = LSA(2, 32), .numTrials = 2, .trials = {0, ACTION(1, 2, 0)}}; /* it has no names */
  CHECK(publisher_open(&daemon_, COMM_ID) && publisher_publish(&daemon_, &plan));
  publisher_close(&daemon_);
}

/* A plan that has bases for three sizes, or, with the id 0, for none, comes into force. */
static uint32_t defaults;
static void publish_bases(uint32_t id, uint32_t first, uint32_t second, uint32_t third) {
  const uint32_t bases[] = {first, second, third};
  static struct publisher daemon_; /* which buffers have been superseded it knows */
  struct dyn_plan plan;
  meet();
  if (rank == 0) {
    plan_clear(&plan);
    plan.numEntries = 4;
    plan.sampleEvery = 1;
    plan.defaults = defaults;
    for (uint32_t i = 0; i < 3; i++) {
      if (id != 0) plan.index[ALLREDUCE][BUCKET + i] = plan.index[ALLREDUCE][BUCKET + 3] = (uint8_t)(i + 1);
      plan.entries[i + 1] = (struct dyn_entry){.id = id + i, .base = bases[i]};
    }
    CHECK((daemon_.record || publisher_open(&daemon_, COMM_ID)) && publisher_publish(&daemon_, &plan));
  }
  meet();
  for (int i = 0; i < 2 * DYN_EPOCH_CALLS; i++) one_call(BYTES, ONE_SHOT | BULK);
}

/* A captured call of that size: as it is looked for in a group, and as it runs. */
static void captures(int size, uint32_t wants) {
  static uint64_t number = 1000;
  size_t bytes = BYTES << size;
  call = (struct dyn_preload_call){.depth = 1, .number = ++number, .looked = true, .captured = true, .inGraph = true};
  bool looked = choose(chooser, ALLREDUCE, bytes, DYN_ABLE_LOOK) != 0;
  uint32_t action = choose(chooser, ALLREDUCE, bytes, ONE_SHOT | BULK);
  CHECK(looked || action == 0, "%x is not looked for", action);
  if (action == 0) action = test_call(tuner, ALLREDUCE, bytes, 0);
  call = (struct dyn_preload_call){0};
  CHECK(action == wants, "size %d: %x, want %x", size, action, wants);
}

/* A call that was captured with NCCL's kernels stays with them in graphs: a graph may be updated, which CUDA refuses where the nodes are others. Where
 * each choice is captured in turn, and where all ranks say that no graph is updated, it is what the plan says. */
static void keeps_nccls(void) {
  const bool free = how == BOUNDED || how == NEW_GRAPHS;
  publish_bases(101, LSA(2, 16), ACTION(1, 1, 4), LSA(0, 8));
  captures(0, LSA(2, 16)), captures(1, ACTION(1, 1, 4));
  /* What calls are compared by for a while is in no graph, and keeps none from ours for good; nor is it looked for where nobody may run it. */
  defaults = DYN_PLAN_DEFAULT_CALLS;
  publish_bases(105, LSA(2, 16), ACTION(1, 1, 4), LSA(0, 8));
  captures(0, LSA(2, 16));
  CHECK(one_call(BYTES, ONE_SHOT | BULK) == 0 && one_call(4 * BYTES, ONE_SHOT | BULK) == 0, "calls that pass through");
  defaults = DYN_PLAN_DEFAULT_CALLS | DYN_PLAN_DEFAULT_GRAPHS;
  publish_bases(107, LSA(2, 16), ACTION(1, 1, 4), LSA(0, 8));
  CHECK(choose(chooser, ALLREDUCE, BYTES, DYN_ABLE_LOOK) == 0 && one_call(BYTES, ONE_SHOT | BULK) == 0);
  defaults = DYN_PLAN_DEFAULT_GRAPHS;
  publish_bases(109, LSA(2, 16), ACTION(1, 1, 4), LSA(0, 8));
  CHECK(choose(chooser, ALLREDUCE, BYTES, DYN_ABLE_LOOK) != 0 && one_call(BYTES, ONE_SHOT | BULK) == LSA(2, 16) && one_call(4 * BYTES, ONE_SHOT | BULK) == LSA(0, 8));
  defaults = 0;
  publish_bases(111, LSA(0, 8), LSA(0, 8), LSA(2, 16));
  captures(0, LSA(0, 8)), captures(1, free ? LSA(0, 8) : 0), captures(2, LSA(2, 16));
  CHECK(one_call(BYTES, ONE_SHOT | BULK) == LSA(0, 8) && one_call(2 * BYTES, ONE_SHOT | BULK) == LSA(0, 8), "what goes into no graph");
  /* Where ours have run alone the ranks' word is what ours can do, and NCCL's comes when it is asked. */
  const uint32_t *marks = &comm->self->marks[ALLREDUCE][BUCKET + 3];
  CHECK(*marks == 0 && one_call(8 * BYTES, ONE_SHOT | BULK) == LSA(2, 16) && *marks == 4u << 26, "%x", *marks); /* in bulk alone, of so many bytes */
  publish_bases(121, ACTION(1, 1, 4), ACTION(1, 2, 16), 0);
  CHECK(one_call(8 * BYTES, ONE_SHOT | BULK) == 0 && *marks >> 26 == (1u << 5 | 4) && *marks << 6, "%x", *marks);
  captures(0, ACTION(1, 1, 4)), captures(1, ACTION(1, 2, 16)), captures(2, 0);
  publish_bases(131, LSA(0, 8), LSA(0, 8), LSA(0, 4));
  for (int i = 0; i < 3; i++) captures(i, free ? LSA(0, i < 2 ? 8 : 4) : 0);
  publish_bases(0, 0, 0, 0);
  for (int i = 0; i < 3; i++) captures(i, 0);
}

static void rank_main(void) {
  struct rig profiler;
  join(&profiler);
  meet(); /* NCCL's barrier at the end of making a communicator */
  if (now != NULL) {
    call = (struct dyn_preload_call){.depth = 1};
    now(chooser);
    call = (struct dyn_preload_call){0};
  }
  shared->early[rank] = comm->self->memoryState;
  meet();
  CHECK(one_call(BYTES, ONE_SHOT | BULK) == 0, "a call before there is a plan");
  shared->state[rank] = comm->self->memoryState;
  shared->marks[rank] = comm->self->marks[ALLREDUCE][BUCKET] >> 26 & 7;
  meet();
  if (rank == 0) publish();
  meet();
  for (int i = 0; i < CALLS; i++) {
    uint64_t seq = comm->seq;
    /* Each ninth call no kernel can run, as with an operator of the program's own: it is NCCL's, on all ranks. */
    shared->ran[rank][i] = one_call(i % 7 == 3 ? 4 * BYTES : BYTES, i % 9 == 4 ? 0 : i % 7 == 3 ? BULK : ONE_SHOT | BULK);
    CHECK(comm->seq == seq + 1, "call %d counts %d times", i, (int)(comm->seq - seq));
    if (comm->sampling && (shared->ran[rank][i] & 15) == DYN_PATH_LSA && timed.asked > 0) {
      uint32_t action = shared->ran[rank][i];
      CHECK(timed.asked == 1 && timed.sample.flags & DYN_SAMPLE_LSA && timed.sample.algorithm == (action >> 4 & 15) &&
            timed.sample.action == action && timed.sample.channels == action >> 16);
    }
    if (i % 3 == 1) shared->onWindows[rank][i] = registered(ONE_SHOT | BULK);
    if (i % 4 > 0) continue;
    seq = comm->seq;
    shared->exchanged[rank][i] = exchange(i % 8 ? ONE_SHOT : 0);
    CHECK(comm->seq == seq + (how <= ONE_MISSES_WINDOWS), "an AllToAll counts where every rank is told of each");
    CHECK(comm->self->marks[ALLTOALL][BUCKET] == (how <= ONE_MISSES_WINDOWS ? 1u << 31 | 5u << 26 : 0), "%x", comm->self->marks[ALLTOALL][BUCKET]);
    seq = comm->seq;
    shared->exchangedThere[rank][i] = exchange(ONE_SHOT | BULK | DYN_ABLE_REGISTERED);
    CHECK(comm->seq == seq + (how <= ONE_MISSES_WINDOWS), "nor does one behind windows count twice");
    CHECK(comm->self->marks[ALLTOALL + 4][BUCKET] == (how <= ONE_HAS_NO_NAMES ? 1u << 31 | 5u << 26 : 0), "%x", comm->self->marks[ALLTOALL + 4][BUCKET]);
  }
  /* Registered buffers in one call say that this rank has them, where what is in bulk can run, and change nothing else. */
  if (choose != NULL && how == ALL) {
    uint64_t seq = comm->seq;
    uint32_t action = one_call(BYTES, ONE_SHOT | BULK | DIRECT | DYN_ABLE_WINDOWS), marks = comm->self->marks[ALLREDUCE][BUCKET];
    CHECK(comm->seq == seq + 1 && action == LSA(2, 16) && (marks >> 26 & 15) == (ONE_SHOT | BULK | DIRECT), "%x, marks %x", action, marks);
    one_call(BYTES, ONE_SHOT | BULK | DIRECT);
    CHECK(comm->self->marks[ALLREDUCE][BUCKET] == marks && !(comm->self->marks[ALLREDUCE][BUCKET + 1] >> 26 & DIRECT));
  }
  /* A trial of ours where NCCL's choice is the base is looked for, also behind a captured call, which uses up none. */
  if (choose != NULL && how == ALL) {
    call = (struct dyn_preload_call){.depth = 1, .looked = true, .captured = true, .inGraph = true};
    CHECK(choose(chooser, ALLREDUCE, BYTES / 8, ONE_SHOT | BULK) == 0 && test_call(tuner, ALLREDUCE, BYTES / 8, 0) == 0);
    call = (struct dyn_preload_call){0};
    CHECK(one_call(BYTES / 8, ONE_SHOT | BULK) == LSA(0, 8) && choose(chooser, ALLREDUCE, BYTES / 8, DYN_ABLE_LOOK) == 0);
  }
  if (choose != NULL && how <= ONE_SAYS_NEW_GRAPHS) keeps_nccls();
  shared->named[rank] = comm->self->marks[ALLREDUCE + 4][BUCKET - 1];
  CHECK(comm->epoch == (comm->seq - 1) / DYN_EPOCH_CALLS, "epoch %d after %d calls", (int)comm->epoch, (int)comm->seq);
  meet();
  ncclTunerPlugin_v6.finalize(tuner);
  rig_close(&profiler);
}

/* ---- all ranks ---- */

static void play(enum how which) {
  pid_t ranks[RANKS];
  char path[512];
  how = which;
  memset(shared, 0, sizeof *shared);
  for (rank = 0; rank < RANKS; rank++) {
    ranks[rank] = fork();
    CHECK(ranks[rank] >= 0);
    if (ranks[rank] > 0) continue;
    alarm(60);
    setenv("NCCL_SYM_NOWIN_ENABLE", "1", 1);
    if (rank == 2) setenv("NCCL_MAX_CTAS", "7", 1);
    if (how == BOUNDED) setenv("DYNAMICCL_FORCED", "1", 1);
    if (how == NEW_GRAPHS || (how == ONE_SAYS_NEW_GRAPHS && rank == 1)) setenv("DYNAMICCL_NEW_GRAPHS", "1", 1);
    if (rank == 1 && how == BOUNDED) setenv("NCCL_MAX_NRINGS", "3", 1), setenv("NCCL_MAX_NCHANNELS", "5", 1);
    if (rank == 2 && how == BOUNDED) setenv("NCCL_MAX_NRINGS", "0", 1);
    if (how == SWITCHED_OFF && rank == 0) setenv("DYNAMICCL_NO_KERNELS", "1", 1);
    if (how == NO_PEERS && rank == 0) setenv("NCCL_P2P_DISABLE", "1", 1);
    if (rank == 1 && how == BOUNDED) setenv("NCCL_CTA_POLICY", "0", 1); /* before its config */
    if (how == NO_CTAS_EITHER && rank == 2) setenv("NCCL_CTA_POLICY", "EFFICIENCY|Zero", 1);
    if (how == VETO && rank == 0) setenv("NCCL_ALGO", "Ring", 1);
    if (how == ONE_STAYS_AWAY && rank == 2) { /* a rank without the preload library */
      dynamiccl_preload.version = 0;
      sleep(1);
    }
    rank_main();
    exit(0);
  }
  for (int r = 0; r < RANKS; r++) {
    int status;
    CHECK(waitpid(ranks[r], &status, 0) == ranks[r] && status == 0, "%d: rank %d: status %x", which, r, status);
  }
  for (int r = 1; r < RANKS; r++)
    CHECK(memcmp(shared->ran[r], shared->ran[0], sizeof shared->ran[0]) == 0 &&
          memcmp(shared->exchanged[r], shared->exchanged[0], sizeof shared->exchanged[0]) == 0 &&
          memcmp(shared->exchangedThere[r], shared->exchangedThere[0], sizeof shared->exchangedThere[0]) == 0 &&
          memcmp(shared->onWindows[r], shared->onWindows[0], sizeof shared->onWindows[0]) == 0, "%d: ranks 0 and %d ran different calls", which, r);
  test_record_path(COMM_ID, path, sizeof path);
  CHECK(access(path, F_OK) != 0, "%s stayed", path);
}

static int count(uint32_t action) {
  int n = 0;
  for (int i = 0; i < CALLS; i++) n += shared->ran[0][i] == action;
  return n;
}

static int of_path(uint32_t path) {
  int n = 0;
  for (int i = 0; i < CALLS; i++) n += (shared->ran[0][i] & 15) == path;
  return n;
}

#include "kernels_registered.h"

static void without_kernels(enum how which) {
  play(which);
  for (int r = 0; r < RANKS; r++) CHECK(shared->marks[r] == 0, "%d: marks %x of rank %d", which, shared->marks[r], r);
  CHECK(of_path(DYN_PATH_LSA) == 0, "%d", which);
  CHECK(of_path(DYN_PATH_COLLECTIVE) == (which == VETO ? 0 : 1), "%d: the trial that is NCCL's: %d", which, of_path(DYN_PATH_COLLECTIVE));
}

int main(void) {
  test_directory();
  rig_daemon(1);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);

  for (enum how which = ONE_BINDS_LATE; which <= ALL_BIND_LATE; which++) {
    play(which);
    for (int r = 0; r < RANKS; r++)
      CHECK(shared->early[r] == (which == ALL_BIND_LATE || r == 1 ? DYN_MEMORY_OPEN : DYN_MEMORY_BOUND) && shared->state[r] == DYN_MEMORY_BOUND);
    CHECK(count(LSA(2, 16)) > CALLS / 2);
    for (int i = 0; i < CALLS; i++) CHECK(shared->exchanged[0][i] == 0);
  }
  play(ALL);
  for (int r = 0; r < RANKS; r++) {
    CHECK(shared->early[r] == DYN_MEMORY_BOUND, "rank %d: %u before its first call", r, shared->early[r]);
    CHECK(shared->state[r] == DYN_MEMORY_BOUND && shared->marks[r] == (ONE_SHOT | BULK), "rank %d: %u, %x", r, shared->state[r], shared->marks[r]);
    CHECK(shared->took[r] < 4900, "rank %d joined in %d ms", r, (int)shared->took[r]);
  }
  CHECK(shared->open == RANKS && shared->closed == RANKS, "%d opened, %d closed", shared->open, shared->closed);
  CHECK(count(LSA(0, 8)) == 1 && count(LSA(2, 64)) == 1 && count(LSA(2, 16)) > CALLS / 2, "%d, %d, %d of %d", count(LSA(0, 8)), count(LSA(2, 64)), count(LSA(2, 16)), CALLS);
  CHECK(count(LSA(1, 2)) == 0, "no rank is able to run two shots");
  CHECK(count(ACTION(1, 1, 4)) == 1);
  for (int i = 0; i < CALLS; i++) CHECK(shared->exchanged[0][i] == (i % 8 == 4 && i > 40 ? LSA(0, 4) : 0) || i <= 40);

  check_registered();
  check_exchanged_there();
  play(ONE_HAS_NO_NAMES);
  check_unnamed();
  check_exchanged_there();
  play(ONE_MISSES_WINDOWS);
  for (int i = 0; i < CALLS; i++) CHECK(shared->onWindows[0][i] == 0, "a rank may miss windows: to none is memory registered");
  for (int i = 0; i < CALLS; i++) CHECK(shared->exchangedThere[0][i] == 0 || shared->exchangedThere[0][i] == LSA(0, 4), "nor to an AllToAll: %x", shared->exchangedThere[0][i]);
  for (int r = 0; r < RANKS; r++) CHECK(shared->named[r] == 0);

  without_kernels(ONE_REFUSES);
  for (int r = 0; r < RANKS; r++) CHECK(shared->took[r] < 4900, "rank %d waited for one that refused: %d ms", r, (int)shared->took[r]);
  without_kernels(ONE_CANNOT_OPEN);
  CHECK(shared->closed == RANKS, "%d closed", shared->closed);
  without_kernels(SWITCHED_OFF);
  without_kernels(NO_PEERS);
  without_kernels(NO_CTAS);
  without_kernels(NO_CTAS_EITHER);
  without_kernels(VETO);
  CHECK(shared->open == 0);
  without_kernels(ONE_STAYS_AWAY);
  play(BOUNDED);
  play(NEW_GRAPHS);
  play(ONE_SAYS_NEW_GRAPHS);
  CHECK(shared->open == RANKS);
  test_remove_directory();
  return 0;
}
