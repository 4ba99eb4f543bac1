/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_making FOLDER LIBCUDA     FOLDER has the fake libnccl.so.2
 * What is known of a communicator when the program gets it; what counts before NCCL sees it; and what kernels in graphs say
 * of their times.
 */
#include "../../../kernels/device/call.h"
#include "../../hosts/hosts.h"
#include "../net.h"
#include "lsa_steps.h"

#include <limits.h>

static uintptr_t madeComm[3]; /* of which the plugin meets the second */
static unsigned boundNow;
static bool expected;
static void bound(void *chooser) { boundNow += chooser == &planned; }
static int make_comms(void) {
  expected = preload->device->expect(lsa, &planned, choose, bound);
  for (int i = 0; i < 3; i++) madeComm[i] = COMM + 16 * (uintptr_t)(i != 1) * (uintptr_t)(i + 1);
  return 0;
}
static int make_in_thread(void) {
  pthread_t other;
  CHECK(pthread_create(&other, NULL, (void *(*)(void *))(void *)make_comms, NULL) == 0 && pthread_join(other, NULL) == 0);
  return 0;
}
static int make_then_fail(void) {
  make_comms();
  return 6;
}
/* The child makes none, whatever its parent is in. */
static int fork_while_made(void) {
  int status;
  pid_t child = fork();
  if (child == 0) _exit(preload->device->expect(lsa, &planned, choose, bound));
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  return make_comms();
}

/* Makes so many communicators in one group, the second of which is this rank's, and runs does at its end. */
static void make_group(int n, int (*does)(void)) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  boundNow = 0;
  memset(madeComm, 0, sizeof madeComm);
  group_start();
  for (int i = 0; i < n; i++) CHECK(init(&madeComm[i], numRanks, id, rank + (i == 1 ? 0 : 2 + i)) == 0);
  fake->inside = does;
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = succeed;
}

static void launched(bool is) {
  struct step s = {.collective = ALL_REDUCE, .count = 100, .action = LSA(0, 1), .stream = streams[0]};
  fill(&s, 0);
  planned = s.action;
  asked = 0;
  CHECK(issue(&s, 0, COMM) == 0 && asked == is, "known: %d", asked);
  wait_for_all();
  compare(&s, 0, is);
}

/* What a call of the program's makes is known when it returns, or its group ends, whatever thread NCCL makes it in; not
 * where two calls can be meant. */
static void made(void) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  prepare();
  make_group(3, make_then_fail);
  CHECK(expected && boundNow == 0, "the call failed");
  launched(false);
  make_group(3, make_in_thread);
  CHECK(expected && boundNow == 1);
  launched(true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  make_group(3, fork_while_made);
  CHECK(expected && boundNow == 1);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  make_group(1, make_comms);
  CHECK(!expected, "another rank's");
  fake->inside = make_comms;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[1], 0, 0, 0, 0, 0) == 0);
  CHECK(expected && boundNow == 1, "a split tells neither ranks nor rank");
  fake->inside = succeed;
  launched(true);
  CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  group_start();
  CHECK(init(&madeComm[0], numRanks, id, rank) == 0 && find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[1], 0, 0, 0, 0, 0) == 0);
  fake->inside = make_comms;
  find("ncclGroupEnd")(0, 0, 0, 0, 0, 0, 0, 0, 0);
  fake->inside = succeed;
  CHECK(!expected, "either can be meant");
  launched(false);
}

/* A communicator that does not block may still be made when its call has returned: then another call of the same ranks that is
 * under way is not the one that the plugin meets. When it is made, or gone, it is none any more. */
static int in_progress(void) {
  madeComm[0] = OTHER_COMM;
  return 7;
}
static int splits(void) { return 7; } /* NCCL leaves the communicator when it is made: until then its parent is asked */
static int asked_in_progress;
static int tell_progress(void) {
  *(int *)fake->arguments[1] = asked_in_progress;
  return 0;
}
static void ask_error(int error) {
  int told = -1;
  asked_in_progress = error;
  fake->inside = tell_progress;
  CHECK(find("ncclCommGetAsyncError")(OTHER_COMM, (uintptr_t)&told, 0, 0, 0, 0, 0, 0, 0) == 0 && told == error);
}
static void make_one(int (*does)(void), int i, int result) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  struct fake_id id = {""};
  expected = false;
  fake->inside = does;
  CHECK(init(&madeComm[i], numRanks, id, rank) == result);
  fake->inside = succeed;
}
static void unblocked(void) {
  prepare();
  for (int way = 0; way < 6; way++) {
    madeComm[0] = 0;
    if (way < 3) make_one(in_progress, 0, 7);
    else fake->inside = splits;
    if (way < 3) CHECK(!preload->device->expect(lsa, &planned, choose, bound), "its call has returned");
    if (way >= 3) CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&madeComm[0], 0, 0, 0, 0, 0) == 7);
    make_one(make_comms, 1, 0);
    CHECK(!expected, "the one before can be meant");
    launched(false);
    ask_error(7);
    make_one(make_comms, 1, 0);
    CHECK(!expected, "it can still");
    if (way % 3 == 0) ask_error(0);
    if (way % 3 == 1) ask_error(6);
    fake->inside = succeed;
    if (way % 3 == 2) CHECK(find("ncclCommAbort")(OTHER_COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
    make_one(make_comms, 1, 0);
    CHECK(expected);
    launched(true);
    CHECK(find("ncclCommDestroy")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  }
}

#define IN_PROGRESS 7
#include "average_steps.h"
#include "broadcast_steps.h"

/* How many CTAs a config lets kernels have, the plugin is told while the call makes it; without a config it has its parent's. */
static uint32_t bound_told;
static int ask_bound(void) {
  bound_told = preload->device->ctas((uint32_t)numRanks, (uint32_t)rank);
  madeComm[0] = OTHER_COMM;
  return 0;
}
static uint32_t bound_of(const struct dyn_nccl_config *config) {
  struct fake_id id = {""};
  fake->inside = ask_bound;
  CHECK(((int (*)(uintptr_t *, int, struct fake_id, int, uintptr_t))(void *)find("ncclCommInitRankConfig"))(&madeComm[0], numRanks, id, rank, (uintptr_t)config) == 0);
  return bound_told;
}
static uint32_t split_bound(const struct dyn_nccl_config *config) {
  static uintptr_t child;
  fake->inside = ask_bound;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&child, (uintptr_t)config, 0, 0, 0, 0) == 0);
  return bound_told;
}
static void bounded(void) {
  struct dyn_nccl_config config = {.size = sizeof config, .magic = DYN_NCCL_MAGIC, .version = DYN_NCCL_CONFIG_VERSION, .maxCTAs = 6}, none = config;
  none.maxCTAs = INT_MIN;
  prepare();
  CHECK(bound_of(NULL) == 0 && split_bound(NULL) == 0 && bound_of(&none) == 0 && split_bound(&config) == 6);
  CHECK(bound_of(&config) == 6 && split_bound(NULL) == 6 && split_bound(&none) == 0);
  CHECK(preload->device->ctas((uint32_t)numRanks, (uint32_t)rank) == 0, "no call makes any");
  bound_of(&config);
  group_start();
  CHECK(split_bound(NULL) == 6 && bound_of(&none) == 6, "a child in one group with another communicator keeps its parent's");
  group_end();
  fake->inside = succeed;
  CHECK(find("ncclCommDestroy")(OTHER_COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0 && split_bound(NULL) == 0, "its parent is gone");
}

#include "config_steps.h"

/* Ranks on several hosts meet in the process that made the id, and those of a child where its parent's do. */
static struct fake_id made_id;
static int make_id(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  memset(&made_id, 0, sizeof made_id);
  memcpy(made_id.bytes + 8, &at, sizeof at);
  memcpy((void *)fake->arguments[0], &made_id, sizeof made_id);
  return 0;
}
static bool known;
static int begin_hosts(void) {
  static struct {
    struct dyn_record record;
    struct dyn_rank ranks[2];
  } memory;
  struct dyn_hosts_place place = {.record = &memory.record, .self = memory.ranks, .commId = 1, .host = 1, .nRanks = (uint32_t)numRanks, .rank = (uint32_t)rank};
  struct dyn_fence *fence = preload->device->hosts->begin(&place, NULL);
  known = fence != NULL;
  if (known) preload->device->hosts->leave(fence);
  madeComm[0] = OTHER_COMM;
  return 0;
}
static bool split_meets(void) {
  uintptr_t child = 0;
  known = false;
  fake->inside = begin_hosts;
  CHECK(find("ncclCommSplit")(OTHER_COMM, 0, 0, (uintptr_t)&child, 0, 0, 0, 0, 0) == 0);
  fake->inside = succeed;
  return known;
}
static bool init_meets(struct fake_id id) {
  int (*init)(uintptr_t *, int, struct fake_id, int) = (int (*)(uintptr_t *, int, struct fake_id, int))(void *)find("ncclCommInitRank");
  known = false;
  fake->inside = begin_hosts;
  CHECK(init(&madeComm[0], numRanks, id, rank) == 0);
  fake->inside = succeed;
  return known;
}
static void meets(void) {
  struct fake_id id;
  prepare();
  fake->inside = make_id;
  CHECK(find("ncclGetUniqueId")((uintptr_t)&id, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  CHECK(memcmp(&id, &made_id, 96) == 0 && memcmp(&id, &made_id, sizeof id) != 0, "NCCL's part stays, and ours is there");
  CHECK(!init_meets(made_id) && !split_meets(), "an id that nobody marked");
  CHECK(init_meets(id) && split_meets());
  ask_error(0);
  CHECK(split_meets(), "to look for errors changes nothing");
  CHECK(find("ncclCommDestroy")(OTHER_COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  CHECK(!split_meets(), "another one has its address");
}

/* NCCL asks nobody about an AllToAll, so it counts before NCCL sees it: also one that no kernel can run, in a group or not. */
static void counted(void) {
  begin();
  for (unsigned n = 0; n < 4; n++) {
    unsigned before = fake->calls;
    planned = LSA(0, 1);
    asked = 0;
    if (n & 1) group_start();
    CHECK(find("ncclAlltoAll")((uintptr_t)in[0], (uintptr_t)out[0], 4, 99, COMM, (uintptr_t)streams[0], 0, 0, 0) == 0);
    if (n > 1) CHECK(find("ncclAlltoAll")((uintptr_t)in[0], (uintptr_t)out[0], 4, FLOAT32, OTHER_COMM, (uintptr_t)streams[0], 0, 0, 0) == 0);
    if (n & 1) group_end();
    CHECK(asked == 1 && fake->calls == before + 1 + 2 * (n & 1) + (n > 1), "asked %u times", asked);
  }
}

/* ---- graphs ---- */

static struct dyn_ring *ring;
static void open_ring(void) {
  ring = calloc(1, sizeof *ring + DYN_RING_CELLS * sizeof(struct dyn_sample));
  CHECK(ring != NULL);
  for (uint64_t i = 0; i < DYN_RING_CELLS; i++) ((struct dyn_sample *)(ring + 1))[i].cell = i;
  ring->wantMask = 2;
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = ring;
  pthread_mutex_unlock(&preload->roundLock);
}

static bool told[1024]; /* by number */
static void take_samples(const struct step *steps, uint64_t launched) {
  for (uint64_t at = 0; at < __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE); at++) {
    const struct dyn_sample *s = (struct dyn_sample *)(ring + 1) + at;
    const struct step *of = &steps[s->collective == ALL_GATHER];
    CHECK(s->flags == (DYN_SAMPLE_LSA | DYN_SAMPLE_REPLAYED) && s->commId == COMM_ID && s->rank == rank && s->nRanks == numRanks);
    CHECK(s->collective == of->collective && s->action == of->action && s->algorithm == (of->action >> 4 & 15));
    CHECK(s->channels == (s->collective == ALL_GATHER ? 1 : 3), "%u CTAs: a small call has work for fewer than were asked for", s->channels);
    CHECK(s->bytes == of->count * sizeof(float) * parts_out(of) && s->seq >= 1 && s->seq <= launched, "%lu bytes, number %lu", s->bytes, s->seq);
    CHECK(s->signalNs > 0 && s->counterNs <= s->signalNs && s->startNs == 0 && s->planVersion == 0);
    CHECK(dyn_stamped((uint32_t)s->seq) && !told[s->seq], "number %lu", s->seq);
    told[s->seq] = true;
  }
}

/* The last number up to most that a kernel stamps. Another one may have written over all before it of its cell. */
static uint32_t last_stamped(uint32_t most) {
  while (!dyn_stamped(most)) most--;
  return most;
}
static bool is_told(uint32_t number) {
  bool is = false;
  pthread_mutex_lock(&preload->roundLock);
  for (uint64_t at = 0; at < ring->head; at++) is |= ((struct dyn_sample *)(ring + 1))[at].seq == number;
  pthread_mutex_unlock(&preload->roundLock);
  return is;
}

static void beat(void) { __atomic_fetch_add(&ring->header.heartbeat, 1, __ATOMIC_RELAXED); } /* as a daemon that lives */

/* One kernel in 64 of those that graphs run, by its number, so the same on all ranks; calls outside of graphs are timed by
 * events. */
static void replays(void) {
  begin();
  open_ring();
  struct step steps[NODES] = {{.collective = ALL_REDUCE, .count = 2900, .stream = streams[0], .action = LSA(1, 3)},
                              {.collective = ALL_GATHER, .count = 90, .stream = streams[0], .action = LSA(0, 2)}};
  struct step call = {.collective = ALL_REDUCE, .count = 50, .stream = streams[0], .action = LSA(0, 1)};
  CUgraphExec graph = capture(steps, 0);
  const uint32_t launches = 400, kernels = launches * NODES;
  for (uint32_t n = 0; n < launches; n++) {
    beat();
    make_call(&call, NODES, 0);
    CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
    if (n % 20 == 19) wait_for_all();
  }
  for (int i = 0; i < 200 && !is_told(last_stamped(kernels)); i++) beat(), usleep(100000);
  usleep(700000); /* one more look: nothing is told twice */
  take_samples(steps, kernels);
  for (uint32_t cell = 0; cell <= kernels / DYN_STAMP_EVERY; cell++) {
    uint32_t end = (cell + 1) * DYN_STAMP_EVERY - 1, number = last_stamped(end < kernels ? end : kernels);
    CHECK(number == 0 || number / DYN_STAMP_EVERY < cell || told[number], "number %u is not told", number);
  }
  pthread_mutex_lock(&preload->roundLock);
  preload->ring = NULL;
  pthread_mutex_unlock(&preload->roundLock);
}

/* Steps of a graph that replays, and a driver that keeps a round of the library's thread which tells of that, for ever. */
static void keep_round(struct step steps[NODES]) {
  begin();
  open_ring();
  steps[0] = (struct step){.collective = ALL_REDUCE, .count = 20, .stream = streams[0], .action = LSA(0, 1)};
  steps[1] = (struct step){.collective = ALL_GATHER, .count = 9, .stream = streams[0], .action = LSA(0, 1)};
  CUgraphExec graph = capture(steps, 0);
  for (int n = 0; n < 150; n++) CHECK(cuda.cuGraphLaunch(graph, streams[0]) == 0);
  pthread_mutex_lock(&preload->roundLock);
  wait_for_all();
  meet();
  usleep(1600000); /* the thread has come to the lock */
}

/* It keeps nobody from ending. */
static void stuck(void) {
  struct step steps[NODES];
  keep_round(steps);
  alarm(in_vain_s(20));
  exit(0);
}

/* Nor from hearing that a rank has died, which another thread of the library's finds, and from ending the communicator. */
static void stuck_behind(void) {
  struct step steps[NODES];
  keep_round(steps);
  if (rank == 1) _exit(0);
  alarm(in_vain_s(20));
  make_call(&steps[0], 0, 0);
  wait_for_all();
  int error = 0;
  CHECK(find("ncclCommGetAsyncError")(COMM, (uintptr_t)&error, 0, 0, 0, 0, 0, 0, 0) == 0 && error == 6);
  CHECK(find("ncclCommAbort")(COMM, 0, 0, 0, 0, 0, 0, 0, 0) == 0);
  preload->device->close(lsa);
}

int main(int argc, char **argv) {
  char kernels[4096];
  begin_program(argc, argv, kernels);
  play("made", 2, made);
  play("unblocked", 2, unblocked);
  play("broadcasts", 2, broadcasts);
  play("averages", 2, averages);
  play("registers", 2, registers);
  play("gathers", 2, gathers);
  play("families", 2, families);
  play("strangers", 2, strangers);
  play("bounded", 2, bounded);
  play("alone", 2, alone);
  play("without CTAs", 2, without_ctas);
  play("met early", 2, met_early);
  play("left late", 2, left_late);
  play("meets", 2, meets);
  play("counted", 2, counted);
  play("stuck", 2, stuck);
  play("stuck behind", 2, stuck_behind);
  play("replays", 3, replays);
  unlink(kernels);
  return 0;
}
