/* SPDX-License-Identifier: Apache-2.0
 *
 * A libdl.so.2 and a libpthread.so.0 of a glibc before 2.34 in one, as the preload library of test_late knows them: this glibc's functions. By
 * jumps (the compiler's, of a call at the end of a function), for glibc asks who calls.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif

/* dlvsym is libc's here, which comes before what is opened. */
#define LATE(RESULT, NAME, PARAMETERS, ...) \
  static RESULT(*real_##NAME) PARAMETERS; \
  static __attribute__((constructor)) void find_##NAME(void) { *(void **)&real_##NAME = dlvsym(RTLD_NEXT, #NAME, FIRST); } \
  EXPORT RESULT NAME PARAMETERS { return real_##NAME(__VA_ARGS__); }

LATE(int, dladdr, (const void *address, Dl_info *info), address, info)
LATE(int, dlclose, (void *library), library)
LATE(char *, dlerror, (void))
LATE(void *, dlopen, (const char *name, int flags), name, flags)
LATE(void *, dlsym, (void *restrict library, const char *restrict name), library, name)
LATE(void *, dlvsym, (void *restrict library, const char *restrict name, const char *restrict version), library, name, version)
LATE(int, pthread_create, (pthread_t *restrict thread, const pthread_attr_t *restrict how, void *(*run)(void *), void *restrict of), thread, how, run, of)
LATE(int, pthread_detach, (pthread_t thread), thread)
LATE(int, pthread_key_create, (pthread_key_t *key, void (*end)(void *)), key, end)
LATE(int, pthread_mutex_trylock, (pthread_mutex_t *mutex), mutex)
LATE(int, pthread_once, (pthread_once_t *once, void (*run)(void)), once, run)
LATE(int, pthread_setspecific, (pthread_key_t key, const void *value), key, value)
LATE(int, pthread_sigmask, (int how, const sigset_t *restrict now, sigset_t *restrict before), how, now, before)
