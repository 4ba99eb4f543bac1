/* SPDX-License-Identifier: Apache-2.0
 *
 * Included in all sources of plugin and preload library. The loader does not start a program under a preloaded library that wants a newer
 * glibc than the program has, as one in a container may, and NCCL gets no plugin there. So functions that moved into libc.so.6, to which they came with a new version (2.32, 2.34),
 * are wanted as they were before: in a glibc from then on that is the same function. In an older one they are libdl's and libpthread's. Where the
 * program has neither from its start, it may have one later, as with what it opens, or with NCCL: so they are looked for when they are
 * called (glibc_late.h). Nobody calls them before but send and accept (sends.c), and who looks up in vain (lookup.c). To load both for them
 * would be to load them into every shell under the preload library.
 */
#ifndef DYN_GLIBC_H
#define DYN_GLIBC_H

#include <dlfcn.h>
#include <features.h>
#include <pthread.h>
#include <signal.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define DYN_GLIBC_FIRST "GLIBC_2.2.5"
#else
#define DYN_GLIBC_FIRST "GLIBC_2.17"
#endif
#define DYN_GLIBC_PRAGMA(text) _Pragma(#text)
/* glibc_late.h; NULL: nothing that is loaded has it */
void *dyn_glibc_late(const char *name);
#ifdef DYN_GLIBC_ABSENT /* a test: as where the program began without */
#define DYN_GLIBC_AT_START(name) NULL
#else
#define DYN_GLIBC_AT_START(name) name
#endif
#define DYN_GLIBC(name) \
  DYN_GLIBC_PRAGMA(weak name) __asm__(".symver " #name "," #name "@" DYN_GLIBC_FIRST); \
  static inline __typeof__(name) *dyn_late_##name(void) { \
    __typeof__(name) *there = DYN_GLIBC_AT_START(name); \
    return there != NULL ? there : (__typeof__(name) *)dyn_glibc_late(#name); \
  }
DYN_GLIBC(dladdr)
DYN_GLIBC(dlclose)
DYN_GLIBC(dlerror)
DYN_GLIBC(dlopen)
DYN_GLIBC(dlsym)
DYN_GLIBC(dlvsym)
DYN_GLIBC(pthread_create)
DYN_GLIBC(pthread_detach)
DYN_GLIBC(pthread_key_create)
DYN_GLIBC(pthread_mutex_trylock)
DYN_GLIBC(pthread_once)
DYN_GLIBC(pthread_setspecific)
DYN_GLIBC(pthread_sigmask)
#define dladdr dyn_late_dladdr()
#define dlclose dyn_late_dlclose()
#define dlerror dyn_late_dlerror()
#define dlopen dyn_late_dlopen()
#define dlsym dyn_late_dlsym()
#define dlvsym dyn_late_dlvsym()
#define pthread_create dyn_late_pthread_create()
#define pthread_detach dyn_late_pthread_detach()
#define pthread_key_create dyn_late_pthread_key_create()
#define pthread_mutex_trylock dyn_late_pthread_mutex_trylock()
#define pthread_once dyn_late_pthread_once()
#define pthread_setspecific dyn_late_pthread_setspecific()
#define pthread_sigmask dyn_late_pthread_sigmask()

/* Before 2.33 glibc's headers had these inline, and the layout of struct stat has a number. */
#include <sys/stat.h>
#ifdef __x86_64__
#define DYN_GLIBC_STAT 1
#else
#define DYN_GLIBC_STAT 0
#endif
extern int dyn_fxstat(int layout, int fd, struct stat *out);
extern int dyn_lxstat(int layout, const char *path, struct stat *out);
__asm__(".symver dyn_fxstat,__fxstat@" DYN_GLIBC_FIRST);
__asm__(".symver dyn_lxstat,__lxstat@" DYN_GLIBC_FIRST);
#define fstat(fd, out) dyn_fxstat(DYN_GLIBC_STAT, fd, out)
#define lstat(path, out) dyn_lxstat(DYN_GLIBC_STAT, path, out)
#endif

#endif
