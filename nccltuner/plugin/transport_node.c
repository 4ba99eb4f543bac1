/* SPDX-License-Identifier: Apache-2.0
 *
 * NVLink or not, of one node. The tuner's nvlDomainInfo does not say it: up to 2.30.7 its domains are NCCL's nodes, whatever
 * connects their GPUs (initNvlDomainInfo, src/init.cc). NVML does, and NCCL has loaded and initialised it by then and asked it
 * the same of every pair (src/misc/nvmlwrap.cc). Which of the GPUs the ranks have need not be known where all pairs are alike.
 */
#include <stdlib.h>

#include "transport.h"

#define MOST_GPUS 64
#define MOST_LINKS 18 /* NVML_NVLINK_MAX_LINKS */

/* nvml.h: nvmlReturn_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t, nvmlEnableState_t */
enum { SUCCESS = 0, READ = 0, WRITE = 1, NVLINK = 2, STATUS_OK = 0, STATUS_UNKNOWN = 6, ENABLED = 1 };
typedef struct nvmlDevice_st *device;

struct nvml {
  int (*count)(unsigned *count);
  int (*handle)(unsigned index, device *out);
  int (*p2p)(device a, device b, int cap, int *status);
  int (*link)(device of, unsigned link, int *active);
  int (*mig)(device of, unsigned *current, unsigned *pending); /* NULL: an old driver, which has none */
};

/* ISO C has no conversion between object and function pointers; POSIX defines this one. */
static bool find(const struct dyn_machine *machine, void *library, struct nvml *nvml) {
  *(void **)&nvml->count = machine->symbol(library, "nvmlDeviceGetCount_v2");
  *(void **)&nvml->handle = machine->symbol(library, "nvmlDeviceGetHandleByIndex_v2");
  *(void **)&nvml->p2p = machine->symbol(library, "nvmlDeviceGetP2PStatus");
  *(void **)&nvml->link = machine->symbol(library, "nvmlDeviceGetNvLinkState");
  *(void **)&nvml->mig = machine->symbol(library, "nvmlDeviceGetMigMode");
  return nvml->count && nvml->handle && nvml->p2p && nvml->link;
}

/* A link that is up where no pair has NVLink leads somewhere that we do not know of. */
static bool has_link(const struct nvml *nvml, device of) {
  int active;
  for (unsigned i = 0; i < MOST_LINKS; i++)
    if (nvml->link(of, i, &active) == SUCCESS && active == ENABLED) return true;
  return false;
}

/* Parts of a GPU reach nobody else's by NVLink. */
static bool split(const struct nvml *nvml, device of) {
  unsigned current = 0, pending;
  return nvml->mig && nvml->mig(of, &current, &pending) == SUCCESS && current == ENABLED;
}

#define APART UINT32_C(256) /* beside a kind: a pair is known to have no NVLink */

/* Of all pairs of these n. */
static uint32_t of_pairs(const struct nvml *nvml, unsigned n) {
  device gpus[MOST_GPUS];
  unsigned joined = 0, apart = 0;
  bool links = false;
  if (n > MOST_GPUS) return DYN_TRANSPORT_UNKNOWN;
  for (unsigned i = 0; i < n; i++) {
    if (nvml->handle(i, &gpus[i]) != SUCCESS || split(nvml, gpus[i])) return DYN_TRANSPORT_UNKNOWN;
    links = links || has_link(nvml, gpus[i]);
  }
  for (unsigned i = 0; i < n; i++) {
    for (unsigned j = 0; j < i; j++) {
      int read, write, link;
      if (nvml->p2p(gpus[i], gpus[j], NVLINK, &link) != SUCCESS || nvml->p2p(gpus[i], gpus[j], READ, &read) != SUCCESS ||
          nvml->p2p(gpus[i], gpus[j], WRITE, &write) != SUCCESS)
        return DYN_TRANSPORT_UNKNOWN;
      joined += link == STATUS_OK && read == STATUS_OK && write == STATUS_OK; /* NCCL leaves NVLink alone where it may not read or write */
      apart += link != STATUS_OK && link != STATUS_UNKNOWN;
    }
  }
  unsigned pairs = n * (n - 1) / 2;
  if (joined == pairs) return DYN_TRANSPORT_NVLINK;
  return (apart == pairs && !links ? DYN_TRANSPORT_PCIE : DYN_TRANSPORT_UNKNOWN) | (apart > 0 ? APART : 0);
}

/* With one of these NCCL may go another way than the machine's. */
static bool told_otherwise(void) {
  static const char *const names[] = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET_DISABLE_INTRA", "NCCL_TOPO_FILE",
                                      "NCCL_GRAPH_FILE", "NCCL_IGNORE_DISABLED_P2P", "NCCL_MULTI_RANK_GPU_ENABLE"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value && *value) return true;
  }
  return false;
}

/* GPUs in sight << 32 | kind, perhaps with APART; 0: NVML is not there, or does not answer. */
static uint64_t ask(const struct dyn_machine *machine) {
  struct nvml nvml;
  unsigned n = 0;
  void *library = machine->library("libnvidia-ml.so.1");
  if (!library) return 0;
  bool answers = find(machine, library, &nvml) && nvml.count(&n) == SUCCESS;
  uint32_t kind = answers ? of_pairs(&nvml, n) : DYN_TRANSPORT_UNKNOWN;
  machine->release(library);
  return answers ? (uint64_t)n << 32 | kind : 0;
}

static uint64_t ask_once(const struct dyn_machine *machine) {
  uint64_t links = machine->links ? *machine->links : 0;
  if (links == 0) links = ask(machine);
  if (machine->links) *machine->links = links;
  return links;
}

bool dyn_transport_apart(const struct dyn_machine *machine) { return (ask_once(machine) & APART) != 0; }

bool dyn_transport_beyond(const struct dyn_machine *machine, uint32_t nRanks) {
  uint64_t gpus = ask_once(machine) >> 32;
  return gpus > 0 && gpus < nRanks;
}

uint32_t dyn_transport_node(const struct dyn_machine *machine, uint32_t nRanks) {
  if (told_otherwise()) return DYN_TRANSPORT_UNKNOWN;
  uint64_t links = ask_once(machine);
  return links >> 32 < nRanks ? DYN_TRANSPORT_UNKNOWN : (uint32_t)links & ~APART; /* else some GPU is out of sight, or shared */
}
