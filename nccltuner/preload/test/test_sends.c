/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_sends FOLDER [bench]     FOLDER has the fake libnccl.so.2
 * Sizes of NCCL's messages over TCP wait for the messages where these come behind them, and nothing else waits. bench: us a message
 * there and back, as NCCL sends and receives it, with two packets and with one.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../preload.h"

#define MOST 200000
#define CHECK(condition) ((condition) ? (void)0 : (printf("test_sends: line %d: %s (errno %d)\n", __LINE__, #condition, errno), exit(1)))

typedef ssize_t (*sender)(int, const void *, size_t, int);
static sender nccls;
static ssize_t (*nccl_receives)(int, void *, size_t, int);
static int (*nccl_accepts)(int);
static ssize_t others(int fd, const void *data, size_t bytes, int flags) { return send(fd, data, bytes, flags); }
static int fds[2]; /* one sends to the other */

static const int whileNccl = MSG_DONTWAIT | MSG_NOSIGNAL;
enum { BOOTSTRAP = 1, NET_SOCKET = 3 }; /* ncclSocketType */
/* As connections of NCCL's begin, to 2.31 and from 2.32 on. */
static bool together;
static int greeting(void) { return together ? 12 : 8; }
#define GREETING 12
static void greets(int type) {
  static const uint64_t magic = 0x564ab9f2fc4b9d6c;
  char whole[GREETING];
  memcpy(whole, &magic, sizeof magic);
  memcpy(whole + sizeof magic, &type, sizeof type);
  if (together)
    CHECK(nccls(fds[0], whole, sizeof whole, whileNccl) == sizeof whole);
  else
    CHECK(nccls(fds[0], &magic, sizeof magic, whileNccl) == sizeof magic && nccls(fds[0], &type, sizeof type, whileNccl) == sizeof type);
}
static void greet(int type) {
  char got[GREETING];
  greets(type);
  CHECK(recv(fds[1], got, sizeof got, MSG_WAITALL) == sizeof got);
}

static void connect_pair(int buffer, int type) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(server, (struct sockaddr *)&at, size) == 0 && listen(server, 1) == 0 && getsockname(server, (struct sockaddr *)&at, &size) == 0);
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (buffer != 0) CHECK(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
  CHECK(connect(fds[0], (struct sockaddr *)&at, size) == 0 && (fds[1] = accept(server, NULL, NULL)) >= 0);
  for (int i = 0; i < 2; i++) CHECK(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
  close(server);
  greet(type);
}
static void close_pair(void) { close(fds[0]), close(fds[1]); }

static uint8_t payload[MOST];

/* Sends so much, and whether it is there at once. */
static bool arrives(sender sends, const void *data, size_t bytes, int flags) {
  static uint8_t got[MOST];
  CHECK(sends(fds[0], data, bytes, flags) == (ssize_t)bytes);
  ssize_t n = recv(fds[1], got, sizeof got, MSG_DONTWAIT);
  CHECK(n >= (ssize_t)bytes ? memcmp(got + n - bytes, data, bytes) == 0 : n < 0);
  return n > 0;
}
static bool size_arrives(sender sends, int32_t size) { return arrives(sends, &size, sizeof size, whileNccl); }
static uint64_t one_packet(void) { return atomic_load(&((struct dyn_preload *)dlsym(RTLD_DEFAULT, DYN_PRELOAD_SYMBOL))->traffic.together); }
/* Whether the size of a message is there before it; else it is counted. */
static bool size_is_first(sender sends, int32_t size) {
  uint64_t before = one_packet();
  bool first = size_arrives(sends, size);
  CHECK(one_packet() - before == !first);
  CHECK(arrives(sends, payload, (size_t)size, whileNccl));
  return first;
}

/* A connection ends behind the size of a message that is as long as the number that the next one begins with. */
static void ended_early(int type) {
  connect_pair(0, NET_SOCKET);
  int used = fds[0];
  CHECK(size_is_first(nccls, 1000) && !size_is_first(nccls, 1000) && size_arrives(nccls, greeting()));
  close_pair();
  connect_pair(0, type);
  CHECK(fds[0] == used && size_is_first(nccls, 1000));
  for (int i = 0; i < 3; i++) CHECK(size_is_first(nccls, 1000) == (type != NET_SOCKET));
  close_pair();
  connect_pair(0, NET_SOCKET); /* and where such a message does come */
  CHECK(size_is_first(nccls, 1000) && size_is_first(nccls, greeting()) && !size_is_first(nccls, 1000));
  CHECK(size_is_first(nccls, greeting()) && size_arrives(nccls, greeting()) && arrives(nccls, payload, (size_t)greeting(), whileNccl) && !size_is_first(nccls, 1000));
  close_pair();
}

/* What is accepted begins with nothing, whatever had the descriptor before. */
static void accepted(void) {
  connect_pair(0, NET_SOCKET);
  CHECK(size_is_first(nccls, 1000) && !size_is_first(nccls, 1000));
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int used = fds[0], one = 1, server = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(server, (struct sockaddr *)&at, size) == 0 && listen(server, 1) == 0 && getsockname(server, (struct sockaddr *)&at, &size) == 0);
  CHECK(connect(other, (struct sockaddr *)&at, size) == 0);
  close_pair();
  fds[1] = other;
  CHECK((fds[0] = nccl_accepts(server)) == used && setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
  for (int i = 0; i < 3; i++) CHECK(size_is_first(nccls, 1000));
  close_pair();
  close(server);
}

static void cases(void) {
  connect_pair(0, NET_SOCKET);
  CHECK(size_is_first(nccls, 1000) && !size_is_first(nccls, 129) && !size_is_first(nccls, 32768) && size_is_first(nccls, 32769) && !size_is_first(nccls, 1000));
  /* Nobody waits for what does not come: no message, or with its size. */
  CHECK(size_arrives(nccls, 0) && size_arrives(nccls, -7) && size_is_first(nccls, 128) && arrives(nccls, payload, 100, whileNccl));
  int32_t number = 5000;
  CHECK(size_is_first(nccls, 4) && size_arrives(nccls, 4) && arrives(nccls, &number, 4, whileNccl)); /* a message may look like a size */
  CHECK(!size_is_first(nccls, 1000) && size_is_first(others, 1000) && arrives(nccls, &number, 4, MSG_NOSIGNAL) && !size_is_first(nccls, 1000));
  /* Messages that go elsewhere: the second size takes the first along, and none waits any more until a message follows. */
  CHECK(!size_arrives(nccls, 1000) && size_arrives(nccls, 2000) && size_arrives(nccls, 3000) && size_arrives(nccls, 4000));
  CHECK(size_is_first(nccls, 4000) && !size_is_first(nccls, 4000));
  const int32_t small[] = {4, 5}; /* is as long as a connection's beginning */
  CHECK(arrives(nccls, small, sizeof small, whileNccl) && !size_is_first(nccls, 1000));
  const int32_t with[] = {8, 1 << 20, BOOTSTRAP}; /* a size and its message */
  CHECK(arrives(nccls, with, sizeof with, whileNccl) && !size_is_first(nccls, 1000));
  int used = fds[0];
  close_pair();
  connect_pair(0, NET_SOCKET);
  CHECK(fds[0] == used && size_is_first(nccls, 1000) && !size_is_first(nccls, 1000));
  close_pair();
  connect_pair(0, BOOTSTRAP);
  CHECK(fds[0] == used);
  for (int i = 0; i < 3; i++) CHECK(size_is_first(nccls, 1000));
  close_pair();
  accepted();
  ended_early(BOOTSTRAP);
  ended_early(NET_SOCKET);
  CHECK(nccls(-1, payload, 4, whileNccl) == -1 && errno == EBADF && nccls(fds[0], &number, 4, whileNccl) == -1 && errno == EBADF);
}

static uint64_t seed = 1;
static size_t below(size_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(seed >> 33) % n;
}
static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* All of it, in as many pieces as it takes: as NCCL's two ends do. */
static void send_all(sender sends, int fd, const void *data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t n = sends(fd, (const char *)data + at, bytes - at, whileNccl);
    CHECK(n >= 0 || errno == EAGAIN);
    if (n > 0) at += (size_t)n;
  }
}
static void receive_all(int fd, void *data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
    CHECK(n > 0 || (n < 0 && errno == EAGAIN));
    if (n > 0) at += (size_t)n;
  }
}

#define MESSAGES 1000
static void *receiver(void *nothing) {
  static uint8_t got[MOST];
  for (uint32_t m = 0; m < MESSAGES; m++) {
    int32_t size;
    receive_all(fds[1], &size, sizeof size);
    CHECK(size > 0 && size < MOST);
    receive_all(fds[1], got, (size_t)size);
    for (int32_t i = 0; i < size; i += 4) CHECK(memcmp(got + i, &(uint32_t){200 + m}, (size_t)(size - i < 4 ? size - i : 4)) == 0);
    if (m % 16 == 0) usleep(300);
  }
  return nothing;
}

/* Through a buffer that is full most of the time, so that messages go in pieces, of which some look like sizes. How many seconds it took. */
static double stream(sender sends) {
  pthread_t thread;
  connect_pair(20000, NET_SOCKET);
  CHECK(pthread_create(&thread, NULL, receiver, NULL) == 0);
  double began = now_s();
  for (uint32_t m = 0; m < MESSAGES; m++) {
    int32_t size = 1 + (int32_t)below(m % 2 ? 300 : 60000);
    for (int32_t i = 0; i < size; i += 4) memcpy(payload + i, &(uint32_t){200 + m}, 4);
    send_all(sends, fds[0], &size, sizeof size);
    send_all(sends, fds[0], payload, (size_t)size);
  }
  pthread_join(thread, NULL);
  close_pair();
  return now_s() - began;
}
/* Had one in twenty waited for the kernel's 0.2 s, it would be 10 s longer. */
static void streams(void) {
  double plain = stream(others), ours = stream(nccls);
  CHECK(ours < 10 + 2 * plain);
}

/* A ring of NCCL's bootstrap (socketSendRecv, src/bootstrap.cc): each rank sends a size, waits for its neighbour's, and then sends the message. */
#define RANKS 4
#define GATHERS 10
static int ringNext[RANKS], ringPrev[RANKS];
static void *ring_rank(void *number) {
  int rank = (int)(intptr_t)number, sent = 1000, got;
  uint8_t message[1000];
  for (int step = 0; step < GATHERS * (RANKS - 1); step++) {
    send_all(nccls, ringNext[rank], &sent, sizeof sent);
    receive_all(ringPrev[rank], &got, sizeof got);
    CHECK(got == sent);
    send_all(nccls, ringNext[rank], payload, (size_t)sent);
    receive_all(ringPrev[rank], message, (size_t)got);
  }
  return NULL;
}
static void ring(void) {
  pthread_t threads[RANKS];
  double began = now_s();
  for (int r = 0; r < RANKS; r++) CHECK(pthread_create(&threads[r], NULL, ring_rank, (void *)(intptr_t)r) == 0);
  for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
  printf("{\"figure\":\"bootstrap step\",\"ms\":%.3f}\n", (now_s() - began) * 1e3 / (GATHERS * (RANKS - 1)));
  CHECK(now_s() - began < 0.1 * GATHERS * (RANKS - 1)); /* none waited for the kernel's 0.2 s, as a rule */
}
static void bootstrap(void) {
  for (int r = 0; r < RANKS; r++) {
    connect_pair(0, BOOTSTRAP);
    ringNext[r] = fds[0], ringPrev[(r + 1) % RANKS] = fds[1];
  }
  ring();
}

#include "long_messages.h"

/* ---- bench ---- */

static int benchBytes, benchCalls = 2000;
static sender benchSends;
static void bench_side(int fd, bool first) {
  static uint8_t buffers[2][MOST];
  for (int i = 0; i < 2 * benchCalls; i++) {
    int32_t size = benchBytes;
    if ((i % 2 == 0) == first) {
      send_all(benchSends, fd, &size, sizeof size);
      send_all(benchSends, fd, buffers[first], (size_t)size);
    } else {
      receive_all(fd, &size, sizeof size);
      receive_all(fd, buffers[first], (size_t)size);
    }
  }
}
static void *bench_other(void *nothing) {
  bench_side(fds[1], false);
  return nothing;
}
static void bench(void) {
  static const int sizes[] = {1 << 10, 4 << 10, 16 << 10, 64 << 10};
  for (int s = 0; s < 4; s++) {
    double us[2] = {1e9, 1e9};
    benchBytes = sizes[s];
    for (int round = 0; round < 20; round++) { /* in turn; the best of each, for where threads run is worth a factor of two */
      pthread_t thread;
      int one = round % 2;
      connect_pair(0, NET_SOCKET);
      benchSends = one ? nccls : others;
      double began = now_s();
      CHECK(pthread_create(&thread, NULL, bench_other, NULL) == 0);
      bench_side(fds[0], true);
      pthread_join(thread, NULL);
      double took = (now_s() - began) * 1e6 / (2 * benchCalls);
      if (took < us[one]) us[one] = took;
      close_pair();
    }
    printf("{\"figure\":\"tcp message\",\"bytes\":%d,\"us_two_packets\":%.2f,\"us_one\":%.2f,\"ratio\":%.3f}\n", benchBytes, us[0], us[1], us[0] / us[1]);
  }
}

/* The fake NCCL calls it while it is loaded, which other threads may not wait for: the first that is sent must not. */
static void *first_send(void *nothing) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && send(pair[0], payload, 1, 0) == 1);
  close(pair[0]), close(pair[1]);
  return nothing;
}
__attribute__((visibility("default"))) void fake_loading(void);
void fake_loading(void) {
  pthread_t thread;
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 5;
  CHECK(pthread_create(&thread, NULL, first_send, NULL) == 0 && (errno = pthread_timedjoin_np(thread, NULL, &end)) == 0);
}

int main(int argc, char **argv) {
  char path[4096];
  int (*init)(uintptr_t *, int, const int *);
  uintptr_t comm[1];
  CHECK(setenv("DYNAMICCL_SOCKET_THREADS", "2", 1) == 0 && argc >= 2 && snprintf(path, sizeof path, "%s/libnccl.so.2", argv[1]) < (int)sizeof path);
  void *nccl = dlopen(path, RTLD_NOW);
  CHECK(nccl != NULL && (*(void **)&nccls = dlsym(nccl, "fake_send")) != NULL && (*(void **)&nccl_accepts = dlsym(nccl, "fake_accept")) != NULL && (*(void **)&nccl_receives = dlsym(nccl, "fake_recv")) != NULL && (*(void **)&init = dlsym(dlopen(NULL, RTLD_LAZY), "ncclCommInitAll")) != NULL);
  connect_pair(0, NET_SOCKET); /* before there is a communicator nothing waits */
  for (int i = 0; i < 3; i++) CHECK(size_is_first(nccls, 1000));
  close_pair();
  init(comm, 1, NULL);
  for (int i = 0; i < 2; i++) {
    together = i == 1;
    long_messages();
    cases();
    streams();
    bootstrap();
  }
  if (argc > 2) bench();
  return 0;
}
