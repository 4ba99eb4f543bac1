/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory in which ranks and daemon meet: which one, whether it can be trusted, its lock, and new files in it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

#define RESERVE_BYTES ((size_t)256 << 10) /* takes some 0.1 ms */
#define RESERVE_TRIES 1000
#define MAKING_S 60 /* a ring, at most */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { UNKNOWN, GOOD, REFUSED } verdict; /* under lock */
static char chosen[PATH_MAX - 64];              /* leaves room for the file names */

/* "alice (uid 1000)". Reads the local user file only: a name service may ask the network and hang. */
static const char *user_name(uid_t uid, char *out, size_t size) {
  FILE *users = fopen("/etc/passwd", "re");
  struct passwd *user = NULL;
  while (users && (user = fgetpwent(users)) && user->pw_uid != uid) {
  }
  snprintf(out, size, "%s%suid %u%s", user ? user->pw_name : "", user ? " (" : "", uid, user ? ")" : "");
  if (users) fclose(users);
  return out;
}

/* A folder in which this user may make something. srun and su hand XDG_RUNTIME_DIR on to where nobody has logged in, and where it
 * is another user's; a relative one is to be passed over by its specification. The daemon has the same rule (nccltuner/dir.go). */
static bool takes_files(const char *folder) {
  char path[PATH_MAX];
  return folder && *folder == '/' && (size_t)snprintf(path, sizeof path, "%s/.", folder) < sizeof path &&
         faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0;
}

static bool choose(dyn_logger log) {
  const char *set = secure_getenv("DYNAMICCL_DIR"), *runtime = secure_getenv("XDG_RUNTIME_DIR");
  int length;
  if (set && *set) {
    length = snprintf(chosen, sizeof chosen, "%s", set);
  } else if (geteuid() == 0) {
    length = snprintf(chosen, sizeof chosen, "/run/dynamiccl");
  } else if (takes_files(runtime)) {
    length = snprintf(chosen, sizeof chosen, "%s/dynamiccl", runtime);
  } else {
    length = snprintf(chosen, sizeof chosen, "/tmp/dynamiccl-%u", geteuid());
  }
  if ((size_t)length >= sizeof chosen || chosen[0] != '/') {
    dyn_say_why(log, DYN_LOG_WARN, "directory '%.200s' is %s: running plain NCCL; set DYNAMICCL_DIR to a short absolute "
            "path", chosen, chosen[0] == '/' ? "too long" : "not absolute, so ranks could differ about it");
    return false;
  }
  return true;
}

/* Memory of a network file system is not shared between hosts, but its names are: ranks would meet and disagree.
 * Numbers: linux/magic.h, and statfs(2) for those that are not in it. */
static bool is_network_filesystem(const char *path) {
  static const uint32_t magics[] = {0x6969 /* NFS */, 0x517b /* SMB */, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */,
                                    0x0bd00bd0 /* Lustre */, 0x47504653 /* GPFS */, 0x00c36400 /* Ceph */,
                                    0x5346414f /* AFS */, 0x65735546 /* FUSE */, 0x19830326 /* BeeGFS */};
  struct statfs fs;
  if (statfs(path, &fs) != 0) return false;
  for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
    if ((uint32_t)fs.f_type == magics[i]) return true;
  return false;
}

static bool check(dyn_logger log) {
  char owner[96], user[96];
  struct stat st;
  user_name(geteuid(), user, sizeof user);
  if (mkdir(chosen, 0700) != 0 && errno != EEXIST) {
    dyn_say_why(log, DYN_LOG_WARN, "%s cannot create the directory %s: %s: running plain NCCL; create it (mode 0700, owned "
            "by %s) or set DYNAMICCL_DIR", user, chosen, strerror(errno), user);
    return false;
  }
  if (lstat(chosen, &st) != 0) {
    dyn_say_why(log, DYN_LOG_WARN, "%s cannot look at %s: %s: running plain NCCL; set DYNAMICCL_DIR", user, chosen,
            strerror(errno));
    return false;
  }
  if (!S_ISDIR(st.st_mode)) {
    dyn_say_why(log, DYN_LOG_WARN, "%s is a %s and not a directory: %s runs plain NCCL; set DYNAMICCL_DIR to the directory "
            "itself", chosen, S_ISLNK(st.st_mode) ? "symbolic link" : "file", user);
    return false;
  }
  if (st.st_uid != geteuid()) {
    dyn_say_why(log, DYN_LOG_WARN, "%s belongs to %s but this rank runs as %s: running plain NCCL; run ranks and "
            "dynamiccld as one user, or give this user its own DYNAMICCL_DIR", chosen,
            user_name(st.st_uid, owner, sizeof owner), user);
    return false;
  }
  if (st.st_mode & 077) {
    dyn_say_why(log, DYN_LOG_WARN, "%s is open to other users (mode %04o): %s runs plain NCCL; set DYNAMICCL_DIR to a "
            "directory that nothing else uses, or, if this is it, run: chmod 700 %s", chosen, st.st_mode & 07777, user, chosen);
    return false;
  }
  if (is_network_filesystem(chosen)) {
    dyn_say_why(log, DYN_LOG_WARN, "%s lies on a network file system, where memory is not shared: %s runs plain NCCL; set "
            "DYNAMICCL_DIR to a local directory, best a tmpfs", chosen, user);
    return false;
  }
  return true;
}

const char *dyn_directory(dyn_logger log) {
  pthread_mutex_lock(&lock);
  if (verdict == UNKNOWN) verdict = choose(log) && check(log) ? GOOD : REFUSED;
  const char *directory = verdict == GOOD ? chosen : NULL;
  pthread_mutex_unlock(&lock);
  return directory;
}

void dyn_directory_forget(void) {
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  verdict = UNKNOWN;
}

int dyn_join_lock(const char *directory, int waitMs) {
  char path[PATH_MAX];
  struct timespec start, now, nap = {.tv_nsec = 1000 * 1000};
  snprintf(path, sizeof path, "%s/join.lock", directory);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t waitedMs = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
    if ((errno != EWOULDBLOCK && errno != EINTR) || waitedMs >= waitMs) {
      int why = errno == EINTR ? EWOULDBLOCK : errno;
      close(fd);
      errno = why;
      return -1;
    }
    nanosleep(&nap, NULL);
  }
  return fd;
}

/* By word, and not by closing alone: the child of a fork has the same lock for as long as it has the descriptor. */
static void unlock(int fd) {
  flock(fd, LOCK_UN);
  close(fd);
}

void dyn_join_unlock(int fd) { unlock(fd); }

int dyn_daemon_layout(dyn_logger log) {
  const char *directory = dyn_directory(log);
  char path[PATH_MAX], text[64] = "";
  if (!directory) return DYN_DAEMON_NONE;
  snprintf(path, sizeof path, "%s/daemon.lock", directory);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* a pipe of that name must not hold us up */
  if (fd < 0) return DYN_DAEMON_NONE;
  /* The kernel answers for a daemon that is stopped, too. One that starts in this moment tries again (Dir.Lock). */
  bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  int layout = 0; /* behind the process id, and the PID namespace behind it; daemons of early releases wrote less */
  uint32_t pidNamespace = 0;
  if (held && pread(fd, text, sizeof text - 1, 0) > 0) sscanf(text, "%*d %d %" SCNu32, &layout, &pidNamespace);
  unlock(fd); /* if it was free */
  return !held ? DYN_DAEMON_NONE : dyn_is_elsewhere(pidNamespace) ? DYN_DAEMON_ELSEWHERE : layout;
}

bool dyn_daemon_lives(dyn_logger log) { return dyn_daemon_layout(log) >= 0; }

/* Whether the process of a ring may be in another PID namespace, where nobody here knows whether it lives. One that is being made does not say
 * yet: only one that is left so for a while was left by a process that was killed. */
static bool may_be_elsewhere(int dir, const char *name) {
  struct dyn_header header = {0};
  struct stat st = {0};
  int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool says = pread(fd, &header, sizeof header, 0) == sizeof header && (header.magic != 0 || header.pidNamespace != 0);
  bool young = fstat(fd, &st) == 0 && time(NULL) - st.st_mtime < MAKING_S;
  close(fd);
  return says ? dyn_is_elsewhere(header.pidNamespace) : young;
}

/* A process that is killed leaves its ring, of some MiB, for the daemon to delete. */
void dyn_sweep_rings(dyn_logger log) {
  const char *directory = dyn_directory(log);
  DIR *dir = !directory || dyn_daemon_lives(log) ? NULL : opendir(directory);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    uint32_t pid;
    uint64_t startTime;
    int end = 0;
    if (sscanf(entry->d_name, "ring-%" SCNu32 "-%" SCNu64 ".shm%n", &pid, &startTime, &end) != 2 || end == 0 || entry->d_name[end] != '\0') continue;
    if (!dyn_process_lives(pid, startTime) && !may_be_elsewhere(dirfd(dir), entry->d_name)) unlinkat(dirfd(dir), entry->d_name, 0);
  }
  if (dir) closedir(dir);
}

/* In pieces, each anew where a signal ends it: of a program that has many, one for all would never come to its end. */
static int reserve(int fd, size_t bytes) {
  for (size_t at = 0, tries = 0; at < bytes;) {
    size_t piece = bytes - at < RESERVE_BYTES ? bytes - at : RESERVE_BYTES;
    int error = posix_fallocate(fd, (off_t)at, (off_t)piece);
    if (error != 0 && (error != EINTR || ++tries == RESERVE_TRIES)) return error;
    if (error == 0) at += piece;
  }
  return 0;
}

int dyn_create_file(const char *path, size_t bytes) {
  struct rlimit limit;
  /* Beyond this limit the kernel sends SIGXFSZ, which ends a process that does not expect it. */
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return -1;
  }
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  int error = reserve(fd, bytes);
  if (error == 0) return fd;
  close(fd);
  unlink(path);
  errno = error;
  return -1;
}

const char *dyn_create_remedy(int error) {
  switch (error) {
    case EFBIG: return "raise the limit on the size of files (ulimit -f)";
    case EMFILE: return "raise the limit on open files (ulimit -n)";
  }
  return "make room there or set DYNAMICCL_DIR";
}
