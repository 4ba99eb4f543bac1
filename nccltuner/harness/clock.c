/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual time for plugins. The harness exports clock_gettime, and the dynamic linker binds a plugin's calls to the
 * program's symbol before libc's. In a thread that is inside one of the plugin's event functions it returns the virtual
 * instant at which NCCL would have made that call; everywhere else it is libc's.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "harness.h"

static _Thread_local uint64_t virtualNs;
static int (*real)(clockid_t, struct timespec *);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_real(void) {
  *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
  if (real == NULL) abort(); /* libc without clock_gettime cannot be */
}

void clock_virtual(uint64_t nowNs) { virtualNs = nowNs; }

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *out) {
  if (virtualNs != 0) {
    out->tv_sec = (time_t)(virtualNs / 1000000000u);
    out->tv_nsec = (long)(virtualNs % 1000000000u);
    return 0;
  }
  pthread_once(&once, find_real);
  return real(id, out);
}

uint64_t host_now_ns(void) {
  struct timespec now;
  uint64_t saved = virtualNs;
  virtualNs = 0;
  clock_gettime(CLOCK_MONOTONIC, &now);
  virtualNs = saved;
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double tick_ns(void) {
#if defined(__x86_64__)
  static _Atomic double nsPerTick; /* every thread computes about the same */
  if (!(nsPerTick > 0)) {
    uint64_t ns = host_now_ns(), ticks = __builtin_ia32_rdtsc();
    while (host_now_ns() - ns < 2000000) continue;
    nsPerTick = (double)(host_now_ns() - ns) / (double)(__builtin_ia32_rdtsc() - ticks);
  }
  unsigned core;
  return (double)__builtin_ia32_rdtscp(&core) * nsPerTick;
#else
  return (double)host_now_ns();
#endif
}
