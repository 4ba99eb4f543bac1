/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnccl.so.2 that keeps what it is called with, and reads its activation mask as NCCL does.
 */
#include "fake.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT atomic_int ncclProfilerEventMask;
static __thread struct fake_call fake_last;
EXPORT struct fake_call *fake_last_call(void);
EXPORT struct fake_call *fake_last_call(void) { return &fake_last; }

/* This library asks, not who calls it. */
EXPORT void *fake_look_up(const char *name);
EXPORT void *fake_look_up(const char *name) {
  void *volatile found = dlsym(RTLD_DEFAULT, name);
  return found;
}

static int record(const char *name, const uintptr_t *arguments) {
  fake_last.name = name;
  memcpy(fake_last.arguments, arguments, sizeof fake_last.arguments);
  fake_last.mask = atomic_load_explicit(&ncclProfilerEventMask, memory_order_relaxed);
  fake_last.calls++;
  return fake_last.inside == NULL ? FAKE_RESULT : fake_last.inside();
}

/* Integers and pointers come in the same places whatever their types: one function plays them all. */
#define FAKE(NAME) \
  EXPORT int NAME(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t); \
  EXPORT int NAME(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, \
                  uintptr_t h, uintptr_t i) { \
    return record(#NAME, (uintptr_t[]){a, b, c, d, e, f, g, h, i}); \
  }
FAKE(ncclAllReduce)
FAKE(ncclBroadcast)
FAKE(ncclReduce)
FAKE(ncclAllGather)
FAKE(ncclReduceScatter)
FAKE(ncclAlltoAll)
FAKE(ncclGather)
FAKE(ncclScatter)
FAKE(ncclSend)
FAKE(ncclRecv)
FAKE(ncclAllReduceConfig)
FAKE(ncclBroadcastConfig)
FAKE(ncclReduceConfig)
FAKE(ncclAllGatherConfig)
FAKE(ncclReduceScatterConfig)
FAKE(ncclAlltoAllConfig)
FAKE(ncclGatherConfig)
FAKE(ncclScatterConfig)
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitAll)
FAKE(ncclCommInitRankScalable)
FAKE(ncclCommSplit)
FAKE(ncclCommShrink)
FAKE(ncclCommFinalize)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclCommRevoke)
FAKE(ncclCommSuspend)
FAKE(ncclCommResume)
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommWindowRegister)
FAKE(ncclCommWindowDeregister)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
FAKE(ncclGroupSimulateEnd)
EXPORT int ncclGetLsaDevicePointer(const struct fake_peers *window, size_t offset, int lsaRank, void **out);
EXPORT int ncclGetLsaDevicePointer(const struct fake_peers *window, size_t offset, int lsaRank, void **out) {
  if ((uintptr_t)window < 4096 || window->magic != FAKE_PEERS) return 4; /* ncclInvalidArgument: no window that has any */
  *out = window->base[lsaRank] + offset;
  return 0;
}
/* Communicators are numbers here: ranks of 8, or alone. */
EXPORT int ncclCommCount(uintptr_t comm, int *count);
EXPORT int ncclCommCount(uintptr_t comm, int *count) {
  *count = comm == 0 ? 0 : comm >> 8 == FAKE_LONE >> 8 ? 1 : 8;
  return 0;
}
EXPORT int ncclCommUserRank(uintptr_t comm, int *rank);
EXPORT int ncclCommUserRank(uintptr_t comm, int *rank) {
  *rank = (int)(comm % 8);
  return 0;
}
/* As its progress thread does. */
EXPORT ssize_t fake_send(int fd, const void *data, size_t bytes, int flags);
EXPORT ssize_t fake_send(int fd, const void *data, size_t bytes, int flags) {
  ssize_t sent = send(fd, data, bytes, flags);
  __asm__ volatile("" : "+r"(sent)); /* no jump: the caller is here */
  return sent;
}
EXPORT ssize_t fake_recv(int fd, void *data, size_t bytes, int flags);
EXPORT ssize_t fake_recv(int fd, void *data, size_t bytes, int flags) {
  ssize_t got = recv(fd, data, bytes, flags);
  __asm__ volatile("" : "+r"(got));
  return got;
}
EXPORT int fake_accept(int fd);
EXPORT int fake_accept(int fd) {
  int accepted = accept(fd, NULL, NULL);
  __asm__ volatile("" : "+r"(accepted));
  return accepted;
}
/* A program that has it is called while this library is loaded. */
extern void fake_loading(void) __attribute__((weak));
static __attribute__((constructor)) void loading(void) {
  if (fake_loading != NULL) fake_loading();
}
/* There is no ncclCommGrow: an older NCCL. */

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetVersion(int *version) {
  const char *wanted = getenv("FAKE_NCCL_VERSION");
  *version = wanted == NULL ? 23203 : atoi(wanted);
  return 0;
}

/* As NCCL's own: through the other name, and so through whoever stands in front of it. */
EXPORT int ncclBcast(uintptr_t buff, uintptr_t count, uintptr_t datatype, uintptr_t root, uintptr_t comm, uintptr_t stream);
EXPORT int ncclBcast(uintptr_t buff, uintptr_t count, uintptr_t datatype, uintptr_t root, uintptr_t comm, uintptr_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream, 0, 0);
}

#define BY_VALUE(NAME, MORE, ...) \
  EXPORT int NAME(uintptr_t comm, int nRanks, struct fake_id id, int rank MORE); \
  EXPORT int NAME(uintptr_t comm, int nRanks, struct fake_id id, int rank MORE) { \
    fake_last.id = id; \
    return record(#NAME, (uintptr_t[FAKE_ARGUMENTS]){comm, (uintptr_t)nRanks, (uintptr_t)rank __VA_ARGS__}); \
  }
#define COMMA ,
BY_VALUE(ncclCommInitRank, )
BY_VALUE(ncclCommInitRankConfig, COMMA uintptr_t config, COMMA config)
