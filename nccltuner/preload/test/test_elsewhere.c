/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_elsewhere FOLDER     FOLDER has the fake libnccl.so.2, and the same in libother.so
 * NCCL in a library of another name, as in programs that are linked with its archive; and NCCL that goes and comes back at another address.
 */
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(int argc, char **argv) {
  static const struct { const char *name; void (*runs)(void); } cases[] = {
      {"another name", other_name}, {"beside another", beside_another}, {"comes back", nccl_comes_back}, {"another comes back", other_comes_back}};
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
