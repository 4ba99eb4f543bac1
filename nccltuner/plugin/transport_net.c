/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets or RDMA, between nodes. NCCL takes the first network that has a device of those that the communicator's netName does
 * not exclude: plugins of others, its own IB, its own Socket (ncclNetInit, src/plugin/net.cc); NCCL_NET is netName for all
 * (envConfigOverride, src/init.cc). No interface tells a tuner which it was. By the time a tuner is made that is settled, and
 * IB keeps its devices open while it is used (ncclIbInitDevices, src/transport/net_ib.cc): so a process that has none open is
 * not on IB. One that has may have opened them for something else, so more is asked for there.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "../preload/preload.h"
#include "nccl_env.h"
#include "transport.h"

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

/* Calls seen with each name below root/directory, hidden ones left out, until it says true: 1. -1: the directory cannot be read. */
static int any_in(const char *root, const char *directory, bool (*seen)(const char *path, void *context), void *context) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s%s", root, directory);
  DIR *dir = opendir(path);
  if (!dir) return -1;
  int found = 0;
  for (struct dirent *entry; !found && (entry = readdir(dir));) {
    char name[PATH_MAX + 512];
    if (entry->d_name[0] == '.') continue;
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    found = seen(name, context);
  }
  closedir(dir);
  return found;
}

static bool is_verbs(const char *path, void *context) {
  char target[PATH_MAX];
  ssize_t n = readlink(path, target, sizeof target - 1);
  (void)context;
  if (n < 0) return false;
  target[n] = '\0';
  return strstr(target, "infiniband/uverbs") || strstr(target, "[infinibandevent]") != NULL;
}

static bool reads(const char *path, const char *file, const char *wanted) {
  char name[PATH_MAX + 640], text[64] = "";
  snprintf(name, sizeof name, "%s/%s", path, file);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  return n > 0 && strstr(text, wanted);
}

/* As NCCL looks at ports: active, and of a link layer that it knows. */
static bool is_active(const char *port, void *context) {
  (void)context;
  return reads(port, "state", "4: ACTIVE") && (reads(port, "link_layer", "InfiniBand") || reads(port, "link_layer", "Ethernet"));
}

static bool count_active(const char *device, void *context) {
  uint32_t *nics = context;
  *nics += any_in(device, "/ports", is_active, NULL) == 1;
  return false;
}

/* Those that NCCL takes by itself. */
static uint32_t active_nics(const struct dyn_machine *machine) {
  uint32_t nics = 0;
  if (is_set("NCCL_IB_HCA")) return 0; /* a part of them */
  any_in(machine->root, "/sys/class/infiniband", count_active, &nics);
  return nics;
}

struct dyn_transport dyn_transport_net(const struct dyn_machine *machine, unsigned networks) {
  static const struct dyn_transport unknown = {DYN_TRANSPORT_UNKNOWN, 0}, sockets = {DYN_TRANSPORT_SOCKET, 0};
  const char *name = getenv("NCCL_NET");
  if (!name && networks == DYN_NETWORK_SOCKET) name = "Socket";
  if (!name && networks == DYN_NETWORK_IB) name = "IB";
  /* A network of that name, or no communicator. */
  if (name && strcasecmp(name, "Socket") == 0) return sockets;
  if (name && strcasecmp(name, "IB") == 0) return (struct dyn_transport){DYN_TRANSPORT_RDMA, active_nics(machine)};
  if (name || dyn_machine_plugin(machine, "NCCL_NET_PLUGIN", "libnccl-net.so")) return unknown;
  if (nccl_is_on("NCCL_IB_DISABLE")) return sockets;
  int open = any_in(machine->root, "/proc/self/fd", is_verbs, NULL);
  if (open == 0) return sockets;
  /* NCCL was free to take IB and, as devices open and ports are active, has found one. */
  uint32_t nics = active_nics(machine);
  return open > 0 && networks == DYN_NETWORK_ANY && nics > 0 ? (struct dyn_transport){DYN_TRANSPORT_RDMA, nics} : unknown;
}
