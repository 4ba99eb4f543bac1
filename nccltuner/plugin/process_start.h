/* SPDX-License-Identifier: Apache-2.0
 *
 * Start time of a process: with the pid it names a process for ever, for who is in the same PID namespace, as the processes of one
 * container are. For the plugin and the device path.
 */
#ifndef DYN_PROCESS_START_H
#define DYN_PROCESS_START_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline uint64_t dyn_start_in(const char *path, uint32_t pid) {
  char text[1024];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  if (strtoul(text, NULL, 10) != pid) return 0;
  /* The name in field 2 may hold anything, also ") ": fields are counted from the last one. */
  char *at = strrchr(text, ')');
  if (!at || at[1] != ' ') return 0;
  bool zombie = at[2] == 'Z' || at[2] == 'X';
  at += 2;
  for (int field = 3; field < 22 && at; field++) {
    if (field == 20 && zombie && strtoul(at, NULL, 10) <= 1) return 0; /* none of its threads runs any more */
    at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
  }
  return at ? strtoull(at, NULL, 10) : 0;
}

/* In clock ticks since boot; 0: there is no such process, or it has ended. */
static inline uint64_t dyn_process_start(uint32_t pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  return dyn_start_in(path, pid);
}

/* Of this process. 0, too, where /proc was mounted in another PID namespace: it says of this process's pid what is true of another. */
static inline uint64_t dyn_own_start(void) { return dyn_start_in("/proc/self/stat", (uint32_t)getpid()); }

/* Of this process; no other one has the number while it lives. 0: not known. */
static inline uint32_t dyn_pid_namespace(void) {
  char text[64]; /* pid:[NUMBER] */
  ssize_t length = readlink("/proc/self/ns/pid", text, sizeof text - 1);
  if (length < 5) return 0;
  text[length] = 0;
  return (uint32_t)strtoul(text + 5, NULL, 10);
}

/* What is not known, as in files of earlier releases, is taken for this one. */
static inline bool dyn_is_elsewhere(uint32_t pidNamespace) {
  uint32_t own = dyn_pid_namespace();
  return own != 0 && pidNamespace != 0 && pidNamespace != own;
}

/* False: it has ended. One of which nothing can be known, since this process has no file descriptor left, say, has not. */
static inline bool dyn_process_lives(uint32_t pid, uint64_t startTime) {
  errno = 0;
  uint64_t start = dyn_process_start(pid);
  return start == startTime || (start == 0 && errno != 0 && errno != ENOENT && errno != ESRCH);
}

#endif
