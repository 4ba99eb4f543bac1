/* SPDX-License-Identifier: Apache-2.0
 *
 * Who looks NCCL's functions up in a library that it has opened, as vLLM, SGLang, JAX and CuPy do, gets ours for them where we have some, as who
 * is linked with NCCL does. Only of the one NCCL that our functions go on to, for communicators are a library's own: in a process with
 * another one before, or with several when it is first asked, who looks up gets what is there. And what is in nobody's reach stays so. Nothing
 * else of dlsym changes (dlsym.S; x86-64 and aarch64 alone). DYNAMICCL_NO_DLSYM=1 leaves NCCL's functions to who looks them up.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"

#if defined(__x86_64__) || defined(__aarch64__)
typedef void *(*lookup)(void *, const char *);

extern const char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));
_Atomic(lookup) dyn_lookup_next; /* the next dlsym */
static _Atomic(lookup) own;      /* glibc's */

static bool is_ours(const void *address) { return (const char *)address >= __ehdr_start && (const char *)address < _end; }

/* Where the program began without libdl (glibc.h). */
static void *find_nothing(void *handle, const char *name) {
  (void)handle, (void)name;
  return NULL;
}

/* Of a libdl that came later with a library of the program's own nothing comes behind us in the program's order. */
static lookup glibc_own(void) {
  lookup there = dlvsym != NULL ? (lookup)dlvsym(RTLD_NEXT, "dlsym", DYN_GLIBC_FIRST) : NULL;
  if (there == NULL) there = (lookup)dyn_glibc_late("dlsym");
  return there == NULL ? find_nothing : there;
}

/* Constructors of the program's libraries may come before ours. glibc's own says what is next, for a tool's, such as those that share out a
 * GPU's memory have, mostly has no version, and dlvsym passes over it. */
lookup dyn_lookup_begin(void) {
  lookup first = glibc_own(), next = (lookup)first(RTLD_NEXT, "dlsym");
  if (next == NULL) next = first;
  atomic_store(&own, first);
  if (first != find_nothing) atomic_store(&dyn_lookup_next, next); /* else it is looked for again */
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
  void *real = next(handle, name), *mine = NULL;
  if (real == NULL || is_ours(__builtin_return_address(0)) || is_ours(real) || is_off()) return real;
  mine = next(RTLD_DEFAULT, name);
  bool ours = mine != NULL && is_ours(mine) && dyn_is_behind(name, real);
  if (dlerror != NULL) (void)dlerror(); /* what we looked for in vain: the program's own lookup has found something */
  return ours ? mine : real;
}

/* With RTLD_DEFAULT: who asks so whether there is an NCCL, and with this function, is not to find ours where nobody would find NCCL's. It
 * would open one of its own else (nccl4py), and have its functions from both: communicators are a library's own. */
bool dyn_lookup_hides(const char *name, const void *caller) {
  if (atomic_load(&dyn_lookup_next) == NULL) dyn_lookup_begin();
  lookup find = atomic_load(&own);
  void *mine = find(RTLD_DEFAULT, name);
  bool hides = mine != NULL && is_ours(mine) && !is_ours(caller) && !is_off() && find(RTLD_NEXT, name) == NULL && !dyn_is_reached(name, caller);
  if (dlerror != NULL) (void)dlerror();
  return hides;
}

/* The error is glibc's. Not by a jump: it would be the program that asks for what is behind it. */
void *dyn_lookup_miss(void *handle, const char *name) {
  (void)handle;
  void *none = atomic_load(&own)(RTLD_NEXT, name);
  __asm__ volatile("" : "+r"(none));
  return none;
}
#endif
