/* SPDX-License-Identifier: Apache-2.0
 *
 * Of test_hosts: who speaks to a hub, or listens in its place, that is none of its ranks; and how words come over.
 */
#ifndef DYN_HOSTS_WORDS_H
#define DYN_HOSTS_WORDS_H

#include <arpa/inet.h>

#include "../wire.h"
#include "hosts_rig.h"

/* ---- strangers ---- */

static int call_root(void) {
  struct dyn_root at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(dyn_id_read(shared->id, &at) && fd >= 0);
  if (connect(fd, &at.at.any, sizeof at.at.in) == 0) return fd;
  close(fd);
  return -1;
}

/* Says so many bytes; whether the connection is closed at the other end before who says too little is sent away. */
static bool is_away_soon(const void *says, size_t bytes) {
  int fd = call_root();
  char word;
  CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = 200000}, sizeof(struct timeval)) == 0);
  ssize_t sent = send(fd, says, bytes, MSG_NOSIGNAL), got = recv(fd, &word, 1, 0);
  bool away = sent < 0 || got == 0 || (got < 0 && errno == ECONNRESET);
  close(fd);
  return away;
}

/* At once or not until that time, whichever: on a busy machine it may be late, or this process may look late, once or twice. */
static bool is_sent_away(const void *says, size_t bytes) { return is_away_soon(says, bytes) || is_away_soon(says, bytes) || is_away_soon(says, bytes); }
static bool may_stay(const void *says, size_t bytes) { return !is_away_soon(says, bytes) || !is_away_soon(says, bytes) || !is_away_soon(says, bytes); }

/* The other end closes it, within seconds. */
static bool ends(int fd) {
  char word;
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 3 * (time_t)patience()}, sizeof(struct timeval)) == 0);
  bool does = recv(fd, &word, 1, 0) == 0 || errno == ECONNRESET;
  close(fd);
  return does;
}

static void strangers(void) {
  struct dyn_root at;
  unsigned char garbage[20000];
  int idle[40];
  start(3, 3, 1, -1, NULL);
  settle();
  CHECK(dyn_id_read(shared->id, &at));
  struct dyn_hosts_message hello = {.version = DYN_HOSTS_VERSION, .kind = DYN_HOSTS_HELLO, .commId = 9, .nonce = at.nonce, .host = 77, .nRanks = 3, .count = 16}, m = hello;
  for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = (unsigned char)(i * i >> 3);
  for (int i = 0; i < 40; i++) CHECK((idle[i] = call_root()) >= 0 && (i % 2 == 0 || send(idle[i], &hello, 31, MSG_NOSIGNAL) == 31));
  CHECK(may_stay(&hello, sizeof hello)); /* all others differ in one word */
#define DIFFERENT(CHANGE) (m = hello, CHANGE, is_sent_away(&m, sizeof m))
  CHECK(is_sent_away(garbage, sizeof garbage) && may_stay(&hello, 40));
  CHECK(DIFFERENT(m.nonce++) && DIFFERENT(m.version++) && DIFFERENT(m.kind = DYN_HOSTS_TOGETHER) && DIFFERENT(m.kind = 200) && DIFFERENT(m.bytes = 1));
  CHECK(DIFFERENT(m.rank = 3) && DIFFERENT(m.nRanks = 1) && DIFFERENT(m.nRanks = DYN_MAX_RANKS + 1) && DIFFERENT(m.question = 5));
  CHECK(DIFFERENT(m.commId = 100) && DIFFERENT((m.commId = 100, m.nRanks = 2)) && DIFFERENT((m.commId = 100, m.count = 8))); /* a rank that is here, of another host */
  m = hello;
  memcpy(garbage, &hello, sizeof hello);
  m.kind = DYN_HOSTS_ANSWER;
  m.rank = 1; /* says another one */
  memcpy(garbage + sizeof hello, &m, sizeof m);
  CHECK(is_sent_away(garbage, 2 * sizeof hello));
  settle();
  for (int i = 0; i < 40; i++) CHECK(ends(idle[i])); /* who says nothing is sent away */
  settle();
  stop();
}

/* ---- two ranks, word by word ---- */

static size_t put(unsigned char *to, int kind, uint32_t rank, uint64_t question, const void *payload) {
  struct dyn_root at;
  CHECK(dyn_id_read(shared->id, &at));
  struct dyn_hosts_message m = {.version = DYN_HOSTS_VERSION, .kind = (uint16_t)kind, .bytes = dyn_hosts_bytes((unsigned)kind), .commId = 9, .nonce = at.nonce,
                                .host = rank + 1, .question = question, .nRanks = 2, .rank = rank, .count = kind == DYN_HOSTS_HELLO ? 16 : 0};
  memcpy(to, &m, sizeof m);
  if (m.bytes) memcpy(to + sizeof m, payload, m.bytes);
  return sizeof m + m.bytes;
}
static void give(int fd, const unsigned char *bytes, size_t n, size_t piece) {
  for (size_t at = 0; at < n; at += piece) {
    size_t some = n - at < piece ? n - at : piece;
    CHECK(send(fd, bytes + at, some, MSG_NOSIGNAL) == (ssize_t)some);
    if (piece < n) nap(MS / 2);
  }
}
static struct dyn_hosts_message get(int fd, int kind, void *payload) {
  struct dyn_hosts_message m;
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 5 * (time_t)patience()}, sizeof(struct timeval)) == 0);
  CHECK(recv(fd, &m, sizeof m, MSG_WAITALL) == sizeof m && m.kind == kind && m.bytes == dyn_hosts_bytes((unsigned)kind) && m.commId == 9);
  CHECK(m.bytes == 0 || recv(fd, payload, m.bytes, MSG_WAITALL) == (ssize_t)m.bytes);
  return m;
}
static void by_hand(void) {
  static unsigned char out[3 * (sizeof(struct dyn_hosts_message) + DYN_HOSTS_MOST_BYTES)];
  struct dyn_hosts_word word = {.flags = 1, .ncclVersion = 22703}, others;
  struct dyn_plan plan = {.version = 77}, heard;
  size_t n;
  start(2, 2, 1, -1, NULL);
  AWAIT(LOAD(shared->told[0][0].ready), 3000);
  int a = call_root(), b = call_root();
  CHECK(a >= 0 && b >= 0);
  for (size_t i = 0; i < sizeof plan.entries; i++) ((unsigned char *)plan.entries)[i] = (unsigned char)(i * 7);
  memset(word.marks, 0x55, sizeof word.marks);
  give(a, out, put(out, DYN_HOSTS_HELLO, 0, 0, NULL), 5);
  n = put(out, DYN_HOSTS_HELLO, 1, 0, NULL);
  give(b, out, n + put(out + n, DYN_HOSTS_TELL, 1, 0, &word), sizeof out);
  CHECK(get(a, DYN_HOSTS_TOGETHER, NULL).count == 1 && get(b, DYN_HOSTS_TOGETHER, NULL).host == 1);
  get(a, DYN_HOSTS_OTHERS, &others);
  CHECK(memcmp(&others, &word, sizeof word) == 0);
  n = put(out, DYN_HOSTS_TELL, 0, 0, &word);
  give(a, out, n + put(out + n, DYN_HOSTS_PROPOSE, 0, 0, &plan), 999);
  uint64_t question = get(a, DYN_HOSTS_PREPARE, &heard).question;
  CHECK(question > 0 && memcmp(&heard, &plan, sizeof plan) == 0 && get(b, DYN_HOSTS_PREPARE, &heard).question == question && memcmp(&heard, &plan, sizeof plan) == 0);
  give(a, out, put(out, DYN_HOSTS_ANSWER, 0, question, NULL), sizeof out);
  give(b, out, put(out, DYN_HOSTS_ANSWER, 1, question, NULL), sizeof out);
  CHECK(get(a, DYN_HOSTS_DECIDE, NULL).refusal == DYN_REFUSED_NOT && get(b, DYN_HOSTS_DECIDE, NULL).refusal == DYN_REFUSED_NOT);
  struct dyn_hosts_gin gin = {{3}}, told;
  give(b, out, put(out, DYN_HOSTS_WISH, 1, 0, &gin), sizeof out); /* the hub's process has no rank of this communicator, and may end before it */
  CHECK(get(a, DYN_HOSTS_VERDICT, &told).refusal != DYN_REFUSED_NOT && get(b, DYN_HOSTS_VERDICT, &told).refusal != DYN_REFUSED_NOT);
  give(a, out, put(out, DYN_HOSTS_PROPOSE, 0, 0, &plan), sizeof out);
  CHECK(get(a, DYN_HOSTS_PREPARE, &heard).question > question && get(b, DYN_HOSTS_PREPARE, &heard).question > question);
  uint64_t closed = now();
  close(b); /* at once it is dropped, and not when the hub has waited for 2 s */
  CHECK(get(a, DYN_HOSTS_DECIDE, NULL).refusal == DYN_REFUSED_SILENT && now() - closed < 1900 * MS);
  CHECK((b = call_root()) >= 0); /* who has heard of neither asks, first of the one before */
  give(b, out, put(out, DYN_HOSTS_HELLO, 1, question, NULL), sizeof out);
  get(b, DYN_HOSTS_TOGETHER, NULL);
  CHECK(get(b, DYN_HOSTS_DECIDE, NULL).refusal == DYN_REFUSED_NOT);
  close(a);
  close(b);
  settle();
  stop();
}

/* A peer that takes nothing for a while: what is sent waits, whole and in order, and not without end. */
static uint64_t taken;
static bool take_next(void *end, const struct dyn_hosts_message *m, const void *payload) {
  CHECK(m->epoch == taken && ((const struct dyn_plan *)payload)->version == taken);
  return ++taken < *(uint64_t *)end;
}
static void slow_peer(void) {
  static struct dyn_wire from, to;
  struct dyn_hosts_message m = {.version = DYN_HOSTS_VERSION, .kind = DYN_HOSTS_PREPARE, .bytes = sizeof(struct dyn_plan)};
  struct dyn_plan plan = {0};
  uint64_t end = 150;
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0 && setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &(int){10000}, sizeof(int)) == 0);
  dyn_wire_adopt(&from, ends[0]);
  dyn_wire_adopt(&to, ends[1]);
  for (; m.epoch < end; m.epoch++) {
    plan.version = m.epoch;
    CHECK(dyn_wire_send(&from, &m, &plan));
  }
  CHECK(dyn_wire_waits(&from));
  while (dyn_wire_read(&to, take_next, &end)) CHECK(taken < end && dyn_wire_flush(&from));
  CHECK(taken == end && !dyn_wire_waits(&from));
  while (m.epoch < 1000 && dyn_wire_send(&from, &m, &plan)) m.epoch++;
  CHECK(m.epoch < 600);
  dyn_wire_close(&from);
  dyn_wire_close(&to);
}

/* Where the hub was somebody else listens, who says nothing, or sends everybody away. */
static int server;
static void *send_away(void *nothing) {
  for (int fd; (fd = accept(server, NULL, NULL)) >= 0;) close(fd);
  return nothing;
}
static void others_there(void) {
  for (int away = 0; away < 2; away++) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    unsigned char id[DYN_ID_BYTES];
    pthread_t thread;
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(server, (struct sockaddr *)&at, size) == 0 && listen(server, 10) == 0 && getsockname(server, (struct sockaddr *)&at, &size) == 0);
    plain_id(id);
    dyn_id_mark(id, &(struct dyn_root){.nonce = 12345, .at.in = at});
    start_at(id, 2, 2, 1, -1, NULL);
    if (away) CHECK(pthread_create(&thread, NULL, send_away, NULL) == 0);
    AWAIT(LOAD(shared->told[0][0].said) == 1 && LOAD(shared->told[0][1].said) == 1, 6000);
    CHECK(go_on(0) && shared->memories[0][0].record.hosts == DYN_HOSTS_APART && shared->memories[0][1].record.hosts == DYN_HOSTS_APART);
    stop();
    shutdown(server, SHUT_RDWR);
    if (away) pthread_join(thread, NULL);
    close(server);
  }
}

#endif
