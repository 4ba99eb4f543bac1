/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_KEPT (1 << 20) /* a peer that takes nothing for so long is none */
/* A host that is gone is noticed within half a minute; idle connections are kept open through routers that forget them. */
#define IDLE_S 15
#define PROBE_S 5
#define PROBES 3
#define UNHEARD_MS 30000

static void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); } /* each is a help, none a must */

static void set_up(struct dyn_wire *w, int fd) {
  *w = DYN_WIRE_NONE;
  w->fd = fd;
  w->file = dyn_file_of(fd);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNHEARD_MS);
}

bool dyn_wire_connect(struct dyn_wire *w, const struct sockaddr *to, socklen_t bytes) {
  int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  set_up(w, fd);
  if (connect(fd, to, bytes) == 0) return true;
  w->connecting = errno == EINPROGRESS;
  if (!w->connecting) dyn_wire_close(w);
  return w->connecting;
}

void dyn_wire_adopt(struct dyn_wire *w, int fd) { set_up(w, fd); }

void dyn_wire_close(struct dyn_wire *w) {
  dyn_close_file(w->fd, &w->file);
  free(w->out);
  *w = DYN_WIRE_NONE;
}

static bool keep(struct dyn_wire *w, const void *bytes, size_t n) {
  if (w->numOut + n > MOST_KEPT) return false;
  if (w->numOut + n > w->roomOut) {
    size_t room = 2 * (w->numOut + n);
    unsigned char *larger = realloc(w->out, room);
    if (larger == NULL) return false;
    w->out = larger;
    w->roomOut = room;
  }
  if (n > 0) memcpy(w->out + w->numOut, bytes, n);
  w->numOut += n;
  return true;
}

bool dyn_wire_send(struct dyn_wire *w, const struct dyn_hosts_message *message, const void *payload) {
  return w->fd >= 0 && keep(w, message, sizeof *message) && keep(w, payload, message->bytes) && dyn_wire_flush(w);
}

bool dyn_wire_flush(struct dyn_wire *w) {
  if (w->connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    struct sockaddr_storage peer;
    socklen_t peerSize = sizeof peer;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return false;
    if (getpeername(w->fd, (struct sockaddr *)&peer, &peerSize) != 0) return errno == ENOTCONN; /* not yet */
    w->connecting = false;
  }
  while (w->numOut > 0) {
    ssize_t n = send(w->fd, w->out, w->numOut, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    w->numOut -= (size_t)n;
    memmove(w->out, w->out + n, w->numOut);
  }
  return true;
}

/* False: nothing that this library sends. */
static bool is_sound(const struct dyn_hosts_message *m) {
  return m->version == DYN_HOSTS_VERSION && m->kind >= DYN_HOSTS_HELLO && m->kind < DYN_HOSTS_KINDS && m->bytes == dyn_hosts_bytes(m->kind);
}

/* 1: a message has been handed on; 0: there is no whole one. */
static int hand_on(struct dyn_wire *w, bool (*take)(void *, const struct dyn_hosts_message *, const void *), void *to) {
  struct dyn_hosts_message m;
  unsigned char payload[DYN_HOSTS_MOST_BYTES] __attribute__((aligned(64)));
  if (w->numIn < sizeof m) return 0;
  memcpy(&m, w->in, sizeof m);
  if (!is_sound(&m)) return -1;
  size_t whole = sizeof m + m.bytes;
  if (w->numIn < whole) return 0;
  memcpy(payload, w->in + sizeof m, m.bytes);
  w->numIn -= whole;
  memmove(w->in, w->in + whole, w->numIn);
  return take(to, &m, payload) ? 1 : -1;
}

bool dyn_wire_read(struct dyn_wire *w, bool (*take)(void *to, const struct dyn_hosts_message *message, const void *payload), void *to) {
  while (w->fd >= 0) {
    ssize_t n = recv(w->fd, w->in + w->numIn, sizeof w->in - w->numIn, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (n == 0) return false;
    w->numIn += (size_t)n;
    int handed;
    while ((handed = hand_on(w, take, to)) > 0) continue;
    if (handed < 0) return false;
  }
  return false;
}
