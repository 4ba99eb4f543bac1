/* SPDX-License-Identifier: Apache-2.0 */
#include "ids.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "message.h"

#define HANDLE_BYTES 48 /* what NCCL may have in it: 40 at most up to 2.32 */
#define MARK_AT 96
#define MARK UINT64_C(0x3154534f484e5944) /* "DYNHOST1" */

struct mark {
  uint64_t mark, nonce;
  uint16_t port, version;
  uint32_t reserved0;
  uint64_t reserved1;
};
_Static_assert(MARK_AT + sizeof(struct mark) == DYN_ID_BYTES, "the last bytes");

static bool address_of(const unsigned char *id, struct dyn_root *root) {
  memset(root, 0, sizeof *root);
  memcpy(&root->at, id + 8, sizeof root->at);
  if (root->at.any.sa_family == AF_INET) root->at.in.sin_port = 0;
  else if (root->at.any.sa_family == AF_INET6) root->at.in6.sin6_port = 0;
  else return false;
  return true;
}

bool dyn_id_address(const unsigned char id[DYN_ID_BYTES], struct dyn_root *root) {
  for (int i = HANDLE_BYTES; i < DYN_ID_BYTES; i++)
    if (id[i] != 0) return false;
  return address_of(id, root);
}

void dyn_id_mark(unsigned char id[DYN_ID_BYTES], const struct dyn_root *listens) {
  uint16_t port = listens->at.any.sa_family == AF_INET ? listens->at.in.sin_port : listens->at.in6.sin6_port; /* in network order, as it stays */
  struct mark mark = {.mark = MARK, .nonce = listens->nonce, .port = port, .version = DYN_HOSTS_VERSION};
  memcpy(id + MARK_AT, &mark, sizeof mark);
}

bool dyn_id_read(const unsigned char id[DYN_ID_BYTES], struct dyn_root *root) {
  struct mark mark;
  memcpy(&mark, id + MARK_AT, sizeof mark);
  if (mark.mark != MARK || mark.version != DYN_HOSTS_VERSION || mark.nonce == 0 || !address_of(id, root)) return false;
  root->nonce = mark.nonce;
  if (root->at.any.sa_family == AF_INET) root->at.in.sin_port = mark.port;
  else root->at.in6.sin6_port = mark.port;
  return true;
}

bool dyn_root_same_host(const struct dyn_root *a, const struct dyn_root *b) {
  return a->at.any.sa_family == b->at.any.sa_family && (a->at.any.sa_family == AF_INET ? memcmp(&a->at.in.sin_addr, &b->at.in.sin_addr, sizeof a->at.in.sin_addr) == 0
                                                                                       : memcmp(&a->at.in6.sin6_addr, &b->at.in6.sin6_addr, sizeof a->at.in6.sin6_addr) == 0);
}

static uint64_t new_nonce(void) { /* getrandom came with glibc 2.25 */
  uint64_t nonce = 0;
  int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, &nonce, sizeof nonce) != sizeof nonce) nonce = 0;
  if (fd >= 0) close(fd);
  return nonce;
}

int dyn_root_listen(const struct dyn_root *at, struct dyn_root *made) {
  *made = *at;
  socklen_t size = dyn_root_bytes(made);
  int fd = socket(made->at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  bool done = fd >= 0 && (made->nonce = new_nonce()) != 0 &&
              bind(fd, &made->at.any, size) == 0 && listen(fd, SOMAXCONN) == 0 && getsockname(fd, &made->at.any, &size) == 0;
  if (done || fd < 0) return fd;
  close(fd);
  return -1;
}
