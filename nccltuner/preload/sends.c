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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "movers.h"
#include "forward.h"

#define INLINE 128    /* NCCL's default: messages up to it go with their size already */
#define MOST 32768    /* longer messages gain nothing: by NCCL's own code over the loopback 1.03 to 0.97 (docs/design/operation.md, decision 21) */
#define SOCKETS 65536 /* file descriptors; those above go as they are */

/* Who connects says so (socketFinalizeConnect, src/misc/socket.cc): a number that all ranks have, then a type; in 2.32.3 both at once. */
#define MAGIC_BYTES 8
#define NET_SOCKET 3 /* ncclSocketTypeNetSocket */
#define TYPES 8      /* more than there are */

#define ACCEPTED (UINT32_C(1) << 26) /* a new connection's other end */
#define HEARD (UINT32_C(1) << 27)    /* that a number greets */
#define INCOMING (UINT32_C(1) << 28) /* a connection of the Socket network, from which its messages are received */
#define GREETED (UINT32_C(1) << 29) /* by a number of so many bytes */
#define NET (UINT32_C(1) << 30) /* a connection of the Socket network */
#define ALIKE (UINT32_C(1) << 31) /* what a size announced has come behind it here */

/* Below all of them: how much of a message is to be sent, or received, yet. */
#define LEFT (ACCEPTED - 1)

/* Of each: some of these, and what is left. A socket is one thread's at a time. NULL: there is no NCCL. */
static _Atomic(_Atomic uint32_t *) states;
static uintptr_t begins, codeBytes; /* NCCL's code */

static int find_code(struct dl_phdr_info *object, size_t size, void *at) {
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t from = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || (uintptr_t)at < from || (uintptr_t)at - from >= part->p_memsz) continue;
    begins = from;
    codeBytes = part->p_memsz;
    atomic_store_explicit(&states, (_Atomic uint32_t *)calloc(SOCKETS, sizeof(uint32_t)), memory_order_release);
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

/* Any function of a program's may have these names, with more arguments and another result, and calls itself through them. So all words go
 * on as they are, and by a jump: what lies on the stack stays where it is. */
typedef dyn_word word;
typedef dyn_function function;
#ifdef __aarch64__ /* has two more of them in registers */
#define MORE , word g, word h
#define PASS(real, ...) ((word(*)(word, word, word, word, word, word, word, word))(void (*)(void))(real))(__VA_ARGS__, g, h)
#else
#define MORE
#define PASS(real, ...) (real)(__VA_ARGS__)
#endif
static _Atomic(function) realSend, realRecv, realAccept;

/* Where there is none at the start (glibc.h), nothing was loaded that could stand behind us; and to look for one later would be to wait for a
 * dlopen that is under way. */
#undef dlsym
extern __typeof__(dlsym) dlsym __attribute__((weak));
static word plain_send(word fd, word data, word bytes, word flags, word e, word f) {
  (void)e, (void)f;
  return sendto((int)fd, (void *)data, (size_t)bytes, (int)flags, NULL, 0);
}
static word plain_recv(word fd, word data, word bytes, word flags, word e, word f) {
  (void)e, (void)f;
  return recvfrom((int)fd, (void *)data, (size_t)bytes, (int)flags, NULL, NULL);
}
static word plain_accept(word fd, word address, word size, word d, word e, word f) {
  (void)d, (void)e, (void)f;
  return accept4((int)fd, (void *)address, (void *)size, 0);
}

static function find_real(_Atomic(function) *real, const char *name) {
  function found = dlsym != NULL ? (function)dlsym(RTLD_NEXT, name) : NULL;
  if (found == NULL) found = real == &realSend ? plain_send : real == &realRecv ? plain_recv : plain_accept;
  atomic_store(real, found);
  return found;
}
static inline function real_of(_Atomic(function) *real, const char *name) {
  function found = atomic_load_explicit(real, memory_order_relaxed);
  return __builtin_expect(found != NULL, 1) ? found : find_real(real, name);
}

/* Constructors of the program's libraries come first, and find for themselves. Not later: dlsym waits for a dlopen that is under way, and
 * that for a thread which sends, perhaps; and signal handlers send. */
static __attribute__((constructor)) void find_all(void) {
  find_real(&realSend, "send");
  find_real(&realRecv, "recv");
  find_real(&realAccept, "accept");
}

/* NULL: not NCCL calls. */
static inline _Atomic uint32_t *states_for(const void *caller) {
  _Atomic uint32_t *all = atomic_load_explicit(&states, memory_order_acquire);
  return all != NULL && (uintptr_t)caller - begins < codeBytes ? all : NULL;
}

/* A descriptor that comes to NCCL is a new connection, which greets, or this. */
static __attribute__((noinline)) word accept_nccls(_Atomic uint32_t *all, function real, word fd, word address, word size) {
  int accepted = (int)real(fd, address, size, 0, 0, 0);
  if ((unsigned)accepted < SOCKETS) atomic_store_explicit(&all[accepted], ACCEPTED, memory_order_relaxed);
  return accepted;
}

__attribute__((visibility("default"))) word dyn_accept(word fd, word address, word size, word d, word e, word f MORE) __asm__("accept");
word dyn_accept(word fd, word address, word size, word d, word e, word f MORE) {
  function real = real_of(&realAccept, "accept");
  _Atomic uint32_t *all = states_for(__builtin_return_address(0));
  return all == NULL ? PASS(real, fd, address, size, d, e, f) : accept_nccls(all, real, fd, address, size);
}

/* The size of a message that may come behind it; 0: it is none. */
static uint32_t announces(const void *data, size_t bytes) {
  int32_t size;
  if (bytes != sizeof size) return 0;
  memcpy(&size, data, sizeof size);
  return size > 0 && size <= (int32_t)LEFT ? (uint32_t)size : 0;
}

/* A message of 4 bytes behind its size is as long. */
static bool greets(const void *data, size_t bytes) { return bytes == MAGIC_BYTES && announces(data, sizeof(int32_t)) != MAGIC_BYTES - sizeof(int32_t); }

/* What a connection is after these bytes that are the beginning of one. */
static uint32_t greeted(uint32_t state, const void *data, size_t bytes) {
  if (greets(data, bytes)) return GREETED;
  return state & GREETED && announces(data, bytes) == NET_SOCKET ? NET : 0;
}

/* Behind 8 bytes that were to come, and may as well have been a new connection's first: whether it is one. */
static bool is_new(uint32_t state, const void *data, size_t bytes) { return state & GREETED && announces(data, bytes) > 0 && announces(data, bytes) < TYPES; }

/* Both at once: the type; 0: it is none. The number is random, and not the size of 8 bytes that come with it. */
static uint32_t greeting(const void *data, size_t bytes) {
  uint32_t words[3];
  if (bytes != sizeof words) return 0;
  memcpy(words, data, sizeof words);
  return words[0] >> 16 != 0 && words[1] >> 16 != 0 && words[2] < TYPES ? words[2] : 0;
}

static __attribute__((noinline)) word send_nccls(_Atomic uint32_t *at, function real, int fd, const void *data, size_t bytes, int flags) {
  uint32_t state = atomic_load_explicit(at, memory_order_relaxed), left = state & LEFT, type = greeting(data, bytes);
  if (type > 0) {
    ssize_t sent = real(fd, (word)data, (word)bytes, flags, 0, 0);
    if (sent > 0) atomic_store_explicit(at, sent == (ssize_t)bytes && type == NET_SOCKET ? NET : 0, memory_order_relaxed);
    return sent;
  }
  if (left > 0 && bytes == left) {
    ssize_t sent = bytes < DYN_MOVE_BYTES ? real(fd, (word)data, (word)bytes, flags, 0, 0) : dyn_move(real, fd, (void *)data, bytes, flags);
    if (sent > 0) atomic_store_explicit(at, NET | ALIKE | (bytes == MAGIC_BYTES ? GREETED : 0) | (left - (uint32_t)sent), memory_order_relaxed);
    return sent;
  }
  if (!(state & NET) || greets(data, bytes) || is_new(state, data, bytes)) {
    ssize_t sent = real(fd, (word)data, (word)bytes, flags, 0, 0);
    if (sent == (ssize_t)bytes) atomic_store_explicit(at, greeted(state, data, bytes), memory_order_relaxed);
    return sent;
  }
  state = left > 0 ? NET : state & ~GREETED; /* left: something else is sent here */
  uint32_t size = announces(data, bytes);
  bool waits = size > INLINE && size <= MOST && state & ALIKE;
  ssize_t sent = real(fd, (word)data, (word)bytes, waits ? flags | MSG_MORE : flags, 0, 0);
  if (waits && sent == (ssize_t)bytes) dyn_traffic_add(&dynamiccl_preload.traffic.together, 1);
  atomic_store_explicit(at, size > 0 && sent == (ssize_t)bytes ? state | size : state, memory_order_relaxed);
  if (size >= DYN_MOVE_BYTES) dyn_move_nothing(fd);
  return sent;
}

__attribute__((visibility("default"))) word dyn_send(word fd, word data, word bytes, word flags, word e, word f MORE) __asm__("send");
word dyn_send(word fd, word data, word bytes, word flags, word e, word f MORE) {
  function real = real_of(&realSend, "send");
  _Atomic uint32_t *all = states_for(__builtin_return_address(0));
  if (all == NULL || !(flags & MSG_DONTWAIT) || (unsigned)fd >= SOCKETS) return PASS(real, fd, data, bytes, flags, e, f);
  return send_nccls(&all[(unsigned)fd], real, (int)fd, (const void *)data, (size_t)bytes, (int)flags);
}

/* Connections that were accepted: what greets them, and then sizes, each with its message. */
static __attribute__((noinline)) word recv_nccls(_Atomic uint32_t *at, function real, int fd, void *data, size_t bytes, int flags) {
  uint32_t state = atomic_load_explicit(at, memory_order_relaxed), left = state & LEFT;
  if (left >= DYN_MOVE_BYTES && bytes == left) {
    ssize_t got = dyn_move(real, fd, data, bytes, flags);
    if (got > 0) atomic_store_explicit(at, INCOMING | (left - (uint32_t)got), memory_order_relaxed);
    return got;
  }
  ssize_t got = real(fd, (word)data, (word)bytes, flags, 0, 0);
  if (got < 0) dyn_move_nothing(fd);
  if (got <= 0) return got;
  bool whole = got == (ssize_t)bytes;
  if (state & ACCEPTED) state = !whole ? 0 : greets(data, bytes) ? HEARD : greeting(data, bytes) == NET_SOCKET ? INCOMING : 0;
  else if (state & HEARD) state = whole && announces(data, bytes) == NET_SOCKET ? INCOMING : 0;
  else state = INCOMING | (whole ? announces(data, bytes) : 0);
  atomic_store_explicit(at, state, memory_order_relaxed);
  return got;
}

__attribute__((visibility("default"))) word dyn_recv(word fd, word data, word bytes, word flags, word e, word f MORE) __asm__("recv");
word dyn_recv(word fd, word data, word bytes, word flags, word e, word f MORE) {
  function real = real_of(&realRecv, "recv");
  _Atomic uint32_t *all = states_for(__builtin_return_address(0));
  if (all == NULL || !(flags & MSG_DONTWAIT) || (unsigned)fd >= SOCKETS) return PASS(real, fd, data, bytes, flags, e, f);
  if (!(atomic_load_explicit(&all[(unsigned)fd], memory_order_relaxed) & (ACCEPTED | HEARD | INCOMING))) return PASS(real, fd, data, bytes, flags, e, f);
  return recv_nccls(&all[(unsigned)fd], real, (int)fd, (void *)data, (size_t)bytes, (int)flags);
}
