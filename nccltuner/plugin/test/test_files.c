/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories and files that a rank must not trust: it runs plain NCCL, says why and what to do, and nothing breaks.
 * Every case is its own process, for a process judges its directory once.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define NOBODY 65534
#define COMM_ID 0xbadull

static const char *directory;
static char path[1024];

static struct dyn_comm *join(uint64_t id, uint32_t nRanks) {
  void *context = NULL;
  check(ncclTunerPlugin_v6.init(&context, id, nRanks, 1, test_log, NULL, NULL) == 0, "init must succeed");
  check(context, "no context");
  for (int i = 0; i < 40; i++) test_call(context, i % 5, 4096, 0);
  return context;
}

static void expect_plain(const char *message, const char *remedy) {
  struct dyn_comm *comm = join(COMM_ID, 2);
  check(!comm->record, "joined");
  check(strstr(test_last_message(), message), "message is '%s', '%s' wanted", test_last_message(), message);
  check(strstr(test_last_message(), remedy), "message is '%s', remedy '%s' wanted", test_last_message(), remedy);
  dyn_comm_release_tuner(comm);
}

static void expect_joined(void) {
  struct dyn_comm *comm = join(COMM_ID, 2);
  check(comm->record && comm->record->joined == 1, "not joined: %s", test_last_message());
  dyn_comm_release_tuner(comm);
}

static void run(const char *name, void (*test)(void)) {
  test_in_child("files", name, test);
  unlink(path);
}

static void write_record(const void *bytes, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "%s", path);
  close(fd);
}

/* A record as a live rank of this very process would have made it, changed by the test. */
static struct dyn_record *good_record(size_t *size) {
  *size = sizeof(struct dyn_record) + 2 * sizeof(struct dyn_rank);
  struct dyn_record *record = calloc(1, *size);
  struct dyn_rank *rank = (struct dyn_rank *)(record + 1);
  *record = (struct dyn_record){.header = {DYN_RECORD_MAGIC, DYN_ABI_VERSION, 0, *size, 0},
                                .commId = COMM_ID, .nRanks = 2, .nNodes = 1, .epochCalls = DYN_EPOCH_CALLS, 
                                .joined = 1};
  *rank = (struct dyn_rank){.pid = (uint32_t)getppid(), .rank = 1, .startTime = dyn_process_start((uint32_t)getppid())};
  return record;
}

#include "files_directories.h"

/* ---- locks ---- */

static void lock_held(void) {
  char name[600];
  struct timespec start, end;
  snprintf(name, sizeof name, "%s/join.lock", directory);
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  check(fd >= 0 && flock(fd, LOCK_EX) == 0, "flock");
  clock_gettime(CLOCK_MONOTONIC, &start);
  expect_plain("join.lock", "fuser");
  clock_gettime(CLOCK_MONOTONIC, &end);
  check(end.tv_sec - start.tv_sec <= DYN_JOIN_WAIT_MS / 1000 + 2, "waited too long");
  close(fd);
  expect_joined();
}

/* Who has no inode left, or no descriptor, is not sent to look for a process that has the lock. */
static void no_lock(void) {
  char name[600];
  snprintf(name, sizeof name, "%s/join.lock", directory);
  check((unlink(name) == 0 || errno == ENOENT) && mkdir(name, 0700) == 0, "%s", name);
  expect_plain("Is a directory", "remove what");
  check(rmdir(name) == 0, "rmdir %s", name);
  expect_joined();
}

/* ---- records ---- */

static void garbage_records(void) {
  uint64_t random = test_seed();
  unsigned char bytes[65536];
  for (size_t size = 1; size < sizeof bytes; size = size * 3 + 1) {
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(test_random(&random) | 1);
    write_record(bytes, size);
    struct dyn_comm *comm = join(COMM_ID, 2);
    /* Less than a header is a creation that its rank did not survive. */
    check(!comm->record == (size >= sizeof(struct dyn_header)), "size %zu: %s", size, test_last_message());
    dyn_comm_release_tuner(comm);
    unlink(path);
  }
}

static void changed_record(const char *what, const char *message) {
  size_t size, written;
  struct dyn_record *record = good_record(&size);
  written = size;
  if (!strcmp(what, "magic")) record->header.magic ^= 1;
  if (!strcmp(what, "version")) record->header.version = DYN_ABI_VERSION + 1;
  if (!strcmp(what, "truncated")) written = size / 2;
  if (!strcmp(what, "nRanks 0")) record->nRanks = 0;
  if (!strcmp(what, "nRanks huge")) record->nRanks = 1u << 31;
  if (!strcmp(what, "epochCalls 0")) record->epochCalls = 0;
  if (!strcmp(what, "sizeBytes huge")) record->header.sizeBytes = UINT64_MAX;
  if (!strcmp(what, "nNodes")) record->nNodes = 2;
  if (!strcmp(what, "full")) {
    record->joined = 2;
    ((struct dyn_rank *)(record + 1))[1] = *(struct dyn_rank *)(record + 1);
  }
  write_record(record, written);
  struct dyn_comm *comm = join(COMM_ID, 2);
  check(!comm->record, "%s: joined", what);
  check(strstr(test_last_message(), message), "%s: message is '%s'", what, test_last_message());
  dyn_comm_release_tuner(comm);
  unlink(path);
  free(record);
}

static void changed_records(void) {
  char refused[80];
  changed_record("magic", "not a DynamICCL record");
  snprintf(refused, sizeof refused, "has version %d and this library speaks %d", DYN_ABI_VERSION + 1, DYN_ABI_VERSION);
  changed_record("version", refused);
  changed_record("truncated", "damaged");
  changed_record("nRanks 0", "damaged");
  changed_record("nRanks huge", "damaged");
  changed_record("epochCalls 0", "damaged");
  changed_record("sizeBytes huge", "damaged");
  changed_record("nNodes", "differ about its shape");
  changed_record("full", "has all its 2 ranks");
}

static void stale_record(const char *what) {
  size_t size;
  struct dyn_record *record = good_record(&size);
  struct dyn_rank *rank = (struct dyn_rank *)(record + 1);
  struct stat before, after;
  if (!strcmp(what, "dead")) rank->pid = 0x7ffffff0;
  if (!strcmp(what, "pid of another process")) rank->startTime--;
  if (!strcmp(what, "left")) rank->position = UINT64_MAX;
  if (!strcmp(what, "not finished")) record->header.magic = 0;
  if (!strcmp(what, "dead, other shape")) rank->pid = 0x7ffffff0, record->nNodes = 3;
  write_record(record, size);
  int keep = open(path, O_RDONLY); /* or the next file may get the same inode */
  check(stat(path, &before) == 0, "stat");
  struct dyn_comm *comm = join(COMM_ID, 2);
  check(comm->record, "%s: not replaced: %s", what, test_last_message());
  check(comm->record->joined == 1 && comm->self->pid == (uint32_t)getpid(), "%s: not a new generation", what);
  check(stat(path, &after) == 0 && after.st_ino != before.st_ino, "%s: the old file is still there", what);
  close(keep);
  dyn_comm_release_tuner(comm);
  free(record);
}

static void stale_records(void) {
  stale_record("dead");
  stale_record("pid of another process");
  stale_record("left");
  stale_record("not finished");
  stale_record("dead, other shape");
}

/* A name that cannot be given to the next generation, as one that something is mounted on. Only root can have it. */
static void kept_record(void) {
  size_t size;
  struct dyn_record *record = good_record(&size);
  ((struct dyn_rank *)(record + 1))->position = UINT64_MAX;
  write_record(record, size);
  free(record);
  if (mount(path, path, NULL, MS_BIND, NULL) != 0) return;
  expect_plain("cannot remove", "busy: running plain NCCL; remove it");
  check(umount(path) == 0, "umount");
}

static void killed_rank(void) {
  void *context;
  int status, ready[2];
  char byte = 0;
  check(pipe(ready) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    ncclTunerPlugin_v6.init(&context, COMM_ID, 2, 1, test_log, NULL, NULL);
    check(write(ready[1], &byte, 1) == 1, "write");
    pause();
  }
  check(read(ready[0], &byte, 1) == 1 && test_count_files("comm-") == 1, "the child has not joined");
  kill(child, SIGKILL);
  check(waitpid(child, &status, 0) == child, "wait");
  expect_joined();
  check(test_count_files("comm-") == 0, "a record was left");
}

static void linked_record(void) {
  check(symlink("/etc/passwd", path) == 0, "symlink");
  expect_plain("cannot open", "remove it");
}

static void pipe_record(void) {
  check(mkfifo(path, 0600) == 0, "mkfifo");
  expect_plain("not a file of this user", "remove it");
}

static void same_rank_twice(void) {
  struct dyn_comm *first = dyn_comm_open(COMM_ID, 2, 1, 1, test_log), *second;
  void *context;
  ncclTunerPlugin_v6.init(&context, COMM_ID, 2, 1, test_log, NULL, NULL);
  check(context == first && first->record, "first");
  second = dyn_comm_open(COMM_ID, 2, 1, 1, test_log);
  ncclTunerPlugin_v6.init(&context, COMM_ID, 2, 1, test_log, NULL, NULL);
  check(context == second && !second->record, "a rank joined twice");
  check(strstr(test_last_message(), "has joined already"), "message is '%s'", test_last_message());
}

static void too_many_ranks(void) {
  struct dyn_comm *comm = join(COMM_ID, DYN_MAX_RANKS + 1);
  check(!comm->record && strstr(test_last_message(), "more than 64 ranks"), "message is '%s'", test_last_message());
  check(!join(COMM_ID, 0)->record, "no ranks at all");
  struct dyn_comm *most = join(COMM_ID, DYN_MAX_RANKS);
  check(most->record, "%d ranks: %s", DYN_MAX_RANKS, test_last_message());
}

/* The daemon is a program that can go wrong, too: whatever stands in a live record, calls succeed. */
static void scribbled_record(void) {
  uint64_t random = test_seed();
  for (int round = 0; round < 200; round++) {
    void *context;
    ncclTunerPlugin_v6.init(&context, COMM_ID, 1, 1, test_log, NULL, NULL);
    struct dyn_comm *comm = context;
    check(comm->record, "not joined: %s", test_last_message());
    unsigned char *bytes = (unsigned char *)comm->record;
    for (int call = 0; call < 500; call++) {
      for (int i = 0; i < 40; i++) {
        size_t range = round % 2 ? 640 : sizeof *comm->record - 200; /* the words of the protocol, or everything */
        bytes[offsetof(struct dyn_record, joined) + test_random(&random) % range] = (unsigned char)test_random(&random);
      }
      test_call(context, call % 5, 1u << call % 30, 0);
    }
    unlink(path);
    dyn_comm_release_tuner(comm);
  }
}

static void scribbled_ring(void) {
  struct dyn_sample sample = {.commId = 1};
  dyn_process_ref();
  struct dyn_process *process = dyn_process_get(test_log);
  check(process->ring, "no ring: %s", test_last_message());
  for (int i = 0; i < DYN_RING_CELLS; i++) check(dyn_ring_put(process, &sample) == 1, "put %d", i);
  check(dyn_ring_put(process, &sample) == 0 && process->ring->dropped == 1, "a full ring drops and counts");
  uint64_t random = test_seed();
  for (int i = 0; i < 200; i++) {
    process->ring->head = test_random(&random);
    process->cells[process->ring->head % DYN_RING_CELLS].cell = process->ring->head + (test_random(&random) >> 2);
    check(dyn_ring_put(process, &sample) == 0, "a damaged ring must drop");
  }
  dyn_process_unref();
}

int main(void) {
  umask(0);
  directory = test_directory();
  test_record_path(COMM_ID, path, sizeof path);
  run("foreign directory", foreign_directory);
  run("other user", other_user);
  run("linked directory", linked_directory);
  run("open directory", open_directory);
  run("relative directory", relative_directory);
  run("runtime directory", runtime_directory);
  run("missing parent", missing_parent);
  run("long directory", long_directory);
  run("made directory", made_directory);
  run("file size limit", no_space);
  run("full disk", full_disk);
  run("lock held", lock_held);
  run("no lock", no_lock);
  run("garbage", garbage_records);
  run("changed records", changed_records);
  run("stale records", stale_records);
  run("kept record", kept_record);
  run("killed rank", killed_rank);
  run("linked record", linked_record);
  run("pipe", pipe_record);
  run("same rank twice", same_rank_twice);
  run("too many ranks", too_many_ranks);
  run("scribbled record", scribbled_record);
  run("scribbled ring", scribbled_ring);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
