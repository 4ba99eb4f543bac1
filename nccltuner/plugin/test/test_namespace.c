/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in containers: a pid means something in its own PID namespace alone. Who shares a directory with another one, or sees the /proc of
 * another one, takes nobody's files away and runs plain NCCL, and says so. Where this user may make such a namespace ranks are in one.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xbadull

static const char *directory;
static char path[1024];

static struct dyn_comm *join(uint64_t id) {
  void *context = NULL;
  check(ncclTunerPlugin_v6.init(&context, id, 2, 1, test_log, NULL, NULL) == 0 && context, "init");
  for (int i = 0; i < 40; i++) check(test_call(context, i % 5, 4096, 0) == 0, "a choice");
  return context;
}

static void expect_plain(const char *message) {
  struct dyn_comm *comm = join(COMM_ID);
  check(!comm->record && strstr(test_last_message(), message) && strstr(test_last_message(), "running plain NCCL"), "message is '%s'", test_last_message());
  dyn_comm_release_tuner(comm);
}

static void put(const char *name, const void *bytes, size_t size) {
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  check(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "%s", path);
  close(fd);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

static bool write_line(const char *file, const char *text) {
  int fd = open(file, O_WRONLY);
  bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  if (fd >= 0) close(fd);
  return written;
}

/* Another container, with a /proc of its own or the one that is there. 1: nobody may. */
static int elsewhere(void (*test)(void), bool ownProc) {
  int status;
  fflush(NULL);
  pid_t outer = fork();
  if (outer == 0) {
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", geteuid(), geteuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0 || !write_line("/proc/self/uid_map", map)) _exit(77);
    pid_t inner = fork();
    if (inner == 0) {
      if (ownProc && mount("proc", "/proc", "proc", 0, NULL) != 0) _exit(77);
      test();
      exit(0);
    }
    check(waitpid(inner, &status, 0) == inner, "wait");
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  check(waitpid(outer, &status, 0) == outer && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77), "status %x", status);
  if (WEXITSTATUS(status) == 77) printf("{\"namespace\":\"not allowed here\"}\n");
  return WEXITSTATUS(status) == 77;
}

static void plain_beside_others(void) { expect_plain("are in different PID namespaces"); }
static void plain_without_proc(void) { expect_plain("/proc does not know process"); }

/* The one that came first keeps its record, and the directory its file. */
static void ranks_of_two(void) {
  struct stat before, after;
  struct dyn_comm *comm = join(COMM_ID);
  test_record_path(COMM_ID, path, sizeof path);
  check(comm->record && stat(path, &before) == 0, "not joined");
  if (elsewhere(plain_beside_others, true)) return;
  check(stat(path, &after) == 0 && after.st_ino == before.st_ino && comm->record->joined == 1, "its record was taken away");
  dyn_comm_release_tuner(comm);
}

static void others_proc(void) {
  if (elsewhere(plain_without_proc, false)) return;
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "it made files");
}

/* Nobody here knows whether a rank lives, whatever is true of its pid here. */
static void record_of_another(void) {
  size_t size = sizeof(struct dyn_record) + 2 * sizeof(struct dyn_rank);
  struct dyn_record *record = calloc(1, size);
  struct dyn_rank *rank = (struct dyn_rank *)(record + 1);
  *record = (struct dyn_record){.header = {DYN_RECORD_MAGIC, DYN_ABI_VERSION, dyn_pid_namespace() + 1, size, 0},
                                .commId = COMM_ID, .nRanks = 2, .nNodes = 1, .epochCalls = DYN_EPOCH_CALLS, .joined = 1};
  const struct dyn_rank ranks[] = {{.pid = 0x7ffffff0, .startTime = 7}, {.pid = (uint32_t)getppid(), .rank = 1, .startTime = dyn_process_start((uint32_t)getppid())}};
  for (int i = 0; i < 2; i++) {
    *rank = ranks[i];
    put("comm-0000000000000bad.shm", record, size);
    plain_beside_others();
    check(access(path, F_OK) == 0, "it is gone");
  }
  unlink(path);
  free(record);
}

/* Where no daemon lives a program clears up after those that have ended, of its own namespace alone. */
static void left_files(void) {
  const uint32_t own = dyn_pid_namespace();
  struct dyn_header ring = {DYN_RING_MAGIC, DYN_ABI_VERSION, own + 1, sizeof(struct dyn_ring), 0};
  struct dyn_record record = {.header = {DYN_RECORD_MAGIC, DYN_ABI_VERSION, own + 1, sizeof record, 0}, .joined = 0};
  put("ring-999999999-7.shm", &ring, sizeof ring);
  put("comm-0000000000000007.shm", &record, sizeof record);
  ring.pidNamespace = record.header.pidNamespace = own;
  put("ring-999999998-7.shm", &ring, sizeof ring);
  put("comm-0000000000000008.shm", &record, sizeof record);
  struct dyn_comm *comm = join(COMM_ID);
  dyn_process_ref();
  check(dyn_process_get(test_log)->ring, "no ring");
  check(test_count_files("comm-") == 2 && test_count_files("ring-") == 2, "%d records and %d rings", test_count_files("comm-"), test_count_files("ring-"));
  check(snprintf(path, sizeof path, "%s/ring-999999999-7.shm", directory) > 0 && unlink(path) == 0, "the ring");
  check(snprintf(path, sizeof path, "%s/comm-0000000000000007.shm", directory) > 0 && unlink(path) == 0, "the record");
  dyn_process_unref();
  dyn_comm_release_tuner(comm);
}

/* A process elsewhere may be making a ring, of which its name alone says whose it is. */
static void rings_being_made(void) {
  static const char *const names[] = {"ring-999999999-7.shm", "ring-999999998-7.shm"};
  static const struct timespec longAgo[2];
  const struct dyn_header header = {0};
  put(names[0], "", 0);
  put(names[1], &header, sizeof header);
  dyn_sweep_rings(test_log);
  check(test_count_files("ring-") == 2, "%d rings", test_count_files("ring-"));
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    check(utimensat(AT_FDCWD, path, longAgo, 0) == 0, "utimensat");
  }
  dyn_sweep_rings(test_log);
  check(test_count_files("ring-") == 0, "who was killed left %d rings", test_count_files("ring-"));
}

static int linesOfDaemon;

static void count_lines(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  (void)level, (void)flags, (void)file, (void)line;
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  linesOfDaemon += strstr(text, "daemon of") != NULL && strstr(text, directory) != NULL && strstr(text, "another PID namespace") != NULL;
}

static void join_twice(int lines, bool lives) {
  for (uint64_t id = COMM_ID; id < COMM_ID + 2; id++) {
    void *context = NULL;
    check(ncclTunerPlugin_v6.init(&context, id, 2, 1, count_lines, NULL, NULL) == 0 && context, "init");
    dyn_comm_release_tuner(context);
  }
  check(linesOfDaemon == lines && dyn_daemon_lives(test_log) == lives, "%d lines", linesOfDaemon);
}

/* A daemon of another container serves nobody here. */
static void daemon_of_another(void) {
  char text[64];
  snprintf(text, sizeof text, "4711\n%d\n%u\n", DYN_ABI_VERSION, dyn_pid_namespace());
  put_text("daemon.lock", text);
  int lock = open(path, O_RDWR);
  check(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0, "lock");
  join_twice(0, true);
  snprintf(text, sizeof text, "4711\n%d\n%u\n", DYN_ABI_VERSION, dyn_pid_namespace() + 1);
  put_text("daemon.lock", text);
  join_twice(1, false);
  unlink(path);
}

static void run(const char *name, void (*test)(void)) { test_in_child("namespace", name, test); }

int main(void) {
  directory = test_directory();
  run("ranks of two", ranks_of_two);
  run("another one's /proc", others_proc);
  run("record of another", record_of_another);
  run("left files", left_files);
  run("rings being made", rings_being_made);
  run("daemon of another", daemon_of_another);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
