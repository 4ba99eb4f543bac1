/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors of ours, for as long as they are. A program that closes all that it does not know closes them, too, and then their numbers are
 * those of files that it opens: what is there must not be read, written or closed. A socket is known by its inode, which no other has.
 */
#ifndef DYN_HOSTS_OWN_H
#define DYN_HOSTS_OWN_H

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct dyn_file {
  dev_t device;
  ino_t inode;
};

static inline struct dyn_file dyn_file_of(int fd) {
  struct stat s;
  return fstat(fd, &s) == 0 ? (struct dyn_file){s.st_dev, s.st_ino} : (struct dyn_file){0};
}
static inline bool dyn_is_file(int fd, const struct dyn_file *file) {
  struct dyn_file is = fd < 0 ? (struct dyn_file){0} : dyn_file_of(fd);
  return is.inode != 0 && is.inode == file->inode && is.device == file->device;
}
static inline void dyn_close_file(int fd, const struct dyn_file *file) {
  if (dyn_is_file(fd, file)) close(fd);
}

/* What wakes a thread that polls: two ends of a connection, so that it is woken by who closes them, too. */
struct dyn_bell {
  int ends[2]; /* the first is polled; -1: none */
  struct dyn_file files[2];
};
#define DYN_BELL_NONE {{-1, -1}, {{0}}}

static inline bool dyn_bell_is(const struct dyn_bell *b) { return dyn_is_file(b->ends[0], &b->files[0]) && dyn_is_file(b->ends[1], &b->files[1]); }

static inline bool dyn_bell_make(struct dyn_bell *b) {
  if (dyn_bell_is(b)) return true;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, b->ends) != 0) return b->ends[0] = b->ends[1] = -1, false;
  for (int i = 0; i < 2; i++) b->files[i] = dyn_file_of(b->ends[i]);
  return true;
}
static inline void dyn_bell_ring(const struct dyn_bell *b) {
  if (dyn_bell_is(b)) (void)!send(b->ends[1], "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* or it is ringing */
}
/* False: it is there no more. */
static inline bool dyn_bell_hear(const struct dyn_bell *b) {
  char rings[64];
  ssize_t n = dyn_bell_is(b) ? recv(b->ends[0], rings, sizeof rings, MSG_DONTWAIT) : 0;
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}
static inline void dyn_bell_close(struct dyn_bell *b) {
  for (int i = 0; i < 2; i++) {
    dyn_close_file(b->ends[i], &b->files[i]);
    b->ends[i] = -1;
  }
}

#endif
