/* SPDX-License-Identifier: Apache-2.0
 *
 * Included in all sources of the library. The loader does not start a program under a preloaded library that wants a newer glibc than the
 * program has, as one in a container may. So functions that moved into libc.so.6, to which they came with a new version (2.32, 2.34),
 * are wanted as they were before: in a glibc from then on that is the same function. In an older one they are libdl's and libpthread's,
 * which most programs under the library do not have: there they are NULL, and nobody gets to them but send and accept (sends.c).
 */
#ifndef DYN_PRELOAD_GLIBC_H
#define DYN_PRELOAD_GLIBC_H

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
DYN_GLIBC(dlopen)
DYN_GLIBC(dlsym)
DYN_GLIBC(pthread_create)
DYN_GLIBC(pthread_detach)
DYN_GLIBC(pthread_key_create)
DYN_GLIBC(pthread_mutex_trylock)
DYN_GLIBC(pthread_once)
DYN_GLIBC(pthread_setspecific)
DYN_GLIBC(pthread_sigmask)
#endif

#endif
