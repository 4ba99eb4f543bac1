/* SPDX-License-Identifier: Apache-2.0
 *
 *   LD_PRELOAD=libdynamiccl.so test_sends FOLDER     FOLDER has the fake libnccl.so.2
 * Small messages of NCCL's over TCP connections that are full: whole or not at all, and no other sender's.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST (4 + 16384)
#define CHECK(condition) ((condition) ? (void)0 : (printf("test_sends: line %d: %s (errno %d)\n", __LINE__, #condition, errno), exit(1)))

static ssize_t (*nccls)(int, const void *, size_t);
static ssize_t others(int fd, const void *data, size_t bytes) { return send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL); }

static uint64_t seed = 1;
static size_t below(size_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(seed >> 33) % n;
}

/* 0 for a buffer or a segment: as the kernel has it. */
static void connect_pair(int fds[2], int buffer, int segment) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(server, (struct sockaddr *)&at, size) == 0 && listen(server, 1) == 0 && getsockname(server, (struct sockaddr *)&at, &size) == 0);
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (segment != 0) CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment) == 0);
  if (buffer != 0) CHECK(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
  CHECK(connect(fds[0], (struct sockaddr *)&at, size) == 0 && (fds[1] = accept(server, NULL, NULL)) >= 0);
  CHECK(setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
  close(server);
}

struct counts {
  int whole, none, partly, stuck;
};

/* Sends until nothing goes, reads some, and so on; what arrives is what was sent. */
static struct counts play(ssize_t (*sends)(int, const void *, size_t), int buffer, int segment, size_t least, size_t most) {
  static uint8_t data[MOST + 1], got[1 << 20];
  struct counts n = {0};
  uint8_t out = 0, in = 0;
  int fds[2], refused = 0;
  connect_pair(fds, buffer, segment);
  for (int step = 0; step < 30000 && n.none + n.partly < 60; step++) {
    size_t bytes = least + below(most - least + 1);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(out + i);
    ssize_t sent = sends(fds[0], data, bytes);
    CHECK(sent > 0 || (sent == -1 && errno == EAGAIN));
    if (sent > 0) out = (uint8_t)(out + sent);
    n.whole += sent == (ssize_t)bytes, n.none += sent < 0, n.partly += sent > 0 && sent < (ssize_t)bytes;
    refused = sent == (ssize_t)bytes ? 0 : refused + 1;
    if (refused == 0) continue;
    for (ssize_t left = (ssize_t)below(sizeof got); left > 0;) {
      ssize_t read = recv(fds[1], got, (size_t)left, MSG_DONTWAIT);
      if (read <= 0) break;
      for (ssize_t i = 0; i < read; i++) CHECK(got[i] == in++);
      left -= read;
      refused = 0;
    }
    n.stuck += refused > 10000; /* all was read long ago, and it is refused still */
    if (refused > 0) usleep(10); /* the reader's answer is on its way */
  }
  close(fds[0]), close(fds[1]);
  return n;
}

int main(int argc, char **argv) {
  char path[4096];
  struct counts n;
  CHECK(argc == 2 && snprintf(path, sizeof path, "%s/libnccl.so.2", argv[1]) < (int)sizeof path);
  void *nccl = dlopen(path, RTLD_NOW);
  CHECK(nccl != NULL && (*(void **)&nccls = dlsym(nccl, "fake_send")) != NULL);
  CHECK(setenv("NCCL_SOCKET_INLINE", "16384", 1) == 0);
  /* A connection that is full takes a part of a message, so what follows is a test of something. */
  n = play(nccls, 0, 1448, MOST - 4000, MOST);
  CHECK(n.partly > 0);
  int (*init)(uintptr_t *, int, const int *);
  *(void **)&init = dlsym(RTLD_DEFAULT, "ncclCommInitAll");
  uintptr_t comm[1];
  CHECK(init != NULL);
  init(comm, 1, NULL);
  static const int segments[] = {0, 1220, 1448, 8948};
  for (int i = 0; i < 4; i++) {
    n = play(nccls, 0, segments[i], 133, MOST);
    CHECK(n.partly == 0 && n.none > 20 && n.whole > 100 && n.stuck == 0);
  }
  n = play(nccls, 0, 1448, MOST + 1, MOST + 1); /* longer ones are no messages that are sent with their size */
  CHECK(n.partly > 0);
  n = play(others, 0, 1448, MOST - 4000, MOST);
  CHECK(n.partly > 0);
  n = play(nccls, 4096, 1448, MOST - 4000, MOST); /* no room for one at all: as without us, and no standstill */
  CHECK(n.stuck == 0 && n.whole + n.partly > 10);
  int pair[2]; /* of which the kernel does not say how full they are */
  char byte = 0, many[1000] = "";
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && nccls(pair[0], many, sizeof many) == sizeof many);
  CHECK(close(pair[1]) == 0 && nccls(pair[0], &byte, 1) == -1 && errno == EPIPE && nccls(-1, many, sizeof many) == -1 && errno == EBADF);
  return 0;
}
