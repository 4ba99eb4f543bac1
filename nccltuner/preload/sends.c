/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's Socket network sends a message of up to NCCL_SOCKET_INLINE bytes together with its size, in one call of send(). Where the
 * socket has room for a part of it alone, NCCL's progress thread stays in a loop until the rest is sent (ncclNetSocketTest), and serves no
 * other connection meanwhile: one on which the receiver waits before it would read may be among them. NCCL's own 128 bytes make that
 * rare; with more it would be a matter of time. So what is small goes whole or not at all here: NCCL tries again later, and serves others.
 * Calls of anybody but NCCL pass.
 */
#include "sends.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/sock_diag.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "forward.h"

#define HEADER 4     /* SOCKET_CTRL_SIZE of net_socket.cc */
#define DEFAULT 128  /* NCCL's own value: what is no longer is left alone */
#define MOST 16384   /* twice of it and SEGMENTS is less than the 46 KB that a connected socket's buffer has at least, where nobody set it */
#define SEGMENTS 4096 /* what the kernel keeps of its own, beside as much again as there is data: of segments of 1,220 bytes and more */

static atomic_uintptr_t begins, ends; /* NCCL's code; both 0: nobody is watched */
static atomic_size_t longest;
static _Atomic(ssize_t (*)(int, const void *, size_t, int)) real;

static int find_code(struct dl_phdr_info *object, size_t size, void *at) {
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t from = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || (uintptr_t)at < from || (uintptr_t)at - from >= part->p_memsz) continue;
    atomic_store(&ends, from + part->p_memsz);
    atomic_store(&begins, from);
    return 1;
  }
  return 0;
}

static void begin(void) {
  const char *text = getenv("NCCL_SOCKET_INLINE");
  long bytes = text == NULL ? 0 : strtol(text, NULL, 0);
  void *nccl = dlsym(RTLD_DEFAULT, "ncclGetVersion");
  if (nccl == NULL) nccl = dyn_find_loaded("libnccl.so.2", "ncclGetVersion");
  if (bytes <= DEFAULT || nccl == NULL) return;
  atomic_store(&longest, HEADER + (size_t)(bytes > MOST ? MOST : bytes));
  dl_iterate_phdr(find_code, nccl);
}

void dyn_sends_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}

/* A socket with nothing in it takes what it can: to wait would be for ever. */
static bool has_room(int fd, size_t bytes) {
  uint32_t memory[SK_MEMINFO_VARS];
  socklen_t size = sizeof memory;
  int before = errno;
  if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size) != 0 || size < sizeof memory) {
    errno = before;
    return true;
  }
  return memory[SK_MEMINFO_WMEM_QUEUED] == 0 || memory[SK_MEMINFO_WMEM_QUEUED] + 2 * bytes + SEGMENTS <= memory[SK_MEMINFO_SNDBUF];
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t bytes, int flags) {
  uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  if (bytes > HEADER + DEFAULT && bytes <= atomic_load_explicit(&longest, memory_order_relaxed) && flags & MSG_DONTWAIT &&
      caller - atomic_load_explicit(&begins, memory_order_relaxed) < atomic_load_explicit(&ends, memory_order_relaxed) - atomic_load_explicit(&begins, memory_order_relaxed) &&
      !has_room(fd, bytes)) {
    errno = EAGAIN;
    return -1;
  }
  ssize_t (*next)(int, const void *, size_t, int) = atomic_load_explicit(&real, memory_order_relaxed);
  if (next == NULL) {
    *(void **)&next = dlsym(RTLD_NEXT, "send");
    atomic_store_explicit(&real, next, memory_order_relaxed);
  }
  return next != NULL ? next(fd, data, bytes, flags) : sendto(fd, data, bytes, flags, NULL, 0);
}
