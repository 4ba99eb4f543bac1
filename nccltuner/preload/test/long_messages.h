/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_sends.c: long messages of NCCL's Socket network, whose bytes threads move, both ways.
 */
enum { LONG = 100000, ROOM = 200000 };

/* Both ends are NCCL's. */
static void connect_nccls(int type) {
  char got[GREETING];
  int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  CHECK(setsockopt(server, SOL_SOCKET, SO_RCVBUF, &(int){ROOM}, sizeof(int)) == 0);
  CHECK(bind(server, (struct sockaddr *)&at, size) == 0 && listen(server, 1) == 0 && getsockname(server, (struct sockaddr *)&at, &size) == 0);
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(fds[0], (struct sockaddr *)&at, size) == 0 && (fds[1] = nccl_accepts(server)) >= 0);
  for (int i = 0; i < 2; i++) CHECK(setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
  close(server);
  greets(type);
  while (recv(fds[1], got, sizeof got, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof got) usleep(100);
  size_t first = together ? sizeof got : sizeof(uint64_t);
  CHECK(nccl_receives(fds[1], got, first, MSG_DONTWAIT) == (ssize_t)first);
  if (!together) CHECK(nccl_receives(fds[1], got + first, sizeof got - first, MSG_DONTWAIT) == (ssize_t)(sizeof got - first));
  CHECK(memcmp(got + sizeof(uint64_t), &type, sizeof type) == 0);
}

/* A whole message is there, and NCCL has read its size: what its first call for the message says. */
static ssize_t first_of_long(uint8_t *got) {
  int32_t size = LONG;
  CHECK(others(fds[0], &size, sizeof size, 0) == sizeof size && others(fds[0], payload, LONG, 0) == LONG);
  while (recv(fds[1], got, sizeof size + LONG, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof size + LONG) usleep(100);
  CHECK(nccl_receives(fds[1], &size, sizeof size, MSG_DONTWAIT) == sizeof size && size == LONG);
  return nccl_receives(fds[1], got, LONG, MSG_DONTWAIT);
}
static void rest_of_long(uint8_t *got, ssize_t had) {
  for (size_t at = had > 0 ? (size_t)had : 0; at < LONG;) {
    ssize_t n = nccl_receives(fds[1], got + at, LONG - at, MSG_DONTWAIT);
    CHECK(n > 0 || (n < 0 && errno == EAGAIN));
    if (n > 0) at += (size_t)n;
  }
  CHECK(memcmp(got, payload, LONG) == 0);
}
/* Whether a thread has it: else the call itself moves what is there. */
static bool moved_by_thread(void) {
  static uint8_t got[sizeof(int32_t) + LONG];
  for (int i = 0; i < LONG; i++) payload[i] = (uint8_t)(i * 7);
  ssize_t first = first_of_long(got);
  CHECK(first > 0 || (first < 0 && errno == EAGAIN));
  rest_of_long(got, first);
  return first < 0;
}

static void *long_receiver(void *nothing) {
  static uint8_t got[MOST];
  for (uint32_t m = 0; m < MESSAGES / 2; m++) {
    int32_t size = 0;
    for (size_t at = 0; at < sizeof size;) {
      ssize_t n = nccl_receives(fds[1], (char *)&size + at, sizeof size - at, MSG_DONTWAIT);
      CHECK(n > 0 || (n < 0 && errno == EAGAIN));
      if (n > 0) at += (size_t)n;
    }
    CHECK(size > 0 && size < MOST);
    for (size_t at = 0; at < (size_t)size;) {
      ssize_t n = nccl_receives(fds[1], got + at, (size_t)size - at, MSG_DONTWAIT);
      CHECK(n > 0 || (n < 0 && errno == EAGAIN));
      if (n > 0) at += (size_t)n;
    }
    for (int32_t i = 0; i < size; i += 4) CHECK(memcmp(got + i, &(uint32_t){200 + m}, (size_t)(size - i < 4 ? size - i : 4)) == 0);
  }
  return nothing;
}
static void long_stream(void) {
  pthread_t thread;
  connect_nccls(NET_SOCKET);
  CHECK(pthread_create(&thread, NULL, long_receiver, NULL) == 0);
  for (uint32_t m = 0; m < MESSAGES / 2; m++) {
    int32_t size = 1 + (int32_t)below(m % 4 ? MOST - 1 : 2000);
    for (int32_t i = 0; i < size; i += 4) memcpy(payload + i, &(uint32_t){200 + m}, size - i < 4 ? (size_t)(size - i) : 4);
    send_all(nccls, fds[0], &size, sizeof size);
    send_all(nccls, fds[0], payload, (size_t)size);
  }
  pthread_join(thread, NULL);
  close_pair();
}

static void *some_by_threads(void *nothing) {
  bool ever = false;
  for (int i = 0; i < 20; i++) ever |= moved_by_thread();
  CHECK(ever);
  return nothing;
}
/* By a thread of NCCL's that has sent and received nothing yet: what it does is not beside each other, which it does not know. */
static void by_threads(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, some_by_threads, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

/* In two parts, the second of which is too short for a thread. */
static void *in_parts(void *nothing) {
  static uint8_t got[LONG];
  const ssize_t first = 70000;
  int32_t size = LONG;
  CHECK(others(fds[0], &size, sizeof size, 0) == sizeof size && others(fds[0], payload, (size_t)first, 0) == first);
  while (recv(fds[1], got, sizeof size + first, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)sizeof size + first) usleep(100);
  CHECK(nccl_receives(fds[1], &size, sizeof size, MSG_DONTWAIT) == sizeof size);
  ssize_t had;
  while ((had = nccl_receives(fds[1], got, LONG, MSG_DONTWAIT)) < 0) CHECK(errno == EAGAIN);
  CHECK(had == first && others(fds[0], payload + first, LONG - first, 0) == LONG - first);
  rest_of_long(got, had);
  return nothing;
}

/* There and back, by two connections: no two messages are on their way at once, so a thread would only be waited for. The descriptors have
 * had a message of another thread's, which says nothing about these. */
static void long_alone(void) {
  static uint8_t got[sizeof(int32_t) + LONG];
  int32_t size = LONG;
  pthread_t thread;
  connect_nccls(NET_SOCKET);
  int out[] = {fds[0], fds[1]};
  connect_nccls(NET_SOCKET);
  CHECK(pthread_create(&thread, NULL, in_parts, NULL) == 0 && pthread_join(thread, NULL) == 0);
  close_pair();
  connect_nccls(NET_SOCKET);
  for (int i = 0; i < 40; i++) {
    CHECK(nccls(out[0], &size, sizeof size, MSG_DONTWAIT) == sizeof size);
    ssize_t there = nccls(out[0], payload, LONG, MSG_DONTWAIT);
    for (size_t sent = there > 0 ? (size_t)there : 0, had = 0; had < sizeof size + LONG || sent < LONG;) { /* what came need not be said to be sent yet */
      ssize_t n = recv(out[1], got, sizeof size + LONG - had, MSG_DONTWAIT);
      had += n > 0 ? (size_t)n : 0;
      n = sent < LONG ? nccls(out[0], payload + sent, LONG - sent, MSG_DONTWAIT) : 0;
      sent += n > 0 ? (size_t)n : 0;
    }
    CHECK(nccl_receives(fds[1], &size, sizeof size, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    ssize_t back = first_of_long(got);
    rest_of_long(got, back);
    CHECK(there > 0 && back > 0);
  }
  close_pair();
  close(out[0]), close(out[1]);
}

static void long_messages(void) {
  long_stream();
  connect_nccls(BOOTSTRAP);
  CHECK(!moved_by_thread());
  close_pair();
  long_alone();
  connect_nccls(NET_SOCKET);
  by_threads();
  int kept[] = {fds[0], fds[1]};
  connect_nccls(NET_SOCKET); /* another that breaks while NCCL waits for a message is nothing to these */
  int32_t size;
  close(fds[0]);
  CHECK(recv(fds[1], &size, 1, MSG_PEEK) == 0 && nccl_receives(fds[1], &size, sizeof size, MSG_DONTWAIT) == 0);
  close(fds[1]);
  memcpy(fds, kept, sizeof kept);
  by_threads();
  close_pair();
}
