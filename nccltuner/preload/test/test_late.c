/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=late/libdynamiccl.so test_late FOLDER     FOLDER has the fake libnccl.so.2, late/ is in it
 * A program that began without libdl and libpthread, which a glibc before 2.34 has apart, and opens a library that has them. That is not this
 * glibc: late/libdynamiccl.so is built so that it finds none of their functions but in a liblate.so.
 */
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

static void *load(const char *folder, const char *name) {
  char path[4096];
  CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* this glibc's */
  CHECK(library != NULL);
  return library;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  CHECK(dlsym(RTLD_DEFAULT, "getpid") == NULL); /* nobody has it yet who could ask */
  CHECK(dlsym(RTLD_DEFAULT, "ncclAllReduce") == NULL);
  void *late = load(argv[1], "late/liblate.so");
  CHECK(dlsym(RTLD_DEFAULT, "getpid") == (void *)getpid);
  CHECK(dlsym(late, "dlopen") != (void *)dlopen && dlsym(late, "nothing") == NULL && dlerror() != NULL);
  void *nccl = load(argv[1], "libnccl.so.2");
  struct fake_call *(*last)(void) = (struct fake_call * (*)(void)) dlsym(nccl, "fake_last_call");
  int (*bcast)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t) = (__typeof__(bcast))dlsym(nccl, "ncclBcast");
  CHECK(last != NULL && bcast != NULL);
  CHECK(bcast(0, 100, 0, 0, 0x5000, 0) == FAKE_RESULT && last()->calls == 1);
  return 0;
}
