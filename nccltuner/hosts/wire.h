/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of a TCP connection that carries messages. Nothing waits: what cannot be sent at once is kept and goes with flush.
 */
#ifndef DYN_HOSTS_WIRE_H
#define DYN_HOSTS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "message.h"
#include "own.h"

struct dyn_wire {
  int fd;          /* -1: none */
  struct dyn_file file; /* that it is */
  bool connecting;
  size_t numIn, numOut, roomOut;
  unsigned char *out; /* kept */
  unsigned char in[sizeof(struct dyn_hosts_message) + DYN_HOSTS_MOST_BYTES];
};

#define DYN_WIRE_NONE (struct dyn_wire){.fd = -1}

bool dyn_wire_connect(struct dyn_wire *w, const struct sockaddr *to, socklen_t bytes);
void dyn_wire_adopt(struct dyn_wire *w, int fd); /* an accepted one, which does not block */
void dyn_wire_close(struct dyn_wire *w);
/* What follows is false once the connection is of no use; it is to be closed then. */
bool dyn_wire_send(struct dyn_wire *w, const struct dyn_hosts_message *message, const void *payload);
bool dyn_wire_flush(struct dyn_wire *w);
static inline bool dyn_wire_waits(const struct dyn_wire *w) { return w->connecting || w->numOut > 0; } /* for room to send */
/* Hands on each whole message that is there. */
bool dyn_wire_read(struct dyn_wire *w, bool (*take)(void *to, const struct dyn_hosts_message *message, const void *payload), void *to);

#endif
