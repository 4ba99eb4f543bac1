/* SPDX-License-Identifier: Apache-2.0
 *
 * A library of a program's whose functions have names of libc's that the preload library has as well, with more arguments and a wider
 * result. It calls them by these names, while libraries are initialised and later. And it asks for the next function of such a name, which is
 * libc's: glibc goes by who asks.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default"), noipa))
#define WORDS uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, uintptr_t h

static uintptr_t mix(const uintptr_t words[8], uintptr_t all) {
  for (int i = 0; i < 8; i++) all = all * 1000003 + words[i]; /* more than an int holds */
  return all;
}
EXPORT uintptr_t accept(WORDS);
EXPORT uintptr_t accept(WORDS) { return mix((uintptr_t[]){a, b, c, d, e, f, g, h}, 1); }
EXPORT uintptr_t send(WORDS);
EXPORT uintptr_t send(WORDS) { return mix((uintptr_t[]){a, b, c, d, e, f, g, h}, 2); }
EXPORT uintptr_t recv(WORDS);
EXPORT uintptr_t recv(WORDS) { return mix((uintptr_t[]){a, b, c, d, e, f, g, h}, 3); }

#define ARGUMENTS 1, 2, 3, 0x40, 5, 6, 7, UINTPTR_MAX
EXPORT int names_wrong(void);
EXPORT int names_wrong(void) {
  const uintptr_t arguments[] = {ARGUMENTS};
  Dl_info in;
  void *next = dlsym(RTLD_NEXT, "accept"), *none = dlsym(RTLD_NEXT, "names_wrong");
  if (none != NULL || next == NULL || dladdr(next, &in) == 0 || strstr(in.dli_fname, "/libc.so") == NULL || dlsym(RTLD_DEFAULT, "nccl") != NULL) return 1;
  return accept(ARGUMENTS) != mix(arguments, 1) || send(ARGUMENTS) != mix(arguments, 2) || recv(ARGUMENTS) != mix(arguments, 3);
}
static int wrongEarly;
static __attribute__((constructor)) void begin(void) { wrongEarly = names_wrong(); }
EXPORT int names_wrong_early(void);
EXPORT int names_wrong_early(void) { return wrongEarly; }
