/* SPDX-License-Identifier: Apache-2.0
 *
 * Included in all sources of plugin and preload library. The loader does not start a program under a preloaded library that wants a newer
 * glibc than the program has, as one in a container may, and NCCL gets no plugin there. So functions that moved into libc.so.6, to which they came with a new version (2.32, 2.34),
 * are wanted as they were before: in a glibc from then on that is the same function. In an older one they are libdl's and libpthread's,
 * which programs with NCCL have, and most others under the preload library not: there they are NULL, and nobody gets to them but send and accept (sends.c).
 */
#ifndef DYN_GLIBC_H
#define DYN_GLIBC_H

#include <features.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define DYN_GLIBC_FIRST "GLIBC_2.2.5"
#else
#define DYN_GLIBC_FIRST "GLIBC_2.17"
#endif
#define DYN_GLIBC_PRAGMA(text) _Pragma(#text)
#define DYN_GLIBC(name) DYN_GLIBC_PRAGMA(weak name) __asm__(".symver " #name "," #name "@" DYN_GLIBC_FIRST);
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
