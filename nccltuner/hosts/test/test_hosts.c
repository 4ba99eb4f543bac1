/* SPDX-License-Identifier: Apache-2.0
 *
 *   test_hosts [CASE]...     without, all
 * Ranks on several hosts over sockets, each in a process of its own, while processes are killed and stopped, fork, run out of descriptors and
 * close what is not theirs, and strangers call. All that run an epoch run it by one plan, or a rank fails because the hub is gone.
 */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "hosts_rig.h"
#include "hosts_samples.h"
#include "hosts_trips.h"
#include "hosts_words.h"

/* ---- what others do ---- */

static void calm(void) {
  start(5, 3, 2, -1, NULL);
  AWAIT(all_met(), 5000);
  for (int i = 0; i < 8; i++) {
    uint64_t epochs[2][5];
    settle();
    for (int c = 0; c < 2; c++)
      for (int r = 0; r < 5; r++) epochs[c][r] = LOAD(shared->told[c][r].epoch);
    nap(30 * MS); /* puts are timed rarely again, by then or in the middle of the next plan */
    for (int c = 0; c < 2; c++)
      for (int r = 0; r < 5; r++) AWAIT(LOAD(shared->told[c][r].epoch) > epochs[c][r] + 9, 3000);
    if (i == 4) STORE(shared->told[0][3].ahead, 1000); /* epochs, at once */
  }
  stop();
  for (int c = 0; c < 2; c++)
    for (int i = 0; i < 5; i++) CHECK(shared->told[c][i].changes >= 8 && !shared->told[c][i].lost && shared->told[c][i].closely > 30 && shared->told[c][i].closely <= 7 * (1 + 2 + 3) * 2);
}

static void rank_killed(void) {
  start(4, 4, 1, -1, NULL);
  settle();
  uint64_t version = publish(0) - 1;
  finish_rank(2, SIGKILL);
  AWAIT(LOAD(shared->memories[0][0].record.refusal) == DYN_REFUSED_SILENT || all_have(0, version + 1), 3000);
  if (all_have(0, version + 1)) version++; /* it was killed behind that */
  for (int i = 0; i < 3; i++) {
    uint64_t refused = publish(0);
    AT_ONCE(LOAD(shared->memories[0][0].record.proposed) == refused && LOAD(shared->memories[0][0].record.refusal) == DYN_REFUSED_SILENT, 1900); /* and not when it has been waited for for 2 s */
    CHECK(shared->memories[0][0].record.refuser == 2 && all_have(0, version) && go_on(0) && go_on(1) && go_on(3));
  }
  stop();
  for (int i = 0; i < 4; i++) CHECK(!shared->told[0][i].lost);
}

/* A rank that is stopped answers nothing, so the others come to their fences; then the hub is gone for good. */
static void hub_killed(void) {
  bool both = false;
  for (int i = 0; i < 4 && !both; i++) { /* the hub drops what is not answered for 2 s */
    start(4, 4, 1, -1, NULL);
    settle();
    halt(2);
    publish(0);
    AWAIT(stands(1) && stands(3), 10000);
    finish_rank(0, SIGKILL);
    kill(shared->pids[2], SIGCONT);
    AWAIT((lost(1) || go_on(1)) && (lost(3) || go_on(3)), 8000);
    both = lost(1) && lost(3);
    stop();
  }
  CHECK(both);
}

static void hub_killed_somewhen(void) {
  for (int round = 0; round < 4; round++) {
    start(4, 3, 1, -1, NULL);
    settle();
    for (uint64_t until = now() + (3 + 7 * (uint64_t)round) * MS; now() < until; nap(MS / 4)) publish(0);
    finish_rank(0, SIGKILL);
    AWAIT((lost(1) || go_on(1)) && (lost(2) || go_on(2)) && (lost(3) || go_on(3)), 8000);
    stop();
  }
}

static void hub_stopped(void) {
  start(4, 3, 1, -1, NULL);
  settle();
  publish(0);
  nap(MS);
  halt(0);
  nap(1000 * MS);
  kill(shared->pids[0], SIGCONT);
  settle();
  stop();
  for (int i = 0; i < 4; i++) CHECK(!shared->told[0][i].lost);
}

/* ---- what a rank's process does ---- */

static void await_word(void) {
  while (!LOAD(shared->now)) nap(MS);
}

/* Its child ends when the test says so, or soon. */
static void fork_child_that_stays(void) {
  await_word();
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, 0);
    for (int fd = 0; fd < 3; fd++) close(fd); /* who runs the test waits for nobody else */
    alarm(60);
    for (;;) pause();
  }
  STORE(shared->child, child);
}
static void forked(void) {
  for (int rank = 0; rank < 3; rank += 2) {
    start(3, 3, 1, rank, fork_child_that_stays);
    settle();
    STORE(shared->now, 1);
    AWAIT(LOAD(shared->child) > 0, 3000);
    settle();
    finish_rank(rank, SIGKILL);
    if (rank == 0) {
      AWAIT(call_root() < 0 && errno == ECONNREFUSED, 1000);
      AWAIT(LOAD(shared->memories[0][1].record.hosts) == DYN_HOSTS_PARTED && LOAD(shared->memories[0][2].record.hosts) == DYN_HOSTS_PARTED, 4000);
    } else {
      uint64_t version = publish(0); /* the hub knows at once, and not when it has waited for 2 s */
      AT_ONCE(LOAD(shared->memories[0][0].record.proposed) == version && LOAD(shared->memories[0][0].record.refusal) == DYN_REFUSED_SILENT, 1900);
    }
    kill(shared->child, SIGKILL);
    stop();
  }
}

/* A child that closes all, and ends as programs do. */
static void fork_child_that_ends(void) {
  int status;
  await_word();
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      for (int fd = 3; fd < 1024; fd++) close(fd);
      exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  STORE(shared->done, 1);
}
/* A handler of the program's that lasts, as those of RPC libraries do, keeps a fork that the library's own have prepared: who watches over ranks
 * of this process asks meanwhile, and of all its communicators. */
static bool forkLasts;
static void *ask_gone(void *answered) {
  char why[128];
  dyn_hosts_gone(100, (uint32_t)self, why, sizeof why);
  STORE(*(int *)answered, 1);
  return NULL;
}
static void last(void) {
  static int answered;
  pthread_t asks;
  if (!forkLasts) return;
  CHECK(pthread_create(&asks, NULL, ask_gone, &answered) == 0 && pthread_detach(asks) == 0);
  AWAIT(LOAD(answered), 2000);
}
static void fork_that_lasts(void) {
  await_word();
  forkLasts = true;
  fork_child_that_ends();
}
static void lasting_fork(void) {
  start(3, 3, 1, 1, fork_that_lasts);
  settle();
  STORE(shared->now, 1);
  AWAIT(LOAD(shared->done), 3000);
  settle();
  stop();
}

static void child_ends(void) {
  for (int rank = 0; rank < 2; rank++) {
    start(3, 3, 1, rank, fork_child_that_ends);
    settle();
    STORE(shared->now, 1);
    AWAIT(LOAD(shared->done), 3000);
    settle();
    stop();
  }
}

static void take_descriptors(void) {
  int taken[128], n = 0;
  await_word();
  CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){100, 100}) == 0);
  while ((taken[n] = dup(0)) >= 0) n++;
  STORE(shared->done, 1);
  while (LOAD(shared->now) == 1) nap(MS);
  while (n > 0) close(taken[--n]);
}
static uint64_t cpu_of(pid_t pid) {
  clockid_t clock;
  struct timespec t;
  CHECK(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
/* The hub's process has no descriptor left for who comes: it does not ask for one all the time, and later it has. */
static void no_descriptors(void) {
  int idle[4];
  start(3, 3, 1, 0, take_descriptors);
  settle();
  STORE(shared->now, 1);
  AWAIT(LOAD(shared->done), 3000);
  for (int i = 0; i < 4; i++) CHECK((idle[i] = call_root()) >= 0);
  nap(20 * MS);
  uint64_t before = cpu_of(shared->pids[0]), began = now();
  nap(400 * MS);
  CHECK(cpu_of(shared->pids[0]) - before < (now() - began) / 10); /* and not all that it can have */
  settle();
  STORE(shared->now, 2);
  for (int i = 0; i < 4; i++) CHECK(ends(idle[i]));
  stop();
}

static void close_all(void) {
  await_word();
  for (int fd = 3; fd < 200; fd++) syscall(SYS_close, fd); /* of which the thread sanitizer knows nothing */
}
/* The thread goes, and nobody waits for it. */
static void closed(void) {
  start(3, 3, 1, 1, close_all);
  settle();
  STORE(shared->now, 1);
  publish(0);
  AWAIT(LOAD(shared->memories[0][1].record.hosts) == DYN_HOSTS_PARTED, 3000);
  uint64_t epoch = LOAD(shared->told[0][1].epoch);
  AWAIT(lost(1) || LOAD(shared->told[0][1].epoch) > epoch + 2, 3000);
  CHECK(go_on(0) && go_on(2));
  stop();
}

/* Numbers of what was closed are those of files of its own from then on: nobody else writes, reads or closes these. */
static void close_all_for_files(void) {
  enum { FILES = 40 };
  int files[FILES], fd = 3;
  unsigned char id[DYN_ID_BYTES];
  await_word();
  for (; fd < 200; fd++) syscall(SYS_close, fd);
  for (int i = 0; i < FILES; i++) CHECK((files[i] = (int)syscall(SYS_memfd_create, "own", 0u)) >= 3 && write(files[i], "12345678901234567890", 20) == 20 && lseek(files[i], 0, SEEK_SET) == 0);
  STORE(shared->done, 1);
  while (LOAD(shared->now) == 1) nap(MS);
  plain_id(id);
  dyn_hosts_mark(id);
  if (self != 0) dyn_hosts_part(&members[0]);
  nap(50 * MS);
  for (int i = 0; i < FILES; i++) {
    struct stat is;
    CHECK(fstat(files[i], &is) == 0 && is.st_size == 20 && lseek(files[i], 0, SEEK_CUR) == 0);
    CHECK(close(files[i]) == 0);
  }
  STORE(shared->done, 2);
}
static void closed_for_files(void) {
  for (int rank = 0; rank < 2; rank++) {
    start(3, 3, 1, rank, close_all_for_files);
    settle();
    STORE(shared->now, 1);
    AWAIT(LOAD(shared->done) == 1, 3000);
    AWAIT(LOAD(shared->memories[0][rank].record.hosts) == DYN_HOSTS_PARTED, 3000);
    if (rank == 0) AWAIT(LOAD(shared->memories[0][1].record.hosts) == DYN_HOSTS_PARTED && LOAD(shared->memories[0][2].record.hosts) == DYN_HOSTS_PARTED, 4000);
    STORE(shared->now, 2);
    AWAIT(LOAD(shared->done) == 2, 3000);
    stop();
  }
}

static void leave_from_here(void) {
  for (; !LOAD(shared->now); nap(MS)) {
    struct dyn_fence *fence = LOAD(members[0].comm.fence);
    if (fence) STORE(shared->told[0][self].waits, LOAD(fence->waiting) != 0);
  }
  dyn_hosts_part(&members[0]);
  STORE(shared->done, 1);
}
static bool is_over(int i) {
  if (shared->pids[i] > 0 && waitpid(shared->pids[i], NULL, WNOHANG) == shared->pids[i]) shared->pids[i] = 0;
  return shared->pids[i] == 0;
}
/* The program aborts the communicator while a thread of its waits at the fence, before another rank has promised to take the plan, which is
 * dropped then; or behind that, and the hub hears of both at once: then it may be taken. */
static void aborted(void) {
  for (int turn = 0; turn < 6; turn++) {
    const int leaves = 1 + turn % 2, other = 3 - leaves, late = turn < 2 ? other : 0;
    start(3, 3, 1, leaves, leave_from_here);
    settle();
    halt(other);
    /* Else it may be beyond what it is asked for, then or before it has read that, and refuses; nobody asks it again who is stopped. */
    AWAIT(LOAD(shared->told[0][0].epoch) > LOAD(shared->told[0][other].epoch) + 100, 5000);
    publish(0);
    AWAIT(LOAD(shared->told[0][leaves].waits), 10000);
    if (late == 0) {
      halt(0);
      kill(shared->pids[other], SIGCONT);
      AWAIT(stands(other), 3000);
    }
    STORE(shared->now, 1);
    AT_ONCE(is_over(leaves), 1900); /* the hub drops who is stopped when it has waited for 2 s */
    CHECK(shared->done);
    kill(shared->pids[late], SIGCONT);
    CHECK(go_on(0) && go_on(other));
    stop();
  }
}

#include "hosts_gin.h"

/* ---- ids ---- */

static void check_ids(void) {
  unsigned char id[DYN_ID_BYTES], was[DYN_ID_BYTES];
  struct dyn_hosts_place place = {.record = &shared->memories[0][0].record, .self = shared->memories[0][0].ranks, .commId = 1, .host = 1, .nRanks = 2};
  plain_id(id);
  CHECK(!dyn_id_read(id, &root));
  memcpy(was, id, sizeof id);
  setenv("DYNAMICCL_HOSTS", "0", 1);
  dyn_hosts_mark(id);
  CHECK(memcmp(id, was, sizeof id) == 0 && dyn_hosts_begin(&place, &root, NULL) == NULL);
  unsetenv("DYNAMICCL_HOSTS");
  setenv("NCCL_COMM_ID", "127.0.0.1:1234", 1); /* every process makes it */
  dyn_hosts_mark(id);
  CHECK(memcmp(id, was, sizeof id) == 0);
  unsetenv("NCCL_COMM_ID");
  for (int i = 48; i < DYN_ID_BYTES; i++) { /* NCCL needs more of it than we know */
    id[i] = was[i] = 1;
    dyn_hosts_mark(id);
    CHECK(memcmp(id, was, sizeof id) == 0);
    id[i] = was[i] = 0;
  }
  id[8] = was[8] = 99; /* an address of no kind that we know */
  dyn_hosts_mark(id);
  CHECK(memcmp(id, was, sizeof id) == 0);
  plain_id(id);
  dyn_hosts_mark(id);
  plain_id(was);
  CHECK(memcmp(id, was, 96) == 0 && dyn_id_read(id, &root) && root.nonce != 0 && root.at.in.sin_port != 0);
  memcpy(shared->id, id, sizeof id);
  CHECK(call_root() >= 0);
  for (int i = 96; i < 116; i++) { /* mark, nonce, port and version */
    memcpy(was, id, sizeof id);
    was[i] ^= 1;
    CHECK(dyn_id_read(was, &root) == (i >= 104 && i < 114));
  }
  memset(id, 0, sizeof id);
  struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = 7};
  memcpy(id + 8, &at, sizeof at);
  CHECK(dyn_id_address(id, &root) && root.at.in6.sin6_port == 0);
  root.at.in6.sin6_port = 1234;
  root.nonce = 99;
  dyn_id_mark(id, &root);
  CHECK(dyn_id_read(id, &root) && root.nonce == 99 && root.at.in6.sin6_port == 1234 && memcmp(&root.at.in6.sin6_addr, &at.sin6_addr, sizeof at.sin6_addr) == 0);
}
static void ids(void) { /* a listener is opened there */
  int status;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    check_ids();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"ids", ids}, {"calm", calm}, {"rank_killed", rank_killed}, {"hub_killed", hub_killed}, {"hub_killed_somewhen", hub_killed_somewhen},
    {"hub_stopped", hub_stopped}, {"strangers", strangers}, {"by_hand", by_hand}, {"slow_peer", slow_peer}, {"others_there", others_there}, {"forked", forked}, {"child_ends", child_ends}, {"lasting_fork", lasting_fork},
    {"no_descriptors", no_descriptors}, {"closed", closed}, {"closed_for_files", closed_for_files}, {"aborted", aborted}, {"samples", samples}, {"busy", busy}, {"rung", rung}, {"lost_forked", lost_forked}, {"trips", trips}, {"trips_busy", trips_busy}, {"trips_lost", trips_lost}, {"trips_unread", trips_unread},
    {"gin_begins", gin_begins}, {"count_apart", count_apart}, {"gin_declined", gin_declined}, {"gin_too_late", gin_too_late}, {"gin_hub_killed", gin_hub_killed}, {"gone", gone}, {"left", left}, {"gone_with_hub", gone_with_hub},
};

int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED && pthread_atfork(last, NULL, NULL) == 0); /* before the library's, and so behind them */
  alarm(60 * (unsigned)patience());
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool wanted = argc < 2;
    for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], cases[i].name) == 0;
    if (!wanted) continue;
    uint64_t began = now();
    test = cases[i].name;
    cases[i].run();
    printf("%s: %llu ms\n", test, (unsigned long long)((now() - began) / MS));
    fflush(stdout);
  }
  return 0;
}
