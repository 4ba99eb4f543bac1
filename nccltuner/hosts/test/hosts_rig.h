/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hosts: ranks in processes of their own, with the shipped thread, hub and sockets (hosts.c) and the plugin's part (plugin/hosts.c), on
 * hosts that are numbers, each with a record in memory that all share; and a daemon that publishes.
 */
#ifndef DYN_HOSTS_RIG_H
#define DYN_HOSTS_RIG_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../kernels/host/host.h"
#include "../../plugin/comm.h"
#include "../../plugin/plan.h"
#include "../hosts.h"
#include "../samples.h"

/* What errno is said to be is the condition's: not that of a call that was to fail, some cases ago. */
#define CHECK(condition) (errno = 0, (condition) ? (void)0 : failed(__LINE__, #condition))
#define RANKS 6
#define COMMS 2 /* of all processes, with one id */
#define EPOCHS (1 << 16)
#define CLOSELY (1u << 31) /* puts were to be timed so, which peers have to answer */
#define MS UINT64_C(1000000)

struct memory {
  struct dyn_record record;
  struct dyn_rank ranks[RANKS];
};
static struct shared {
  int numRanks, numComms, numHosts, marked, present, stop;
  int now, done; /* for a rank that does something else, too */
  int holds[RANKS]; /* how often a rank's samples were looked at */
  pid_t child;
  unsigned char id[DYN_ID_BYTES];
  int host[RANKS];
  pid_t pids[RANKS];
  struct memory memories[COMMS][RANKS];
  struct told { /* by a rank of a communicator */
    uint64_t epoch, version, changes;
    int lost, unsound, said, ahead, ready;
    int waits; /* at its fence, where a thread of its own looks */
    uint32_t verdict;
    uint8_t id[128];
    char gone[128]; /* "": nobody is said to be */
    uint32_t ran[EPOCHS]; /* version + 1, and CLOSELY */
    int closely;          /* epochs */
  } told[COMMS][RANKS];
  struct dyn_plan plans[COMMS]; /* the last that was published */
} *shared;
static const char *test; /* which is run */
static struct dyn_ring *rings[RANKS]; /* that ranks have; NULL: none */

static void failed(int line, const char *what) {
  fprintf(stderr, "test_hosts: %s: line %d: %s (errno %d)\n", test, line, what, errno);
  for (int c = 0; shared && c < shared->numComms; c++)
    for (int i = 0; i < shared->numRanks; i++) {
      const struct told *t = &shared->told[c][i];
      const struct dyn_record *r = &shared->memories[c][shared->host[i]].record;
      fprintf(stderr, "  communicator %d rank %d: epoch %llu, plan %llu, lost %d, hosts %u; proposed %llu, refusal %u by %u\n", c, i, (unsigned long long)t->epoch,
              (unsigned long long)t->version, t->lost, r->hosts, (unsigned long long)r->proposed, r->refusal, r->refuser);
    }
  exit(1);
}

static void nap(uint64_t ns) { nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL); }
static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
#define LOAD(at) __atomic_load_n(&(at), __ATOMIC_ACQUIRE)
#define STORE(at, value) __atomic_store_n(&(at), value, __ATOMIC_RELEASE)
/* How much longer than on a quiet machine what is to come may take. A planted mistake is looked for with TEST_PATIENCE=1: it never comes. */
static uint64_t patience(void) {
  const char *text = getenv("TEST_PATIENCE");
  return text == NULL ? 6 : (uint64_t)atoi(text);
}
#define AWAIT(condition, ms) AT_ONCE(condition, (ms) * patience())
/* Within so many ms on any machine, for by itself it would come a moment later. */
#define AT_ONCE(condition, ms) \
  do { \
    bool is_; \
    for (uint64_t until_ = now() + (ms) * MS; !(errno = 0, is_ = (condition)) && now() < until_;) nap(MS); \
    if (!is_) failed(__LINE__, #condition); \
  } while (0)

/* ---- what the plugin finds around it ---- */

static struct dyn_root root;
static struct dyn_fence *begin_hosts(const struct dyn_hosts_place *place, dyn_hosts_logger log) { return dyn_hosts_begin(place, &root, log); }
static const struct dyn_hosts_calls hostsCalls = {begin_hosts, dyn_hosts_leave, dyn_hosts_gin, dyn_hosts_decline};
static unsigned counting; /* bits of ranks that count AllToAll */
static int notGin = -1, held = -1; /* a rank that does not want GIN, and one that joins when it is told to */
bool dyn_gin_between_hosts(const struct dyn_comm *comm) { return comm->rank != notGin; }
const struct dyn_device_calls *dyn_device_of(const struct dyn_member *member) {
  static const struct dyn_device_calls calls = {.hosts = &hostsCalls};
  (void)member;
  return &calls;
}

/* ---- a rank ---- */

static int self = -1; /* the rank that this process is; -1: none */
static void count_words(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)fmt;
  __atomic_fetch_add(&shared->told[0][self].said, 1, __ATOMIC_RELAXED);
}

static struct dyn_member members[COMMS];
static void join(int c, int rank, struct dyn_member *member) {
  struct memory *memory = &shared->memories[c][shared->host[rank]];
  memset(member, 0, sizeof *member);
  member->inode = (ino_t)(c * RANKS + shared->host[rank]); /* a record of its own */
  member->epochCalls = memory->record.epochCalls;
  struct dyn_comm *comm = &member->comm;
  comm->commId = 100 + (uint64_t)c;
  comm->nRanks = (uint32_t)shared->numRanks;
  comm->nNodes = (uint32_t)shared->numHosts;
  comm->rank = rank;
  comm->log = count_words;
  comm->record = &memory->record;
  comm->self = &memory->ranks[__atomic_fetch_add(&memory->record.joined, 1, __ATOMIC_ACQ_REL)];
  comm->self->flags = 0;
  if (rank == 0) memset(comm->record->ginId, 0x47, sizeof comm->record->ginId);
  dyn_hosts_join(member);
  if (counting >> rank & 1) CHECK(dyn_hosts_exchanges(comm, true));
}

/* An epoch, and what is in force there. */
static void pass(struct dyn_member *member, struct told *told) {
  struct dyn_comm *comm = &member->comm;
  uint64_t before = comm->plan.version;
  STORE(told->epoch, comm->fenceEpoch + 1);
  dyn_pass_close(comm);
  dyn_hosts_pass(comm);
  if (comm->lost) {
    STORE(told->lost, 1);
    return;
  }
  if (comm->plan.version != before) {
    told->changes++;
    if (!dyn_plan_valid(&comm->plan)) STORE(told->unsound, 1);
  }
  STORE(told->version, comm->plan.version);
  uint32_t closely = comm->closeLeft > 0 ? CLOSELY : 0;
  told->closely += closely != 0;
  if (comm->fenceEpoch < EPOCHS) STORE(told->ran[comm->fenceEpoch], ((uint32_t)comm->plan.version + 1) | closely);
}

static void *run_rank(void *at) {
  struct dyn_member *member = at;
  int c = (int)(member - members);
  struct told *told = &shared->told[c][self];
  while (self == held && !LOAD(shared->now)) nap(MS);
  join(c, self, member);
  CHECK(member->comm.fence != NULL);
  STORE(told->ready, 1);
  for (uint64_t turn = 0; !LOAD(shared->stop) && !told->lost && LOAD(member->comm.fence) && member->comm.fenceEpoch < EPOCHS; turn++) {
    pass(member, told);
    STORE(told->verdict, dyn_hosts_gin(member->comm.fence, told->id));
    char why[128];
    if (!told->gone[0] && dyn_hosts_gone(member->comm.commId, (uint32_t)self, why, sizeof why)) memcpy(told->gone, why, sizeof why);
    if (LOAD(told->ahead) > 0) __atomic_fetch_sub(&told->ahead, 1, __ATOMIC_RELAXED);
    else nap(MS / 4 + (turn * 7919 + (uint64_t)self * 104729) % MS / 2);
  }
  dyn_hosts_part(member);
  return NULL;
}

static struct dyn_ring *own_ring(void) {
  __atomic_fetch_add(&shared->holds[self], 1, __ATOMIC_RELAXED);
  return rings[self];
}
static void give_back(void) {}

/* Its address, as NCCL's bootstrap tells it. */
static void plain_id(unsigned char *id) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(9)};
  memset(id, 0, DYN_ID_BYTES);
  memset(id, 0x5a, 8);
  memcpy(id + 8, &at, sizeof at);
}

/* Runs as rank, and first makes the id, if it is rank 0. */
static void be_rank(int rank, void (*also)(void)) {
  pthread_t threads[COMMS];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  self = rank;
  dyn_hosts_samples_at(own_ring, give_back);
  if (rank == 0 && !shared->marked) {
    plain_id(shared->id);
    dyn_hosts_mark(shared->id);
    STORE(shared->marked, 1);
  }
  __atomic_fetch_add(&shared->present, 1, __ATOMIC_RELAXED);
  AWAIT(LOAD(shared->marked) && LOAD(shared->present) == shared->numRanks, 10000); /* the hub is sought from here on */
  CHECK(dyn_id_read(shared->id, &root));
  for (int c = 0; c < shared->numComms; c++) CHECK(pthread_create(&threads[c], NULL, run_rank, &members[c]) == 0);
  if (also) also();
  for (int c = 0; c < shared->numComms; c++) pthread_join(threads[c], NULL);
  exit(0);
}

/* also: what this rank does besides. id: where they are to meet; NULL: in rank 0. */
static void start_at(const unsigned char *id, int numRanks, int numHosts, int numComms, int rank, void (*also)(void)) {
  memset(shared, 0, sizeof *shared);
  if (id) memcpy(shared->id, id, sizeof shared->id);
  shared->marked = id != NULL;
  shared->numRanks = numRanks;
  shared->numHosts = numHosts;
  shared->numComms = numComms;
  for (int i = 0; i < numRanks; i++) {
    shared->host[i] = i % numHosts;
    for (int c = 0; c < numComms; c++) shared->memories[c][i].record.epochCalls = DYN_EPOCH_CALLS;
  }
  fflush(NULL);
  for (int i = 0; i < numRanks; i++) {
    pid_t pid = fork();
    if (pid == 0) be_rank(i, i == rank ? also : NULL);
    CHECK((shared->pids[i] = pid) > 0);
  }
}

static void start(int numRanks, int numHosts, int numComms, int rank, void (*also)(void)) { start_at(NULL, numRanks, numHosts, numComms, rank, also); }

static void finish_rank(int i, int signal) {
  int status;
  if (signal) kill(shared->pids[i], signal);
  CHECK(waitpid(shared->pids[i], &status, 0) == shared->pids[i]);
  CHECK(signal ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  shared->pids[i] = 0;
}

/* It does nothing more, for now. */
static void halt(int i) {
  int status;
  kill(shared->pids[i], SIGSTOP);
  CHECK(waitpid(shared->pids[i], &status, WUNTRACED) == shared->pids[i] && WIFSTOPPED(status));
}

/* All that ran an epoch ran it by one plan, and timed puts in it alike, and each plan was whole. */
static void agree(void) {
  for (int c = 0; c < shared->numComms; c++)
    for (int e = 1; e < EPOCHS; e++) {
      uint32_t ran = 0;
      for (int i = 0; i < shared->numRanks; i++) {
        uint32_t mine = shared->told[c][i].ran[e];
        CHECK(mine == 0 || ran == 0 || mine == ran);
        if (mine) ran = mine;
      }
    }
  for (int c = 0; c < shared->numComms; c++)
    for (int i = 0; i < shared->numRanks; i++) CHECK(!shared->told[c][i].unsound);
}

static void stop(void) {
  STORE(shared->stop, 1);
  for (int i = 0; i < shared->numRanks; i++)
    if (shared->pids[i] > 0) finish_rank(i, 0);
  agree();
}

/* ---- rank 0's daemon ---- */

static uint64_t publish(int c) {
  struct dyn_record *record = &shared->memories[c][0].record;
  struct dyn_plan *plan = &shared->plans[c];
  uint32_t slot = (uint32_t)(record->newest & 255) % DYN_NUM_PLANS;
  uint64_t version = plan->version + 1;
  memset(plan, 0, sizeof *plan);
  plan->version = version;
  plan->numEntries = 2;
  plan->closeEpochs = version % 4 * 7;
  plan->entries[1] = (struct dyn_entry){.id = (uint32_t)version, .base = DYN_PATH_COLLECTIVE | 1 << DYN_ACTION_ALGO_SHIFT};
  plan->index[DYN_ALL_REDUCE][version % 20] = 1;
  plan->checksum = dyn_plan_checksum(plan);
  memcpy(&record->plans[slot], plan, sizeof *plan);
  STORE(record->newest, version << 8 | (slot + 1));
  return version;
}

static bool all_have(int c, uint64_t version) {
  for (int i = 0; i < shared->numRanks; i++)
    if (shared->pids[i] > 0 && LOAD(shared->told[c][i].version) != version) return false;
  return true;
}

/* A new plan comes into force. */
static void settle(void) {
  for (int c = 0; c < shared->numComms; c++) {
    uint64_t version = publish(c);
    AWAIT(all_have(c, version), 20000);
  }
}

static bool all_met(void) {
  for (int c = 0; c < shared->numComms; c++)
    for (int h = 0; h < shared->numHosts; h++)
      if (LOAD(shared->memories[c][h].record.hosts) != DYN_HOSTS_MET) return false;
  return true;
}

/* How a rank fares. */
static bool go_on(int i) {
  uint64_t epoch = LOAD(shared->told[0][i].epoch), until = now() + 3000 * MS * patience();
  while (LOAD(shared->told[0][i].epoch) <= epoch + 2 && !LOAD(shared->told[0][i].lost) && now() < until) nap(MS);
  return LOAD(shared->told[0][i].epoch) > epoch + 2;
}
/* It waits at its fence, or has little of the processor. */
static bool stands(int i) {
  uint64_t epoch = LOAD(shared->told[0][i].epoch);
  nap(60 * MS);
  return LOAD(shared->told[0][i].epoch) == epoch;
}
static bool lost(int i) { return LOAD(shared->told[0][i].lost); }

#endif
