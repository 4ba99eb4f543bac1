/* SPDX-License-Identifier: Apache-2.0
 *
 * What connects the ranks, on machines that the test makes up: GPUs by a stand-in for NVML, NICs and open devices by a folder
 * that stands for the root of the file system, variables by the environment. Linked with transport*.c alone.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../preload/preload.h"
#include "../transport.h"
#include "support.h"

enum { NVLINK_CAP = 2, STATUS_OK = 0, NOT_SUPPORTED = 5, STATUS_UNKNOWN = 6, NVML_ERROR = 999 };

/* ---- GPUs ---- */

static struct {
  const char *libraries; /* that are loaded, between spaces */
  const char *missing;   /* a function of NVML */
  unsigned gpus;
  int status[3];         /* of every pair, by capability; NVML_ERROR: no answer */
  unsigned oddCap;       /* of one pair ... */
  int oddStatus;         /* ... this; 0: it is like the others */
  bool links, mig, noHandle;
} gpus;
static char handles[128];
static int held; /* libraries that were not released */

static int get_count(unsigned *count) { return *count = gpus.gpus, 0; }
static int get_handle(unsigned index, void **out) { return *out = &handles[index], gpus.noHandle && index == 1 ? NVML_ERROR : 0; }
static unsigned asked;
static int get_p2p(char *a, char *b, int cap, int *status) {
  asked++;
  long x = a - handles, y = b - handles;
  bool odd = gpus.oddStatus != 0 && x + y == 2 * (long)gpus.gpus - 3 && cap == (int)gpus.oddCap; /* the last two */
  *status = odd ? gpus.oddStatus : gpus.status[cap];
  return *status == NVML_ERROR ? NVML_ERROR : 0;
}
static int get_link(char *of, unsigned link, int *active) {
  *active = gpus.links && of == &handles[gpus.gpus - 1] && link == 17;
  return link < 18 ? 0 : NVML_ERROR;
}
static int get_mig(char *of, unsigned *current, unsigned *pending) { return *current = gpus.mig && of == &handles[1], *pending = 0, 0; }

static void *library(const char *name) {
  if (!strstr(gpus.libraries, name)) return NULL;
  held++;
  return &gpus;
}
static void release(void *it) { held -= it == &gpus; }
static void *symbol(void *it, const char *name) {
  static const struct { const char *name; void *function; } functions[] = {
      {"nvmlDeviceGetCount_v2", get_count}, {"nvmlDeviceGetHandleByIndex_v2", get_handle}, {"nvmlDeviceGetP2PStatus", get_p2p},
      {"nvmlDeviceGetNvLinkState", get_link}, {"nvmlDeviceGetMigMode", get_mig}};
  for (unsigned i = 0; it && i < sizeof functions / sizeof *functions; i++)
    if (strcmp(functions[i].name, name) == 0 && strcmp(name, gpus.missing) != 0) return functions[i].function;
  return NULL;
}

static char root[512];
static struct dyn_machine machine = {root, library, symbol, release, NULL};

#define NVML " libnvidia-ml.so.1 "
static void eight_gpus(void) {
  memset(&gpus, 0, sizeof gpus);
  gpus.libraries = NVML;
  gpus.missing = "";
  gpus.gpus = 8;
  gpus.links = true;
}

static void no_links(void) {
  eight_gpus();
  gpus.status[NVLINK_CAP] = NOT_SUPPORTED;
  gpus.links = false;
}

static void odd(unsigned cap, int status) { gpus.oddCap = cap, gpus.oddStatus = status; }

static void expect(const char *what, uint32_t nRanks, uint32_t nNodes, unsigned networks, uint32_t kind, uint32_t nics) {
  struct dyn_transport got = dyn_transport_find(&machine, nRanks, nNodes, networks);
  check(got.kind == kind && got.nics == nics, "%s: transport %u with %u NICs, not %u with %u", what, got.kind, got.nics, kind, nics);
  check(held == 0, "%s: %d libraries are held", what, held);
}
#define NODE(what, kind) expect(what, 8, 1, 0, DYN_TRANSPORT_##kind, 0)

static void one_node(void) {
  eight_gpus();
  NODE("NVLink everywhere", NVLINK);
  expect("of 8 GPUs 2", 2, 1, 0, DYN_TRANSPORT_NVLINK, 0);
  expect("one rank", 1, 1, 0, DYN_TRANSPORT_UNKNOWN, 0);
  expect("GPUs out of sight, or shared", 9, 1, 0, DYN_TRANSPORT_UNKNOWN, 0);
  check(!dyn_transport_apart(&machine), "NVLink everywhere");
  check(!dyn_transport_beyond(&machine, 8) && dyn_transport_beyond(&machine, 9), "ranks of other hosts");
  odd(NVLINK_CAP, NOT_SUPPORTED);
  NODE("a pair without", UNKNOWN);
  check(dyn_transport_apart(&machine), "a pair without NVLink");
  for (unsigned cap = 0; cap < 2; cap++) {
    odd(cap, NOT_SUPPORTED);
    NODE("a pair that may not read or write", UNKNOWN);
  }
  for (unsigned cap = 0; cap < 3; cap++) {
    odd(cap, NVML_ERROR);
    NODE("a pair that NVML says nothing about", UNKNOWN);
  }
  odd(NVLINK_CAP, STATUS_UNKNOWN);
  NODE("a pair that NVML does not know", UNKNOWN);
  check(!dyn_transport_apart(&machine), "a pair that NVML does not know");
  eight_gpus(), gpus.mig = true;
  NODE("a GPU in parts", UNKNOWN);
  eight_gpus(), gpus.missing = "nvmlDeviceGetMigMode";
  NODE("a driver without parts", NVLINK);
  static const char *const needed[] = {"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkState"};
  for (unsigned i = 0; i < 4; i++) {
    eight_gpus(), gpus.missing = needed[i];
    NODE("another NVML", UNKNOWN);
  }
  eight_gpus(), gpus.noHandle = true;
  NODE("a GPU that is lost", UNKNOWN);
  eight_gpus(), gpus.libraries = "";
  NODE("no NVML", UNKNOWN);
  check(!dyn_transport_apart(&machine), "no NVML");
  check(!dyn_transport_beyond(&machine, 9), "no NVML tells of none");
  eight_gpus(), gpus.libraries = NVML "libnccl-env.so";
  NODE("variables by a plugin", UNKNOWN);
  eight_gpus(), gpus.gpus = 65;
  NODE("more than there is room for", UNKNOWN);

  no_links();
  NODE("PCIe", PCIE);
  check(dyn_transport_apart(&machine), "PCIe");
  gpus.links = true;
  NODE("PCIe, and a link to who knows where", UNKNOWN);
  no_links(), odd(NVLINK_CAP, STATUS_UNKNOWN);
  NODE("PCIe, but for a pair that NVML does not know", UNKNOWN);
  no_links(), odd(NVLINK_CAP, NVML_ERROR);
  NODE("PCIe, but for a pair without an answer", UNKNOWN);

  static const char *const names[] = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA", "NCCL_TOPO_FILE",
                                      "NCCL_GRAPH_FILE", "NCCL_IGNORE_DISABLED_P2P", "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_ENV_PLUGIN"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    eight_gpus();
    setenv(names[i], "1", 1);
    NODE(names[i], UNKNOWN);
    unsetenv(names[i]);
  }
  setenv("NCCL_ENV_PLUGIN", "none", 1);
  setenv("NCCL_NET", "Socket", 1); /* no matter within a node */
  setenv("NCCL_P2P_LEVEL", "", 1);
  NODE("NVLink, with variables that change nothing", NVLINK);
  unsetenv("NCCL_ENV_PLUGIN"), unsetenv("NCCL_NET"), unsetenv("NCCL_P2P_LEVEL");
  printf("{\"transport\":\"one node\"}\n");
}

/* NVML is asked once a process, and not before it is there. */
static void asked_once(void) {
  _Atomic uint64_t links = 0;
  machine.links = &links;
  eight_gpus(), gpus.libraries = "";
  NODE("NVML is not there yet", UNKNOWN);
  gpus.libraries = NVML, gpus.missing = "nvmlDeviceGetCount_v2";
  NODE("NVML does not answer yet", UNKNOWN);
  gpus.missing = "";
  asked = 0;
  NODE("NVML is there", NVLINK);
  check(asked == 3 * 28, "%u questions for 28 pairs", asked);
  no_links(); /* nobody looks any more */
  NODE("again", NVLINK);
  expect("again, for more ranks than GPUs", 9, 1, 0, DYN_TRANSPORT_UNKNOWN, 0);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  NODE("again, with a variable", UNKNOWN);
  unsetenv("NCCL_P2P_DISABLE");
  check(asked == 3 * 28, "%u questions", asked);
  machine.links = NULL;
}

/* ---- networks ---- */

static void write_file(const char *name, const char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", root, name);
  for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  check(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

static void nic(const char *device, unsigned port, const char *state, const char *layer) {
  char name[256];
  snprintf(name, sizeof name, "sys/class/infiniband/%s/ports/%u/state", device, port);
  write_file(name, state);
  snprintf(name, sizeof name, "sys/class/infiniband/%s/ports/%u/link_layer", device, port);
  write_file(name, layer);
}

static void opens(const char *target) {
  char path[1024];
  write_file("proc/self/fd/0", "");
  snprintf(path, sizeof path, "%s/proc/self/fd/7", root);
  unlink(path);
  check(target == NULL || symlink(target, path) == 0, "%s", path);
}

#define NET(what, networks, kind, nics) expect(what, 4, 2, networks, DYN_TRANSPORT_##kind, nics)
#define VERBS "/dev/infiniband/uverbs0"

static void several_nodes(void) {
  eight_gpus(), gpus.libraries = "";
  NET("no /proc", DYN_NETWORK_ANY, UNKNOWN, 0);
  opens("socket:[4711]");
  NET("no device is open", DYN_NETWORK_ANY, SOCKET, 0);
  NET("no device is open, whatever configs name", 0, SOCKET, 0);
  opens(VERBS);
  NET("a device is open and there are none", DYN_NETWORK_ANY, UNKNOWN, 0);
  nic("mlx5_0", 1, "1: DOWN\n", "InfiniBand\n");
  nic("mlx5_1", 1, "5: ACTIVE_DEFER\n", "InfiniBand\n");
  nic("opa_0", 1, "4: ACTIVE\n", "Unspecified\n");
  NET("no port is active", DYN_NETWORK_ANY, UNKNOWN, 0);
  nic("mlx5_0", 2, "4: ACTIVE\n", "Ethernet\n");
  NET("RoCE", DYN_NETWORK_ANY, RDMA, 1);
  nic("mlx5_0", 1, "4: ACTIVE\n", "Ethernet\n");
  NET("two ports of one NIC", DYN_NETWORK_ANY, RDMA, 1);
  nic("mlx5_2", 1, "4: ACTIVE\n", "InfiniBand\n");
  NET("two NICs", DYN_NETWORK_ANY, RDMA, 2);
  opens("anon_inode:[infinibandevent]");
  NET("its events alone are seen", DYN_NETWORK_ANY, RDMA, 2);
  NET("configs that nobody has seen", 0, UNKNOWN, 0);
  NET("a config names another network", DYN_NETWORK_OTHER, UNKNOWN, 0);
  NET("configs that differ", DYN_NETWORK_ANY | DYN_NETWORK_SOCKET, UNKNOWN, 0);
  NET("configs name sockets", DYN_NETWORK_SOCKET, SOCKET, 0);
  NET("configs name IB", DYN_NETWORK_IB, RDMA, 2);
  opens("socket:[4711]");
  NET("none is open beside NICs that work", DYN_NETWORK_ANY, SOCKET, 0);
  NET("a name that cannot be", DYN_NETWORK_OTHER, SOCKET, 0);
  opens(VERBS);
  char proc[600], hidden[600];
  snprintf(proc, sizeof proc, "%s/proc", root), snprintf(hidden, sizeof hidden, "%s/hidden", root);
  check(rename(proc, hidden) == 0, "%s", proc);
  NET("no /proc beside NICs", DYN_NETWORK_ANY, UNKNOWN, 0);
  check(rename(hidden, proc) == 0, "%s", proc);

  static const struct { const char *name, *value; unsigned networks; uint32_t kind, nics; } variables[] = {
      {"NCCL_NET", "Socket", 0, DYN_TRANSPORT_SOCKET, 0},       {"NCCL_NET", "socket", DYN_NETWORK_IB, DYN_TRANSPORT_SOCKET, 0},
      {"NCCL_NET", "IB", 0, DYN_TRANSPORT_RDMA, 2},             {"NCCL_NET", "ib", DYN_NETWORK_SOCKET, DYN_TRANSPORT_RDMA, 2},
      {"NCCL_NET", "AWS Libfabric", DYN_NETWORK_ANY, DYN_TRANSPORT_UNKNOWN, 0},
      {"NCCL_IB_DISABLE", "1", DYN_NETWORK_ANY, DYN_TRANSPORT_SOCKET, 0}, {"NCCL_IB_DISABLE", "0", DYN_NETWORK_ANY, DYN_TRANSPORT_RDMA, 2},
      {"NCCL_IB_HCA", "mlx5_0", DYN_NETWORK_ANY, DYN_TRANSPORT_UNKNOWN, 0}, {"NCCL_NET_PLUGIN", "other", DYN_NETWORK_ANY, DYN_TRANSPORT_UNKNOWN, 0},
      {"NCCL_NET_PLUGIN", "none", DYN_NETWORK_ANY, DYN_TRANSPORT_RDMA, 2}, {"NCCL_NET_PLUGIN", "", DYN_NETWORK_ANY, DYN_TRANSPORT_RDMA, 2},
      {"NCCL_NET_PLUGIN", "dynamiccl-carrier", DYN_NETWORK_SOCKET, DYN_TRANSPORT_SOCKET, 0},
      {"NCCL_ENV_PLUGIN", "other", DYN_NETWORK_SOCKET, DYN_TRANSPORT_UNKNOWN, 0}, {"NCCL_P2P_DISABLE", "1", DYN_NETWORK_ANY, DYN_TRANSPORT_RDMA, 2}};
  for (unsigned i = 0; i < sizeof variables / sizeof *variables; i++) {
    setenv(variables[i].name, variables[i].value, 1);
    expect(variables[i].name, 4, 2, variables[i].networks, variables[i].kind, variables[i].nics);
    unsetenv(variables[i].name);
  }
  gpus.libraries = " libnccl-net.so ";
  NET("a network of others is loaded", DYN_NETWORK_ANY, UNKNOWN, 0);
  opens("socket:[4711]");
  NET("likewise, and no device is open", DYN_NETWORK_ANY, UNKNOWN, 0);
  setenv("NCCL_IB_DISABLE", "1", 1);
  NET("likewise, without IB", DYN_NETWORK_ANY, UNKNOWN, 0);
  setenv("NCCL_NET", "Socket", 1);
  NET("likewise, which NCCL is told not to take", 0, SOCKET, 0);
  setenv("NCCL_NET", "IB", 1);
  setenv("NCCL_IB_HCA", "mlx5_0", 1);
  NET("IB by a part of the NICs", 0, RDMA, 0);
  printf("{\"transport\":\"several nodes\"}\n");
}

/* The real one: a library that is loaded, and one that is not. */
static void this_machine(void) {
  check(dyn_machine_plugin(&dyn_this_machine, "NO_SUCH_VARIABLE", "libc.so.6") &&
            !dyn_machine_plugin(&dyn_this_machine, "NO_SUCH_VARIABLE", "libnccl-net.so"), "libraries of this process");
}

int main(void) {
  const char *shared = getenv("TEST_DIR");
  snprintf(root, sizeof root, "%s/root-XXXXXX", shared ? shared : "/tmp");
  check(mkdtemp(root), "%s", root);
  this_machine();
  one_node();
  asked_once();
  several_nodes();
  char command[600];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  check(system(command) == 0, "%s", command);
  return 0;
}
