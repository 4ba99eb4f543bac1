/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool that has a dlsym of its own behind the preload library's, as those that share out a GPU's memory have: who looks a function of
 * CUDA's up gets theirs. It has no version, as theirs have none.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif

EXPORT int hook_looks; /* of NCCL's names */
EXPORT int hook_taken(void);
EXPORT int hook_taken(void) { return 42; }

EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  static void *(*real)(void *, const char *);
  if (real == NULL) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST);
  if (strcmp(name, "getpid") == 0) return (void *)hook_taken;
  hook_looks += strncmp(name, "nccl", 4) == 0;
  return real == NULL ? NULL : real(handle, name);
}
