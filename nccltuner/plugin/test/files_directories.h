/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of test_files.c: directories in which a rank makes no files, and those that have no room for them.
 */
#ifndef DYN_TEST_FILES_DIRECTORIES_H
#define DYN_TEST_FILES_DIRECTORIES_H

/* ---- directories ---- */

static void foreign_directory(void) {
  if (geteuid() == 0) {
    check(chown(directory, NOBODY, NOBODY) == 0, "chown");
  } else {
    setenv("DYNAMICCL_DIR", "/usr", 1);
  }
  expect_plain(geteuid() == 0 ? "uid 65534" : "uid 0", "one user");
  check(geteuid() != 0 || chown(directory, 0, 0) == 0, "chown back");
}

static void other_user(void) {
  if (geteuid() == 0) check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "setuid");
  if (strcmp(getenv("DYNAMICCL_DIR"), directory) == 0 && geteuid() != NOBODY) setenv("DYNAMICCL_DIR", "/usr", 1);
  expect_plain("belongs to", "DYNAMICCL_DIR");
}

static void linked_directory(void) {
  char link[600];
  snprintf(link, sizeof link, "%s-link", directory);
  check(symlink(directory, link) == 0, "symlink");
  setenv("DYNAMICCL_DIR", link, 1);
  expect_plain("symbolic link", "DYNAMICCL_DIR");
  unlink(link);
}

static void open_directory(void) {
  check(chmod(directory, 0755) == 0, "chmod");
  expect_plain("0755", "that nothing else uses, or, if this is it, run: chmod 700");
  check(chmod(directory, 0700) == 0, "chmod");
}

static void relative_directory(void) {
  setenv("DYNAMICCL_DIR", "run/dynamiccl", 1);
  expect_plain("not absolute", "absolute path");
}

static void expect_directory(const char *runtime, const char *want) {
  setenv("XDG_RUNTIME_DIR", runtime, 1);
  dyn_directory_forget();
  const char *is = dyn_directory(test_log);
  check(is && strcmp(is, want) == 0, "with XDG_RUNTIME_DIR=%s: %s, %s wanted; %s", runtime, is ? is : "none", want, test_last_message());
  check(rmdir(want) == 0 || errno == ENOTEMPTY, "rmdir %s", want); /* somebody's daemon may be there */
}

/* A runtime directory in which this user can make nothing is passed over, and so does the daemon (TestDirPath). */
static void runtime_directory(void) {
  char runtime[600], inside[700], other[64];
  snprintf(runtime, sizeof runtime, "/tmp%s-runtime", strrchr(directory, '/')); /* where anybody may make and remove */
  snprintf(inside, sizeof inside, "%s/dynamiccl", runtime);
  check(mkdir(runtime, 0700) == 0 && (geteuid() != 0 || chown(runtime, NOBODY, NOBODY) == 0), "%s", runtime);
  if (geteuid() == 0) check(setgid(NOBODY) == 0 && setuid(NOBODY) == 0, "setuid");
  snprintf(other, sizeof other, "/tmp/dynamiccl-%u", geteuid());
  unsetenv("DYNAMICCL_DIR");
  expect_directory(runtime, inside);
  expect_directory("", other);
  expect_directory(".", other);
  check(chmod(runtime, 0500) == 0, "chmod");
  expect_directory(runtime, other);
  check(rmdir(runtime) == 0, "rmdir %s", runtime);
  expect_directory(runtime, other); /* nobody has logged in */
}

static void missing_parent(void) {
  setenv("DYNAMICCL_DIR", "/nowhere/at/all", 1);
  expect_plain("No such file", "create it");
}

static void long_directory(void) {
  char name[8000];
  memset(name, 'x', sizeof name);
  name[0] = '/';
  name[sizeof name - 1] = 0;
  setenv("DYNAMICCL_DIR", name, 1);
  expect_plain("too long", "short");
}

static void made_directory(void) {
  char made[600];
  struct stat st;
  snprintf(made, sizeof made, "%s/made", directory);
  setenv("DYNAMICCL_DIR", made, 1);
  struct dyn_comm *comm = join(COMM_ID, 2);
  check(comm->record, "not joined: %s", test_last_message());
  check(stat(made, &st) == 0 && (st.st_mode & 07777) == 0700, "mode %o", st.st_mode);
  dyn_comm_release_tuner(comm);
  snprintf(path, sizeof path, "%s/join.lock", made);
  check(unlink(path) == 0 && rmdir(made) == 0, "%s holds more than its lock", made);
}

/* ---- space ---- */

static void no_space(void) {
  struct rlimit limit = {16384, 16384};
  check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  expect_plain("File too large", "ulimit -f");
  check(dyn_process_get(test_log)->ring == NULL, "a ring without space");
  check(strstr(test_last_message(), "no samples"), "message is '%s'", test_last_message());
}

/* Root can have a real full file system. */
static void full_disk(void) {
  if (mount("tmpfs", directory, "tmpfs", 0, "size=16k,mode=700") != 0) {
    no_space();
    return;
  }
  expect_plain("No space left", "make room");
  struct dyn_process *process = dyn_process_get(test_log);
  check(process->ring == NULL && dyn_ring_put(process, &(struct dyn_sample){0}) == 0, "a ring without space");
  check(test_count_files("comm-") + test_count_files("ring-") == 0, "files without space were left");
  check(umount(directory) == 0, "umount");
}

#endif
