/* SPDX-License-Identifier: Apache-2.0
 *
 *   test_why LIBRARY
 * What a user sees on standard error of a process that runs plain NCCL, with NCCL_DEBUG not set and set: one line that says why, or none. Every case is
 * a process of its own, for a process says one line.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define COMM_ID 0xbadull

extern const struct dyn_nccl_tuner_v2 ncclTunerPlugin_v2;
extern const struct dyn_nccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct dyn_nccl_tuner_v4 ncclTunerPlugin_v4;

static const char *directory, *library;
static int saved, captured;

static void capture(void) {
  fflush(stderr);
  saved = dup(2);
  captured = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  check(saved >= 0 && captured >= 0 && dup2(captured, 2) == 2, "capture");
}

/* So many lines, the first of which has the text. */
static void said(int lines, const char *text) {
  char all[8192] = "";
  int found = 0;
  check(dup2(saved, 2) == 2, "dup2");
  check(pread(captured, all, sizeof all - 1, 0) >= 0, "read");
  for (char *at = all; (at = strchr(at, '\n')); at++) found++;
  check(found == lines, "%d lines, want %d: %s", found, lines, all);
  check(lines == 0 || (strncmp(all, "dynamiccl: ", 11) == 0 && strstr(all, text)), "no '%s' in: %s", text, all);
}

static void *join_with(uint64_t id, size_t nRanks, int rank, dyn_logger log) {
  void *context = NULL;
  if (rank >= 0) dyn_comm_open(id, (int)nRanks, 1, rank, log);
  check(ncclTunerPlugin_v6.init(&context, id, nRanks, 1, log, NULL, NULL) == 0 && context, "init");
  return context;
}
static void *join(uint64_t id, size_t nRanks, int rank) { return join_with(id, nRanks, rank, test_log); }

/* Three communicators, one behind the other, and calls. */
static void live(void) {
  capture();
  for (uint64_t i = 0; i < 3; i++) {
    struct dyn_comm *comm = join(COMM_ID + i, 1, -1);
    for (int c = 0; c < 1000; c++) test_call(comm, 4, 4096, 0);
    dyn_comm_release_tuner(comm);
  }
}

static void no_daemon(void) { live(), said(1, "running plain NCCL until one comes; start it with `dynamiccld serve`, or the program with `dynamiccld run`"); }
static void log_shows(void) { setenv("NCCL_DEBUG", "INFO", 1), live(), said(0, ""); }
static void log_warns(void) { setenv("NCCL_DEBUG", "warn", 1), live(), said(1, "no daemon in"); }
static void log_filtered(void) { setenv("NCCL_DEBUG", "INFO", 1), setenv("NCCL_DEBUG_SUBSYS", "NET", 1), live(), said(1, "no daemon in"); }
static void version_only(void) { setenv("NCCL_DEBUG", "VERSION", 1), live(), said(1, "no daemon in"); }
static void quiet(void) { setenv("DYNAMICCL_QUIET", "1", 1), live(), said(0, ""); }
static void not_quiet(void) { setenv("DYNAMICCL_QUIET", "0", 1), live(), said(1, "no daemon in"); }
/* Who measures tells its ranks what to run. */
static void forced(void) { setenv("DYNAMICCL_FORCED", "1", 1), live(), said(0, ""); }
/* The run's daemon may be on another host. */
static void under_run(void) { setenv("DYNAMICCL_RUN", "7", 1), live(), said(1, "no daemon in"); }

static void user(void) { setenv("NCCL_ALGO", "Ring", 1), live(), said(1, "NCCL_ALGO=Ring is set: it is respected"); }
static void user_proto(void) { setenv("NCCL_PROTO", "LL", 1), live(), said(1, "NCCL_PROTO=LL is set: it is respected"); }
static void user_warned(void) { setenv("NCCL_ALGO", "Ring", 1), setenv("NCCL_DEBUG", "WARN", 1), live(), said(0, ""); }
static void user_under_run(void) { setenv("NCCL_ALGO", "Ring", 1), setenv("DYNAMICCL_RUN", "7", 1), live(), said(0, ""); }

static int daemon_of(int layout) {
  char name[1024], text[64];
  snprintf(name, sizeof name, "%s/daemon.lock", directory);
  snprintf(text, sizeof text, "4711\n%d\n", layout);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  check(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && write(fd, text, strlen(text)) > 0, "%s", name);
  return fd;
}
static void a_daemon(void) { daemon_of(DYN_ABI_VERSION), live(), said(0, ""); }
static void other_layout(void) { daemon_of(DYN_ABI_VERSION + 1), live(), said(1, "restart the daemon from the release of this library"); }
static void other_layout_under_run(void) { setenv("DYNAMICCL_RUN", "7", 1), daemon_of(DYN_ABI_VERSION + 1), live(), said(0, ""); }

static void relative(void) { setenv("DYNAMICCL_DIR", "run", 1), live(), said(1, "directory 'run' is not absolute"); }
static void cannot_make(void) { setenv("DYNAMICCL_DIR", "/proc/none", 1), live(), said(1, "cannot create the directory /proc/none"); }
static void file_limit(void) {
  check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY}) == 0, "setrlimit");
  live();
  said(1, "File too large: running plain NCCL; raise the limit on the size of files (ulimit -f)");
}
static void of_a_rank(int rank, int lines) {
  setenv("DYNAMICCL_DIR", "/proc/none", 1);
  capture();
  join(COMM_ID, 2, rank);
  said(lines, "cannot create the directory /proc/none");
}
static void rank_0(void) { of_a_rank(0, 1); }
static void rank_1(void) { of_a_rank(1, 0); }

static void many_ranks(int rank, int lines) {
  capture();
  join(COMM_ID, DYN_MAX_RANKS + 1, rank);
  said(lines, "communicators of more than 64 ranks run plain NCCL (this one has 65)");
}
static void many_rank_0(void) { many_ranks(0, 1); }
static void many_rank_64(void) { many_ranks(64, 0); }

static pid_t in_process(void (*does)(int), int told) {
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a check that fails must not leave it behind */
    does(told);
    exit(0);
  }
  return child;
}

static void first_process(int told) {
  char byte = 0;
  capture();
  join(COMM_ID, 2, 1);
  said(1, "no daemon in");
  check(write(told, &byte, 1) == 1, "write");
  pause();
}
static void second_process(int told) {
  (void)told;
  capture();
  join(COMM_ID, 2, 0), join(COMM_ID + 1, 1, 0);
  said(0, "");
}

/* Ranks of one host find the same, and the first to join says it; also where the other one is first in its next communicator. */
static void two_processes(void) {
  int status, told[2];
  char byte;
  check(pipe(told) == 0, "pipe");
  pid_t first = in_process(first_process, told[1]);
  close(told[1]);
  check(read(told[0], &byte, 1) == 1, "the first did not say it");
  pid_t second = in_process(second_process, 0);
  check(waitpid(second, &status, 0) == second && status == 0, "status %x", status);
  check(kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first, "kill");
}

/* What the first rank of a process waits for when it has joined, before it looks why NCCL runs alone: flock is the library's, too. */
static void (*joined)(void);
int flock(int fd, int how) {
  void (*then)(void) = how == LOCK_UN ? joined : NULL;
  int result = (int)syscall(SYS_flock, fd, how);
  if (then) joined = NULL, then();
  return result;
}

static pthread_t second;
static sem_t finds, goesOn;
static void *second_joins(void *log) { return join_with(COMM_ID, 2, 1, (dyn_logger)log); }
static void second_begins(dyn_logger log) { check(pthread_create(&second, NULL, second_joins, (void *)log) == 0, "pthread_create"); }
static void second_is_done(void) { second_begins(test_log), pthread_join(second, NULL); }
static void while_first_tells(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)format;
  sem_post(&finds), sem_wait(&goesOn);
}
static void second_finds(void) { second_begins(while_first_tells), sem_wait(&finds); }

/* The second rank of a process finds why before the first one looks. It joins to the end meanwhile, or is held up by NCCL's log. */
static void second_is_earlier(void) {
  capture();
  joined = second_is_done;
  join(COMM_ID, 2, 0);
  said(1, "no daemon in");
}
static void second_is_held_up(void) {
  capture();
  joined = second_finds;
  join(COMM_ID, 2, 0);
  sem_post(&goesOn), pthread_join(second, NULL);
  said(1, "no daemon in");
}

static void two_reasons(void) {
  capture();
  join(COMM_ID, 1, 0), join(COMM_ID + 1, DYN_MAX_RANKS + 1, 0);
  said(1, "no daemon in");
}

/* The user of one rank decides, whichever it is. */
static void second_decides(void) {
  setenv("DYNAMICCL_QUIET", "1", 1);
  join(COMM_ID, 2, 0);
  unsetenv("DYNAMICCL_QUIET");
  setenv("NCCL_ALGO", "Tree", 1);
  capture();
  join(COMM_ID, 2, 1);
  said(1, "NCCL_ALGO=Tree is set");
}

static void old_nccl(int version) {
  void *context = NULL;
  capture();
  for (int i = 0; i < 3; i++)
    check((version == 2   ? ncclTunerPlugin_v2.init(2, 1, test_log, &context)
           : version == 3 ? ncclTunerPlugin_v3.init(2, 1, test_log, &context)
                          : ncclTunerPlugin_v4.init(2, 1, test_log, &context)) == 0, "init");
  said(1, "running plain NCCL; tuning needs NCCL 2.28, or 2.27 with DynamICCL's profiler");
}
static void tuner_2(void) { old_nccl(2); }
static void tuner_3(void) { old_nccl(3); }
static void tuner_4(void) { old_nccl(4); }

/* NCCL closes the library with its last communicator. */
static void opened_again(void) {
  capture();
  for (uint64_t i = 0; i < 3; i++) {
    void *context, *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const struct dyn_nccl_tuner_v6 *tuner = handle ? dlsym(handle, "ncclTunerPlugin_v6") : NULL;
    check(tuner && tuner->init(&context, COMM_ID + i, 1, 1, test_log, NULL, NULL) == 0 && tuner->finalize(context) == 0 && dlclose(handle) == 0, "%s", library);
  }
  said(1, "no daemon in");
}

/* A pipe that is full, and that nobody reads: the communicator is made, and who reads later finds the line. */
static void unread(void) {
  int ends[2];
  char page[4096], all[8192] = "";
  alarm(60);
  check(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, (int)sizeof page) == sizeof page && write(ends[1], memset(page, '.', sizeof page), sizeof page) == sizeof page, "pipe");
  saved = dup(2);
  check(dup2(ends[1], 2) == 2, "dup2");
  join(COMM_ID, 1, 0);
  for (size_t has = 0; has < sizeof all - 1 && !strchr(all, '\n');) {
    ssize_t n = read(ends[0], all + has, sizeof all - 1 - has);
    has += n > 0 ? (size_t)n : sizeof all;
  }
  check(dup2(saved, 2) == 2 && strstr(all, "no daemon in"), "%s", all);
}

int main(int argc, char **argv) {
  check(argc == 2, "want LIBRARY");
  library = argv[1];
#define CASE(F) {#F, F}
  static const struct { const char *name; void (*test)(void); } cases[] = {
    CASE(no_daemon), CASE(log_shows), CASE(log_warns), CASE(log_filtered), CASE(version_only), CASE(quiet), CASE(not_quiet), CASE(forced), CASE(under_run),
    CASE(user), CASE(user_proto), CASE(user_warned), CASE(user_under_run), CASE(a_daemon), CASE(other_layout), CASE(other_layout_under_run), CASE(relative),
    CASE(cannot_make), CASE(file_limit), CASE(rank_0), CASE(rank_1), CASE(many_rank_0), CASE(many_rank_64), CASE(two_processes), CASE(second_is_earlier), CASE(second_is_held_up), CASE(two_reasons), CASE(second_decides), CASE(tuner_2),
    CASE(tuner_3), CASE(tuner_4), CASE(opened_again), CASE(unread)};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    directory = test_directory();
    test_in_child("why", cases[i].name, cases[i].test);
    test_remove_directory();
  }
  return 0;
}
