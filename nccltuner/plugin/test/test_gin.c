/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's GIN: how ranks on two pretended nodes come to it together or not at all, and that calls of path gin count as any
 * other. Three ranks, each a process; this program plays the preload library with its device path, and NCCL.
 */
#include "profiler_rig.h"
#include "support.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../../../kernels/host/host.h"
#include "../../hosts/hosts.h"
#include "../../preload/test/meeting.h"

#define RANKS 3
#define COMM_ID 0x91ull
#define ALLREDUCE 4
#define ALLTOALL 5
#define BYTES ((size_t)1 << 14)
#define BUCKET 14
#define CALLS 200
#define CLOSE_EPOCHS 5 /* of some fifteen */
#define CLOSELY ((uint32_t)DYN_GIN_CLOSELY << DYN_ACTION_ALGO_SHIFT)
#define GIN(backend, ctas) (DYN_PATH_GIN | (uint32_t)(backend) << DYN_ACTION_BACKEND_SHIFT | (uint32_t)(ctas) << DYN_ACTION_CHANNELS_SHIFT)
#define ABLE (DYN_ABLE_GIN(DYN_BACKEND_PROXY) | DYN_ABLE_CONTEXTS)
#define MARK (1u << (23 + DYN_BACKEND_PROXY) | 1u << 22)

enum how { ALL, ONE_FAILS, ONE_CANNOT, ONE_NOT_ALONE, ONE_NOT_KNOWN, ONE_SWITCHED_OFF, ONE_LATE, ONE_STAYS_AWAY, NO_ID, VETO, NOT_ASKED, OTHER_HOSTS, FIRST_DECLINED, APART };

/* ---- what the parent sees ---- */

static struct shared {
  struct meeting meeting;
  atomic_int made;
  bool closely[RANKS][CALLS]; /* its puts were to be timed so */
  uint32_t ran[RANKS][CALLS], exchanged[RANKS][CALLS]; /* action of each call, as it ran */
  uint32_t state[RANKS], marks[RANKS];
  uint64_t took[RANKS]; /* ms, behind NCCL's making */
  uint8_t ids[RANKS];
  int closed, counts;
} *shared;

static void meet(void) { meet_all(&shared->meeting, RANKS); }

/* ---- the preload library ---- */

static __thread struct dyn_preload_call call;
static struct dyn_timed timed;
static enum how how;
static int rank;
static uint32_t (*choose)(void *, int, uint64_t, uint32_t);
static void *chooser;
static void (*now)(void *);
static struct dyn_lsa { bool made; } lsa;

static const struct dyn_preload_call *this_call(void) { return &call; }
static struct dyn_about about(uint32_t nRanks, int rank, int collective) {
  (void)nRanks, (void)rank, (void)collective;
  return (struct dyn_about){call.timed, call.key};
}
static bool can_time(void) { return true; }
static bool here(enum how which) { return how == which && rank == 1; }

/* Of ranks on several hosts. */
static struct apart {
  bool meet, fails, late, wish; /* late: NCCL is making the communicator when the program calls, which it does not wait for */
  uint32_t verdict;
  int asked, declined, left;
} apart;
static bool can(void) { return !here(ONE_CANNOT); }
static bool id_of(uint8_t id[128]) {
  CHECK(rank == 0, "the first rank's is for all");
  memset(id, 0x5a, 128);
  return how != NO_ID;
}
static struct dyn_lsa *offer(uint64_t id, uint32_t nRanks, uint32_t ownRank, struct dyn_offer *own) {
  CHECK(id == COMM_ID && nRanks == RANKS && ownRank == (uint32_t)rank);
  *own = (struct dyn_offer){.pid = (uint32_t)getpid(), .contexts = 1 + ownRank};
  return &lsa;
}
static bool make(struct dyn_lsa *it, const struct dyn_offer *offers, const uint8_t id[128], struct dyn_rank *self) {
  atomic_fetch_add(&shared->made, 1);
  for (int r = 0; r < RANKS && how == APART; r++) CHECK(offers[r].pid == (r == rank ? (uint32_t)getpid() : 0) && id[0] == 0x33, "rank %d", r);
  for (int r = 0; r < RANKS && how != APART; r++) CHECK(offers[r].pid != 0 && offers[r].startTime != 0 && offers[r].contexts == 1u + (unsigned)r, "rank %d is not told", r);
  CHECK(self->gin == DYN_GIN_WANTED);
  shared->ids[rank] = id[127];
  it->made = !here(ONE_FAILS) && !apart.fails;
  self->gin = it->made ? DYN_GIN_ACTIVE | DYN_BACKEND_PROXY << 8 | 4 << 16 : DYN_GIN_FAILED;
  return it->made;
}
static uint32_t room(const struct dyn_lsa *it, int collective, uint64_t bytes) {
  return !it->made || bytes > (4 * BYTES) ? 0 : collective == ALLREDUCE || collective == ALLTOALL ? ABLE : 0;
}
static bool expect(struct dyn_lsa *it, void *ofComm, uint32_t (*function)(void *, int, uint64_t, uint32_t), void (*whenMade)(void *)) {
  CHECK(it == &lsa);
  if (here(ONE_NOT_KNOWN)) return false;
  chooser = ofComm;
  choose = function;
  now = whenMade;
  return true;
}
static bool alone(const struct dyn_lsa *it) {
  struct dyn_comm *own = chooser;
  if (how == FIRST_DECLINED) own->record->gin = DYN_ALL_DECLINE; /* by a rank whose time was up a moment before all had said that they want it */
  if (here(ONE_LATE)) sleep(4); /* it says what it wants when the others have decided */
  return it == &lsa && !here(ONE_NOT_ALONE);
}
static bool never_bind(struct dyn_lsa *it, void *ofComm, uint32_t (*function)(void *, int, uint64_t, uint32_t)) {
  CHECK(false, "%p %p %p: no memory is open", (void *)it, ofComm, (void *)(uintptr_t)function);
  return false;
}
static struct dyn_lsa *no_offer(uint64_t id, uint32_t nRanks, uint32_t ownRank, struct dyn_offer *own) {
  CHECK(false, "%lu %u %u %p: no memory is shared between nodes", id, nRanks, ownRank, (void *)own);
  return NULL;
}
static void close_it(struct dyn_lsa *it) {
  CHECK(it == &lsa);
  choose = NULL; /* as where nothing is bound any more */
  __atomic_fetch_add(&shared->closed, 1, __ATOMIC_SEQ_CST);
}

static struct dyn_fence fence;
static struct dyn_fence *begin_hosts(const struct dyn_hosts_place *place, dyn_hosts_logger log) {
  (void)log;
  apart.wish = place->gin;
  return apart.meet ? &fence : NULL;
}
static void leave_hosts(struct dyn_fence *it) { apart.left += it == &fence; }
static uint32_t verdict_of(struct dyn_fence *it, uint8_t id[128]) {
  memset(id, 0x33, 128);
  return it == &fence && apart.asked++ > 3 ? apart.verdict : DYN_ALL_UNDECIDED;
}
static void decline(struct dyn_fence *it) { apart.declined += it == &fence; }
static const struct dyn_hosts_calls hostsCalls = {begin_hosts, leave_hosts, verdict_of, decline};

static const struct dyn_gin_calls ginCalls = {can, id_of, offer, make};
static void no_gpu(uint8_t id[16], uint32_t *multiprocessors) { (void)id, (void)multiprocessors; }
static const struct dyn_device_calls device = {no_offer, NULL, room, never_bind, expect, close_it, alone, &ginCalls, NULL, NULL, no_gpu, &hostsCalls, NULL};
extern struct dyn_preload dynamiccl_preload;
__attribute__((visibility("default"))) struct dyn_preload dynamiccl_preload = {
    .version = DYN_PRELOAD_VERSION, .call = this_call, .about = about, .can_time = can_time, .device = &device, .roundLock = PTHREAD_MUTEX_INITIALIZER};

/* ---- one rank ---- */

static void *tuner;
static struct dyn_comm *comm;

static uint64_t now_ms(void) { return dyn_host_ns() / 1000000; }

static void join(struct rig *profiler) {
  atomic_fetch_add(&dynamiccl_preload.announced, 1);
  *profiler = rig_open(6, COMM_ID, RANKS, rank);
  ((struct dyn_comm *)profiler->comm)->nNodes = 2;
  CHECK(ncclTunerPlugin_v6.init(&tuner, COMM_ID, RANKS, 2, test_log, NULL, NULL) == 0 && tuner == profiler->comm);
  comm = tuner;
  CHECK(comm->record != NULL, "not joined: %s", test_last_message());
}

static uint32_t one_call(void) {
  static unsigned calls;
  call = (struct dyn_preload_call){.depth = 1, .number = ++calls, .looked = true};
  timed = (struct dyn_timed){0};
  call.timed = &timed;
  uint32_t action = choose == NULL ? 0 : choose(chooser, ALLREDUCE, BYTES, lsa.made ? ABLE : 0);
  if (action == 0) action = test_call(tuner, ALLREDUCE, BYTES, 0);
  call = (struct dyn_preload_call){0};
  return action;
}

static uint32_t exchange(void) {
  call = (struct dyn_preload_call){.depth = 1, .looked = true};
  uint32_t action = choose == NULL ? 0 : choose(chooser, ALLTOALL, BYTES, lsa.made ? ABLE : 0);
  call = (struct dyn_preload_call){0};
  return action;
}

/* As a daemon does it, whose plan has GIN where all ranks' marks do. */
static void publish(void) {
  struct publisher daemon_;
  struct dyn_plan plan;
  uint32_t all = MARK;
  for (int r = 0; r < RANKS; r++) all &= shared->marks[r];
  plan_clear(&plan);
  plan.numEntries = 3;
  plan.sampleEvery = 1;
  plan.closeEpochs = CLOSE_EPOCHS;
  plan.index[ALLREDUCE][BUCKET] = 1;
  plan.entries[1] = (struct dyn_entry){.id = 1, .base = all ? GIN(DYN_BACKEND_PROXY, 4) : ACTION(1, 1, 4), .numTrials = 2};
  plan.entries[1].trials[0] = GIN(DYN_BACKEND_GDAKI, 4); /* which nobody has */
  plan.entries[1].trials[1] = ACTION(1, 1, 2);
  plan.index[ALLTOALL][BUCKET] = 2;
  plan.entries[2] = (struct dyn_entry){.id = 2, .base = all ? GIN(DYN_BACKEND_PROXY, 2) : 0};
  CHECK(publisher_open(&daemon_, COMM_ID) && publisher_publish(&daemon_, &plan));
  publisher_close(&daemon_);
}

static void rank_main(void) {
  struct rig profiler;
  join(&profiler);
  if (how == FIRST_DECLINED) meet();
  uint64_t began = now_ms();
  if (now != NULL) {
    call = (struct dyn_preload_call){.depth = 1};
    now(chooser);
    call = (struct dyn_preload_call){0};
  }
  shared->took[rank] = now_ms() - began;
  meet();
  CHECK(one_call() == 0, "a call before there is a plan");
  uint64_t seq = comm->seq;
  CHECK(exchange() == 0);
  bool counts = comm->seq == seq + 1;
  __atomic_fetch_add(&shared->counts, counts, __ATOMIC_SEQ_CST);
  shared->state[rank] = comm->self->gin & 255;
  shared->marks[rank] = comm->self->marks[ALLREDUCE][BUCKET];
  meet();
  if (rank == 0) publish();
  meet();
  for (int i = 0; i < CALLS; i++) {
    seq = comm->seq;
    uint32_t told = one_call(), action = shared->ran[rank][i] = (told & 15) == DYN_PATH_GIN ? told & ~CLOSELY : told;
    shared->closely[rank][i] = told != action;
    CHECK(comm->seq == seq + 1, "call %d counts %d times", i, (int)(comm->seq - seq));
    if (comm->sampling && (action & 15) == DYN_PATH_GIN && timed.asked > 0)
      CHECK(timed.asked == 1 && timed.sample.flags & DYN_SAMPLE_GIN && !(timed.sample.flags & DYN_SAMPLE_LSA) && timed.sample.algorithm == DYN_BACKEND_PROXY &&
            timed.sample.action == action && timed.sample.channels == 4);
    seq = comm->seq;
    if (i % 4 == 0) {
      shared->exchanged[rank][i] = exchange() & ~CLOSELY;
      CHECK(comm->seq == seq + counts, "an AllToAll counts as it did");
    }
  }
  meet();
  ncclTunerPlugin_v6.finalize(tuner);
  rig_close(&profiler);
}

/* ---- all ranks ---- */

static void play(enum how which) {
  pid_t ranks[RANKS];
  how = which;
  memset(shared, 0, sizeof *shared);
  for (rank = 0; rank < RANKS; rank++) {
    ranks[rank] = fork();
    CHECK(ranks[rank] >= 0);
    if (ranks[rank] > 0) continue;
    alarm(60);
    if (how != OTHER_HOSTS) setenv("NCCL_HOSTID", rank == 0 ? "one" : "two", 1);
    if (how == NOT_ASKED) setenv("DYNAMICCL_GIN", "0", 1);
    if (here(ONE_SWITCHED_OFF)) setenv("DYNAMICCL_NO_KERNELS", "1", 1);
    if (how == VETO && rank == 0) setenv("NCCL_ALGO", "Ring", 1);
    if (here(ONE_STAYS_AWAY)) dynamiccl_preload.version = 0; /* a rank without the preload library */
    rank_main();
    exit(0);
  }
  for (int r = 0; r < RANKS; r++) {
    int status;
    CHECK(waitpid(ranks[r], &status, 0) == ranks[r] && status == 0, "%d: rank %d: status %x", which, r, status);
  }
  for (int r = 1; r < RANKS; r++)
    CHECK(memcmp(shared->closely[r], shared->closely[0], sizeof shared->closely[0]) == 0 && memcmp(shared->ran[r], shared->ran[0], sizeof shared->ran[0]) == 0 &&
          memcmp(shared->exchanged[r], shared->exchanged[0], sizeof shared->exchanged[0]) == 0, "%d: ranks 0 and %d ran different calls", which, r);
  CHECK(shared->counts == 0 || shared->counts == RANKS, "%d: AllToAll counts on %d ranks", which, shared->counts);
}

#include "gin_apart.h"

static int count(uint32_t action, uint32_t actions[CALLS]) {
  int n = 0;
  for (int i = 0; i < CALLS; i++) n += actions[i] == action;
  return n;
}

/* The communicator that GIN gets of its own is nobody's business: no record, and not taken for one that the program made. */
static void own_communicator(void) {
  void *context = NULL, *own = NULL;
  int mask = 0;
  char path[512];
  atomic_store(&dynamiccl_preload.announced, 1);
  CHECK(ncclProfiler_v6.init(&context, 0x77, &mask, DYN_GIN_COMM_NAME, 2, RANKS, 0, test_log) == 0 && context != NULL);
  CHECK(ncclTunerPlugin_v6.init(&own, 0x77, RANKS, 2, test_log, NULL, NULL) == 0 && own != NULL && ((struct dyn_comm *)own)->record == NULL);
  test_record_path(0x77, path, sizeof path);
  CHECK(access(path, F_OK) != 0 && atomic_load(&dynamiccl_preload.announced) == 1, "%s", path);
  CHECK(test_call(own, ALLREDUCE, BYTES, 0) == 0, "plain NCCL");
  CHECK(ncclTunerPlugin_v6.finalize(own) == 0 && ncclProfiler_v6.finalize(context) == 0);
  atomic_store(&dynamiccl_preload.announced, 0);
}

int main(void) {
  test_directory();
  rig_daemon(1);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);

  own_communicator();
  all_apart();
  play(ALL);
  for (int r = 0; r < RANKS; r++)
    CHECK(shared->state[r] == DYN_GIN_ACTIVE && (shared->marks[r] & MARK) == MARK && shared->took[r] < 1950 && shared->ids[r] == 0x5a, "rank %d: %u, %x, %d ms", r,
          shared->state[r], shared->marks[r], (int)shared->took[r]);
  CHECK(shared->made == RANKS && shared->counts == RANKS && shared->closed == RANKS);
  CHECK(count(GIN(DYN_BACKEND_PROXY, 4), shared->ran[0]) > CALLS / 2 && count(GIN(DYN_BACKEND_GDAKI, 4), shared->ran[0]) == 0, "what no rank can run is NCCL's");
  CHECK(count(GIN(DYN_BACKEND_PROXY, 2), shared->exchanged[0]) > CALLS / 8);
  int closely = 0, last = 0;
  for (int i = 0; i < CALLS; i++) closely += shared->closely[0][i], last = shared->closely[0][i] ? i : last;
  CHECK(closely > 16 * (CLOSE_EPOCHS - 2) / 2 && closely <= 16 * CLOSE_EPOCHS && last < CALLS / 2, "%d calls, the last is %d: it ends by itself", closely, last);

  play(ONE_FAILS); /* where it began all count alike, whatever becomes of it */
  for (int r = 0; r < RANKS; r++)
    CHECK(shared->state[r] == (r == 1 ? DYN_GIN_FAILED : DYN_GIN_ACTIVE) && !(shared->marks[r] & MARK) == (r == 1), "rank %d: %u, %x", r, shared->state[r], shared->marks[r]);
  CHECK(shared->made == RANKS && shared->counts == RANKS && count(ACTION(1, 1, 4), shared->ran[0]) > CALLS / 2);

  for (enum how which = ONE_CANNOT; which < APART; which++) {
    play(which);
    CHECK(shared->made == 0 && shared->counts == 0, "%d: %d ranks made it, AllToAll counts on %d", which, shared->made, shared->counts);
    for (int r = 0; r < RANKS; r++) {
      CHECK(!(shared->marks[r] & MARK) && (shared->state[r] == DYN_GIN_REFUSED || (which == ONE_STAYS_AWAY && r == 1)), "%d: rank %d: %u", which, r, shared->state[r]);
      CHECK(shared->took[r] < (which == ONE_STAYS_AWAY || which == ONE_LATE ? 3900 : 1950) /* one wait of 2 s, or none */, "%d: rank %d: %d ms", which, r, (int)shared->took[r]);
    }
    CHECK(count(ACTION(1, 1, 4), shared->ran[0]) > (which == VETO ? -1 : CALLS / 2), "%d", which);
  }
  test_remove_directory();
  return 0;
}
