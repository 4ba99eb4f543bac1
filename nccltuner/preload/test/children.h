/* SPDX-License-Identifier: Apache-2.0
 *
 * Children that a rank forks while its calls are under way, and the ways in which they end. Included behind a rig (lsa_rig.h, gin_rig.h).
 */
#ifndef DYN_CHILDREN_H
#define DYN_CHILDREN_H

#include <fcntl.h>
#include <signal.h>

enum { ENDS_AT_ONCE, EXITS, EXECS, LIVES, WAYS };
#define LIVES_MS 3000 /* peers take a process for dead within 2 s */
#define CHILD_MS ((int)in_vain_s(30) * 1000)

static pid_t children[WAYS];

/* Descriptors that a program which the process executes would have. */
static inline int inherited(void) {
  int n = 0;
  for (int fd = 3; fd < 1024; fd++) {
    int flags = fcntl(fd, F_GETFD);
    n += flags >= 0 && !(flags & FD_CLOEXEC);
  }
  return n;
}

/* within: what a child does before it ends; atExit: what its program does then. */
static void fork_child(int way, void (*within)(void), void (*atExit)(void)) {
  children[way] = fork();
  if (children[way] != 0) return;
  within();
  if (way == ENDS_AT_ONCE) _exit(0);
  if (way == EXECS) execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
  CHECK(way != EXECS && atexit(atExit) == 0);
  if (way == LIVES) usleep(LIVES_MS * 1000);
  exit(0);
}

/* True: all are over, and each ended as it should. */
static bool children_ended(void) {
  bool all = true;
  for (int way = 0; way < WAYS; way++) {
    int status = 0;
    if (children[way] == 0) continue;
    pid_t ended = waitpid(children[way], &status, WNOHANG);
    CHECK(ended >= 0 && status == 0, "child of way %d: status %x", way, status);
    if (ended > 0) children[way] = 0;
    else all = false;
  }
  return all;
}

static void end_children(int waitedMs) {
  for (int way = 0; way < WAYS && waitedMs > CHILD_MS; way++) {
    if (children[way] == 0) continue;
    kill(children[way], SIGKILL);
    CHECK(false, "the child of way %d hangs", way);
  }
}

#endif
