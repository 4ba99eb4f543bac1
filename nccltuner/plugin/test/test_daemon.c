/* SPDX-License-Identifier: Apache-2.0
 *
 * Where no daemon lives one line says why the program runs plain NCCL; the daemon's lock is what tells. Every case is its
 * own process, for a process says it once.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xbadull

static const char *directory;
static int daemonLines, layoutLines;
static char wantedLayout[64] = "nothing is wanted yet";

static void count_lines(int level, unsigned long flags, const char *file, int line, const char *fmt, ...) {
  char text[2048];
  va_list args;
  (void)file, (void)line;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (strstr(text, "layout")) {
    layoutLines++;
    check(level == 2 && strstr(text, directory) && strstr(text, wantedLayout) && strstr(text, "plain NCCL") && strstr(text, "restart the daemon"),
          "level %d, it says '%s'", level, text);
  }
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

/* Processes that are killed leave their rings. Where no daemon lives the next process removes them, and nothing else. */
static void left_rings(void) {
  static const char *const left[] = {"ring-999999999-7.shm", "ring-1-7.shm", "ring-999999999-7.shm.old", "ring-x-7.shm", "comm-0000000000000007.shm"};
  char name[1024], own[1024];
  snprintf(own, sizeof own, "%s/ring-%u-%llu.shm", directory, (unsigned)getppid(), (unsigned long long)dyn_process_start((uint32_t)getppid()));
  int lock = hold_daemon_lock(name);
  for (int lives = 1; lives >= 0; lives--) {
    for (int i = 0; i < 6; i++) {
      char path[1024];
      snprintf(path, sizeof path, i < 5 ? "%s/%s" : "%.0s%s", directory, i < 5 ? left[i] : own);
      int fd = open(path, O_RDWR | O_CREAT, 0600);
      check(fd >= 0 && futimens(fd, (struct timespec[2]){{0}}) == 0, "%s", path); /* nobody is making it */
      close(fd);
    }
    if (!lives) close(lock);
    dyn_process_ref();
    check(dyn_process_get(test_log)->ring, "no ring");
    check(test_count_files("ring-") == (lives ? 6 : 4) && test_count_files("comm-") == 1, "%d rings are there", test_count_files("ring-"));
    check(access(own, F_OK) == 0, "a live process's is gone");
    dyn_process_unref();
  }
  unlink(name);
  test_remove_directory();
  check(mkdir(directory, 0700) == 0, "%s", directory);
}

static pid_t rank_of_its_own(uint64_t id, bool killed) {
  int joined[2];
  char byte = 0;
  check(pipe(joined) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a check that fails must not leave it behind */
    join_and_count(id);
    check(write(joined[1], &byte, 1) == 1, "write");
    pause();
  }
  check(read(joined[0], &byte, 1) == 1, "the rank did not join");
  close(joined[0]), close(joined[1]);
  if (killed) check(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child, "kill");
  return child;
}

/* Ranks that are killed leave their records. Where no daemon lives the next program removes them, and nothing else. */
static void left_records(void) {
  static const char *const others[] = {"comm-0000000000000007.shm.old", "comm-x.shm", "comm-0000000000000008.shm"};
  char name[1024], path[1024];
  void *context = NULL;
  int lock = hold_daemon_lock(name);
  pid_t lives = rank_of_its_own(COMM_ID, false);
  rank_of_its_own(COMM_ID + 1, true);
  rank_of_its_own(COMM_ID + 2, true);
  for (int i = 0; i < 3; i++) { /* the last one is of another layout */
    snprintf(path, sizeof path, "%s/%s", directory, others[i]);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    struct dyn_header header = {.magic = DYN_RECORD_MAGIC, .version = DYN_ABI_VERSION + 1};
    check(fd >= 0 && write(fd, &header, sizeof header) == sizeof header, "%s", path);
    close(fd);
  }
  for (int daemon = 1; daemon >= 0; daemon--) {
    if (!daemon) flock(lock, LOCK_UN), close(lock); /* a child has it, too */
    pid_t next = fork(); /* a process looks once */
    if (next == 0) {
      check(ncclTunerPlugin_v6.init(&context, COMM_ID + 3, 1, 1, test_log, NULL, NULL) == 0, "init");
      check(test_count_files("comm-") == (daemon ? 7 : 5), "%d records are there, daemon %d", test_count_files("comm-"), daemon);
      test_record_path(COMM_ID, path, sizeof path);
      check(access(path, F_OK) == 0, "the record of a rank that lives is gone");
      dyn_comm_release_tuner(context);
      exit(0);
    }
    int status;
    check(waitpid(next, &status, 0) == next && status == 0, "status %x", status);
  }
  check(kill(lives, SIGKILL) == 0 && waitpid(lives, NULL, 0) == lives, "kill");
  unlink(name);
  test_remove_directory();
  check(mkdir(directory, 0700) == 0, "%s", directory);
}

/* One of another release lives: that is said, once, with both layouts and the remedy. What only resembles that is not said. */
static void another_release(int layout) {
  char name[1024], text[64];
  int fd = hold_daemon_lock(name);
  const char *same[] = {"", "4711", "4711\n", "nonsense", "4711\nnonsense\n", "4711\n0\n"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    check(ftruncate(fd, 0) == 0 && pwrite(fd, same[i], strlen(same[i]), 0) == (ssize_t)strlen(same[i]), "write");
    dyn_comm_release_tuner(join_and_count(COMM_ID));
  }
  snprintf(text, sizeof text, "4711\n%d\n", DYN_ABI_VERSION);
  check(pwrite(fd, text, strlen(text), 0) > 0, "write");
  dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 0 && layoutLines == 0, "%d lines of no daemon, %d of another layout", daemonLines, layoutLines);
  snprintf(text, sizeof text, "4711\n%d\n", layout);
  snprintf(wantedLayout, sizeof wantedLayout, "layout %d and this library %d", layout, DYN_ABI_VERSION);
  check(ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) > 0, "write");
  for (int i = 0; i < 3; i++) dyn_comm_release_tuner(join_and_count(COMM_ID));
  check(daemonLines == 0 && layoutLines == 1, "%d lines of no daemon, %d of another layout", daemonLines, layoutLines);
  close(fd);
  unlink(name);
}

static void older_release(void) { another_release(DYN_ABI_VERSION - 1); }
static void newer_release(void) { another_release(DYN_ABI_VERSION + 1); }

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
  long ms = (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000;
  check(ms < DYN_JOIN_WAIT_MS - 50, "joining took %ld ms", ms);
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
  alarm(60);
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

static void *answer_soon(void *record) {
  usleep(5000);
  __atomic_store_n(&((struct dyn_record *)record)->answered, DYN_ANSWERED_RANKS, __ATOMIC_RELEASE);
  return NULL;
}

/* ms of a wait for the daemon's first plan, rounded down. */
static int waits(struct dyn_comm *comm) {
  struct timespec began, ended;
  clock_gettime(CLOCK_MONOTONIC, &began);
  dyn_answer_wait(comm);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return (int)((ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000);
}

static void at_once(struct dyn_comm *comm, const char *what) {
  int ms = 20;
  for (int i = 0; i < 5 && ms >= 20; i++) ms = waits(comm); /* the machine may have others to run */
  check(ms < 20, "%s: waited %d ms", what, ms);
}

static void in_vain(struct dyn_comm *comm, const char *what) {
  int ms = waits(comm);
  check(ms >= 20, "%s: waited %d ms", what, ms);
}

/* Before a program has a communicator its ranks wait for the daemon's first plan: not long, and only where one can come. */
static void first_plan(void) {
  char name[1024];
  pthread_t thread;
  struct dyn_comm *comm = join_and_count(COMM_ID);
  struct dyn_record *record = comm->record;
  at_once(comm, "no daemon");
  int fd = hold_daemon_lock(name);
  int ms = 0;
  for (int i = 0; i < 20 && ms < 3; i++) { /* on a busy machine the answer may be there before the wait begins */
    record->answered = 0;
    check(pthread_create(&thread, NULL, answer_soon, record) == 0, "thread");
    ms = waits(comm);
    pthread_join(thread, NULL);
  }
  check(ms >= 3 && record->answered == DYN_ANSWERED_RANKS, "answered after 5 ms, waited %d", ms);
  at_once(comm, "answered");
  comm->bound = 1; /* our kernels can be run: a plan that knows nothing of them is not enough */
  comm->allBind = true;
  at_once(comm, "this rank has not bound, so it is not the last one");
  comm->self->memoryState = DYN_MEMORY_BOUND;
  in_vain(comm, "answered, but not of kernels");
  at_once(comm, "a wait was in vain");
  record->answered = DYN_ANSWERED_KERNELS;
  at_once(comm, "answered of kernels");
  record->answered = 0;
  in_vain(comm, "answered again since the wait in vain");
  record->answered = DYN_ANSWERED_KERNELS;
  at_once(comm, "answered of kernels again");
  record->answered = 0;
  comm->allBind = false;
  at_once(comm, "a rank binds with its first call");
  comm->allBind = true;
  record->veto = 1;
  at_once(comm, "the user's choice");
  record->veto = 0;
  record->joined = 0;
  at_once(comm, "not all have joined");
  record->joined = 1;
  in_vain(comm, "and none of these were answers");
  close(fd);
  dyn_comm_release_tuner(comm);
  unlink(name);
}

static void run(const char *name, void (*test)(void)) { test_in_child("daemon", name, test); }

int main(void) {
  directory = test_directory();
  run("none", no_daemon);
  run("one", a_daemon);
  run("left rings", left_rings);
  run("left records", left_records);
  run("older release", older_release);
  run("newer release", newer_release);
  run("stopped", stopped_daemon);
  run("pipe for lock", pipe_for_lock);
  run("other reasons", other_reasons);
  run("first plan", first_plan);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
