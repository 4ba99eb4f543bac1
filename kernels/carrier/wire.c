/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fault.h"
#include "say.h"

static const char magic[16] = "dynccl-carrier1";
static _Thread_local char why[128];

const char *wire_why(void) { return why; }

int wire_wait_s(void) {
  const char *text = getenv("DYNAMICCL_CARRIER_SETUP_S");
  int seconds = text == NULL ? 0 : atoi(text);
  return seconds >= 1 && seconds <= 3600 ? seconds : 60;
}

uint64_t wire_deadline(void) { return carrier_now_ns() + (uint64_t)wire_wait_s() * 1000000000u; }

bool wire_random(void *bytes, size_t count) { return getrandom(bytes, count, 0) == (ssize_t)count; }

static void read_boot(char boot[40]) {
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  memset(boot, 0, 40);
  if (file == NULL) return;
  if (fgets(boot, 40, file) == NULL) boot[0] = '\0';
  fclose(file);
}

static socklen_t address_of(const struct wire_handle *handle, struct sockaddr_un *address) {
  size_t length = strnlen(handle->name, sizeof handle->name);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(address->sun_path + 1, handle->name, length);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int make_socket(void) { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int wire_listen(struct wire_handle *handle) {
  struct sockaddr_un address;
  uint8_t key[16];
  memset(handle, 0, sizeof *handle);
  memcpy(handle->magic, magic, sizeof magic);
  read_boot(handle->boot);
  int used = snprintf(handle->name, sizeof handle->name, "dynamiccl-carrier-"), fd = make_socket();
  if (wire_random(key, sizeof key))
    for (size_t i = 0; i < sizeof key; i++) used += snprintf(handle->name + used, sizeof handle->name - (size_t)used, "%02x", key[i]);
  socklen_t length = address_of(handle, &address);
  if (fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 1024) == 0) return fd;
  carrier_warn("no socket to listen on: %s", strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

/* False: the time is over. */
static bool wait_for(int fd, short events, uint64_t deadline) {
  for (;;) {
    struct pollfd one = {.fd = fd, .events = events};
    uint64_t now = carrier_now_ns();
    int ms = now >= deadline ? 0 : (int)((deadline - now) / 1000000 + 1);
    int ready = poll(&one, 1, ms);
    if (ready > 0) return true;
    if (ready == 0 && carrier_now_ns() >= deadline) {
      snprintf(why, sizeof why, "nothing within %d s", wire_wait_s());
      return false;
    }
    if (ready < 0 && errno != EINTR) return false;
  }
}

static bool is_ours(int connection, struct ucred *who) {
  socklen_t length = sizeof *who;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, who, &length) == 0 && who->uid == geteuid();
}

pid_t wire_pid(int connection) {
  struct ucred who;
  return is_ours(connection, &who) ? who.pid : 0;
}

int wire_connect(const struct wire_handle *handle, int peer, uint64_t deadline) {
  struct sockaddr_un address;
  struct wire_handle own;
  struct ucred who;
  read_boot(own.boot);
  if (memcmp(handle->magic, magic, sizeof magic) != 0) {
    carrier_warn("rank %d gave no handle of this carrier: it must have the same library", peer);
    return -1;
  }
  if (memcmp(handle->boot, own.boot, sizeof own.boot) != 0) {
    carrier_warn("rank %d is on another host, and the carrier carries within one", peer);
    return -1;
  }
  socklen_t length = address_of(handle, &address);
  for (;;) {
    int fd = make_socket();
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0) {
      if (is_ours(fd, &who)) return fd;
      carrier_warn("rank %d is another user's process", peer);
      close(fd);
      return -1;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    if (error != EAGAIN && error != EINTR) {
      carrier_warn("no connection to rank %d: %s (its process ended, or it has another network namespace)", peer, strerror(error));
      return -1;
    }
    if (carrier_now_ns() >= deadline) { /* EAGAIN: its queue is full */
      carrier_warn("rank %d took no connection for %d s", peer, wire_wait_s());
      return -1;
    }
    usleep(1000);
  }
}

int wire_accept(int listener, uint64_t deadline) {
  struct ucred who;
  while (wait_for(listener, POLLIN, deadline)) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    if (is_ours(fd, &who)) return fd;
    close(fd);
  }
  return -1;
}

union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool wire_send(int connection, const void *packet, size_t bytes, int fd, uint64_t deadline) {
  struct iovec data = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  union control control;
  if (fd >= 0) {
    memset(&control, 0, sizeof control);
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  for (;;) {
    ssize_t sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    if (sent == (ssize_t)bytes) return true;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      if (!wait_for(connection, POLLOUT, deadline)) return false;
      continue;
    }
    snprintf(why, sizeof why, "%s", sent < 0 && errno != EPIPE ? strerror(errno) : "it closed the connection");
    return false;
  }
}

static int descriptor_in(struct msghdr *message) {
  struct cmsghdr *header = CMSG_FIRSTHDR(message);
  int fd = -1;
  if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof fd))
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

bool wire_receive(int connection, void *packet, size_t bytes, int *fd, uint64_t deadline) {
  for (;;) {
    union control control;
    struct iovec data = {.iov_base = packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      if (!wait_for(connection, POLLIN, deadline)) return false;
      continue;
    }
    int came = got < 0 ? -1 : descriptor_in(&message);
    bool whole = got == (ssize_t)bytes && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    if (whole && fd != NULL) *fd = came;
    else if (came >= 0) close(came);
    if (whole) return true;
    snprintf(why, sizeof why, "%s", got == 0 ? "it closed the connection" : got < 0 ? strerror(errno) : "a packet of another kind");
    return false;
  }
}
