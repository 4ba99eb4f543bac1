/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_absent FOLDER     FOLDER has the fake libnccl.so.2, which loads no plugin
 * When it is said that NCCL has not loaded ours: once, by rank 0, when the process's first communicator is made, and of one that does not
 * block when the program hears that it is.
 */
#include "fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (dprintf(errors, "%s:%d: %s\n", __FILE__, __LINE__, #condition), _exit(1)))

enum { SUCCESS = 0, REMOTE_ERROR = 6, IN_PROGRESS = 7 }; /* ncclResult_t */

static struct fake_call *fake;
static int errors = 2, said[2], answer; /* errors: where it is said what fails, since what stands on standard error is looked at */
static uintptr_t comm;

static int answers(void) {
  if (strcmp(fake->name, "ncclCommInitRank") == 0) *(uintptr_t *)fake->arguments[0] = 0x5000;
  if (strcmp(fake->name, "ncclCommGetAsyncError") != 0) return answer;
  *(int *)fake->arguments[1] = answer;
  return SUCCESS;
}

static void *find(const char *name) {
  void *f = dlsym(dlopen(NULL, RTLD_LAZY), name);
  CHECK(f != NULL);
  return f;
}

static void make(int rank, int result) {
  struct fake_id id = {""};
  answer = result;
  CHECK(((int (*)(uintptr_t *, int, struct fake_id, int))find("ncclCommInitRank"))(&comm, 2, id, rank) == result);
}
static void ask(int error) {
  int told = -1;
  answer = error;
  CHECK(((int (*)(uintptr_t, int *))find("ncclCommGetAsyncError"))(comm, &told) == SUCCESS && told == error);
}

/* Lines that were said since. */
static int lines(void) {
  char text[4096];
  ssize_t bytes = read(said[0], text, sizeof text);
  int n = 0;
  for (ssize_t i = 0; i < bytes; i++) n += text[i] == '\n';
  CHECK(bytes <= 0 || strstr(text, "running plain NCCL") != NULL);
  return n;
}

static void blocks(void) {
  make(0, SUCCESS);
  CHECK(lines() == 1);
  make(0, SUCCESS);
  CHECK(lines() == 0);
}
static void does_not_block(void) {
  make(0, IN_PROGRESS);
  ask(IN_PROGRESS);
  CHECK(lines() == 0);
  ask(SUCCESS);
  CHECK(lines() == 1);
  ask(SUCCESS);
  make(0, SUCCESS);
  CHECK(lines() == 0);
}
static void not_rank_0(void) {
  make(1, IN_PROGRESS);
  ask(SUCCESS);
  CHECK(lines() == 0);
}
/* It was none: the next one tells. */
static void fails(void) {
  make(0, IN_PROGRESS);
  ask(REMOTE_ERROR);
  answer = SUCCESS;
  CHECK(((int (*)(uintptr_t))find("ncclCommAbort"))(comm) == SUCCESS && lines() == 0);
  make(0, IN_PROGRESS);
  ask(SUCCESS);
  CHECK(lines() == 1);
}

int main(int argc, char **argv) {
  static const struct { const char *name; void (*runs)(void); } cases[] = {{"blocks", blocks}, {"does not block", does_not_block}, {"not rank 0", not_rank_0}, {"fails", fails}};
  char path[4096];
  CHECK(argc == 2 && snprintf(path, sizeof path, "%s/libnccl.so.2", argv[1]) < (int)sizeof path);
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  struct fake_call *(*last)(void) = library == NULL ? NULL : (struct fake_call *(*)(void))dlsym(library, "fake_last_call");
  CHECK(last != NULL && setenv("NCCL_TUNER_PLUGIN", "/nowhere/libnccl-tuner-dynamiccl.so", 1) == 0);
  fake = last();
  fake->inside = answers;
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) {
      errors = dup(2);
      CHECK(pipe2(said, O_NONBLOCK) == 0 && dup2(said[1], 2) == 2);
      cases[i].runs();
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "%s: status %x\n", cases[i].name, status), failed = 1;
  }
  return failed;
}
