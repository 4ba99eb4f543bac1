/* SPDX-License-Identifier: Apache-2.0 */
#include "left.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEPT_RECORDS 1000

/* Nobody who joined it lives. Its creator may have died before its magic, as in inspect_header; no other file is judged. */
static bool is_left(int fd) {
  struct stat st;
  struct dyn_record head = {0};
  ssize_t got = pread(fd, &head, offsetof(struct dyn_record, veto), 0);
  if (got < (ssize_t)sizeof head.header || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) return false;
  if (head.header.magic == 0) return true;
  if (head.header.magic != DYN_RECORD_MAGIC || head.header.version != DYN_ABI_VERSION || dyn_is_elsewhere(head.header.pidNamespace) || head.joined > DYN_MAX_RANKS) return false;
  for (uint32_t i = 0; i < head.joined; i++) {
    struct dyn_rank rank;
    if (pread(fd, &rank, sizeof rank, (off_t)(sizeof head + i * sizeof rank)) != sizeof rank || !dyn_is_over(&rank)) return false;
  }
  return true;
}

void dyn_sweep_records(const char *directory, dyn_logger log) {
  static bool swept;
  DIR *dir = swept || dyn_daemon_lives(log) ? NULL : opendir(directory);
  swept = true;
  int looked = 0;
  for (struct dirent *entry; dir && looked < SWEPT_RECORDS && (entry = readdir(dir));) {
    uint64_t commId;
    int end = 0;
    if (sscanf(entry->d_name, "comm-%16" SCNx64 ".shm%n", &commId, &end) != 1 || end == 0 || entry->d_name[end] != '\0') continue;
    int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (is_left(fd)) unlinkat(dirfd(dir), entry->d_name, 0);
    close(fd);
    looked++;
  }
  if (dir) closedir(dir);
}
