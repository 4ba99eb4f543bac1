/* SPDX-License-Identifier: Apache-2.0
 *
 * Where no daemon lives one line says why the program runs plain NCCL; the daemon's lock is what tells. Every case is its
 * own process, for a process says it once.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xbadull

static const char *directory;
static int daemonLines;

static void count_lines(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  char text[2048];
  va_list args;
  (void)file, (void)line;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (!strstr(text, "no daemon in")) return;
  daemonLines++;
  check(level == 3 && (flags & 1), "level %d, subsystems %lx: NCCL_DEBUG=INFO alone does not show it", level, flags);
  check(strstr(text, directory) && strstr(text, "plain NCCL") && strstr(text, "dynamiccld serve"), "it says '%s'", text);
}

static struct dyn_comm *join_and_count(uint64_t id) {
  void *context = NULL;
  check(ncclTunerPlugin_v6.init(&context, id, 1, 1, count_lines, NULL, NULL) == 0 && context, "init");
  check(((struct dyn_comm *)context)->record, "not joined");
  return context;
}

static void no_daemon(void) {
  struct dyn_comm *first = join_and_count(COMM_ID), *second = join_and_count(COMM_ID + 1);
  check(daemonLines == 1, "%d lines from two communicators", daemonLines);
  for (int i = 0; i < 100000; i++) check(test_call(second, 4, 4096, 0) == 0, "call %d is not NCCL's own", i);
  dyn_comm_release_tuner(first);
  dyn_comm_release_tuner(second);
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 1, "%d lines in one process", daemonLines);
}

static int hold_daemon_lock(char name[1024]) {
  snprintf(name, 1024, "%s/daemon.lock", directory);
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  check(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0, "%s", name);
  return fd;
}

static void a_daemon(void) {
  char name[1024];
  int fd = hold_daemon_lock(name);
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 0, "a daemon lives and its absence is said");
  close(fd); /* it ends, its lock file stays */
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 1, "%d lines after its end", daemonLines);
  unlink(name);
}

/* A stopped daemon answers nobody, and its lock tells all the same, at once. */
static void stopped_daemon(void) {
  char name[1024];
  int ready[2], status;
  check(pipe(ready) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    hold_daemon_lock(name);
    check(write(ready[1], "x", 1) == 1, "write");
    raise(SIGSTOP);
    _exit(0);
  }
  snprintf(name, sizeof name, "%s/daemon.lock", directory);
  check(read(ready[0], &status, 1) == 1 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stop");
  struct timespec began, ended;
  clock_gettime(CLOCK_MONOTONIC, &began);
  struct dyn_comm *comm = join_and_count(COMM_ID);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  check(daemonLines == 0, "it is stopped and its absence is said");
  check(ended.tv_sec - began.tv_sec < 2, "joining took %ld s", (long)(ended.tv_sec - began.tv_sec));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  dyn_comm_release_tuner(comm);
  unlink(name);
}

/* Nothing that stands under the lock's name holds a rank up. */
static void pipe_for_lock(void) {
  char name[1024];
  snprintf(name, sizeof name, "%s/daemon.lock", directory);
  check(mkfifo(name, 0600) == 0, "mkfifo");
  alarm(5);
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 1, "%d lines", daemonLines);
  unlink(name);
}

/* The user's own choice, and a plan that a daemon left, are no plain NCCL for want of a daemon. */
static void other_reasons(void) {
  void *first = NULL, *second = NULL;
  char name[1024];
  setenv("NCCL_ALGO", "Ring", 1);
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  unsetenv("NCCL_ALGO");
  int fd = hold_daemon_lock(name);
  check(ncclTunerPlugin_v6.init(&first, COMM_ID, 2, 1, count_lines, NULL, NULL) == 0, "init");
  ((struct dyn_comm *)first)->record->newest = 1 << 8 | 1;
  close(fd);
  check(ncclTunerPlugin_v6.init(&second, COMM_ID, 2, 1, count_lines, NULL, NULL) == 0, "init");
  check(((struct dyn_comm *)second)->record, "not joined");
  check(daemonLines == 0, "%d lines", daemonLines);
  dyn_comm_release_tuner(first);
  dyn_comm_release_tuner(second);
  unlink(name);
}

static void run(const char *name, void (*test)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    test();
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && status == 0, "%s: status %x", name, status);
  printf("{\"daemon\":\"%s\"}\n", name);
}

int main(void) {
  directory = test_directory();
  run("none", no_daemon);
  run("one", a_daemon);
  run("stopped", stopped_daemon);
  run("pipe for lock", pipe_for_lock);
  run("other reasons", other_reasons);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
