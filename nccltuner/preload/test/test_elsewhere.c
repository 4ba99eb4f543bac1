/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_elsewhere FOLDER     FOLDER has the fake libnccl.so.2, and the same in libother.so
 * NCCL in a library of another name, as in programs that are linked with its archive; NCCL that goes and comes back at another address; and
 * programs that look its functions up.
 */
#include "../dynamiccl.h"
#include "fake.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

static const char *folder;

static void *load(const char *name) {
  char path[4096];
  CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  return library;
}

/* The library calls ncclBroadcast by its name, and so what the preload library has. */
static int call_from(void *library) {
  int (*bcast)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t) = (int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))dlsym(library, "ncclBcast");
  CHECK(bcast != NULL);
  return bcast(0, 100, 0, 0, 0x5000, 0);
}
static unsigned calls_of(void *library) {
  struct fake_call *(*last)(void) = (struct fake_call *(*)(void))dlsym(library, "fake_last_call");
  CHECK(last != NULL);
  return last()->calls;
}

static void other_name(void) {
  void *other = load("libother.so");
  CHECK(call_from(other) == FAKE_RESULT && calls_of(other) == 1);
}

/* Its communicators are its own: no other NCCL may have them. */
static void beside_another(void) {
  void *nccl = load("libnccl.so.2"), *other = load("libother.so");
  CHECK(call_from(other) == FAKE_RESULT && calls_of(other) == 1 && calls_of(nccl) == 0);
}

static void comes_back(const char *name) {
  Dl_info in;
  void *library = load(name);
  CHECK(call_from(library) == FAKE_RESULT && dladdr(dlsym(library, "ncclBcast"), &in) != 0);
  CHECK(dlclose(library) == 0);
  mmap(in.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0); /* if it has gone: it is not to come back here */
  CHECK(call_from(load(name)) == FAKE_RESULT);
}
static void nccl_comes_back(void) { comes_back("libnccl.so.2"); }
static void other_comes_back(void) { comes_back("libother.so"); }

typedef int (*broadcast)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
static bool is_of(const void *function, const char *library) {
  Dl_info in;
  CHECK(function != NULL && dladdr(function, &in) != 0);
  return strstr(in.dli_fname, library) != NULL;
}
static unsigned long long counted(void) {
  struct dynamicclCalls rows[100];
  size_t (*intercepted)(struct dynamicclCalls *, size_t) = (size_t(*)(struct dynamicclCalls *, size_t))dlsym(RTLD_DEFAULT, "dynamicclIntercepted");
  for (size_t n = intercepted(rows, 100); n > 0; n--)
    if (strcmp(rows[n - 1].name, "ncclBroadcast") == 0) return rows[n - 1].calls;
  return 0;
}

/* Who looks NCCL up has ours of what we have, and NCCL's of the rest. */
static void looked_up(void) {
  void *nccl = load("libnccl.so.2");
  broadcast call = (broadcast)dlsym(nccl, "ncclBroadcast");
  CHECK(is_of((void *)call, "libdynamiccl.so") && is_of(dlsym(nccl, "ncclGetVersion"), "libnccl.so.2") && dlsym(nccl, "ncclNothing") == NULL && dlsym(nccl, "nc") == NULL);
  CHECK(call(1, 2, 0, 0, 0, 0x5000, 0) == FAKE_RESULT && calls_of(nccl) == 1 && counted() == 1);
  void *other = load("libother.so"); /* whose communicators are its own */
  call = (broadcast)dlsym(other, "ncclBroadcast");
  CHECK(is_of((void *)call, "libother.so") && call(1, 2, 0, 0, 0, 0x5000, 0) == FAKE_RESULT && calls_of(other) == 1 && calls_of(nccl) == 1 && counted() == 1);
  CHECK(is_of(dlsym(nccl, "ncclAllReduce"), "libdynamiccl.so") && call_from(nccl) == FAKE_RESULT && calls_of(nccl) == 2);
}

/* With two of them nobody knows which is meant. */
static void looked_up_beside_another(void) {
  void *other = load("libother.so"), *nccl = load("libnccl.so.2");
  CHECK(is_of(dlsym(other, "ncclBroadcast"), "libother.so") && is_of(dlsym(nccl, "ncclBroadcast"), "libnccl.so.2"));
  CHECK(call_from(other) == FAKE_RESULT && calls_of(other) == 1); /* and now it is this one */
  CHECK(is_of(dlsym(other, "ncclBroadcast"), "libdynamiccl.so") && is_of(dlsym(nccl, "ncclBroadcast"), "libnccl.so.2"));
}

/* As the manual has it: whether something was found is asked of dlerror, which knows of the program's own lookups alone. */
static void looked_up_without_error(void) {
  void *nccl = load("libnccl.so.2");
  static const char *const names[] = {"ncclGetVersion", "ncclBroadcast", "ncclCommCount", "ncclAllReduce"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    (void)dlerror();
    CHECK(dlsym(nccl, names[i]) != NULL && dlerror() == NULL);
  }
  CHECK(dlsym(nccl, "ncclNothing") == NULL && dlerror() != NULL && dlerror() == NULL);
}

/* Its functions are first called when another NCCL is there for all: communicators are still its own. */
static void looked_up_before_another(void) {
  char path[4096];
  void *nccl = load("libnccl.so.2");
  broadcast call = (broadcast)dlsym(nccl, "ncclBroadcast");
  CHECK(is_of((void *)call, "libdynamiccl.so") && snprintf(path, sizeof path, "%s/libother.so", folder) < (int)sizeof path);
  void *other = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  CHECK(other != NULL && call(1, 2, 0, 0, 0, 0x5000, 0) == FAKE_RESULT && calls_of(nccl) == 1 && calls_of(other) == 0);
}

/* With RTLD_DEFAULT a function of NCCL's is found where one would be without us: not of an NCCL that is loaded for its user alone, unless that user
 * asks. */
static void looked_up_by_default(void) {
  char path[4096];
  void *nccl = load("libnccl.so.2");
  (void)dlerror();
  CHECK(dlsym(RTLD_DEFAULT, "ncclBroadcast") == NULL && dlerror() != NULL && dlerror() == NULL);
  void *(*ask)(const char *) = (void *(*)(const char *))dlsym(nccl, "fake_look_up");
  CHECK(is_of(ask("ncclBroadcast"), "libdynamiccl.so") && is_of(ask("ncclGetVersion"), "libnccl.so.2") && ask("ncclNothing") == NULL);
  CHECK(dlsym(RTLD_DEFAULT, "dynamicclIntercepted") != NULL && dlsym(RTLD_DEFAULT, "puts") != NULL);
  CHECK(snprintf(path, sizeof path, "%s/libnccl.so.2", folder) < (int)sizeof path && dlopen(path, RTLD_NOW | RTLD_GLOBAL) == nccl && dlerror() == NULL);
  broadcast call = (broadcast)dlsym(RTLD_DEFAULT, "ncclBroadcast");
  CHECK(is_of((void *)call, "libdynamiccl.so") && dlerror() == NULL && call(1, 2, 0, 0, 0, 0x5000, 0) == FAKE_RESULT && calls_of(nccl) == 1);
  CHECK(dlsym(RTLD_DEFAULT, "ncclNothing") == NULL && dlerror() != NULL);
}

static void looked_up_by_itself(void) {
  setenv("DYNAMICCL_NO_DLSYM", "1", 1);
  CHECK(is_of(dlsym(load("libnccl.so.2"), "ncclBroadcast"), "libnccl.so.2"));
}

/* Exported: the preload library looks for NCCL by it. meanwhile is what another thread does just before it finds none. */
static void (*meanwhile)(void);
__attribute__((visibility("default"))) void *dlopen(const char *name, int how) {
  void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"), *found = real(name, how);
  void (*does)(void) = meanwhile;
  if (does == NULL || found != NULL || strcmp(name, "libnccl.so.2") != 0) return found;
  meanwhile = NULL;
  does();
  return found;
}

static void look_up_other(void) { CHECK(is_of(dlsym(load("libother.so"), "ncclBroadcast"), "libdynamiccl.so")); }

/* A thread calls before there is an NCCL, and another one loads one and looks it up meanwhile: what that was given goes on to it. */
static void looked_up_meanwhile(void) {
  Dl_info in;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "dynamiccl_preload"), &in) != 0);
  broadcast call = (broadcast)dlsym(dlopen(in.dli_fname, RTLD_NOLOAD | RTLD_NOW), "ncclBroadcast");
  CHECK(is_of((void *)call, "libdynamiccl.so"));
  meanwhile = look_up_other;
  call(1, 2, 0, 0, 0, 0x5000, 0);
  CHECK(meanwhile == NULL && call(1, 2, 0, 0, 0, 0x5000, 0) == FAKE_RESULT && calls_of(load("libother.so")) > 0);
}

int main(int argc, char **argv) {
  static const struct { const char *name; void (*runs)(void); } cases[] = {
      {"another name", other_name}, {"beside another", beside_another}, {"comes back", nccl_comes_back}, {"another comes back", other_comes_back},
      {"looked up", looked_up}, {"looked up beside another", looked_up_beside_another}, {"looked up without error", looked_up_without_error}, {"looked up before another", looked_up_before_another},
      {"looked up by default", looked_up_by_default}, {"looked up by itself", looked_up_by_itself}, {"looked up meanwhile", looked_up_meanwhile}};
  CHECK(argc == 2 && dlsym(RTLD_DEFAULT, "dynamiccl_preload") != NULL);
  folder = argv[1];
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) cases[i].runs(), _exit(0);
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "%s: status %x\n", cases[i].name, status), failed = 1;
  }
  return failed;
}
