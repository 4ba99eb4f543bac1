/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's Socket network sends the size of a message and then the message, in two calls (ncclNetSocketTest, src/transport/net_socket.cc),
 * and so in two packets, each of which the receiver is woken for. Here the size waits in the kernel for what comes behind it (MSG_MORE):
 * one packet, and the bytes are the same, so it matters to nobody what the other end has. (NCCL_SOCKET_INLINE would do as much, but the
 * receivers of 2.28.9 to 2.30 lose a size whose message is not there yet, and progress threads wait for messages that fit in part.)
 *
 * Other connections of NCCL's have sizes, too, and some wait for the peer's before the message: its bootstrap (socketSendRecv,
 * src/bootstrap.cc) would lose 0.2 s in each step of a ring. Each connection begins with what it is for; those of the Socket network count,
 * until their descriptor is accept's. There the first size goes as it always did, and if a send of so many bytes is the next, the further
 * ones wait. Where that ceases, as where messages go by other sockets, a size waits once, for an acknowledgement of what was sent before it
 * or the kernel's 0.2 s. Calls of anybody but NCCL pass.
 */
#include "sends.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "forward.h"

#define INLINE 128    /* NCCL's default: messages up to it go with their size already */
#define MOST 32768    /* longer messages gain nothing: by NCCL's own code over the loopback 1.03 to 0.97 (docs/design/operation.md, decision 21) */
#define SOCKETS 65536 /* file descriptors; those above go as they are */

/* Who connects says so (socketFinalizeConnect, src/misc/socket.cc): a number that all ranks have, then a type. */
#define MAGIC_BYTES 8
#define NET_SOCKET 3 /* ncclSocketTypeNetSocket */

#define GREETED (UINT32_C(1) << 29) /* by a number of so many bytes */
#define NET (UINT32_C(1) << 30) /* a connection of the Socket network */
#define ALIKE (UINT32_C(1) << 31) /* what a size announced has come behind it here */

/* Of each: some of these, and how much of a message is to be sent yet. A socket is one thread's at a time. */
static _Atomic uint32_t states[SOCKETS];
static uintptr_t begins, ends; /* NCCL's code */
static atomic_bool found;
static _Atomic(ssize_t (*)(int, const void *, size_t, int)) realSend;
static _Atomic(int (*)(int, __SOCKADDR_ARG, socklen_t *)) realAccept;

static int find_code(struct dl_phdr_info *object, size_t size, void *at) {
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t from = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || (uintptr_t)at < from || (uintptr_t)at - from >= part->p_memsz) continue;
    begins = from;
    ends = from + part->p_memsz;
    atomic_store_explicit(&found, true, memory_order_release);
    return 1;
  }
  return 0;
}

static void begin(void) {
  void *nccl = dyn_find_behind("ncclGetVersion");
  if (nccl != NULL) dl_iterate_phdr(find_code, nccl);
}

void dyn_sends_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
}

/* Not when first needed: dlsym waits for a dlopen that is under way, and that for a thread which sends, perhaps; and signal handlers send. */
static __attribute__((constructor)) void find_real(void) {
  atomic_store(&realSend, (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send"));
  atomic_store(&realAccept, (int (*)(int, __SOCKADDR_ARG, socklen_t *))dlsym(RTLD_NEXT, "accept"));
}

static ssize_t send_on(int fd, const void *data, size_t bytes, int flags) {
  ssize_t (*next)(int, const void *, size_t, int) = atomic_load_explicit(&realSend, memory_order_relaxed);
  return next != NULL ? next(fd, data, bytes, flags) : sendto(fd, data, bytes, flags, NULL, 0);
}

/* A descriptor that comes to NCCL is a new connection, which greets, or this. */
__attribute__((visibility("default"))) int accept(int fd, __SOCKADDR_ARG address, socklen_t *restrict size) {
  int (*next)(int, __SOCKADDR_ARG, socklen_t *) = atomic_load_explicit(&realAccept, memory_order_relaxed);
  int accepted = next != NULL ? next(fd, address, size) : accept4(fd, address, size, 0);
  if ((unsigned)accepted < SOCKETS && atomic_load_explicit(&states[accepted], memory_order_relaxed) != 0)
    atomic_store_explicit(&states[accepted], 0, memory_order_relaxed);
  return accepted;
}

/* The size of a message that may come behind it; 0: it is none. */
static uint32_t announces(const void *data, size_t bytes) {
  int32_t size;
  if (bytes != sizeof size) return 0;
  memcpy(&size, data, sizeof size);
  return size > 0 && size < (int32_t)GREETED ? (uint32_t)size : 0;
}

/* A message of 4 bytes behind its size is as long. */
static bool greets(const void *data, size_t bytes) { return bytes == MAGIC_BYTES && announces(data, sizeof(int32_t)) != MAGIC_BYTES - sizeof(int32_t); }

/* What a connection is after these bytes that are the beginning of one. */
static uint32_t greeted(uint32_t state, const void *data, size_t bytes) {
  if (greets(data, bytes)) return GREETED;
  return state == GREETED && announces(data, bytes) == NET_SOCKET ? NET : 0;
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t bytes, int flags) {
  uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  if (!(flags & MSG_DONTWAIT) || (unsigned)fd >= SOCKETS || !atomic_load_explicit(&found, memory_order_acquire) || caller < begins || caller >= ends)
    return send_on(fd, data, bytes, flags);
  uint32_t state = atomic_load_explicit(&states[fd], memory_order_relaxed), left = state & (GREETED - 1);
  if (left > 0 && bytes == left) {
    ssize_t sent = send_on(fd, data, bytes, flags);
    if (sent > 0) atomic_store_explicit(&states[fd], NET | ALIKE | (left - (uint32_t)sent), memory_order_relaxed);
    return sent;
  }
  if (!(state & NET) || greets(data, bytes)) {
    ssize_t sent = send_on(fd, data, bytes, flags);
    if (sent == (ssize_t)bytes) atomic_store_explicit(&states[fd], greeted(state, data, bytes), memory_order_relaxed);
    return sent;
  }
  if (left > 0) state = NET; /* something else is sent here */
  uint32_t size = announces(data, bytes);
  ssize_t sent = send_on(fd, data, bytes, size > INLINE && size <= MOST && state & ALIKE ? flags | MSG_MORE : flags);
  atomic_store_explicit(&states[fd], size > 0 && sent == (ssize_t)bytes ? state | size : state, memory_order_relaxed);
  return sent;
}
