/* SPDX-License-Identifier: Apache-2.0
 *
 * Who looks NCCL's functions up in a library that it has opened, as vLLM, SGLang, JAX and CuPy do, gets ours for them where we have some, as who
 * is linked with NCCL does. Only of the one NCCL that our functions go on to, for communicators are a library's own: in a process with
 * another one before, or with several when it is first asked, who looks up gets what is there. Nothing else of dlsym changes (dlsym.S;
 * x86-64 alone). DYNAMICCL_NO_DLSYM=1 leaves NCCL's functions to who looks them up.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"

#ifdef __x86_64__
typedef void *(*lookup)(void *, const char *);

extern const char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
_Atomic(lookup) dyn_lookup_next; /* the next dlsym */

static bool is_ours(const void *address) { return (const char *)address >= __ehdr_start && (const char *)address < _end; }

static void *find_nothing(void *handle, const char *name) {
  (void)handle, (void)name;
  return NULL;
}

/* Constructors of the program's libraries may come before ours. glibc's own says what is next, for a tool's, such as those that share out a
 * GPU's memory have, mostly has no version, and dlvsym passes over it. */
lookup dyn_lookup_begin(void) {
  lookup own = dlvsym != NULL ? (lookup)dlvsym(RTLD_NEXT, "dlsym", DYN_GLIBC_FIRST) : NULL;
  lookup next = own == NULL ? NULL : (lookup)own(RTLD_NEXT, "dlsym");
  if (next == NULL) next = own;
  if (next == NULL) next = find_nothing; /* no libdl: who could call us? */
  atomic_store(&dyn_lookup_next, next);
  return next;
}

static bool is_off(void) {
  const char *text = getenv("DYNAMICCL_NO_DLSYM");
  return text != NULL && strcmp(text, "1") == 0;
}

/* By the jump of dlsym.S: who called dlsym is our caller. */
void *dyn_lookup_nccl(void *handle, const char *name) {
  lookup next = atomic_load(&dyn_lookup_next);
  if (next == NULL) next = dyn_lookup_begin();
  void *real = next(handle, name), *own = NULL;
  if (real == NULL || is_ours(__builtin_return_address(0)) || is_ours(real) || is_off()) return real;
  own = next(RTLD_DEFAULT, name);
  bool ours = own != NULL && is_ours(own) && dyn_is_behind(name, real);
  if (dlerror != NULL) (void)dlerror(); /* what we looked for in vain: the program's own lookup has found something */
  return ours ? own : real;
}
#endif
