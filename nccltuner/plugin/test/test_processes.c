/* SPDX-License-Identifier: Apache-2.0
 *
 * What else a program's processes do: they fork, have signals, and end in parts. Every case is its own process.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static const char *directory;

/* A program may fork at any moment, and its child live for months: what it inherits keeps nobody out. */
static void forked_within(void) {
  int pipes[2], own = dyn_join_lock(directory, 0);
  check(own >= 0 && pipe(pipes) == 0, "no lock");
  pid_t child = fork();
  if (child == 0) _exit(close(pipes[1]) == 0 && read(pipes[0], &own, 1) == 0 ? 0 : 1);
  dyn_join_unlock(own);
  own = dyn_join_lock(directory, 0);
  close(pipes[1]);
  int status;
  check(waitpid(child, &status, 0) == child && status == 0, "the child");
  check(own >= 0, "a child that was forked while the lock was held has it");
  dyn_join_unlock(own);
}

/* A program that has signals all the time (a profiler, a timer) gets its files as well. Kernels that let a signal end the
 * reservation of a tmpfs's space give all of it back: it is played here, since not all do. */
static bool signals;
int posix_fallocate(int fd, off_t offset, off_t length) {
  static unsigned calls;
  if (signals && (length > 1 << 20 || calls++ % 2 == 0)) return EINTR;
  return fallocate(fd, 0, offset, length) == 0 ? 0 : errno;
}
static void interrupted(void) {
  signals = true;
  dyn_process_ref();
  check(dyn_process_get(test_log)->ring, "no ring: %s", test_last_message());
  void *context = NULL;
  check(ncclTunerPlugin_v6.init(&context, 7, 2, 1, test_log, NULL, NULL) == 0 && ((struct dyn_comm *)context)->record, "not joined: %s", test_last_message());
  dyn_comm_release_tuner(context);
  dyn_process_unref();
}

/* A process whose first thread has ended is a zombie to look at, and lives as long as others of its threads do. */
static void *linger(void *pipes) {
  char byte;
  if (read(((int *)pipes)[0], &byte, 1) != 0) _exit(1);
  _exit(0);
}
static void first_thread_ends(void) {
  int pipes[2], status;
  check(pipe(pipes) == 0, "no pipe");
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    close(pipes[1]);
    if (pthread_create(&thread, NULL, linger, pipes) != 0) _exit(1);
    pthread_exit(NULL);
  }
  uint64_t start = dyn_process_start((uint32_t)child);
  usleep(100000);
  check(start != 0 && dyn_process_lives((uint32_t)child, start), "its thread lives");
  close(pipes[1]);
  for (int i = 0; i < 2000 && dyn_process_lives((uint32_t)child, start); i++) usleep(10000);
  check(!dyn_process_lives((uint32_t)child, start), "it is a zombie");
  check(waitpid(child, &status, 0) == child && status == 0 && !dyn_process_lives((uint32_t)child, start), "it is gone");
}

static void run(const char *name, void (*test)(void)) { test_in_child("processes", name, test); }

int main(void) {
  directory = test_directory();
  run("forked within", forked_within);
  run("interrupted", interrupted);
  run("first thread ends", first_thread_ends);
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files were left");
  test_remove_directory();
  return 0;
}
